//! Lost workers and their tasks.

use std::time::Duration;

use longshore::Outcome;
use longshore::store::FinishRequest;

use super::{Core, MIN_RESTORE_WAIT};
use crate::scheduler::{Task, WorkerKey};
use crate::server::claimer::TaskData;
use crate::server::unresolved_losses::UnresolvedLoss;

impl Core {
    /// If all known workers have reconnected, restored tasks that none reported were not running:
    /// queue them. Otherwise, at the deadline, the tasks that missing workers had started count as lost,
    /// and the others are queued.
    pub(super) fn resolve_restored(&mut self, now: Duration) {
        let Some(deadline) = self.restore_deadline else { return };
        if self.expected_workers.is_empty() && now >= MIN_RESTORE_WAIT.min(self.timing.restart_grace) {
            self.scheduler.requeue_restored(now);
        } else if now < deadline {
            return;
        }
        self.restore_deadline = None;
        let missing = std::mem::take(&mut self.expected_workers);
        let started = self.scheduler.take_started(missing.values());
        self.scheduler.requeue_restored(now);
        for task in started {
            self.release_script(task.data.script_id);
            let description = "its worker did not reconnect after the server was restarted";
            self.results.push(FinishRequest::new(task.lease, Outcome::Lost(description.into())), None);
        }
    }

    pub(super) fn on_worker_lost(&mut self, now: Duration, id: WorkerKey) {
        let (uid, interrupts_at) = match self.scheduler.worker(id) {
            Some(worker) => (worker.uid.clone(), worker.interrupts_at),
            None => Default::default(),
        };
        let lost = self.scheduler.on_worker_lost(now, id);
        let Some(worker) = self.workers.get(&id) else { return };
        // Released, or at the end of its lifetime: the scripts are not to blame.
        let expected = worker.released || interrupts_at.is_some_and(|at| now >= at);
        let description = format!("worker {} (process {}) was lost", worker.host, worker.pid);
        let launch = worker.launch;
        tracing::warn!(worker = %id, lost = lost.lost.len(), requeued = lost.requeued, expected, "{description}");
        let tasks = lost.lost;
        self.cut_off.on_lost(tasks.iter().map(|task| task.worker_lease));
        let deadline = now + self.exit_reason_timeout;
        match launch {
            Some(launch) if !expected && deadline > now && self.shutdown.is_none() => {
                if !tasks.is_empty() {
                    self.unresolved.push(UnresolvedLoss { uid, launch, tasks, description, deadline });
                }
            }
            _ => {
                let outcome = if expected { Outcome::Interrupted } else { Outcome::Lost(description) };
                self.record_losses(tasks.into_iter().map(|task| (task, outcome.clone())).collect());
            }
        }
        self.remove_worker(id);
    }

    pub(super) fn record_losses(&mut self, losses: Vec<(Task<TaskData>, Outcome)>) {
        for (task, outcome) in losses {
            self.release_script(task.data.script_id);
            self.results.push(FinishRequest::new(task.lease, outcome), None);
        }
    }
}
