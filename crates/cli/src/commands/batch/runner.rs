//! Runs batches to their end in this process: concurrently their rows, one worker for completion
//! units and the store's maintenance, and the progress display.

mod provider_batch;
mod run_batch;

use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::join_all;
use longshore::{Batch, Worker};
use longshore_ai::Inference;
use longshore_batch::BatchFill;
use longshore_batch::definition::{Ai, RowConcurrency};
use longshore_batch::row_enqueuer::TakenRow;
use tokio::sync::Notify;

use super::completion_wait::{CompletionStatus, CompletionUnits};
use super::context::BatchContext;
use super::handlers::BatchWorkers;
use super::progress::ProgressDisplay;
use super::signals::Shutdown;
use super::tenant_profile::{self, SeparateLedger};
use crate::inference;
use crate::semaphore_backend;
use crate::settings::Settings;

/// The result of a batch that was run here.
pub struct BatchRun {
    /// The batch at the end.
    pub batch: Batch,
    /// Candidates that belong to another batch.
    pub skipped: u64,
    /// Some of them, with their batches.
    pub taken: Vec<TakenRow>,
    /// It was left before its end, or before its completion unit ran.
    pub interrupted: bool,
    /// The state of its completion unit.
    pub end: CompletionStatus,
}

/// Runs batches to their end, or until a signal, with `workers` each, or as many as each was
/// started with. An error of one batch does not stop the others.
pub async fn run_to_end(
    context: &BatchContext,
    initiations: Vec<BatchFill>,
    workers: Option<RowConcurrency>,
    settings: &Settings,
) -> anyhow::Result<Vec<anyhow::Result<BatchRun>>> {
    let pools = semaphore_backend::registry(settings).await?;
    let separate = separate_ledger(context, &initiations, settings).await?;
    let inference = open_if_needed(context, &initiations, separate.as_ref(), settings)?;
    let inference = inference.map(|inference| inference.with_pools(pools.clone()));
    let batch_workers = BatchWorkers::new(context, settings, inference.clone(), pools.clone())?;
    let shutdown = Shutdown::new();
    let display = ProgressDisplay::new(settings.output);
    let drain_limit = drain_limit(&initiations, settings);
    let runner = LocalRunner {
        context,
        batch_workers: &batch_workers,
        shutdown: &shutdown,
        display: &display,
        workers,
    };
    let runs = tokio::select! {
        runs = runner.run_all(initiations) => runs,
        failed = shutdown.listen(drain_limit, |words| display.print(words)) => failed.map(|()| Vec::new()),
        () = run_background(inference.as_ref(), context, separate.as_ref()) => Ok(Vec::new()),
    };
    if let Some(inference) = &inference {
        inference::flush(inference).await;
        if let Some(separate) = &separate {
            inference.close_session(&*separate.store).await?;
        }
    }
    pools.flush().await;
    runs
}

/// The store of the profiles that the batches name, if it is not the batches' own. A profile that
/// is missing fails a single batch before its first row; of several, the others are run.
async fn separate_ledger(
    context: &BatchContext,
    initiations: &[BatchFill],
    settings: &Settings,
) -> anyhow::Result<Option<SeparateLedger>> {
    let mut separate = None;
    for one in initiations {
        match tenant_profile::find(one.definition(), context, settings).await {
            Ok(found) => separate = found.or(separate),
            Err(error) if initiations.len() == 1 => return Err(error),
            Err(error) => {
                settings.output.note(format!("warning: batch `{}`: {error:#}", one.batch().id));
            }
        }
    }
    Ok(separate)
}

/// Opens inference if any row needs it.
fn open_if_needed(
    context: &BatchContext,
    initiations: &[BatchFill],
    separate: Option<&SeparateLedger>,
    settings: &Settings,
) -> anyhow::Result<Option<Inference>> {
    if !initiations.iter().any(|one| one.definition().questions().any(Ai::needs_inference)) {
        return Ok(None);
    }
    Ok(Some(match separate {
        Some(other) => inference::open_inference(&other.ledger, settings)?.with_separate_ledger(),
        None => inference::open_inference(&context.ledger, settings)?,
    }))
}

/// Runs inference's background tasks while awaited.
async fn run_background(
    inference: Option<&Inference>,
    context: &BatchContext,
    separate: Option<&SeparateLedger>,
) {
    match (inference, separate) {
        (Some(inference), None) => inference::run_background(inference, &*context.store).await,
        // The calls' sessions are in the store of the calls.
        (Some(inference), Some(SeparateLedger { store, .. })) => {
            tokio::join!(inference::run_background(inference, &**store), inference.run_heartbeat(&**store));
        }
        (None, _) => std::future::pending().await,
    }
}

