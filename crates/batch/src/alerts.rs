//! Decides when a batch needs an operator's attention. Pure: the caller passes the batch and the
//! time, and runs the action that the definition names.

use std::time::Duration;

use longshore::batch::{Batch, BatchStatus, stopped_by_threshold};
use longshore::{BatchId, Timestamp};
use serde::Serialize;

/// A condition that an operator should know of. Its JSON is the input of the alert's action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Alert {
    /// The condition.
    pub code: AlertCode,
    /// The batch.
    pub batch: BatchId,
    /// A sentence for people.
    #[serde(rename = "words")]
    pub message: String,
}

/// The condition that an alert reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AlertCode {
    /// No row ended for longer than `no_progress`.
    NoProgress,
    /// The batch has ended, and some of its rows were never run.
    WorkLeft,
    /// The failure threshold stopped the batch.
    Threshold,
}

impl AlertCode {
    /// The code's name, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoProgress => "no-progress",
            Self::WorkLeft => "work-left",
            Self::Threshold => "threshold",
        }
    }
}

impl std::fmt::Display for AlertCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// The alerts already raised for one batch, so that each is raised once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AlertHistory {
    progress: Option<BatchProgress>,
    /// Since when `progress` has not changed.
    since: Timestamp,
    raised: Vec<AlertCode>,
}

/// The values that change while a batch makes progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BatchProgress {
    generation: u32,
    status: BatchStatus,
    finished: u64,
}

impl AlertHistory {
    /// Records the batch's progress. Once it has changed, the alerts that depend on it may be
    /// raised again.
    fn observe(&mut self, batch: &Batch, now: Timestamp) {
        let Batch { generation, status, counts, .. } = batch;
        let (generation, status) = (*generation, *status);
        let progress = BatchProgress { generation, status, finished: counts.finished() };
        let before = self.progress.replace(progress);
        if before == Some(progress) {
            return;
        }
        self.since = now;
        if before.is_some_and(|before| (before.generation, before.status) == (generation, status)) {
            self.raised.retain(|code| *code != AlertCode::NoProgress);
        } else {
            self.raised.clear();
        }
    }

    /// The alert, unless it has been raised already.
    fn raise(&mut self, batch: &Batch, code: AlertCode, words: Option<String>) -> Option<Alert> {
        let words = words.filter(|_| !self.raised.contains(&code))?;
        self.raised.push(code);
        Some(Alert { code, batch: batch.id.clone(), message: words })
    }
}

/// The alerts for `batch` at `now` that were not raised before. `no_progress` is how long the batch
/// may go without a row ending.
pub fn evaluate(
    batch: &Batch,
    no_progress: Duration,
    history: &mut AlertHistory,
    now: Timestamp,
) -> Vec<Alert> {
    history.observe(batch, now);
    let stalled_for = now.since(history.since);
    let stalled = stalled_for >= no_progress;
    [
        history.raise(batch, AlertCode::Threshold, threshold_message(batch)),
        history.raise(batch, AlertCode::NoProgress, no_progress_message(batch).filter(|_| stalled)),
        history.raise(batch, AlertCode::WorkLeft, work_left_message(batch, stalled)),
    ]
    .into_iter()
    .flatten()
    .map(|alert| with_duration(alert, stalled_for))
    .collect()
}

/// Adds the duration to an alert about missing progress.
fn with_duration(alert: Alert, stalled_for: Duration) -> Alert {
    match alert.code {
        AlertCode::NoProgress => {
            let words = format!("{} for {} s", alert.message, stalled_for.as_secs());
            Alert { message: words, ..alert }
        }
        AlertCode::WorkLeft | AlertCode::Threshold => alert,
    }
}

/// None for a paused or ended batch, which makes no progress by design.
fn no_progress_message(batch: &Batch) -> Option<String> {
    let counts = &batch.counts;
    let words = match batch.status {
        BatchStatus::Queued => format!("no worker has claimed any of {} rows", counts.live()),
        BatchStatus::Running => {
            format!("no row has ended, {} are waiting and {} are leased", waiting(batch), counts.leased)
        }
        _ => return None,
    };
    Some(words)
}

fn waiting(batch: &Batch) -> u64 {
    batch.counts.live() - batch.counts.leased
}

/// Rows left in an ended batch: cancelled, or still live. The last rows of a cancelled batch take a
/// moment to stop, so live rows count only after `no_progress`.
fn work_left_message(batch: &Batch, stalled: bool) -> Option<String> {
    let (live, cancelled) = (batch.counts.live(), batch.counts.cancelled);
    let over = batch.status.is_final() && (live == 0 || stalled);
    (over && live + cancelled > 0).then(|| {
        let total = batch.counts.total();
        format!("the batch is {} and {} of {total} rows are left", batch.status, live + cancelled)
    })
}

/// Some if the failure threshold stopped the batch.
fn threshold_message(batch: &Batch) -> Option<String> {
    let reason = batch.reason.as_ref().filter(|_| stopped_by_threshold(batch))?;
    Some(format!("the batch is {}: {reason}", batch.status))
}
