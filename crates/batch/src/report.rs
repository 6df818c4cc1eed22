//! What became of a batch, for people: gathered from the store, shown as Markdown or HTML.
//!
//! Everything here is read; nothing is counted anew. Money and latency come from the batch's sums,
//! which moved with the answers themselves.

mod facts;
mod failures;
mod html;
mod latency;
mod markdown;
mod words;

use serde::Serialize;
use std::time::Duration;

use longshore::batch::Batch;
use longshore::{BatchId, Result, Scope, Store, Timestamp};
use longshore_ai::Cost;

pub use self::failures::{FailureGroup, FailureGroups, gather as gather_failures};
pub use self::latency::{Latency, Quantile};
use crate::definition::Definition;

/// A batch's report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The batch as it stood.
    pub batch: Batch,
    /// What it was to do, if this program can read it. Not for programs: it may hold secrets.
    #[serde(skip)]
    pub definition: Option<Definition>,
    /// What its answers took.
    pub usage: Usage,
    /// How long its answers took.
    pub latency: Latency,
    /// Its failures by reason, the most frequent first.
    pub failures: Vec<FailureGroup>,
    /// When the report was made.
    pub at: Timestamp,
}

/// What a batch's answers took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Usage {
    /// How many there were, those that were asked for again included.
    pub answers: u64,
    /// How many of them were made up.
    pub simulated: u64,
    /// What they cost.
    pub cost: Cost,
    /// Tokens of the questions.
    pub tokens_in: u64,
    /// Tokens of the answers.
    pub tokens_out: u64,
}

impl Report {
    /// Reads all there is to say of a batch at `now`. Failures are read page by page, so that a
    /// million of them take time but no room.
    pub async fn gather(
        store: &dyn Store,
        scope: &Scope,
        id: &BatchId,
        now: Timestamp,
    ) -> Result<Self> {
        let batch = store.batch(scope, id).await?;
        let definition = store.definition(scope, id).await?;
        let failures = failures::gather(store, scope, id, None).await?;
        let definition = definition.and_then(|payload| payload.parse().ok());
        Ok(Self { definition, ..Self::of(batch, failures, now) })
    }

    /// What there is to say at `now` of a batch whose failures are known, but not what it was to do.
    pub fn of(batch: Batch, failures: Vec<FailureGroup>, now: Timestamp) -> Self {
        Self {
            definition: None,
            usage: Usage::of(&batch),
            latency: Latency::of(&batch.sums),
            failures,
            at: now,
            batch,
        }
    }

    /// As Markdown.
    pub fn markdown(&self) -> String {
        markdown::render(self)
    }

    /// As one HTML page that needs nothing else: no script, no other file.
    pub fn html(&self) -> String {
        html::render(self)
    }

    /// From the first row's start to the last row's end, or until now.
    pub fn took(&self) -> Option<Duration> {
        let began = self.batch.started_at?;
        Some(self.batch.completed_at.unwrap_or(self.at).since(began))
    }

    /// Rows ended per second.
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    pub fn rate(&self) -> Option<f64> {
        let seconds = self.took()?.as_secs_f64();
        (seconds > 0.0).then(|| self.batch.counts.finished() as f64 / seconds)
    }
}

impl Usage {
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
