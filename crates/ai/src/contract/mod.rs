//! Contract V1: requests and replies as JSON, for callers in any language.
//!
//! Owns what the messages look like and which are refused, and why. Knows neither queues nor
//! providers. `docs/ai-contract.md` is the same for whoever writes a caller, and the schemas in
//! `contract/` are the same for programs; tests hold all three together.

mod fields;
mod libraries;
mod metadata;
mod peek;
mod reply;
mod reply_wire;
mod request;
mod request_read;
mod version;

pub use libraries::Libraries;
pub use metadata::Metadata;
pub use peek::{Peeked, peek};
pub use reply::{Failure, Heading, Reply, Said, Success};
pub use request::{Delivery, Prompt, ReplyTo, Request};
pub use version::Version;

use crate::ask::{AskError, Code};

/// The JSON Schema of requests.
pub const REQUEST_SCHEMA: &str = include_str!("../../contract/request-v1.schema.json");

/// The JSON Schema of replies.
pub const REPLY_SCHEMA: &str = include_str!("../../contract/reply-v1.schema.json");

/// A message that does not keep to the contract: where, and what it should be. Repeats nothing of
/// what was sent but names, so it is safe to log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub String);

impl From<Malformed> for AskError {
    fn from(error: Malformed) -> Self {
        Self::new(Code::InvalidRequest, error.0)
    }
}
