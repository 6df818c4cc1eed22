//! Maintenance, by the engine's background services.

use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;

use crate::Result;
use crate::duration;
use crate::failure_detector::{SessionBeats, StalledSession};
use crate::name::SessionId;
use crate::time::Timestamp;

/// The result of a reclaim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReclaimResult {
    /// Sessions ended.
    pub sessions: u64,
    /// Units that will run again.
    pub requeued: u64,
    /// Units that failed because they were lost too often.
    pub failed: u64,
}

/// The result of a promotion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PromoteResult {
    /// Scheduled units that became ready.
    pub due: u64,
    /// Waiting units past their deadline.
    pub expired: u64,
    /// Units cancelled because their batch failed or was cancelled.
    pub cancelled: u64,
    /// Whether more work is left.
    pub more: bool,
    /// Time until the next scheduled unit is due. `None` if there is none, or while more work is
    /// left.
    pub next_due: Option<Duration>,
}

/// How long ended records are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retention {
    /// Done and cancelled units; and queues, lanes and kinds without units and settings.
    #[serde(with = "duration")]
    pub done: Duration,
    /// Failed units.
    #[serde(with = "duration")]
    pub failed: Duration,
    /// Ended batches, and the change feed.
    #[serde(with = "duration")]
    pub batches: Duration,
    /// Entries of the audit log, and tokens that expired or were revoked.
    #[serde(rename = "audit", with = "duration")]
    pub audit_log: Duration,
    /// Calls to providers that have ended; at least 31 days.
    #[serde(with = "duration")]
    pub calls: Duration,
}

const DAY: u64 = 24 * 3600;

/// The shortest retention of calls: budgets count all calls of the current month.
const MIN_CALL_RETENTION: Duration = Duration::from_secs(31 * DAY);

impl Retention {
    /// The time until which calls that were opened are pruned.
    pub fn calls_until(&self, now: Timestamp) -> Timestamp {
        now - self.calls.max(MIN_CALL_RETENTION)
    }
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            done: Duration::from_secs(DAY),
            failed: Duration::from_secs(30 * DAY),
            batches: Duration::from_secs(30 * DAY),
            audit_log: Duration::from_secs(400 * DAY),
            calls: Duration::from_secs(400 * DAY),
        }
    }
}

/// The result of pruning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PruneResult {
    /// Ended units.
    pub units: u64,
    /// Ended batches.
    pub batches: u64,
    /// Entries of the audit log.
    pub audit_entries: u64,
    /// Calls to providers.
    pub calls: u64,
    /// Lanes of queues.
    pub lanes: u64,
    /// Whether more work is left.
    pub more: bool,
}

/// Maintenance. Each operation does a bounded amount of work and reports whether more is left.
#[async_trait]
pub trait Maintenance: Send + Sync + 'static {
    /// The heartbeat counters of all sessions. It reads no lease, so its cost depends on the number of
    /// sessions only.
    async fn session_beats(&self) -> Result<Vec<SessionBeats>>;

    /// Ends dead sessions, unless their heartbeat has moved since, and requeues their units.
    async fn reclaim(&self, dead: &[StalledSession]) -> Result<ReclaimResult>;

    /// Makes due units ready, fails expired ones, cancels units of batches that failed or were
    /// cancelled.
    async fn promote(&self, limit: u32) -> Result<PromoteResult>;

    /// Removes records that exceed the retention.
    async fn prune(&self, retention: Retention, limit: u32) -> Result<PruneResult>;

    /// Acquires or renews the leadership of `role` for `ttl`: one session at a time. Services run
    /// where this returns true.
    async fn acquire_leadership(&self, role: &str, session: SessionId, ttl: Duration) -> Result<bool>;
}
