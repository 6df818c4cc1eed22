//! [`Maintenance`] on PostgreSQL.

use std::sync::atomic::Ordering;
use std::time::Duration;

use longshore_core::failure_detector::{SessionBeats, StalledSession};
use longshore_core::store::{Maintenance, PromoteResult, PruneResult, ReclaimResult, Retention};
use longshore_core::{Result, SessionId};
use tokio::time::timeout;

use super::{PostgresStore, operation, operation_without_timeout, operations};
use crate::connect::ClockSource;
use crate::maintenance::{ChangeSeq, IdleUntil};
use crate::{maintenance, prune, session};

/// For how long the absence of notifications means that nothing has changed. After that,
/// maintenance asks the server and finds changes that a killed process did not announce. So an idle
/// store is not queried every second.
const MAX_IDLE_AGE: Duration = Duration::from_secs(5);

/// How long a leader's renewal waits for the check whether there is anything to promote.
const MAX_PROBE_TIME: Duration = Duration::from_secs(1);

operations! { Maintenance {
    Read session_beats[]() -> Vec<SessionBeats> = session::beats();
    Durable prune[](retention: Retention, limit: u32) -> PruneResult = prune::prune(retention, limit);
    {
        async fn reclaim(&self, stalled: &[StalledSession]) -> Result<ReclaimResult> {
            let mut all = ReclaimResult::default();
            let mut unavailable = None;
            // One transaction each, so that many stalled workers do not block the others.
            for stalled in stalled {
                match self.reclaim_one(*stalled).await {
                    Ok(one) => {
                        all.sessions += one.sessions;
                        all.requeued += one.requeued;
                        all.failed += one.failed;
                    }
                    // One session that cannot be ended must not keep the units of the others from
                    // running.
                    Err(error) if error.is_retryable() => unavailable = Some(error),
                    Err(error) => tracing::error!(%error, session = %stalled.session, "cannot reclaim"),
                }
            }
            match unavailable {
                Some(error) if all.sessions == 0 => Err(error),
                _ => Ok(all),
            }
        }

        async fn promote(&self, limit: u32) -> Result<PromoteResult> {
            let (seq, now) = (self.change_seq(), self.inner.now());
            if self.inner.notifier.is_listening()
                && let Some(idle) = self.inner.maintenance.idle_until(seq, MAX_IDLE_AGE)
                && idle.holds_at(now)
            {
                return Ok(PromoteResult { next_due: idle.next_due_in(now), ..PromoteResult::default() });
            }
            let (promoted, idle) = self.promote_once(limit).await?;
            self.inner.maintenance.record(idle, seq);
            Ok(promoted)
        }

        async fn acquire_leadership(&self, role: &str, session: SessionId, ttl: Duration) -> Result<bool> {
            let (seq, listening) = (self.change_seq(), self.inner.notifier.is_listening());
            let leads = operation!(self, Relaxed, tx => maintenance::lead(&mut tx, role, session, ttl))?;
            // The leader runs the maintenance: it also checks whether there is any. Not in the same transaction: where
            // this is slow or fails, the role is granted nevertheless.
            if leads && listening && let Ok(Ok(idle @ Some(_))) = timeout(MAX_PROBE_TIME, self.probe_idle()).await {
                self.inner.maintenance.record(idle, seq);
            }
            Ok(leads)
        }
    }
}}

impl PostgresStore {
    /// The time until the next schedule fires, if the cache knows it and none is due.
    pub(super) fn next_fire_in(&self) -> Option<Option<Duration>> {
        let known =
            self.inner.notifier.is_listening() && self.inner.options.clock_source == ClockSource::Server;
        known.then(|| self.inner.maintenance.next_fire_in(self.change_seq(), MAX_IDLE_AGE)).flatten()
    }

    fn change_seq(&self) -> ChangeSeq {
        let commits = self.inner.commits.load(Ordering::Relaxed);
        ChangeSeq { commits, notifications: *self.inner.notifier.subscribe_changes().borrow() }
    }

    async fn probe_idle(&self) -> Result<Option<IdleUntil>> {
        operation!(self, Read, tx => maintenance::probe_idle(&mut tx))
    }

    async fn promote_once(&self, limit: u32) -> Result<(PromoteResult, Option<IdleUntil>)> {
        let cache = &self.inner.maintenance;
        operation!(self, Durable, tx => maintenance::promote(&mut tx, limit, cache))
    }

    async fn reclaim_one(&self, stalled: StalledSession) -> Result<ReclaimResult> {
        let reclaim = operation_without_timeout!(self, Durable, tx => maintenance::reclaim(&mut tx, stalled));
        self.inner.with_time_limit(maintenance::RECLAIM_TIMEOUT, reclaim).await
    }
}
