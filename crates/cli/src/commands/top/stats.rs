//! Computes the statistics of a frame, with rates and trends over time. Pure.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use longshore::permits::PoolStats;
use longshore::store::QueueInfo;
use longshore::worker_session::Session;
use longshore::{BatchId, BatchStatus, Counts, PoolName, Timestamp};
use longshore_web::Trend;
use serde::Serialize;

/// The window of rates and trends.
const RATE_WINDOW: Duration = Duration::from_secs(15);

/// One snapshot of the store.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    pub(super) lanes: Vec<QueueInfo>,
    pub(super) sessions: Vec<Session>,
    pub(super) batches: Vec<longshore::Batch>,
    pub(super) pools: Vec<(PoolName, PoolStats)>,
}

/// The statistics that are shown.
#[derive(Debug, Default, Serialize)]
pub(super) struct TopStats {
    pub(super) counts: Counts,
    pub(super) per_second: f64,
    pub(super) queues: Vec<QueueStats>,
    pub(super) workers: Vec<Session>,
    pub(super) batches: Vec<BatchStats>,
    pub(super) pools: Vec<PoolSummary>,
}

/// A queue with all its lanes.
#[derive(Debug, Serialize)]
pub(super) struct QueueStats {
    pub(super) queue: String,
    pub(super) paused: bool,
    pub(super) counts: Counts,
    pub(super) trend: Trend,
    pub(super) per_second: f64,
    pub(super) oldest_ready: Option<Timestamp>,
}

/// A running batch, or one that has ended.
#[derive(Debug, Serialize)]
pub(super) struct BatchStats {
    pub(super) id: BatchId,
    pub(super) status: BatchStatus,
    pub(super) counts: Counts,
    pub(super) per_second: f64,
    /// Estimated time to its end, at this rate.
    pub(super) left: Option<Duration>,
}

/// A bounded pool.
#[derive(Debug, Serialize)]
pub(super) struct PoolSummary {
    pub(super) pool: PoolName,
    pub(super) max: u32,
    pub(super) in_use: u32,
    pub(super) holders: usize,
    pub(super) waiting: usize,
}

/// Counts at some time: of queues by name, and of batches.
#[derive(Debug)]
struct CountSample {
    at: Duration,
    queues: BTreeMap<String, Counts>,
    batches: BTreeMap<BatchId, Counts>,
}

/// The snapshots within the window.
#[derive(Debug, Default)]
pub(super) struct StatsWindow(VecDeque<CountSample>);

impl StatsWindow {
    /// Adds a snapshot, and returns the statistics with rates.
    pub(super) fn add(&mut self, snapshot: Snapshot, at: Duration) -> TopStats {
        while self.0.len() > 1 && self.0.get(1).is_some_and(|then| at - then.at >= RATE_WINDOW) {
            self.0.pop_front();
        }
        let mut queues: BTreeMap<String, QueueStats> = BTreeMap::new();
        for lane in &snapshot.lanes {
            let queue = queues.entry(lane.queue.to_string()).or_insert_with(|| empty(lane));
            // A queue is open as long as one of its lanes is.
            queue.paused &= lane.paused;
            queue.counts += lane.counts;
            queue.oldest_ready = [queue.oldest_ready, lane.oldest_ready].into_iter().flatten().min();
        }
        let now = CountSample {
            at,
            queues: queues.iter().map(|(name, queue)| (name.clone(), queue.counts)).collect(),
            batches: snapshot.batches.iter().map(|batch| (batch.id.clone(), batch.counts)).collect(),
        };
        let then = self.0.front().unwrap_or(&now);
        let seconds = (at - then.at).as_secs_f64();
        for (name, queue) in &mut queues {
            let before = then.queues.get(name).copied().unwrap_or_default();
            queue.per_second = rate(&before, &queue.counts, seconds);
            queue.trend = Trend::of(before.live(), queue.counts.live());
        }
        let batches = snapshot.batches.into_iter().map(|batch| {
            let before = then.batches.get(&batch.id).copied().unwrap_or(batch.counts);
            progress(batch, &before, seconds)
        });
        let stats = TopStats {
            counts: queues.values().map(|queue| queue.counts).sum(),
            per_second: queues.values().map(|queue| queue.per_second).sum(),
            batches: batches.collect(),
            queues: queues.into_values().collect(),
            workers: snapshot.sessions,
            pools: snapshot.pools.into_iter().map(pool).collect(),
        };
        self.0.push_back(now);
        stats
    }
}

