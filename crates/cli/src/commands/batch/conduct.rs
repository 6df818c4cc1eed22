//! Running batches to their end in this process: initiator, workers, completion, alerts and what a
//! person sees of it, side by side.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures_util::future::join_all;
use longshore::{Batch, BatchId, Worker};
use longshore_batch::definition::Workers;
use longshore_batch::{Initiation, Initiator, RowSource};
use tokio::time::interval;

use super::crew::Crew;
use super::ends;
use super::halt::Halt;
use super::lookout::Lookout;
use super::place::Place;
use super::show::Show;
use crate::error::WithHint;
use crate::settings::Settings;

/// Most rows at once that `auto` tries.
const AUTO_MOST: u32 = 256;
/// What `auto` begins with.
const AUTO_START: u32 = 8;
/// How often batches are looked at for alerts.
const LOOK: Duration = Duration::from_secs(2);

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
    let names: Vec<BatchId> = initiations.iter().map(|one| one.batch().id.clone()).collect();
    let patience = patience(&initiations, settings);
    let show = Arc::new(Show::new(settings.output));
    let ender = crew.ends()?;
    let control = ender.control();
    let rows = async {
        let conducting = initiations.into_iter().map(|initiation| {
            Conductor { place, crew: &crew, halt: &halt, show: &show, workers }.conduct(initiation)
        });
        let conducted: anyhow::Result<Vec<Conducted>> =
            join_all(conducting).await.into_iter().collect();
        // What was said of the ends is known only once they have been said.
        let mut conducted = conducted?;
        tokio::select! {
            () = halt.stop() => {}
            said = ends::said(&*place.store, place.client.scope(), &names) => {
                let mut said = said?;
                for one in &mut conducted {
                    one.completion = said.remove(&one.batch.id);
                }
            }
        }
        anyhow::Ok(conducted)
    };
    let conducting = async {
        let conducted = rows.await;
        control.drain();
        conducted
    };
    let working = async {
        let (ended, conducted) = tokio::join!(ender.run(), conducting);
        let conducted = conducted?;
        ended?;
        anyhow::Ok(conducted)
    };
    tokio::select! {
        conducted = working => conducted,
        ended = halt.listen(patience, |words| show.say(words)) => ended.map(|()| Vec::new()),
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

struct Conductor<'a> {
    place: &'a Place,
    crew: &'a Crew<'a>,
    halt: &'a Halt,
    show: &'a Arc<Show>,
    workers: Option<Workers>,
}

/// Why a batch is left.
enum Left {
    Ended(Box<Batch>),
    Interrupted,
}

impl Conductor<'_> {
    async fn conduct(self, mut initiation: Initiation) -> anyhow::Result<Conducted> {
        let definition = initiation.definition().clone();
        let id = initiation.batch().id.clone();
        let source = self.place.sources.resolve(&definition.database)?;
        let expected = expected(&initiation, &*source).await;
        let initiator = Initiator::new(self.place.client.clone(), source);
        let mut view = self.show.batch(&id, expected);
        let workers = self.workers.unwrap_or(definition.workers);
        let (slots, start) = match workers {
            Workers::Fixed(slots) => (slots, slots),
            Workers::Auto => (AUTO_MOST, AUTO_START),
        };
        let (worker, pilot) = self.crew.rows(&id, slots)?;
        let control = worker.control();
        control.resize(start);
        let filling = async {
            match initiator.fill(&mut initiation, self.halt.drain(), |_| {}).await {
                Ok(_) => std::future::pending().await,
                Err(error) => anyhow::Error::from(error),
            }
        };
        let watching = self.place.client.wait_batch(&id, None, |batch| view.update(batch));
        let steering = async {
            if workers == Workers::Auto {
                pilot.steer(&control, AUTO_START, AUTO_MOST).await;
            }
            std::future::pending::<()>().await;
        };
        let mut lookout = Lookout::new(self.place, self.crew.actions(), &definition, self.show);
        let looking = async {
            let mut ticks = interval(LOOK);
            loop {
                ticks.tick().await;
                lookout.look(&id).await;
            }
        };
        let orders = worker.control();
        let leaving = async {
            let left = tokio::select! {
                biased;
                batch = watching => Ok(Left::Ended(Box::new(batch?))),
                error = filling => Err(error).with_context(|| format!("batch `{id}` is not complete")),
                () = self.halt.drain() => Ok(Left::Interrupted),
                () = steering => Ok(Left::Interrupted),
                () = looking => Ok(Left::Interrupted),
            };
            orders.drain();
            left
        };
        let (ended, left) = tokio::join!(self.work(worker), leaving);
        ended?;
        let left = left.hint("what is in goes on: run the same command again to take it up")?;
        lookout.look(&id).await;
        let skipped = initiation.progress().skipped;
        let (batch, interrupted) = match left {
            Left::Ended(batch) => (*batch, false),
            Left::Interrupted => {
                (self.place.store.batch(self.place.client.scope(), &id).await?, true)
            }
        };
        view.close();
        Ok(Conducted { batch, skipped, interrupted, completion: None })
    }

    /// The worker, stopped when a signal says so.
    async fn work(&self, worker: Worker) -> anyhow::Result<()> {
        let control = worker.control();
        let stopping = async {
            self.halt.stop().await;
            control.stop();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            report = worker.run() => report.map(drop).map_err(Into::into),
            () = stopping => Ok(()),
        }
    }
}
