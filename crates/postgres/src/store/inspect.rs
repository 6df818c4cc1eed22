//! [`Inspect`] on PostgreSQL.

use std::time::Duration;

use async_trait::async_trait;
use longshore_core::session::Session;
use longshore_core::store::{
    ChangeSet, Inspect, Page, QueueInfo, Queues, Totals, UnitFailure, UnitFilter, Violation,
};
use longshore_core::{Batch, BatchId, BatchStatus, Payload, Result, Scope, Unit, UnitId};
use tokio::time::Instant;

use super::{PostgresStore, patient_verb, verb};
use crate::poll::Poll;
use crate::{batch, inspect, lists, maintain, session, verify};

/// No news is not believed for longer than this, even where notices come.
const BELIEVE: Duration = Duration::from_secs(5);

#[async_trait]
impl Inspect for PostgresStore {
    async fn unit(&self, scope: &Scope, id: UnitId) -> Result<Unit> {
        verb!(self, Read, tx => inspect::one_unit(&mut tx, scope, id))
    }

    async fn units(
        &self,
        scope: &Scope,
        filter: &UnitFilter,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Unit>> {
        verb!(self, Read, tx => lists::units(&mut tx, scope, filter, after, limit))
    }

    async fn failures(&self, scope: &Scope, id: UnitId) -> Result<Vec<UnitFailure>> {
        verb!(self, Read, tx => inspect::failures(&mut tx, scope, id))
    }

    async fn queues(&self, scope: &Scope) -> Result<Vec<QueueInfo>> {
        verb!(self, Read, tx => inspect::queues(&mut tx, scope))
    }

    async fn batch(&self, scope: &Scope, id: &BatchId) -> Result<Batch> {
        verb!(self, Read, tx => async {
            let num = batch::number(&mut tx, scope, id).await?;
            batch::show(&mut tx, num).await
        })
    }

    async fn definition(&self, scope: &Scope, id: &BatchId) -> Result<Option<Payload>> {
        verb!(self, Read, tx => batch::definition(&mut tx, scope, id))
    }

    async fn batches(
        &self,
        scope: &Scope,
        status: Option<BatchStatus>,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Batch>> {
        verb!(self, Read, tx => lists::batches(&mut tx, scope, status, after, limit))
    }

    async fn sessions(&self) -> Result<Vec<Session>> {
        verb!(self, Read, tx => session::list(&mut tx))
    }

    async fn totals(&self, scope: &Scope, queues: &Queues) -> Result<Totals> {
        verb!(self, Read, tx => inspect::totals(&mut tx, scope, queues))
    }

    async fn changes(&self, scope: &Scope, since: u64, wait: Duration) -> Result<ChangeSet> {
        let until = Instant::now() + wait;
        let mut changed = self.shared.feed.changes();
        // What this process did before the call is in the feed before we look.
        self.shared.feed.settled().await;
        let mut since = since;
        let poll = Poll::default();
        loop {
            changed.mark_unchanged();
            let set = self.read_changes(scope, since).await?;
            if !set.changes.is_empty() || set.missed || Instant::now() >= until {
                return Ok(set);
            }
            since = set.cursor;
            let look = if self.shared.feed.is_listening() { BELIEVE } else { poll.next() };
            let at = until.min(Instant::now() + look);
            // Whether by a notice or by its time: the next look tells.
            let _ = tokio::time::timeout_at(at, changed.changed()).await;
        }
    }

    async fn wake(&self, seen: u64, wait: Duration) -> u64 {
        let mut wakes = self.shared.feed.wakes();
        let patience =
            if self.shared.feed.is_listening() { BELIEVE } else { self.shared.poll.next() };
        let news = wakes.wait_for(|count| *count != seen);
        match tokio::time::timeout(wait.min(patience), news).await {
            Ok(_) => self.shared.poll.reset(),
            // What others did, nobody tells us: something may be there.
            Err(_) if patience < wait => self.shared.feed.suspect(),
            Err(_) => {}
        }
        *self.shared.feed.wakes().borrow()
    }

    async fn migrate(&self) -> Result<u32> {
        self.migrate_schema().await
    }

    async fn verify(&self) -> Result<Vec<Violation>> {
        // What a crash left between a commit and its batch's next step is no violation.
        self.touch_ended().await?;
        patient_verb!(self, Read, tx => verify::verify(&mut tx)).await
    }
}

impl PostgresStore {
    async fn read_changes(&self, scope: &Scope, since: u64) -> Result<ChangeSet> {
        verb!(self, Read, tx => inspect::changes(&mut tx, scope, since))
    }

    async fn touch_ended(&self) -> Result<()> {
        verb!(self, Durable, tx => maintain::touch_ended(&mut tx))
    }
}
