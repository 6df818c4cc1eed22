//! PRE and POST as code: what a row's run calls, whether it is SQL from a batch file or Rust.

use std::time::Duration;

use async_trait::async_trait;
use longshore::{BatchId, Effect, SqlValue, UnitId};
use longshore_ai::Answer;
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
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct PrepareError {
    /// What happened.
    pub message: String,
    /// Whether trying again may help.
    pub retryable: bool,
}

/// What POST is given: every row's run has one, whatever happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// The answer, if there is one.
    pub answer: Option<Answer>,
    /// The answer as JSON, if it is JSON and follows the schema.
    pub json: Option<Value>,
    /// What went wrong: a code of the contract, or `PRE_ERROR`, `BAD_ANSWER`, `LOST`.
    pub error: Option<ReplyError>,
    /// What the answer cost, in billionths of a dollar.
    pub cost_nanos: i64,
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
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ApplyError(pub String);
