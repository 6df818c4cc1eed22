//! Contract V1: requests and replies as JSON, for clients in any language.
//!
//! Owns the format of the messages and their validation. Knows neither queues nor providers.
//! `docs/ai-contract.md` documents the same for authors of clients, and the schemas in `contract/`
//! for programs; tests compare all three.

mod fields;
mod ibmi_libraries;
mod metadata;
mod parse;
mod partial_parse;
mod reply;
mod request;
mod serialize;
mod version;

pub use ibmi_libraries::Libraries;
pub use metadata::Metadata;
pub use partial_parse::{PartialRequest, parse_partial};
pub use reply::{Reply, ReplyBody, ReplyFailure, ReplyHeader, Success};
pub use request::{Delivery, Prompt, ReplyTo, Request};
pub use version::Version;

use crate::model_api::{AskError, Code};

/// The JSON Schema of requests.
pub const REQUEST_SCHEMA: &str = include_str!("../../contract/request-v1.schema.json");

/// The JSON Schema of replies.
pub const REPLY_SCHEMA: &str = include_str!("../../contract/reply-v1.schema.json");

/// A message that violates the contract: the field, and what it should be. Repeats only names, so
/// it is safe to log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ContractError(pub String);

impl From<ContractError> for AskError {
    fn from(error: ContractError) -> Self {
        Self::new(Code::InvalidRequest, error.0)
    }
}
