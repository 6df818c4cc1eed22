//! The traits for PRE and POST, implemented by SQL from a batch file, by commands, or in Rust.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use longshore::{BatchId, Effect, SqlValue, UnitId};
use longshore_ai::{Answer, Cost};
use serde_json::Value;
use tokio::time::Instant;

use crate::definition::PostVerdict;
use crate::rows::RowSource;

/// A row while it runs.
pub struct RowRun<'a> {
    /// Its batch.
    pub batch: &'a BatchId,
    /// Its unit.
    pub unit: UnitId,
    /// Its key.
    pub key: &'a SqlValue,
    /// The attempt, from 1.
    pub attempt: u32,
    /// 1, and one more after each retry of the row by an operator, which counts attempts anew.
    pub generation: u32,
    /// Identifies a repeat of POST or of a step: the same for each run on the same reply.
    pub run_key: String,
    /// Whether it is the last attempt: a RETRY would become a FAIL.
    pub is_last_attempt: bool,
    /// Whether the row has failed or was cancelled already: POST can only FAIL.
    pub has_ended: bool,
    /// The answers of earlier steps by name; null for a step that was left out.
    pub answers: BTreeMap<String, Value>,
    /// The worker id, unique among rows that run at the same time.
    pub worker: &'a str,
    /// The rows' database.
    pub source: &'a dyn RowSource,
    /// When PRE's reads end: later there is no time left for the question. `None` in POST.
    pub read_until: Option<Instant>,
}

/// The run key of a row's try in a generation.
pub fn run_key(unit: UnitId, generation: u32, attempt: impl std::fmt::Display) -> String {
    format!("{unit}-{generation}-{attempt}")
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
    /// PRE failed.
    #[error("{message}")]
    Failed {
        /// The error message.
        message: String,
        /// Whether a retry may help.
        retryable: bool,
        /// The minimum delay of a retry.
        after: Option<Duration>,
    },
    /// The row needs no call to a model. POST receives the code [`SKIPPED`]; unless it decides
    /// otherwise, the row is done.
    #[error("skipped: {0}")]
    Skip(String),
    /// The step cannot run here now: the row is snoozed, and no attempt is used.
    #[error("{message}")]
    Snooze {
        /// The reason.
        message: String,
        /// The delay.
        after: Duration,
    },
    /// The rows' database did not return the row in time: the row is snoozed a bounded number of times, and no attempt is
    /// used.
    #[error("{0}")]
    LateRead(String),
}

impl PrepareError {
    /// A failure for which a retry would not help.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self::Failed { message: message.into(), retryable: false, after: None }
    }
}

/// The error code of a [`RowReply`] to a row that PRE skipped.
pub const SKIPPED: &str = "SKIPPED";

/// POST's input: every row's run has one, whatever happened.
#[derive(Debug, Clone, PartialEq)]
pub struct RowReply {
    /// The answer, if any.
    pub answer: Option<Answer>,
    /// The answer as JSON, if it is JSON and follows the schema. In a mail batch, the stored
    /// message's metadata.
    pub json: Option<Value>,
    /// The error: a code of the contract, or `PRE_ERROR`, `BAD_ANSWER`, `LOST`, or [`SKIPPED`].
    pub error: Option<ReplyError>,
    /// The cost of the answer.
    pub cost: Cost,
}

impl RowReply {
    /// The reply of a step that asks no model.
    pub fn of_step(json: Value) -> Self {
        Self { answer: None, json: Some(json), error: None, cost: Cost::default() }
    }

    /// Whether PRE skipped the row.
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

/// An error before POST.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyError {
    /// A short, stable code.
    pub code: String,
    /// A message for people.
    pub message: String,
    /// Whether a retry may help.
    pub retryable: bool,
    /// The minimum delay of a retry.
    pub retry_after: Option<Duration>,
}

/// POST: decides the row's verdict and the effects to write.
#[async_trait]
pub trait Apply: Send + Sync + 'static {
    /// Decides. The caller runs the effects: in one transaction with the row's finish if the rows
    /// are in the store's database.
    async fn apply(&self, row: &RowRun<'_>, reply: &RowReply) -> Result<ApplyOutcome, ApplyError>;
}

/// POST's decision.
#[derive(Debug, Clone, PartialEq)]
pub struct ApplyOutcome {
    /// The verdict.
    pub verdict: PostVerdict,
    /// The reason, with FAIL and RETRY.
    pub reason: Option<String>,
    /// With RETRY: wait exactly this long.
    pub after: Option<Duration>,
    /// The statements to run.
    pub effects: Vec<Effect>,
}

/// POST failed. The answer stays in the checkpoint; the row is retried without another call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// POST failed; an attempt is used.
    #[error("{0}")]
    Failed(String),
    /// The same, but not because of the row, as when a command's process died.
    #[error("{0}")]
    Retry(String),
    /// The step cannot run here now: the row is snoozed, and no attempt is used.
    #[error("{message}")]
    Snooze {
        /// The reason.
        message: String,
        /// The delay.
        after: Duration,
    },
}
