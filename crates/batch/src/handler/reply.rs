//! What POST is told: an answer read by its schema, or what went wrong.

use longshore_ai::{Again, Answer, AskError, Code, Cost, FinishReason};

use super::job::Job;
use crate::checkpoint::KeptError;
use crate::step::{Reply, ReplyError};

/// PRE could not make a prompt.
pub(super) const PRE_ERROR: &str = "PRE_ERROR";
/// The answer does not follow the schema.
pub(super) const BAD_ANSWER: &str = "BAD_ANSWER";
/// The worker died, or was stopped, while the question may have been out.
pub(super) const LOST: &str = "LOST";

/// A reply with nothing but an error.
pub(super) fn unanswered(error: ReplyError) -> Reply {
    Reply { answer: None, json: None, error: Some(error), cost: Cost::default() }
}

/// An error that asking again would not mend, or not without paying again.
pub(super) fn final_error(code: &str, message: impl Into<String>) -> ReplyError {
    ReplyError {
        code: code.to_owned(),
        message: message.into(),
        retryable: false,
        retry_after: None,
    }
}

/// No answer in time. Not to be retried: it may have been billed.
pub(super) fn timeout(message: impl Into<String>) -> ReplyError {
    final_error(Code::Timeout.as_str(), message)
}

/// The row was given up because its question may have been billed.
pub(super) fn lost() -> ReplyError {
    final_error(LOST, "its worker died while the question may have been out: maybe billed")
}

impl From<AskError> for ReplyError {
    fn from(error: AskError) -> Self {
        Self {
            code: error.code.as_str().to_owned(),
            message: error.message,
            // Whoever kept the books away kept the question back.
            retryable: error.code.is_retryable() || error.again == Again::NotSent,
            retry_after: error.retry_after,
        }
    }
}

impl From<KeptError> for ReplyError {
    fn from(error: KeptError) -> Self {
        let KeptError { code, message, retryable } = error;
        Self { retryable, ..final_error(&code, message) }
    }
}

impl Job {
    /// An answer as POST sees it. The same answer always reads the same.
    pub(super) fn read(&self, answer: Answer, cost: Cost) -> Reply {
        let (json, error) = match &self.schema {
            // Without a schema any text will do, JSON or not.
            None => (serde_json::from_str(&answer.text).ok(), None),
            Some(schema) => match schema.read(&answer.text) {
                Ok(json) => (Some(json), None),
                Err(why) => (None, Some(self.bad(&answer, &why))),
            },
        };
        Reply { answer: Some(answer), json, error, cost }
    }

    fn bad(&self, answer: &Answer, why: &str) -> ReplyError {
        let most = self.definition.ai.max_tokens;
        let message = match answer.finish_reason {
            FinishReason::Length => {
                format!("the answer was cut: max_tokens ({most}) was too small for it: {why}")
            }
            _ => why.to_owned(),
        };
        final_error(BAD_ANSWER, message)
    }
}
