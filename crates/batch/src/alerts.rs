//! When somebody should look at a batch. Pure: whoever watches passes the batch and the time, and
//! does with the alerts what the definition says.

use std::time::Duration;

use longshore::batch::{Batch, BatchStatus, stopped_by_threshold};
use longshore::{BatchId, Timestamp};
use serde::Serialize;

/// Something that somebody should know of. Its JSON is what an action is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Alert {
    /// What it is.
    pub code: AlertCode,
    /// Which batch.
    pub batch: BatchId,
    /// In words.
    pub words: String,
}

/// What an alert is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AlertCode {
    /// Nothing ended for a time.
    NoProgress,
    /// The batch is over and some of its rows were never worked on.
    WorkLeft,
    /// Too many rows failed.
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

/// What a watcher remembers of one batch, so that each thing is said once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    standing: Option<Standing>,
    /// When it began to stand like this.
    since: Timestamp,
    said: Vec<AlertCode>,
}

/// What moves while a batch makes progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Standing {
    generation: u32,
    status: BatchStatus,
    ended: u64,
}

impl Seen {
    /// Notes where the batch stands; what has moved since may be said again.
    fn look(&mut self, batch: &Batch, now: Timestamp) {
        let Batch { generation, status, counts, .. } = batch;
        let (generation, status) = (*generation, *status);
        let standing = Standing { generation, status, ended: counts.finished() };
        let before = self.standing.replace(standing);
        if before == Some(standing) {
            return;
        }
        self.since = now;
        if before.is_some_and(|before| (before.generation, before.status) == (generation, status)) {
            self.said.retain(|code| *code != AlertCode::NoProgress);
        } else {
            self.said.clear();
        }
    }

    /// The alert, unless it has been said.
    fn say(&mut self, batch: &Batch, code: AlertCode, words: Option<String>) -> Option<Alert> {
        let words = words.filter(|_| !self.said.contains(&code))?;
        self.said.push(code);
        Some(Alert { code, batch: batch.id.clone(), words })
    }
}

/// What is to be said of `batch` at `now` that was not said before. `no_progress` is how long
/// nothing may end before it is worth a word.
pub fn watch(batch: &Batch, no_progress: Duration, seen: &mut Seen, now: Timestamp) -> Vec<Alert> {
    seen.look(batch, now);
    let still = now.since(seen.since);
    let stuck = still >= no_progress;
    [
        seen.say(batch, AlertCode::Threshold, threshold(batch)),
        seen.say(batch, AlertCode::NoProgress, standstill(batch).filter(|_| stuck)),
        seen.say(batch, AlertCode::WorkLeft, work_left(batch, stuck)),
    ]
    .into_iter()
    .flatten()
    .map(|alert| timed(alert, still))
    .collect()
}

/// Says for how long, where that is the point.
fn timed(alert: Alert, still: Duration) -> Alert {
    match alert.code {
        AlertCode::NoProgress => {
            let words = format!("{} for {} s", alert.words, still.as_secs());
            Alert { words, ..alert }
        }
        AlertCode::WorkLeft | AlertCode::Threshold => alert,
    }
}

/// A paused or ended batch stands still by right.
fn standstill(batch: &Batch) -> Option<String> {
    let counts = &batch.counts;
    let words = match batch.status {
        BatchStatus::Queued => format!("no worker has taken up any of {} rows", counts.live()),
        BatchStatus::Running => {
            format!("no row has ended, {} wait and {} are held", waiting(batch), counts.leased)
        }
        _ => return None,
    };
    Some(words)
}

fn waiting(batch: &Batch) -> u64 {
    batch.counts.live() - batch.counts.leased
}

/// Rows that a batch left behind: cancelled, or alive although it is over. The last of a batch
/// that is given up take a moment to stop, so they are not spoken of at once.
fn work_left(batch: &Batch, stuck: bool) -> Option<String> {
    let (live, cancelled) = (batch.counts.live(), batch.counts.cancelled);
    let over = batch.status.is_final() && (live == 0 || stuck);
    (over && live + cancelled > 0).then(|| {
        let total = batch.counts.total();
        format!("the batch is {} and {} of {total} rows are left", batch.status, live + cancelled)
    })
}

/// The failures are what stopped the batch.
fn threshold(batch: &Batch) -> Option<String> {
    let reason = batch.reason.as_ref().filter(|_| stopped_by_threshold(batch))?;
    Some(format!("the batch is {}: {reason}", batch.status))
}
