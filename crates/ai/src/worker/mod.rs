//! Requests from a queue: parsed, asked, answered.
//!
//! [`RequestHandler`] runs units of the kind [`KIND`]; their payload is a
//! [`crate::contract::Request`]. The reply is the unit's result, and is also sent to the request's
//! reply queue if it names one. [`RequestClient`] is the client's side.

mod client;
mod handler;
mod inbox;
mod partial_replies;
mod queue_provider;
mod reply_checkpoint;
mod reply_queue;

pub use self::client::RequestClient;
pub use self::handler::RequestHandler;
pub use self::inbox::{Inbox, MAX_REPLIES, QueuedReply, REPLY_QUEUE_TTL};
pub use self::queue_provider::QueuedProvider;

/// The kind of request units.
pub const KIND: &str = "ai";
/// The default queue of requests, shared by all tenants.
pub const QUEUE: &str = "ai";
/// The kind of reply units, in reply queues.
pub const REPLY_KIND: &str = "ai-reply";
