//! How far a batch is, and what is to come, judged by what has ended so far.

use std::time::Duration;

use longshore::batch::Batch;
use longshore::{BatchStatus, Timestamp};
use longshore_ai::Cost;

use super::BatchUsage;

/// The progress of a batch. Rate and estimates are means over the time in which it ran, pauses excluded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProgressEstimate {
    /// Its units, or as many as its initiator expects.
    pub total: u64,
    /// The share of `total` that has ended, from 0 to 1. `None` if there are no units yet.
    pub fraction: Option<f64>,
    /// How long it ran until its end or now, without its pauses.
    pub running: Option<Duration>,
    /// How long it was paused.
    pub paused: Duration,
    /// Units ended per second.
    pub rate: Option<f64>,
    /// The time until its end at this rate, if it runs and its total is known.
    pub left: Option<Duration>,
    /// The cost so far.
    pub cost: Cost,
    /// The cost at its end, if its total is known and it has not ended.
    pub projected: Option<Cost>,
}

impl ProgressEstimate {
    /// The progress of `batch` at `now`.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "estimates for people")]
    pub fn of(batch: &Batch, now: Timestamp) -> Self {
        let (total, ended) = (batch.expected_total(), batch.counts.finished());
        let running = batch.running(now);
        let seconds = running.map_or(0.0, |running| running.as_secs_f64());
        let rate = (seconds > 0.0 && ended > 0).then(|| ended as f64 / seconds);
        let is_known = batch.sealed || batch.expected.is_some();
        let open_rate = rate.filter(|_| is_known && batch.status == BatchStatus::Running);
        let cost = BatchUsage::of(batch).cost;
        let per_unit =
            (ended > 0 && is_known && !batch.status.is_final()).then(|| cost.0 as f64 / ended as f64);
        Self {
            total,
            fraction: (total > 0).then(|| ended as f64 / total as f64),
            running,
            paused: batch.paused(batch.completed_at.unwrap_or(now)),
            rate,
            left: open_rate.map(|rate| {
                Duration::from_secs_f64((total.saturating_sub(ended) as f64 / rate).min(MAX_SECONDS))
            }),
            cost,
            projected: per_unit.map(|per_unit| Cost((per_unit * total as f64) as i64).max(cost)),
        }
    }

    /// The share that has ended in whole percent; 100 only at the end.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a percentage")]
    pub fn percent(&self) -> Option<u8> {
        self.fraction.map(|fraction| (fraction * 100.0).clamp(0.0, 100.0) as u8)
    }
}

/// The longest estimate: about thirty years.
const MAX_SECONDS: f64 = 1e9;
