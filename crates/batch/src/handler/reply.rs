//! The reply for POST: an answer parsed by its schema, or an error.

use longshore_ai::{Answer, AskError, Code, Cost, FinishReason, Retryability};

use super::compiled_batch::AiStep;
use crate::checkpoint::StoredError;
use crate::pre_post::{ReplyError, RowReply};

/// PRE could not make a prompt.
pub(super) const PRE_ERROR: &str = "PRE_ERROR";
/// The prompt is longer than `ai.max_prompt`.
pub(super) const PROMPT_TOO_LONG: &str = "PROMPT_TOO_LONG";
/// The answer does not follow the schema.
pub(super) const BAD_ANSWER: &str = "BAD_ANSWER";
/// The worker died or was stopped, perhaps with a call in flight.
pub(super) const LOST: &str = "LOST";

/// A reply with only an error.
pub(super) fn error_reply(error: ReplyError) -> RowReply {
    RowReply { answer: None, json: None, error: Some(error), cost: Cost::default() }
}

/// An error for which a retry would not help, or would pay again.
pub(super) fn final_error(code: &str, message: impl Into<String>) -> ReplyError {
    ReplyError { code: code.to_owned(), message: message.into(), retryable: false, retry_after: None }
}

/// No answer in time. Not retryable: the call may have been billed.
pub(super) fn timeout_error(message: impl Into<String>) -> ReplyError {
    final_error(Code::Timeout.as_str(), message)
}

/// The worker died and the call may have been billed.
pub(super) fn lost_error() -> ReplyError {
    final_error(LOST, "maybe billed: the worker died, perhaps with a call in flight")
}

impl From<AskError> for ReplyError {
    fn from(error: AskError) -> Self {
        Self {
            code: error.code.as_str().to_owned(),
            message: error.message,
            // `NotSent`: the ledger failed before the call, so nothing was sent.
            retryable: error.code.is_retryable() || error.retry == Retryability::NotSent,
            retry_after: error.retry_after,
        }
    }
}

impl From<StoredError> for ReplyError {
    fn from(error: StoredError) -> Self {
        let StoredError { code, message, retryable, retry_after } = error;
        Self { retryable, retry_after, ..final_error(&code, message) }
    }
}

impl AiStep {
    /// The answer as POST sees it. Deterministic.
    pub(super) fn read(&self, answer: Answer, cost: Cost) -> RowReply {
        let (json, error) = match &self.schema {
            // Without a schema any text is accepted, JSON or not.
            None => (serde_json::from_str(&answer.text).ok(), None),
            Some(schema) => match schema.read(&answer.text) {
                Ok(json) => (Some(json), None),
                Err(why) => (None, Some(self.bad_answer_error(&answer, &why))),
            },
        };
        RowReply { answer: Some(answer), json, error, cost }
    }

    fn bad_answer_error(&self, answer: &Answer, why: &str) -> ReplyError {
        let max_tokens = self.ai.max_tokens;
        let message = match answer.finish_reason {
            FinishReason::Length => {
                format!("the answer was truncated: max_tokens ({max_tokens}) is too small: {why}")
            }
            _ => why.to_owned(),
        };
        final_error(BAD_ANSWER, message)
    }
}
