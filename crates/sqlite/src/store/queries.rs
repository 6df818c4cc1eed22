//! Implements [`Queries`]: queries, and waiting for changes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use longshore_core::store::{ChangeSet, Page, QueueInfo, Queues, Totals, UnitFailure, UnitFilter, Violation};
use longshore_core::worker_session::Session;
use longshore_core::{Batch, BatchId, BatchStatus, Payload, Queries, Result, Scope, Unit, UnitId};
use tokio::sync::watch;

use super::operations;
use crate::{batch, listing, queries, session, verify};

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
    Read verify[]() -> Vec<Violation> = verify::verify();
    {
        async fn batch(&self, scope: &Scope, id: &BatchId) -> Result<Batch> {
            let (scope, id) = (scope.clone(), id.clone());
            self.read(move |db| batch::show(db, batch::number_of_query(db, &scope, &id)?)).await
        }

        async fn changes(&self, scope: &Scope, since: u64, wait: Duration) -> Result<ChangeSet> {
            let until = tokio::time::Instant::now() + wait;
            let mut changed = self.signals.changed.subscribe();
            // "From now on" starts here, not when the read runs.
            let last = self.signals.last_change.load(Ordering::Relaxed);
            let mut since = if since == u64::MAX { last } else { since };
            loop {
                changed.mark_unchanged();
                let own = scope.clone();
                let set = self.read(move |db| queries::changes(db, &own, since)).await?;
                if !set.changes.is_empty() || set.missed {
                    return Ok(set);
                }
                since = set.cursor;
                let timed_out = tokio::time::timeout_at(until, changed.changed()).await.is_err();
                if timed_out {
                    return Ok(set);
                }
            }
        }

        async fn wait_for_ready(&self, seen: u64, wait: Duration) -> u64 {
            let mut ready: watch::Receiver<u64> = self.signals.ready.subscribe();
            // A timeout is a valid result.
            let _ = tokio::time::timeout(wait, ready.wait_for(|count| *count != seen)).await;
            *self.signals.ready.borrow()
        }
    }
}}
