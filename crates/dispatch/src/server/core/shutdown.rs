//! Shutdown: stop assigning tasks, wait for the workers, then write the last results.

use longshore::Outcome;
use longshore::store::FinishRequest;
use tokio::time::Instant;

use super::Core;
use crate::request::ShutdownMode;
use crate::wire::ToWorker;

impl Core {
    pub(super) fn begin_shutdown(&mut self, ending: ShutdownMode) {
        let limit = match ending {
            ShutdownMode::Drain(limit) => limit,
            ShutdownMode::Now => self.timing.shutdown_timeout,
        };
        self.shutdown = Some((ending, Instant::now() + limit));
        for task in self.scheduler.withdraw_all() {
            self.results.push(FinishRequest::new(task.lease, Outcome::Interrupted), None);
        }
        let outcomes = self.unresolved.resolve_all();
        self.record_losses(outcomes);
        for (id, worker) in &mut self.workers {
            worker.released = true;
            self.scheduler.on_draining(*id);
            let message = match ending {
                ShutdownMode::Drain(limit) => ToWorker::Drain(limit),
                ShutdownMode::Now => ToWorker::Stop("the pool shuts down".into()),
            };
            let _ = worker.sender.send(message);
        }
    }

    /// Whether all workers have left and all results are written, or the time is over.
    pub(super) fn is_shut_down(&self) -> bool {
        let Some((ending, deadline)) = self.shutdown else { return false };
        let timed_out = ending == ShutdownMode::Now && Instant::now() >= deadline;
        let idle = self.results.is_empty() && self.claimer.is_idle();
        timed_out || self.report.session_lost || (self.workers.is_empty() && idle)
    }

    pub(super) async fn close(&mut self) {
        for id in self.workers.keys().copied().collect::<Vec<_>>() {
            self.on_worker_lost(self.now(), id);
        }
        for task in self.scheduler.take_restored() {
            self.results.push(FinishRequest::new(task.lease, Outcome::Interrupted), None);
        }
        let _ = tokio::time::timeout(self.timing.shutdown_timeout, async {
            while !self.results.is_empty() {
                self.results.flush();
                if let Some(report) = self.results.next().await {
                    self.on_written(report);
                }
            }
            if let Err(error) = self.store.close_session(self.session).await {
                tracing::warn!(%error, "closing the session failed; it will expire");
            }
        })
        .await;
    }
}
