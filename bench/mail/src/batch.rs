//! Digests as `mail digest` sends them: a batch with rows that are added, claimed, written and finished, each with
//! its tracker, rows and store in one SQLite file.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use longshore::store::Queues;
use longshore::{Client, Clock as _, Kind, Policy, QueueName, Services, Store, SystemClock, Worker};
use longshore_batch::definition::{Database, QUEUE, ROW_KIND};
use longshore_batch::file::{BatchFile, Overrides};
use longshore_batch::handler::slots_for;
use longshore_batch::row_enqueuer::StartOptions;
use longshore_batch::{RowEnqueuer, RowHandler, Sources};
use longshore_sqlite::{SqliteOptions, SqliteStore};

use crate::Scratch;
use crate::digest::{AT_ONCE, example, members, office};

pub(crate) async fn measure(scratch: &Scratch, messages: usize, rounds: usize) -> anyhow::Result<()> {
    let rate = scratch.rounds("batch", rounds, async |folder| round(folder, messages).await).await?;
    println!("{:<52} {:>8.0}/s", "the same as a batch, with queue and tracker", rate);
    Ok(())
}

/// Returns rows per second, from the first claim to the last finish.
async fn round(folder: &Path, messages: usize) -> anyhow::Result<f64> {
    let path = members(folder, messages)?;
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path, SqliteOptions::default())?);
    let client = Client::new(Arc::clone(&store));
    let sources = Arc::new(Sources::new(Some(format!("sqlite:{}", path.display())), |_| None));
    let mut definition = BatchFile::load(&example(), &Overrides::default())?.definition;
    definition.database = Database::Store;
    let initiator = RowEnqueuer::new(client.clone(), sources.resolve(&definition.database)?);
    let options = StartOptions { now: SystemClock.now(), ..StartOptions::default() };
    let mut initiation = initiator.start(definition, options).await?;
    let id = initiation.batch().id.clone();
    let (office, spool) = office(folder).await?;
    let rows =
        RowHandler::builder(sources).max_in_flight(AT_ONCE).label("bench").mail_spool(Arc::new(office));
    let worker = Worker::builder(store)
        .queues(Queues::Named(vec![QueueName::new(QUEUE)?]))
        .batch(id.clone())
        .slots(slots_for(AT_ONCE))
        .services(Services::All)
        .handle(Kind::new(ROW_KIND)?, Policy::default(), rows.build())
        .build()?;
    let control = worker.control();
    let watching = async {
        initiator.fill(&mut initiation, std::future::pending(), |_| {}).await?;
        let batch = client.wait_batch(&id, None, |_| {}).await?;
        control.drain();
        anyhow::Ok(batch)
    };
    let working = async { Ok(worker.run().await?) };
    let (_, batch) = tokio::try_join!(working, watching)?;
    let done = batch.counts.done;
    ensure!(done >= messages as u64, "not every recipient has a message: {:?}", batch.counts);
    ensure!(spool.stats(SystemClock.now())?.pending as u64 == done);
    let ended = batch.completed_at.context("the batch has no end")?;
    let took = ended.since(batch.started_at.context("the batch has no start")?);
    Ok(done as f64 / took.as_secs_f64())
}
