//! The workers of batches: the handlers for rows and ends, for `batch run` as for `worker`.

use std::sync::Arc;
use std::time::Duration;

use longshore::store::Queues;
use longshore::{
    BatchId, BuildError, Kind, Policy, PoolBook, QueueName, RetryPolicy, Scope, Services, Worker,
    WorkerBuilder,
};
use longshore_ai::{Desk, Pilot};
use longshore_batch::definition::{BULK_KIND, END_KIND, QUEUE, ROW_KIND, Workers};
use longshore_batch::handler::slots_for;
use longshore_batch::mail::Office;
use longshore_batch::{BulkHandler, Commands, EndHandler, Lookout, RowHandler, Sources};

use super::place::Place;
use crate::actions::Actions;
use crate::http::call::Caller;
use crate::mail::LazyOffice;
use crate::settings::Settings;
use crate::whoami;

/// How long a completion that is stopped may go on: commands and calls do not hear of it, they are
/// dropped.
const GRACE: Duration = Duration::from_millis(200);

/// Most rows at once that `auto` tries.
pub const AUTO_MOST: u32 = 256;

/// What workers of batches have in common.
pub struct Crew<'a> {
    place: &'a Place,
    settings: &'a Settings,
    actions: Arc<Actions>,
    desk: Option<Desk>,
    pools: PoolBook,
}

/// The handlers of batches.
pub struct Handlers {
    /// For rows.
    pub rows: RowHandler,
    /// For what rows ask with a provider's batches.
    pub bulk: BulkHandler,
    /// For the ends of batches.
    pub ends: EndHandler,
}

impl Handlers {
    /// Handlers that find rows through `sources`, and start `commands`.
    pub fn new(
        sources: &Arc<Sources>,
        commands: &Arc<Commands>,
        actions: Arc<Actions>,
        desk: Desk,
        office: Arc<dyn Office>,
    ) -> Self {
        let rows = RowHandler::builder(Arc::clone(sources)).commands(Arc::clone(commands));
        let rows =
            rows.label(label()).pools(desk.pools()).desk(desk.clone()).office(office).build();
        let bulk = BulkHandler::new(desk);
        Self { rows, bulk, ends: EndHandler::new(Arc::clone(sources), actions) }
    }
}

impl<'a> Crew<'a> {
    /// A crew for the batches of `place`, whose rows ask at `desk` if they do not ask elsewhere, and hold
    /// permits of `pools` if they say so.
    pub fn new(
        place: &'a Place,
        settings: &'a Settings,
        desk: Option<Desk>,
        pools: PoolBook,
    ) -> anyhow::Result<Self> {
        let caller = Caller::new(Arc::clone(&settings.http.rules));
        let actions = Arc::new(Actions::new(settings.worker.exec_dir.clone(), caller));
        Ok(Self { place, settings, actions, desk, pools })
    }

    /// Somebody who tells people when they should look.
    pub fn lookout(&self) -> Lookout {
        let Place { store, client, sources, .. } = self.place;
        let actions: Arc<Actions> = Arc::clone(&self.actions);
        Lookout::new(Arc::clone(store), client.scope().clone(), Arc::clone(sources), actions)
    }

    /// A worker for the rows of one batch, and what steers it if it is to find its own size.
    pub fn rows(&self, batch: &BatchId, workers: Workers) -> anyhow::Result<(Worker, Pilot)> {
        let Place { sources, commands, .. } = self.place;
        let rows = RowHandler::builder(Arc::clone(sources)).commands(Arc::clone(commands));
        let office = Arc::new(LazyOffice::new(self.settings));
        let rows = rows.label(label()).pools(self.pools.clone()).office(office);
        let rows = match &self.desk {
            Some(desk) => rows.desk(desk.clone()),
            None => rows,
        };
        let (slots, rows) = match workers {
            Workers::Fixed(workers) => (slots_for(workers), rows.at_once(workers)),
            Workers::Auto => (AUTO_MOST, rows),
        };
        let rows = rows.build();
        let pilot = rows.pilot();
        let worker = self
            .builder()?
            .slots(slots)
            .batch(batch.clone())
            .handle(Kind::new(ROW_KIND)?, Policy::default(), rows)
            .build()?;
        Ok((worker, pilot))
    }

    /// A worker for the ends of this tenant's batches, and for what their rows ask together: neither is a
    /// unit of a batch. It also does the store's upkeep.
    pub fn ends(&self) -> anyhow::Result<Worker> {
        let act: Arc<Actions> = Arc::clone(&self.actions);
        let ends = EndHandler::new(Arc::clone(&self.place.sources), act);
        let mut builder = self
            .builder()?
            .services(Services::All)
            .retention(self.settings.retention)
            .grace(GRACE)
            .handle(Kind::new(END_KIND)?, end_policy(), ends);
        if let Some(desk) = &self.desk {
            let bulk = BulkHandler::new(desk.clone());
            builder = builder.handle(Kind::new(BULK_KIND)?, BulkHandler::policy(), bulk);
        }
        let worker: Result<Worker, BuildError> = builder.build();
        Ok(worker?)
    }

    fn builder(&self) -> anyhow::Result<WorkerBuilder> {
        let scope: Scope = self.place.client.scope().clone();
        Ok(Worker::builder(Arc::clone(&self.place.store))
            .queues(Queues::Named(vec![QueueName::new(QUEUE)?]))
            .scope(scope)
            .label(label())
            .services(Services::None)
            .ttl(self.settings.worker.ttl))
    }
}

/// An end is announced a few times more before it is given up.
pub fn end_policy() -> Policy {
    Policy { retry: RetryPolicy { max_attempts: 5, ..RetryPolicy::default() }, ..Policy::default() }
}

/// `host:pid`, as in the list of workers.
pub fn label() -> String {
    format!("{}:{}", whoami::host(), std::process::id())
}
