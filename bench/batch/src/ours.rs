//! The review as `batch run` does it: a batch file, an initiator that adds rows while a worker claims them,
//! rows and store in one SQLite file.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use longshore::store::Queues;
use longshore::{
    Batch, BatchId, Client, Clock as _, Kind, Policy, QueueName, Services, Store, SystemClock, Worker,
};
use longshore_ai::Provider;
use longshore_batch::definition::{Database, QUEUE, ROW_KIND, RowConcurrency};
use longshore_batch::handler::slots_for;
use longshore_batch::row_enqueuer::StartOptions;
use longshore_batch::{BatchFile, Definition, Overrides, RowEnqueuer, RowHandler, Sources};
use longshore_sqlite::{SqliteOptions, SqliteStore};

use crate::rows;

const FILE: &str = include_str!("../review/batch.toml");
/// The profile in the batch file.
const PROFILE: &str = "bench";

/// A batch over existing rows.
pub(crate) struct Review<'a> {
    /// The folder of the rows.
    pub(crate) folder: &'a Path,
    /// The number of rows.
    pub(crate) rows: u64,
    /// The number of concurrent rows.
    pub(crate) workers: u32,
    /// The model that answers.
    pub(crate) model: Arc<dyn Provider>,
}

impl Review<'_> {
    /// Reviews all rows; returns the time from the first claim to the last finish, from the batch's record.
    pub(crate) async fn run(&self) -> Result<Duration> {
        let path = rows::database(self.folder);
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path, SqliteOptions::default())?);
        let client = Client::new(Arc::clone(&store));
        let sources = Sources::new(Some(format!("sqlite:{}", path.display())), |_| None);
        let batch = self.conduct(&client, Arc::new(sources)).await?;
        ensure!(batch.counts.done == self.rows, "not every row was done: {:?}", batch.counts);
        rows::check(&path, self.rows)?;
        let ended = batch.completed_at.context("the batch has no end")?;
        Ok(ended.since(batch.started_at.context("the batch has no start")?))
    }

    async fn conduct(&self, client: &Client, sources: Arc<Sources>) -> Result<Batch> {
        let definition = self.definition()?;
        let source = sources.resolve(&definition.database)?;
        let initiator = RowEnqueuer::new(client.clone(), source);
        let options = StartOptions { now: SystemClock.now(), ..StartOptions::default() };
        let mut initiation = initiator.start(definition, options).await?;
        let id = initiation.batch().id.clone();
        let worker = self.worker(client, &id, sources)?;
        let control = worker.control();
        let filling = async {
            let filled = initiator.fill(&mut initiation, std::future::pending(), |_| {}).await;
            filled.map_err(anyhow::Error::from)
        };
        let watching = async {
            let waiting = async { Ok(client.wait_batch(&id, None, |_| {}).await?) };
            let (_, batch) = tokio::try_join!(filling, waiting)?;
            control.drain();
            anyhow::Ok(batch)
        };
        let working = async { Ok(worker.run().await?) };
        let (_, batch) = tokio::try_join!(working, watching)?;
        Ok(batch)
    }

    fn definition(&self) -> Result<Definition> {
        let file = self.folder.join("batch.toml");
        std::fs::write(&file, FILE)?;
        let workers = Some(RowConcurrency::Fixed(self.workers));
        let mut definition =
            BatchFile::load(&file, &Overrides { workers, ..Overrides::default() })?.definition;
        // As in `batch run` with rows and store in one file: POST commits with the finish.
        definition.database = Database::Store;
        Ok(definition)
    }

    fn worker(&self, client: &Client, batch: &BatchId, sources: Arc<Sources>) -> Result<Worker> {
        let handler = RowHandler::builder(sources)
            .max_in_flight(self.workers)
            .label("bench")
            .provider(PROFILE, Arc::clone(&self.model))
            .build();
        let worker = Worker::builder(Arc::clone(client.store()))
            .queues(Queues::Named(vec![QueueName::new(QUEUE)?]))
            .batch(batch.clone())
            .slots(slots_for(self.workers))
            .services(Services::All)
            .handle(Kind::new(ROW_KIND)?, Policy::default(), handler);
        Ok(worker.build()?)
    }
}
