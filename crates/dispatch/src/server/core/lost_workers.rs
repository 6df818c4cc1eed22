//! Lost workers and their tasks.

use std::collections::HashMap;
use std::time::Duration;

use longshore::store::FinishRequest;
use longshore::worker_session::Lease;
use longshore::{Outcome, UnitId};

use super::{Core, MIN_RESTORE_WAIT};
use crate::scheduler::{WorkerEntry, WorkerKey};
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
        let scripts = self.scripts_at(id);
        let interrupts_at = self.scheduler.worker(id).and_then(|worker| worker.interrupts_at);
        let lost = self.scheduler.on_worker_lost(now, id);
        let Some(worker) = self.workers.get(&id) else { return };
        // Released, or at the end of its lifetime: the scripts are not to blame.
        let expected = worker.released || interrupts_at.is_some_and(|at| now >= at);
        let description = format!("worker {} (process {}) was lost", worker.host, worker.pid);
        let launch = worker.launch;
        tracing::warn!(worker = %id, lost = lost.lost.len(), requeued = lost.requeued, expected, "{description}");
        for script_id in lost.lost.iter().filter_map(|lease| scripts.get(&lease.unit)) {
            self.release_script(*script_id);
        }
        self.cut_off.on_lost(&lost.worker_leases);
        let leases = lost.lost;
        match (expected, launch) {
            (true, _) => {
                self.record_outcomes(leases.into_iter().map(|lease| (lease, Outcome::Interrupted)).collect());
            }
            (false, Some(launch)) if !self.exit_reason_timeout.is_zero() && self.shutdown.is_none() => {
                let deadline = now + self.exit_reason_timeout;
                if !leases.is_empty() {
                    self.unresolved.push(UnresolvedLoss { launch, leases, description, deadline });
                }
            }
            (false, _) => {
                let outcome = Outcome::Lost(description);
                self.record_outcomes(leases.into_iter().map(|lease| (lease, outcome.clone())).collect());
            }
        }
        self.remove_worker(id);
    }

    pub(super) fn record_outcomes(&mut self, outcomes: Vec<(Lease, Outcome)>) {
        for (lease, outcome) in outcomes {
            self.results.push(FinishRequest::new(lease, outcome), None);
        }
    }

    /// Script ids of a worker's tasks.
    pub(super) fn scripts_at(&self, id: WorkerKey) -> HashMap<UnitId, u64> {
        let units = self.scheduler.worker(id).map_or_else(Vec::new, WorkerEntry::tasks).into_iter();
        units.filter_map(|unit| Some((unit, self.scheduler.task(unit)?.data.script_id))).collect()
    }
}
