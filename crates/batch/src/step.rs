//! PRE and POST as code: what a row's run calls, whether it is SQL from a batch file or Rust.

use std::time::Duration;

use async_trait::async_trait;
use longshore::{BatchId, Effect, SqlValue, UnitId};
use longshore_ai::{Answer, Cost};
use serde_json::Value;

use crate::definition::Verdict;
use crate::rows::RowSource;

/// A row in its run.
pub struct RowRun<'a> {
    /// Its batch.
    pub batch: &'a BatchId,
    /// Its unit.
    pub unit: UnitId,
    /// Its key.
    pub key: &'a SqlValue,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// Whether no attempt is left: a RETRY would be a FAIL.
    pub is_last_attempt: bool,
    /// Who works on it: unlike that of any other row worked on at the same time.
    pub worker: &'a str,
    /// Where the rows are.
    pub source: &'a dyn RowSource,
}

/// PRE: makes the prompt.
#[async_trait]
pub trait Prepare: Send + Sync + 'static {
    /// The prompt for a row.
    async fn prepare(&self, row: &RowRun<'_>) -> Result<String, PrepareError>;
}

/// Why there is no prompt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// It could not be made.
    #[error("{message}")]
    Failed {
        /// What happened.
        message: String,
        /// Whether trying again may help.
        retryable: bool,
        /// Not before this long.
        after: Option<Duration>,
    },
    /// Nobody need be asked about this row. POST is told ([`SKIPPED`]); unless it says otherwise, the
    /// row is done.
    #[error("skipped: {0}")]
    Skip(String),
    /// Not here, not now: the row comes back after so long, and no attempt is used.
    #[error("{message}")]
    NotNow {
        /// Why.
        message: String,
        /// How long.
        after: Duration,
    },
}

impl PrepareError {
    /// It could not be made, and trying again would not help.
    pub fn hopeless(message: impl Into<String>) -> Self {
        Self::Failed { message: message.into(), retryable: false, after: None }
    }
}

/// The code of a [`Reply`] to a row that PRE skipped.
pub const SKIPPED: &str = "SKIPPED";

/// What POST is given: every row's run has one, whatever happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// The answer, if there is one.
    pub answer: Option<Answer>,
    /// The answer as JSON, if it is JSON and follows the schema.
    pub json: Option<Value>,
    /// What went wrong: a code of the contract, or `PRE_ERROR`, `BAD_ANSWER`, `LOST`; or
    /// [`SKIPPED`].
    pub error: Option<ReplyError>,
    /// What the answer cost.
    pub cost: Cost,
}

impl Reply {
    /// Whether PRE said that nobody need be asked.
    pub fn is_skipped(&self) -> bool {
        self.error.as_ref().is_some_and(|error| error.code == SKIPPED)
    }

    /// `success`, `error` or `skipped`.
    pub fn status(&self) -> &'static str {
        match &self.error {
            None => "success",
            Some(_) if self.is_skipped() => "skipped",
            Some(_) => "error",
        }
    }
}

/// What went wrong with a row before POST.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyError {
    /// Short and stable.
    pub code: String,
    /// In words.
    pub message: String,
    /// Whether asking again may help.
    pub retryable: bool,
    /// Not before this long.
    pub retry_after: Option<Duration>,
}

/// POST: decides what the row comes to, and what is written for it.
#[async_trait]
pub trait Apply: Send + Sync + 'static {
    /// The decision. Effects are run by the caller: with the row's end in one transaction where
    /// the rows are in the store's database.
    async fn apply(&self, row: &RowRun<'_>, reply: &Reply) -> Result<Applied, ApplyError>;
}

/// POST's decision.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    /// What the row comes to.
    pub verdict: Verdict,
    /// Why, with FAIL and RETRY.
    pub reason: Option<String>,
    /// With RETRY: wait exactly this long.
    pub after: Option<Duration>,
    /// What is written.
    pub effects: Vec<Effect>,
}

/// POST could not decide. The answer is kept; the row is tried again without asking anew.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// It went wrong; uses up an attempt.
    #[error("{0}")]
    Failed(String),
    /// Not here, not now: the row comes back after so long, and no attempt is used.
    #[error("{message}")]
    NotNow {
        /// Why.
        message: String,
        /// How long.
        after: Duration,
    },
}
