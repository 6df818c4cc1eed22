//! What a handler says at the end of a run, and what may be committed with it.
//!
//! An outcome is not an error: `Retry` and `Fail` are answers. Errors are what the store or the
//! engine could not do.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::unit::Payload;

/// A handler's word on one run of a unit.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// It is done; the result is kept for whoever asked for it.
    Done(Option<Payload>),
    /// It did not work this time. Uses up an attempt; `after` overrides the policy's delay.
    Retry {
        /// Why, for the record and for the last attempt's failure.
        failure: Failure,
        /// Wait exactly this long instead of the policy's delay.
        after: Option<Duration>,
    },
    /// Not now: come back after this long. No attempt is used.
    Snooze(Duration),
    /// It cannot work: no further attempt.
    Fail(Failure),
    /// It should not be done any more.
    Cancel,
    /// The worker had to stop (drain, deploy), or wants the slot for others. Goes back at once to its
    /// place; no attempt is used.
    Interrupted,
    /// Whoever ran it for its holder is gone, in these words. Counts as a loss, as if the holder
    /// itself had died.
    Lost(String),
}

/// Why a run or a unit failed: a short code to group by, and words for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Short and stable, as `timeout`, `exit-code`, `bad-json`.
    pub code: String,
    /// What happened, in words.
    pub message: String,
}

/// Longest failure message kept; the rest is cut.
pub const MAX_MESSAGE: usize = 4096;

impl Failure {
    /// A failure; an overlong message is cut at a character boundary.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if message.len() > MAX_MESSAGE {
            message.truncate(message.floor_char_boundary(MAX_MESSAGE));
            message.push('…');
        }
        Self { code: code.into(), message }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

/// One SQL statement that commits together with the unit's finish, or not at all.
///
/// Only where the rows live in the store's own database; the store refuses it otherwise.
#[derive(Debug, Clone, PartialEq)]
pub struct Effect {
    /// The statement, with `?1`-style or `:name`-style parameters.
    pub sql: String,
    /// Values in order of `?1`, or by name (without the colon).
    pub params: Params,
    /// How many rows it must change; anything else rolls the unit's effects back.
    pub expected_rows: Option<u64>,
}

/// The values of an [`Effect`].
#[derive(Debug, Clone, PartialEq)]
pub enum Params {
    /// For `?1`, `?2`, …
    Ordered(Vec<SqlValue>),
    /// For `:name`. Names the statement does not use are ignored.
    Named(Vec<(String, SqlValue)>),
}

/// A value bound to SQL, never pasted into it.
#[derive(Debug, Clone, PartialEq)]
pub enum SqlValue {
    /// NULL
    Null,
    /// A truth value.
    Bool(bool),
    /// A whole number.
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
