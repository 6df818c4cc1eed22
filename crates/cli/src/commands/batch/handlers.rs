//! The workers and handlers of batches, for `batch run` and for `worker`.

use std::sync::Arc;
use std::time::Duration;

use longshore::store::Queues;
use longshore::{
    BatchId, BuildError, Kind, Policy, PoolRegistry, QueueName, RetryPolicy, Scope, Services, Worker,
    WorkerBuilder,
};
use longshore_ai::{AdaptiveConcurrency, Inference};
use longshore_batch::definition::{COMPLETION_KIND, PROVIDER_BATCH_KIND, QUEUE, ROW_KIND, RowConcurrency};
use longshore_batch::handler::slots_for;
use longshore_batch::mail::MailSpool;
use longshore_batch::{AlertMonitor, Commands, CompletionHandler, ProviderBatchHandler, RowHandler, Sources};

use super::context::BatchContext;
use crate::batch_hooks::BatchHooks;
use crate::host_identity;
use crate::http::client::HttpClient;
use crate::mail::LazyMailSpool;
use crate::settings::Settings;

/// How long a stopped completion may run: its commands and requests cannot be told to stop, so they
/// are dropped.
const COMPLETION_GRACE: Duration = Duration::from_millis(200);

/// Maximum concurrent rows of `auto`.
pub const AUTO_MAX_ROWS: u32 = 256;

/// What the workers of batches share.
pub struct BatchWorkers<'a> {
    context: &'a BatchContext,
    settings: &'a Settings,
    actions: Arc<BatchHooks>,
    inference: Option<Inference>,
    pools: PoolRegistry,
}

/// The handlers of batches.
pub struct BatchHandlers {
    /// For rows.
    pub rows: RowHandler,
    /// For requests of rows that go into a provider's batch.
    pub bulk: ProviderBatchHandler,
    /// For the ends of batches.
    pub ends: CompletionHandler,
}

impl BatchHandlers {
    /// Handlers that load rows from `sources` and run `commands`.
    pub fn new(
        sources: &Arc<Sources>,
        commands: &Arc<Commands>,
        actions: Arc<BatchHooks>,
        inference: Inference,
        office: Arc<dyn MailSpool>,
        pages: Option<String>,
    ) -> Self {
        let rows = RowHandler::builder(Arc::clone(sources)).commands(Arc::clone(commands));
        let rows = rows
            .label(label())
            .pools(inference.pools())
            .inference(inference.clone())
            .mail_spool(office)
            .build();
        let bulk = ProviderBatchHandler::new(inference);
        let ends = CompletionHandler::new(Arc::clone(sources), actions).commands(Arc::clone(commands));
        Self { rows, bulk, ends: ends.with_pages(pages) }
    }
}

impl<'a> BatchWorkers<'a> {
    /// Workers for the batches of `place`. Rows call models through `inference` unless they have another
    /// route, and acquire permits of `pools` if their definition says so.
    pub fn new(
        context: &'a BatchContext,
        settings: &'a Settings,
        inference: Option<Inference>,
        pools: PoolRegistry,
    ) -> anyhow::Result<Self> {
        let caller = HttpClient::new(settings.http.rules());
        let actions = Arc::new(BatchHooks::new(
            settings.worker.exec_dir.clone(),
            caller,
            Arc::new(LazyMailSpool::new(settings)),
        ));
        Ok(Self { context, settings, actions, inference, pools })
    }

    /// The monitor that raises alerts of batches.
    pub fn alert_monitor(&self) -> AlertMonitor {
        let BatchContext { store, client, sources, .. } = self.context;
        let actions: Arc<BatchHooks> = Arc::clone(&self.actions);
        AlertMonitor::new(Arc::clone(store), client.scope().clone(), Arc::clone(sources), actions)
    }

    /// A worker for the rows of one batch, and the controller that adapts its size in `auto` mode.
    pub fn row_worker(
        &self,
        batch: &BatchId,
        workers: RowConcurrency,
    ) -> anyhow::Result<(Worker, AdaptiveConcurrency)> {
        let BatchContext { sources, commands, samples, .. } = self.context;
        let rows = RowHandler::builder(Arc::clone(sources)).commands(Arc::clone(commands));
        let rows = rows.samples(Arc::clone(samples));
        let office = Arc::new(LazyMailSpool::new(self.settings));
        let rows = rows.label(label()).pools(self.pools.clone()).mail_spool(office);
        let rows = match &self.inference {
            Some(inference) => rows.inference(inference.clone()),
            None => rows,
        };
        let (slots, rows) = match workers {
            RowConcurrency::Fixed(workers) => (slots_for(workers), rows.max_in_flight(workers)),
            RowConcurrency::Auto => (AUTO_MAX_ROWS, rows),
        };
        let rows = rows.build();
        let adaptive = rows.adaptive_concurrency();
        let worker = self
            .builder()?
            .slots(slots)
            .batch(batch.clone())
            .handle(Kind::new(ROW_KIND)?, Policy::default(), rows)
            .build()?;
        Ok((worker, adaptive))
    }

    /// A worker for the completion units of this tenant's batches and for their provider batches:
    /// neither belongs to a batch. It also does the store's maintenance.
    pub fn completion_worker(&self) -> anyhow::Result<Worker> {
        let act: Arc<BatchHooks> = Arc::clone(&self.actions);
        let ends = CompletionHandler::new(Arc::clone(&self.context.sources), act);
        let ends = ends.commands(Arc::clone(&self.context.commands)).with_pages(pages(self.settings));
        let mut builder = self
            .builder()?
            .services(Services::All)
            .retention(self.settings.retention)
            .grace(COMPLETION_GRACE)
            .handle(Kind::new(COMPLETION_KIND)?, completion_policy(), ends);
        if let Some(inference) = &self.inference {
            let bulk = ProviderBatchHandler::new(inference.clone());
            builder = builder.handle(Kind::new(PROVIDER_BATCH_KIND)?, ProviderBatchHandler::policy(), bulk);
        }
        let worker: Result<Worker, BuildError> = builder.build();
        Ok(worker?)
    }

    fn builder(&self) -> anyhow::Result<WorkerBuilder> {
        let scope: Scope = self.context.client.scope().clone();
        Ok(Worker::builder(Arc::clone(&self.context.store))
            .queues(Queues::Named(vec![QueueName::new(QUEUE)?]))
            .scope(scope)
            .label(label())
            .services(Services::None)
            .immediate_takeover(true)
            .ttl(self.settings.worker.ttl))
    }
}

/// The URL of the dashboard, if it is configured.
#[cfg(feature = "standard")]
pub fn pages(settings: &Settings) -> Option<String> {
    settings.web.public_url.as_ref().map(ToString::to_string)
}

/// The quickstart has no dashboard.
#[cfg(not(feature = "standard"))]
pub fn pages(_: &Settings) -> Option<String> {
    None
}

/// The retry policy of a completion unit.
pub fn completion_policy() -> Policy {
    Policy { retry: RetryPolicy { max_attempts: 5, ..RetryPolicy::default() }, ..Policy::default() }
}

/// The label of this process's sessions.
pub fn label() -> String {
    host_identity::worker_label(std::process::id())
}
