//! One batch to its end: filled, worked on and watched, side by side.

use std::convert::Infallible;
use std::time::Duration;

use anyhow::Context;
use longshore::session::Order;
use longshore::{Batch, BatchId, WorkerControl};
use longshore_ai::Pilot;
use longshore_batch::definition::Workers;
use longshore_batch::{Initiation, Initiator, RowSource};

use super::{Conducted, Conductor};
use crate::commands::batch::crew::AUTO_MOST;
use crate::commands::batch::ends::Announcement;
use crate::commands::batch::halt::Halt;
use crate::commands::batch::lookout::BatchWatch;
use crate::commands::batch::show::BatchShow;
use crate::commands::watch::Asking;
use crate::error::WithHint;

/// What `auto` begins with.
const AUTO_START: u32 = 8;
/// How long a change is waited for before we look all the same.
const LOOK: Duration = Duration::from_secs(1);

impl Conductor<'_> {
    /// One batch, until it has ended or is left.
    pub(super) async fn one(self, initiation: Initiation) -> anyhow::Result<Conducted> {
        let id = initiation.batch().id.clone();
        Box::pin(self.to_its_end(&id, initiation))
            .await
            .hint("what is in goes on: run the same command again to take it up")
            .with_context(|| format!("batch `{id}` is not complete"))
    }

    async fn to_its_end(
        self,
        id: &BatchId,
        mut initiation: Initiation,
    ) -> anyhow::Result<Conducted> {
        let definition = initiation.definition();
        let workers = self.workers.unwrap_or(definition.workers);
        let source = self.place.sources.resolve(&definition.database)?;
        let asking = Asking::by(definition);
        let mut view = self.show.batch(id, expected(&initiation, &*source).await, asking);
        let initiator = Initiator::new(self.place.client.clone(), source);
        let (worker, pilot) = self.crew.rows(id, workers)?;
        let control = worker.control();
        let needed = async {
            tokio::select! {
                biased;
                ended = self.ended(id, &mut view) => ended,
                error = fill(&initiator, &mut initiation, self.halt) => Err(error),
                () = self.halt.drain() => Ok(()),
                never = steer(&pilot, &control, workers) => match never {},
            }
        };
        let mut lookout = BatchWatch::new(id, self.crew, self.show);
        let looking = lookout.keep_looking(control.reached(Order::Drain));
        let (worked, ()) = tokio::join!(self.beside(worker, needed), self.unless_stopped(looking));
        view.close();
        let stayed = worked?.transpose()?.is_some();
        let batch = self.at_rest(id).await?;
        self.unless_stopped(lookout.look()).await;
        let interrupted = batch.status.is_open();
        if interrupted && !stayed {
            self.show.say(&format!("the worker of batch `{id}` was told to end"));
        }
        let skipped = initiation.progress().skipped;
        Ok(Conducted { batch, skipped, interrupted, end: Announcement::Made })
    }

    /// Returns once the batch is at its end, or paused.
    async fn ended(self, id: &BatchId, view: &mut BatchShow) -> anyhow::Result<()> {
        let ended = self.place.client.wait_batch(id, None, |batch| view.update(batch)).await;
        Ok(ended.map(drop)?)
    }

    /// The batch as it is when nothing of it ends here any more. The last rows of one that was
    /// given up end after its status has changed.
    async fn at_rest(self, id: &BatchId) -> anyhow::Result<Batch> {
        let (store, scope) = (&self.place.store, self.place.client.scope());
        let mut cursor = store.changes(scope, u64::MAX, Duration::ZERO).await?.cursor;
        loop {
            let batch = store.batch(scope, id).await?;
            if !batch.status.is_given_up() || batch.counts.live() == 0 {
                return Ok(batch);
            }
            tokio::select! {
                () = self.halt.drain() => return Ok(batch),
                changed = store.changes(scope, cursor, LOOK) => cursor = changed?.cursor,
            }
        }
    }

    /// What may take its time, but not when everything is to end.
    async fn unless_stopped(self, work: impl Future<Output = ()>) {
        tokio::select! {
            () = work => {}
            () = self.halt.stop() => {}
        }
    }
}

/// How many rows there will be, as far as can be told: the bar knows its length from the start.
async fn expected(initiation: &Initiation, source: &dyn RowSource) -> Option<u64> {
    if initiation.batch().sealed || initiation.progress().sent > 0 {
        return None;
    }
    let candidates = &initiation.definition().candidates;
    let count = source.count(candidates).await.ok()?;
    Some(candidates.limit.map_or(count, |limit| limit.min(count)))
}

/// Returns only if it fails: a batch that is filled is not yet worked on.
async fn fill(initiator: &Initiator, initiation: &mut Initiation, halt: &Halt) -> anyhow::Error {
    match initiator.fill(initiation, halt.drain(), |_| {}).await {
        Ok(_) => std::future::pending().await,
        Err(error) => error.into(),
    }
}

async fn steer(pilot: &Pilot, control: &WorkerControl, workers: Workers) -> Infallible {
    if workers == Workers::Auto {
        control.resize(AUTO_START);
        pilot.steer(control, AUTO_START, AUTO_MOST).await;
    }
    std::future::pending().await
}
