//! Running batches to their end in this process: their rows, one worker for their ends and the
//! store's upkeep, and what a person sees of it, side by side.

mod bulk;
mod one;

use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::join_all;
use longshore::{Batch, Worker};
use longshore_ai::Desk;
use longshore_batch::Initiation;
use longshore_batch::definition::Workers;
use tokio::sync::Notify;

use super::crew::Crew;
use super::ends::{Announcement, Ends};
use super::halt::Halt;
use super::place::Place;
use super::show::Show;
use crate::inference;
use crate::permits;
use crate::settings::Settings;

/// What became of a batch that was conducted.
pub struct Conducted {
    /// The batch as it stood in the end.
    pub batch: Batch,
    /// Candidates that another batch had.
    pub skipped: u64,
    /// It was left before its end, or before its end was announced.
    pub interrupted: bool,
    /// How far the announcement of its end is.
    pub end: Announcement,
}

/// Runs batches to their end, or until a signal; with so many `workers` each, or as many as each
/// was started with. What goes wrong with one is no reason to leave the others.
pub async fn conduct(
    place: &Place,
    initiations: Vec<Initiation>,
    workers: Option<Workers>,
    settings: &Settings,
) -> anyhow::Result<Vec<anyhow::Result<Conducted>>> {
    let pools = permits::book(settings).await?;
    let desk = desk(place, &initiations, settings)?.map(|desk| desk.with_pools(pools.clone()));
    let crew = Crew::new(place, settings, desk.clone(), pools.clone())?;
    let halt = Halt::new();
    let show = Show::new(settings.output);
    let patience = patience(&initiations, settings);
    let conductor = Conductor { place, crew: &crew, halt: &halt, show: &show, workers };
    let conducted = tokio::select! {
        conducted = conductor.all(initiations) => conducted,
        failed = halt.listen(patience, |words| show.say(words)) => failed.map(|()| Vec::new()),
        () = books(desk.as_ref(), place) => Ok(Vec::new()),
    };
    if let Some(desk) = &desk {
        inference::close_books(desk).await;
    }
    pools.settle().await;
    conducted
}

/// The desk at which rows ask, if any do.
fn desk(
    place: &Place,
    initiations: &[Initiation],
    settings: &Settings,
) -> anyhow::Result<Option<Desk>> {
    let wanted = initiations.iter().any(|one| one.definition().ai.needs_desk());
    wanted.then(|| inference::desk(&place.ledger, settings)).transpose()
}

/// Keeps the desk's books, for as long as it is awaited.
async fn books(desk: Option<&Desk>, place: &Place) {
    match desk {
        Some(desk) => inference::beside(desk, &*place.store).await,
        None => std::future::pending().await,
    }
}

/// How long a drain may take: a question that is out may take as long as it was given.
fn patience(initiations: &[Initiation], settings: &Settings) -> Duration {
    let given = initiations.iter().map(|one| one.definition().ai.timeout).max();
    given.unwrap_or_default().max(settings.worker.drain_timeout)
}

#[derive(Clone, Copy)]
struct Conductor<'a> {
    place: &'a Place,
    crew: &'a Crew<'a>,
    halt: &'a Halt,
    show: &'a Show,
    workers: Option<Workers>,
}

impl<'a> Conductor<'a> {
    /// All batches side by side, and one worker for their ends.
    async fn all(
        self,
        initiations: Vec<Initiation>,
    ) -> anyhow::Result<Vec<anyhow::Result<Conducted>>> {
        let ender = self.crew.ends()?;
        let (over, gone) = (Notify::new(), Notify::new());
        let bulky = bulk::wanted(&initiations);
        let conducting = async {
            let all = join_all(initiations.into_iter().map(|one| self.one(one))).await;
            self.carried(&all, &bulky).await;
            let ends = self.ends(&all, gone.notified()).await;
            over.notify_one();
            (all, ends)
        };
        let keeping = async {
            let kept = self.keep(ender, over.notified()).await;
            gone.notify_one();
            kept
        };
        let ((mut all, ends), kept) = tokio::join!(conducting, keeping);
        let noted = match ends {
            Ok(ends) => note(&ends, &mut all).await,
            Err(error) => Err(error),
        };
        all.extend([kept, noted].into_iter().filter_map(Result::err).map(Err));
        Ok(all)
    }

    /// The worker for ends and upkeep. Without it no row is tried again and no end announced, so
    /// that all batches are left if it ends before they are `over`.
    async fn keep(self, ender: Worker, over: impl Future<Output = ()>) -> anyhow::Result<()> {
        let kept = self.beside(ender, over).await;
        if !matches!(kept, Ok(Some(()))) && self.halt.leave() {
            self.show.say("the worker that announces ends was told to end: leaving what is left");
        }
        kept.map(drop)
    }

    /// The announcements of the batches' ends, once they are made, or nobody makes them.
    async fn ends(
        self,
        all: &[anyhow::Result<Conducted>],
        gone: impl Future<Output = ()>,
    ) -> anyhow::Result<Ends<'a>> {
        let (store, scope) = (&*self.place.store, self.place.client.scope());
        let batches = all.iter().flatten().map(|one| &one.batch);
        let ends = Ends::find(store, scope, batches).await?;
        tokio::select! {
            biased;
            said = ends.said() => said?,
            () = self.halt.stop() => {}
            () = gone => {}
        }
        Ok(ends)
    }

    /// Runs a worker beside what it is needed for, and drains it once that is over. `None` if the
    /// worker ended first: somebody told it to.
    async fn beside<T>(
        self,
        worker: Worker,
        needed: impl Future<Output = T>,
    ) -> anyhow::Result<Option<T>> {
        let control = worker.control();
        let mut working = pin!(self.work(worker));
        let over = tokio::select! {
            biased;
            over = needed => Ok(over),
            worked = &mut working => Err(worked),
        };
        control.drain();
        match over {
            Ok(over) => working.await.map(|()| Some(over)),
            Err(worked) => worked.map(|()| None),
        }
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

/// Notes how far the announcement of each batch's end came.
async fn note(ends: &Ends<'_>, all: &mut [anyhow::Result<Conducted>]) -> anyhow::Result<()> {
    for one in all.iter_mut().flatten() {
        one.end = ends.look(&one.batch.id).await?;
        one.interrupted |= one.end == Announcement::Waiting;
    }
    Ok(())
}
