//! The outcome of a run, and the SQL that may be committed with it.
//!
//! An outcome is not an error: `Retry` and `Fail` are results. Errors are failures of the store or
//! the engine.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::text::truncate_bytes;
use crate::unit::Payload;

/// What a handler returns for one run of a unit.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// It succeeded; the result is stored for clients that wait for it.
    Done(Option<Payload>),
    /// This attempt failed. Uses up an attempt; `after` overrides the policy's delay.
    Retry {
        /// Why, recorded for this attempt, and for the unit if it was the last one.
        failure: Failure,
        /// Exact delay instead of the policy's.
        after: Option<Duration>,
    },
    /// Run again after this time. Uses no attempt.
    Snooze(Duration),
    /// It failed for good: no further attempt.
    Fail(Failure),
    /// It is not wanted any more.
    Cancel,
    /// The worker had to stop (drain, deploy), or needs the slot for other units. The unit is
    /// requeued at its old rank; uses no attempt.
    Interrupted,
    /// The process that ran it for its worker is gone, for this reason. Counts as a lost run, as if
    /// the worker itself had died.
    Lost(String),
}

/// Why a run or a unit failed: a short code to group by, and a message for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Failure {
    /// Short and stable, as `timeout`, `exit-code`, `bad-json`.
    pub code: String,
    /// What happened.
    pub message: String,
}

/// Most bytes stored of a failure message; the rest is cut.
pub const MAX_MESSAGE: usize = 4096;

/// Most bytes stored of a failure's code; the rest is cut.
pub const MAX_CODE: usize = 128;

/// How many of a unit's failures a store keeps.
#[derive(Debug, Clone, Copy)]
pub struct KeptFailures {
    /// The oldest ones.
    pub first: usize,
    /// The newest ones.
    pub last: usize,
}

/// A unit may fail billions of times: the first failures show the cause, the last ones the present.
pub const KEPT_FAILURES: KeptFailures = KeptFailures { first: 10, last: 40 };

impl Failure {
    /// A failure; a code or message that is too long is cut at a character boundary.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        let cut = |text: String, max| if text.len() > max { truncate_bytes(&text, max) } else { text };
        Self { code: cut(code.into(), MAX_CODE), message: cut(message.into(), MAX_MESSAGE) }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

/// One SQL statement that commits together with the unit's finish, or not at all.
///
/// Only possible if the rows live in the store's own database; otherwise the store rejects it.
#[derive(Debug, Clone, PartialEq)]
pub struct Effect {
    /// The statement, with `?1`-style or `:name`-style parameters.
    pub sql: String,
    /// Values in the order of `?1`, or by name (without the colon).
    pub params: Params,
    /// How many rows it must change; any other number rolls the unit's effects back.
    pub expected_rows: Option<u64>,
}

/// The values of an [`Effect`].
#[derive(Debug, Clone, PartialEq)]
pub enum Params {
    /// For `?1`, `?2`, …
    Ordered(Vec<SqlValue>),
    /// For `:name`. Names that the statement does not use are ignored.
    Named(Vec<(String, SqlValue)>),
}

/// A value bound to a statement, never concatenated into it.
#[derive(Debug, Clone, PartialEq)]
pub enum SqlValue {
    /// NULL
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Real(f64),
    /// Text.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let failure = Failure::new("error", "ü".repeat(5000));
        assert!(failure.message.len() <= MAX_MESSAGE + '…'.len_utf8());
        assert!(failure.message.ends_with('…'));
    }
}
