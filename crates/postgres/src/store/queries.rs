//! [`Queries`] on PostgreSQL.

use std::time::Duration;

use longshore_core::store::{
    ChangeSet, Page, Queries, QueueInfo, Queues, Totals, UnitFailure, UnitFilter, Violation,
};
use longshore_core::worker_session::Session;
use longshore_core::{Batch, BatchId, BatchStatus, Payload, Result, Scope, Unit, UnitId};
use tokio::time::Instant;

use super::{PostgresStore, operation, operation_without_timeout, operations};
use crate::poll_backoff::PollBackoff;
use crate::{batch, listing, maintenance, queries, session, verify};

/// The longest wait without a notification: some may be lost even where they arrive.
const MAX_SILENT_WAIT: Duration = Duration::from_secs(5);

operations! { Queries {
    Read unit[scope: Scope](id: UnitId) -> Unit = queries::one_unit(id);
    Read units[scope: Scope, filter: UnitFilter; after]() -> Page<Unit> = listing::units();
    Read failures[scope: Scope](id: UnitId) -> Vec<UnitFailure> = queries::failures(id);
    Read queues[scope: Scope]() -> Vec<QueueInfo> = queries::queues();
    Read definition[scope: Scope, id: BatchId]() -> Option<Payload> = batch::definition();
    Read batches[scope: Scope; after](status: Option<BatchStatus>) -> Page<Batch>
        = listing::batches(status);
    Read sessions[]() -> Vec<Session> = session::list();
    Read totals[scope: Scope, queues: Queues]() -> Totals = queries::totals();
    {
        async fn batch(&self, scope: &Scope, id: &BatchId) -> Result<Batch> {
            operation!(self, Read, tx => async {
                let num = batch::number_of_query(&mut tx, scope, id).await?;
                batch::show(&mut tx, num).await
            })
        }

        async fn changes(&self, scope: &Scope, since: u64, wait: Duration) -> Result<ChangeSet> {
            let until = Instant::now() + wait;
            let mut changed = self.inner.notifier.subscribe_changes();
            // Changes of this process before the call must be in the feed before it is read.
            self.inner.notifier.flush().await;
            let mut since = since;
            let poll = PollBackoff::default();
            loop {
                changed.mark_unchanged();
                let set = self.read_changes(scope, since).await?;
                if !set.changes.is_empty() || set.missed || Instant::now() >= until {
                    return Ok(set);
                }
                since = set.cursor;
                let look =
                    if self.inner.notifier.is_listening() { MAX_SILENT_WAIT } else { poll.next() };
                let at = until.min(Instant::now() + look);
                // After a notification or a timeout, the next read shows whether there are changes.
                let _ = tokio::time::timeout_at(at, changed.changed()).await;
            }
        }

        async fn wait_for_ready(&self, seen: u64, wait: Duration) -> u64 {
            let mut wakes = self.inner.notifier.subscribe_wakeups();
            let timeout = if self.inner.notifier.is_listening() {
                MAX_SILENT_WAIT
            } else {
                self.inner.poll_backoff.next()
            };
            let woken = wakes.wait_for(|count| *count != seen);
            match tokio::time::timeout(wait.min(timeout), woken).await {
                Ok(_) => self.inner.poll_backoff.reset(),
                // Other processes' commits are not announced: units may have become claimable.
                Err(_) if timeout < wait => self.inner.notifier.wake_workers(),
                Err(_) => {}
            }
            *self.inner.notifier.subscribe_wakeups().borrow()
        }

        async fn verify(&self) -> Result<Vec<Violation>> {
            // A crash between a commit and its post-commit work may have left a batch open; that is no
            // violation.
            self.touch_ended().await?;
            operation_without_timeout!(self, Read, tx => verify::verify(&mut tx)).await
        }
    }
}}

impl PostgresStore {
    async fn read_changes(&self, scope: &Scope, since: u64) -> Result<ChangeSet> {
        operation!(self, Read, tx => queries::changes(&mut tx, scope, since))
    }

    async fn touch_ended(&self) -> Result<()> {
        operation!(self, Durable, tx => maintenance::touch_ended(&mut tx))
    }
}
