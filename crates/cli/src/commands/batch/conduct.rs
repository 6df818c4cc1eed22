//! Running batches to their end in this process: initiator, workers, completion, alerts and what a
//! person sees of it, side by side.

use std::convert::Infallible;
use std::time::Duration;

use anyhow::Context;
use futures_util::future::join_all;
use longshore::{Batch, BatchId, Worker, WorkerControl};
use longshore_batch::definition::Workers;
use longshore_batch::{Initiation, Initiator, Pilot, RowSource};

use super::crew::Crew;
use super::ends;
use super::halt::Halt;
use super::lookout::BatchWatch;
use super::place::Place;
use super::show::Show;
use crate::error::WithHint;
use crate::settings::Settings;

/// Most rows at once that `auto` tries.
const AUTO_MOST: u32 = 256;
/// What `auto` begins with.
const AUTO_START: u32 = 8;

/// What became of a batch that was conducted.
pub struct Conducted {
    /// The batch as it stood in the end.
    pub batch: Batch,
    /// Candidates that another batch had.
    pub skipped: u64,
    /// It was left before its end, because a signal said so.
    pub interrupted: bool,
    /// Its completion did not work.
    pub completion: Option<String>,
}

/// Runs batches to their end, or until a signal; with so many `workers` each, or as many as each
/// was started with.
pub async fn conduct(
    place: &Place,
    initiations: Vec<Initiation>,
    workers: Option<Workers>,
    settings: &Settings,
) -> anyhow::Result<Vec<Conducted>> {
    let (crew, halt) = (Crew::new(place, settings)?, Halt::new());
    let show = Show::new(settings.output);
    let patience = patience(&initiations, settings);
    let conductor = Conductor { place, crew: &crew, halt: &halt, show: &show, workers };
    tokio::select! {
        conducted = conductor.all(initiations) => conducted,
        failed = halt.listen(patience, |words| show.say(words)) => failed.map(|()| Vec::new()),
    }
}

/// How long a drain may take: a question that is out may take as long as it was given.
fn patience(initiations: &[Initiation], settings: &Settings) -> Duration {
    let given = initiations.iter().map(|one| one.definition().ai.timeout).max();
    given.unwrap_or_default().max(settings.worker.drain_timeout)
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

#[derive(Clone, Copy)]
struct Conductor<'a> {
    place: &'a Place,
    crew: &'a Crew<'a>,
    halt: &'a Halt,
    show: &'a Show,
    workers: Option<Workers>,
}

impl Conductor<'_> {
    /// All batches side by side, and one worker for their ends.
    async fn all(self, initiations: Vec<Initiation>) -> anyhow::Result<Vec<Conducted>> {
        let ender = self.crew.ends()?;
        let control = ender.control();
        let conducting = async {
            let all = join_all(initiations.into_iter().map(|one| self.one(one))).await;
            let all = self.with_ends(all.into_iter().collect::<anyhow::Result<_>>()).await;
            control.drain();
            all
        };
        let (ended, conducted) = tokio::join!(self.work(ender), conducting);
        let conducted = conducted?;
        ended?;
        Ok(conducted)
    }

    /// Waits until the batches' ends have been announced, and notes which could not be.
    async fn with_ends(
        self,
        conducted: anyhow::Result<Vec<Conducted>>,
    ) -> anyhow::Result<Vec<Conducted>> {
        let mut conducted = conducted?;
        let names: Vec<BatchId> = conducted.iter().map(|one| one.batch.id.clone()).collect();
        let mut said = tokio::select! {
            () = self.halt.stop() => return Ok(conducted),
            said = ends::said(&*self.place.store, self.place.client.scope(), &names) => said?,
        };
        for one in &mut conducted {
            one.completion = said.remove(&one.batch.id);
        }
        Ok(conducted)
    }

    /// One batch: filled, worked on, watched, until it has ended or a signal comes.
    async fn one(self, mut initiation: Initiation) -> anyhow::Result<Conducted> {
        let definition = initiation.definition().clone();
        let id = initiation.batch().id.clone();
        let source = self.place.sources.resolve(&definition.database)?;
        let mut view = self.show.batch(&id, expected(&initiation, &*source).await);
        let initiator = Initiator::new(self.place.client.clone(), source);
        let mut lookout = BatchWatch::new(&id, self.crew, self.show);
        let workers = self.workers.unwrap_or(definition.workers);
        let (worker, pilot) = self.crew.rows(&id, most(workers))?;
        let control = worker.control();
        let conducting = async {
            let left = tokio::select! {
                biased;
                ended = self.place.client.wait_batch(&id, None, |batch| view.update(batch)) => {
                    ended.map(|batch| Some(Box::new(batch))).map_err(Into::into)
                }
                error = fill(&initiator, &mut initiation, self.halt) => {
                    Err(error).with_context(|| format!("batch `{id}` is not complete"))
                }
                () = self.halt.drain() => Ok(None),
                never = steer(&pilot, &control, workers) => match never {},
                never = lookout.keep_looking() => match never {},
            };
            control.drain();
            left
        };
        let (worked, left) = tokio::join!(self.work(worker), conducting);
        worked?;
        let ended = left.hint("what is in goes on: run the same command again to take it up")?;
        lookout.look().await;
        view.close();
        let interrupted = ended.is_none();
        let batch = match ended {
            Some(batch) => *batch,
            None => self.place.store.batch(self.place.client.scope(), &id).await?,
        };
        let skipped = initiation.progress().skipped;
        Ok(Conducted { batch, skipped, interrupted, completion: None })
    }

    /// A worker to its end; stopped when a signal says so.
    async fn work(self, worker: Worker) -> anyhow::Result<()> {
        let control = worker.control();
        let stopping = async {
            self.halt.stop().await;
            control.stop();
            std::future::pending::<Infallible>().await
        };
        tokio::select! {
            report = worker.run() => Ok(report.map(drop)?),
            never = stopping => match never {},
        }
    }
}

/// Most rows at once.
fn most(workers: Workers) -> u32 {
    match workers {
        Workers::Fixed(workers) => workers,
        Workers::Auto => AUTO_MOST,
    }
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