/// The longest drain: a request in flight may take its whole timeout.
fn drain_limit(initiations: &[BatchFill], settings: &Settings) -> Duration {
    let given = initiations.iter().map(|one| one.definition().timeout()).max();
    given.unwrap_or_default().max(settings.worker.drain_timeout)
}

#[derive(Clone, Copy)]
struct LocalRunner<'a> {
    context: &'a BatchContext,
    batch_workers: &'a BatchWorkers<'a>,
    shutdown: &'a Shutdown,
    display: &'a ProgressDisplay,
    workers: Option<RowConcurrency>,
}

impl<'a> LocalRunner<'a> {
    /// Runs all batches concurrently, and one worker for their completion units.
    async fn run_all(self, initiations: Vec<BatchFill>) -> anyhow::Result<Vec<anyhow::Result<BatchRun>>> {
        let completion_worker = self.batch_workers.completion_worker()?;
        let (over, gone) = (Notify::new(), Notify::new());
        let uses_provider_batches = provider_batch::wanted(&initiations);
        let running = async {
            let all = join_all(initiations.into_iter().map(|one| self.run_batch(one))).await;
            self.wait_for_provider_batches(&all, &uses_provider_batches).await;
            let completions = self.wait_for_completions(&all, gone.notified()).await;
            over.notify_one();
            (all, completions)
        };
        let completing = async {
            let worker_result = self.run_completion_worker(completion_worker, over.notified()).await;
            gone.notify_one();
            worker_result
        };
        let ((mut all, completions), worker_result) = tokio::join!(running, completing);
        let recorded = match completions {
            Ok(completions) => record_completions(&completions, &mut all).await,
            Err(error) => Err(error),
        };
        all.extend([worker_result, recorded].into_iter().filter_map(Result::err).map(Err));
        Ok(all)
    }

    /// Runs the worker for completion units and maintenance. Without it no row is retried and no
    /// batch completes, so all batches are left if it ends before they are `over`.
    async fn run_completion_worker(
        self,
        completion_worker: Worker,
        over: impl Future<Output = ()>,
    ) -> anyhow::Result<()> {
        let worker_result = self.run_worker_while(completion_worker, over).await;
        if !matches!(worker_result, Ok(Some(()))) && self.shutdown.request_drain() {
            self.display.print("the worker for completion units was stopped: leaving the remaining batches");
        }
        worker_result.map(drop)
    }

    /// The completion units of the batches, once all have run or the worker for them is gone.
    async fn wait_for_completions(
        self,
        all: &[anyhow::Result<BatchRun>],
        gone: impl Future<Output = ()>,
    ) -> anyhow::Result<CompletionUnits<'a>> {
        let (store, scope) = (&*self.context.store, self.context.client.scope());
        let batches = all.iter().flatten().map(|one| &one.batch);
        let completions = CompletionUnits::find(store, scope, batches).await?;
        tokio::select! {
            biased;
            waited = completions.wait() => waited?,
            () = self.shutdown.stop_requested() => {}
            () = gone => {}
        }
        Ok(completions)
    }

    /// Runs a worker until `needed` ends, then drains it. `None` if the worker ended first because
    /// it was told to.
    async fn run_worker_while<T>(
        self,
        worker: Worker,
        needed: impl Future<Output = T>,
    ) -> anyhow::Result<Option<T>> {
        let control = worker.control();
        let mut working = pin!(self.run_worker(worker));
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

    /// Runs a worker to its end; a second signal stops it.
    async fn run_worker(self, worker: Worker) -> anyhow::Result<()> {
        let control = worker.control();
        let stopping = async {
            self.shutdown.stop_requested().await;
            control.stop();
            std::future::pending::<Infallible>().await
        };
        tokio::select! {
            report = worker.run() => Ok(report.map(drop)?),
            never = stopping => match never {},
        }
    }
}

/// Records the state of each batch's completion unit.
async fn record_completions(
    completions: &CompletionUnits<'_>,
    all: &mut [anyhow::Result<BatchRun>],
) -> anyhow::Result<()> {
    for one in all.iter_mut().flatten() {
        one.end = completions.status(&one.batch.id).await?;
        one.interrupted |= one.end == CompletionStatus::Pending;
    }
    Ok(())
}
