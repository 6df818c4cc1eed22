//! Tasks of workers that were counted as lost and came back: their runs are not repeated, and their
//! results are taken, as long as no other worker has begun the task.
//!
//! While the exit reason of the worker's job is awaited, the server still has the leases: the worker
//! simply has its tasks again. Once the loss is recorded in the store, the unit is claimed anew, under
//! another lease. Until then the worker keeps the task, and a result that it reports is kept here.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::time::Duration;

use longshore::UnitId;
use longshore::worker_session::Lease;

use super::Core;
use crate::scheduler::WorkerKey;
use crate::script::RunReport;
use crate::wire::ToWorker;

/// How long a unit may take to be claimed again after its worker has come back and its loss is written.
const ADOPTION_WAIT: Duration = Duration::from_secs(10);
/// For how many tasks of lost workers the leases are kept.
const MAX_CUT_OFF: usize = 100_000;

/// Tasks of lost workers.
#[derive(Default)]
pub(super) struct CutOffTasks {
    /// The leases under which lost workers may still have tasks.
    lost: HashMap<UnitId, LostTask>,
    /// Tasks that a worker has while the store is about to hand out their units again.
    returned: HashMap<UnitId, ReturnedTask>,
}

struct LostTask {
    lease: Lease,
    /// The store has recorded the loss.
    is_written: bool,
}

struct ReturnedTask {
    worker: WorkerKey,
    lease: Lease,
    /// The result, if the run has ended.
    report: Option<Box<RunReport>>,
    /// When the unit must be claimed again; unknown until the loss is written.
    deadline: Option<Duration>,
}

impl CutOffTasks {
    /// A worker was counted as lost with these tasks.
    pub(super) fn on_lost(&mut self, leases: impl ExactSizeIterator<Item = Lease>) {
        if self.lost.len() + leases.len() > MAX_CUT_OFF {
            self.lost.clear();
        }
        self.lost.extend(leases.map(|lease| (lease.unit, LostTask { lease, is_written: false })));
    }

    /// The store has recorded the loss of this unit's run, or another end that no worker reported.
    pub(super) fn on_loss_written(&mut self, now: Duration, unit: UnitId) {
        if let Some(lost) = self.lost.get_mut(&unit) {
            lost.is_written = true;
        }
        if let Some(returned) = self.returned.get_mut(&unit) {
            returned.deadline.get_or_insert(now + ADOPTION_WAIT);
        }
    }

    /// A worker has begun the task, under another lease than the lost one.
    pub(super) fn on_started(&mut self, lease: Lease) {
        if self.lost.get(&lease.unit).is_some_and(|lost| lost.lease != lease) {
            self.lost.remove(&lease.unit);
        }
    }

    /// Keeps the result of a task until its unit is claimed again. Returns the result of any other task.
    pub(super) fn on_ended(
        &mut self,
        worker: WorkerKey,
        lease: Lease,
        report: Box<RunReport>,
    ) -> Option<Box<RunReport>> {
        match self.returned.get_mut(&lease.unit) {
            Some(returned) if (returned.worker, returned.lease) == (worker, lease) => {
                returned.report = Some(report);
                None
            }
            _ => Some(report),
        }
    }
}

impl Core {
    /// A worker has registered with leases that the scheduler does not know. Returns the leases
    /// that it must drop.
    pub(super) fn take_back(&mut self, now: Duration, worker: WorkerKey, leases: Vec<Lease>) -> Vec<Lease> {
        self.reinstate_unresolved(now, worker, &leases);
        leases.into_iter().filter(|lease| !self.takes_back(now, worker, *lease)).collect()
    }

    /// Puts back the tasks that were lost with this worker, if their loss is not recorded yet. What the
    /// worker does not have is queued.
    fn reinstate_unresolved(&mut self, now: Duration, worker: WorkerKey, held: &[Lease]) {
        let Some(uid) = self.scheduler.worker(worker).map(|entry| entry.uid.clone()) else { return };
        for task in self.unresolved.take(&uid) {
            self.cut_off.lost.remove(&task.lease.unit);
            if held.contains(&task.worker_lease) {
                tracing::info!(unit = %task.lease.unit, %worker, "a worker that was counted as lost still has the script");
                self.scheduler.reinstate(worker, task);
            } else {
                self.scheduler.requeue_lost(now, task);
            }
        }
    }

    fn takes_back(&mut self, now: Duration, worker: WorkerKey, lease: Lease) -> bool {
        let task = self.scheduler.task(lease.unit);
        if task.is_some_and(|task| task.worker_lease == lease) {
            return self.scheduler.holder(lease.unit) == Some(worker);
        }
        let is_claimed = task.is_some();
        let lost = self.cut_off.lost.get(&lease.unit).filter(|lost| lost.lease == lease);
        let Some(is_written) = lost.map(|lost| lost.is_written).filter(|_| self.shutdown.is_none()) else {
            return false;
        };
        if is_claimed {
            let adopted = self.scheduler.adopt(worker, lease);
            self.cut_off.lost.remove(&lease.unit);
            return adopted;
        }
        let deadline = is_written.then_some(now + ADOPTION_WAIT);
        self.cut_off.returned.insert(lease.unit, ReturnedTask { worker, lease, report: None, deadline });
        true
    }

    /// A unit was claimed. If a worker that came back has its task, the task stays there.
    pub(super) fn return_to_worker(&mut self, unit: UnitId) {
        let Some(returned) = self.cut_off.returned.remove(&unit) else { return };
        self.cut_off.lost.remove(&unit);
        let ReturnedTask { worker, lease, report, .. } = returned;
        if !self.workers.contains_key(&worker) || !self.scheduler.adopt(worker, lease) {
            return;
        }
        tracing::info!(%unit, %worker, "a worker that was counted as lost still has the script");
        if let Some(report) = report {
            self.on_task_ended(self.now(), worker, lease, &report);
        }
    }

    /// Stops runs of units that were not claimed in time: the units were cancelled, or failed.
    pub(super) fn expire_returned(&mut self, now: Duration) {
        let expired = self
            .cut_off
            .returned
            .extract_if(|_, returned| returned.deadline.is_some_and(|deadline| now >= deadline));
        for (unit, returned) in expired.collect::<Vec<_>>() {
            self.cut_off.lost.remove(&unit);
            let message = match returned.report {
                Some(_) => ToWorker::ResultsRecorded(vec![returned.lease]),
                None => ToWorker::Cancel(vec![unit]),
            };
            self.send(returned.worker, message);
        }
    }
}
