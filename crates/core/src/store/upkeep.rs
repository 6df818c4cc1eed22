//! Upkeep: what services do so that workers need not.

use std::time::Duration;

use async_trait::async_trait;

use crate::Result;
use crate::name::SessionId;
use crate::stall::Dead;

/// What a reclaim found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reclaimed {
    /// Sessions ended.
    pub sessions: u64,
    /// Units that will run again.
    pub rescued: u64,
    /// Units that failed because they were lost too often.
    pub failed: u64,
}

/// What a promotion moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Promoted {
    /// Scheduled units that became ready.
    pub due: u64,
    /// Waiting units whose deadline had passed.
    pub expired: u64,
    /// Units cancelled because their batch was given up.
    pub swept: u64,
    /// Whether there is more to do at once.
    pub more: bool,
}

/// How long ended units are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Done and cancelled ones.
    pub done: Duration,
    /// Failed ones.
    pub failed: Duration,
    /// Ended batches, and the change feed's tail.
    pub batches: Duration,
    /// Entries of the audit log.
    pub deeds: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        const DAY: u64 = 24 * 3600;
        Self {
            done: Duration::from_secs(DAY),
            failed: Duration::from_secs(30 * DAY),
            batches: Duration::from_secs(30 * DAY),
            deeds: Duration::from_secs(400 * DAY),
        }
    }
}

/// What a pruning removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pruned {
    /// Ended units.
    pub units: u64,
    /// Ended batches.
    pub batches: u64,
    /// Entries of the audit log.
    pub deeds: u64,
    /// Whether there is more to do at once.
    pub more: bool,
}

/// Upkeep. Each verb does a bounded amount and says whether there is more.
#[async_trait]
pub trait Upkeep: Send + Sync + 'static {
    /// Ends sessions whose beat is still what the watcher saw, and takes their units back.
    async fn reclaim(&self, dead: &[Dead]) -> Result<Reclaimed>;

    /// Makes due units ready, fails expired ones, cancels those of batches given up.
    async fn promote(&self, limit: u32) -> Result<Promoted>;

    /// When the next scheduled unit is due, in time from now.
    async fn next_due(&self) -> Result<Option<Duration>>;

    /// Removes what was kept long enough.
    async fn prune(&self, retention: Retention, limit: u32) -> Result<Pruned>;

    /// Whether `session` leads `role` for the next `ttl`: one session at a time, by its own
    /// claim or renewal. Services run where this is true.
    async fn lead(&self, role: &str, session: SessionId, ttl: Duration) -> Result<bool>;
}
