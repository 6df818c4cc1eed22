//! Requests from a queue: read, asked at the desk, answered.
//!
//! [`RequestHandler`] runs units of the kind [`KIND`], whose payload is a [`crate::contract::Request`]. Its reply is the
//! unit's result, and goes to the request's reply queue if it names one. [`Caller`] is the other side.

mod address;
mod caller;
mod handler;
mod inbox;
mod kept;
mod parts;
mod queued;

pub use self::caller::Caller;
pub use self::handler::RequestHandler;
pub use self::inbox::Inbox;
pub use self::queued::QueuedProvider;

/// The kind of units that are requests.
pub const KIND: &str = "ai";
/// The queue that requests wait in, shared by all tenants, unless another is named.
pub const QUEUE: &str = "ai";
/// The kind of units that are replies, in reply queues.
pub const REPLY_KIND: &str = "ai-reply";
