//! Runs one batch to its end: fills, works on and watches it concurrently.

use std::convert::Infallible;
use std::time::Duration;

use anyhow::Context;
use longshore::worker_session::WorkerCommand;
use longshore::{Batch, BatchId, WorkerControl};
use longshore_ai::AdaptiveConcurrency;
use longshore_batch::definition::RowConcurrency;
use longshore_batch::{BatchFill, RowEnqueuer};

use super::{BatchRun, LocalRunner};
use crate::commands::batch::completion_wait::CompletionStatus;
use crate::commands::batch::handlers::AUTO_MAX_ROWS;
use crate::commands::batch::progress::BatchBar;
use crate::commands::batch::signals::Shutdown;
use crate::commands::batch::stall_monitor::BatchMonitor;
use crate::commands::watch::ModelAccess;
use crate::error::WithHint;

/// Concurrent rows at the start of `auto`.
const AUTO_INITIAL_ROWS: u32 = 8;
/// The longest wait for a change before the batch is read again.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

impl LocalRunner<'_> {
    /// Runs one batch until it has ended or is left.
    pub(super) async fn run_batch(self, initiation: BatchFill) -> anyhow::Result<BatchRun> {
        let id = initiation.batch().id.clone();
        Box::pin(self.run_to_end(&id, initiation))
            .await
            .hint("rows that were sent are kept: run the same command again to resume")
            .with_context(|| format!("batch `{id}` is not complete"))
    }

    async fn run_to_end(self, id: &BatchId, mut initiation: BatchFill) -> anyhow::Result<BatchRun> {
        let definition = initiation.definition();
        let workers = self.workers.unwrap_or(definition.workers);
        let source = self.context.sources.resolve(&definition.database)?;
        let model_access = ModelAccess::by(definition);
        let mut view = self.display.batch(id, initiation.batch().expected, model_access);
        let initiator = RowEnqueuer::new(self.context.client.clone(), source);
        let (worker, adaptive) = self.batch_workers.row_worker(id, workers)?;
        let control = worker.control();
        let needed = async {
            tokio::select! {
                biased;
                ended = self.wait_for_end(id, &mut view) => ended,
                error = fill(&initiator, &mut initiation, self.shutdown) => Err(error),
                () = self.shutdown.drain_requested() => Ok(()),
                never = adapt_workers(&adaptive, &control, workers) => match never {},
            }
        };
        let mut monitor = BatchMonitor::new(id, self.batch_workers, self.display);
        let monitoring = monitor.run_until(control.wait_for_order(WorkerCommand::Drain));
        let (worked, ()) =
            tokio::join!(self.run_worker_while(worker, needed), self.until_stopped(monitoring));
        view.close();
        let completed = worked?.transpose()?.is_some();
        let batch = self.wait_until_settled(id).await?;
        self.until_stopped(monitor.check()).await;
        let interrupted = batch.status.is_open();
        if interrupted && !completed {
            self.display.print(&format!("the worker of batch `{id}` was stopped"));
        }
        let skipped = initiation.progress().skipped;
        let taken = initiation.taken().to_vec();
        Ok(BatchRun { batch, skipped, taken, interrupted, end: CompletionStatus::Done })
    }

    /// Returns once the batch has ended or is paused.
    async fn wait_for_end(self, id: &BatchId, view: &mut BatchBar) -> anyhow::Result<()> {
        let ended = self.context.client.wait_batch(id, None, |batch| view.update(batch)).await;
        Ok(ended.map(drop)?)
    }

    /// The batch once none of its rows runs here any more. The last rows of a failed or cancelled
    /// batch end after its status has changed.
    async fn wait_until_settled(self, id: &BatchId) -> anyhow::Result<Batch> {
        let (store, scope) = (&self.context.store, self.context.client.scope());
        let mut cursor = store.changes(scope, u64::MAX, Duration::ZERO).await?.cursor;
        loop {
            let batch = store.batch(scope, id).await?;
            if !batch.status.is_aborted() || batch.counts.live() == 0 {
                return Ok(batch);
            }
            tokio::select! {
                () = self.shutdown.drain_requested() => return Ok(batch),
                changed = store.changes(scope, cursor, POLL_INTERVAL) => cursor = changed?.cursor,
            }
        }
    }

    /// Runs `work` until a second signal arrives.
    async fn until_stopped(self, work: impl Future<Output = ()>) {
        tokio::select! {
            () = work => {}
            () = self.shutdown.stop_requested() => {}
        }
    }
}

/// Returns only on an error: the rows of a filled batch are still running.
async fn fill(initiator: &RowEnqueuer, initiation: &mut BatchFill, shutdown: &Shutdown) -> anyhow::Error {
    match initiator.fill(initiation, shutdown.drain_requested(), |_| {}).await {
        Ok(_) => std::future::pending().await,
        Err(error) => error.into(),
    }
}

async fn adapt_workers(
    adaptive: &AdaptiveConcurrency,
    control: &WorkerControl,
    workers: RowConcurrency,
) -> Infallible {
    if workers == RowConcurrency::Auto {
        control.resize(AUTO_INITIAL_ROWS);
        adaptive.run(control, AUTO_INITIAL_ROWS, AUTO_MAX_ROWS).await;
    }
    std::future::pending().await
}