fn empty(lane: &QueueInfo) -> QueueStats {
    QueueStats {
        queue: lane.queue.to_string(),
        paused: true,
        counts: Counts::default(),
        trend: Trend::Idle,
        per_second: 0.0,
        oldest_ready: None,
    }
}

fn progress(batch: longshore::Batch, before: &Counts, seconds: f64) -> BatchStats {
    let per_second = rate(before, &batch.counts, seconds);
    let open = batch.counts.live();
    let left = (per_second > 0.0 && open > 0)
        .then(|| Duration::try_from_secs_f64(exact(open) / per_second).ok())
        .flatten();
    BatchStats { id: batch.id, status: batch.status, counts: batch.counts, per_second, left }
}

fn pool((pool, stats): (PoolName, PoolStats)) -> PoolSummary {
    let (holders, waiting) = (stats.holders.len(), stats.waiting.len());
    PoolSummary { pool, max: stats.max, in_use: stats.in_use, holders, waiting }
}

/// Finished units per second. Units pruned meanwhile are not counted.
fn rate(then: &Counts, now: &Counts, seconds: f64) -> f64 {
    let ended = now.finished().saturating_sub(then.finished());
    if seconds < 0.05 { 0.0 } else { exact(ended) / seconds }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn exact(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
pub(super) mod tests {
    use longshore::store::Capacity;
    use longshore::{QueueName, TenantId};

    use super::*;

    pub(crate) fn lane(queue: &str, tenant: &str, ready: u64, done: u64) -> QueueInfo {
        QueueInfo {
            queue: QueueName::new(queue).unwrap(),
            tenant: TenantId::new(tenant).unwrap(),
            paused: false,
            queue_paused: false,
            lane_paused: false,
            suspended: false,
            weight: 1,
            cap: None,
            capacity: Capacity::default(),
            lane_capacity: Capacity::default(),
            counts: Counts { ready, done, ..Counts::default() },
            bytes: 0,
            oldest_ready: None,
        }
    }

    pub(crate) fn snapshot(lanes: Vec<QueueInfo>) -> Snapshot {
        Snapshot { lanes, sessions: vec![], batches: vec![], pools: vec![] }
    }

    #[test]
    fn lanes_add_up_to_their_queue_with_rate_and_trend() {
        let mut window = StatsWindow::default();
        let first =
            window.add(snapshot(vec![lane("mail", "a", 100, 0), lane("mail", "b", 50, 0)]), Duration::ZERO);
        assert_eq!((first.queues.len(), first.counts.ready), (1, 150));
        assert_eq!((first.queues[0].trend, first.queues[0].per_second), (Trend::Steady, 0.0));
        let lanes = vec![lane("mail", "a", 60, 40), lane("mail", "b", 50, 0), lane("new", "a", 5, 0)];
        let second = window.add(snapshot(lanes), Duration::from_secs(4));
        assert_eq!((second.queues[0].trend, second.queues[0].per_second), (Trend::Draining, 10.0));
        assert_eq!(second.queues[1].trend, Trend::Growing, "it appeared meanwhile");
        assert_eq!(second.per_second, 10.0);
    }

    #[test]
    fn only_the_last_while_counts() {
        let mut window = StatsWindow::default();
        for second in 0..100 {
            let done = if second < 50 { second * 10 } else { 500 };
            let stats = window.add(snapshot(vec![lane("mail", "a", 9, done)]), Duration::from_secs(second));
            if second == 99 {
                assert_eq!(stats.per_second, 0.0, "it stopped long ago");
            }
        }
        assert!(window.0.len() <= 18, "{}", window.0.len());
    }
}
