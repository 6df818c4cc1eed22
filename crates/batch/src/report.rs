//! The report on a batch, read from the store and rendered as Markdown or HTML.
//!
//! Counts nothing itself: cost and latency are the batch's sums, which are committed with the
//! answers.

mod failures;
mod fields;
mod format;
mod html;
mod latency;
pub mod mail;
mod markdown;
mod progress;

use serde::Serialize;
use std::time::Duration;

use longshore::batch::Batch;
use longshore::{BatchId, Result, Scope, Store, Timestamp};
use longshore_ai::Cost;

pub use self::failures::{FailureGroup, FailureGroups, gather as gather_failures};
pub use self::latency::{Latency, Quantile};
pub use self::progress::ProgressEstimate;
use crate::definition::Definition;

/// A batch's report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The batch as read.
    pub batch: Batch,
    /// Its definition, if this program can read it. Not serialised: it may contain secrets.
    #[serde(skip)]
    pub definition: Option<Definition>,
    /// Tokens and cost of its answers.
    pub usage: BatchUsage,
    /// Latency of its answers.
    pub latency: Latency,
    /// Its failures by reason, most frequent first.
    pub failures: Vec<FailureGroup>,
    /// When the report was made.
    pub at: Timestamp,
}

/// Tokens and cost of a batch's answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct BatchUsage {
    /// The number of answers, including those of retries.
    pub answers: u64,
    /// The number of simulated answers.
    pub simulated: u64,
    /// Their cost.
    pub cost: Cost,
    /// Input tokens.
    pub tokens_in: u64,
    /// Output tokens.
    pub tokens_out: u64,
}

impl Report {
    /// Reads a batch's report at `now`. Failures are read page by page, so that a million of them
    /// take time but no memory.
    pub async fn gather(store: &dyn Store, scope: &Scope, id: &BatchId, now: Timestamp) -> Result<Self> {
        let batch = store.batch(scope, id).await?;
        let definition = store.definition(scope, id).await?;
        let failures = failures::gather(store, scope, id, None).await?;
        let definition = definition.and_then(|payload| payload.parse().ok());
        Ok(Self { definition, ..Self::of(batch, failures, now) })
    }

    /// The report at `now` from a batch and its failures, without its definition.
    pub fn of(batch: Batch, failures: Vec<FailureGroup>, now: Timestamp) -> Self {
        Self {
            definition: None,
            usage: BatchUsage::of(&batch),
            latency: Latency::of(&batch.sums),
            failures,
            at: now,
            batch,
        }
    }

    /// Renders Markdown.
    pub fn markdown(&self) -> String {
        markdown::render(self)
    }

    /// Renders one HTML page without scripts or other files.
    pub fn html(&self) -> String {
        html::render(self)
    }

    /// The time from the first row's start to the last row's end, or until now.
    pub fn duration(&self) -> Option<Duration> {
        let began = self.batch.started_at?;
        Some(self.batch.completed_at.unwrap_or(self.at).since(began))
    }

    /// How far the batch was when the report was made.
    pub fn progress(&self) -> ProgressEstimate {
        ProgressEstimate::of(&self.batch, self.at)
    }
}

impl BatchUsage {
    fn of(batch: &Batch) -> Self {
        let sum = |name: &str| batch.sums.get(name).copied().unwrap_or_default();
        let count = |name: &str| u64::try_from(sum(name)).unwrap_or_default();
        Self {
            answers: count("answers"),
            simulated: count("simulated"),
            cost: Cost(sum("cost_picos")),
            tokens_in: count("tokens_in"),
            tokens_out: count("tokens_out"),
        }
    }
}
