//! Tasks of workers that were counted as lost and came back: their runs are not repeated, and their
//! results are taken, as long as no other worker has begun the task.
//!
//! The loss is recorded in the store, so the unit is claimed anew, under another lease. Until then the
//! worker keeps the task, and a result that it reports is kept here.

use std::collections::HashMap;
use std::time::Duration;

use longshore::UnitId;
use longshore::worker_session::Lease;

use super::Core;
use crate::scheduler::WorkerKey;
use crate::script::RunReport;
use crate::wire::ToWorker;

/// How long a unit may take to be claimed again after its worker has come back.
const ADOPTION_WAIT: Duration = Duration::from_secs(10);
/// For how many tasks of lost workers the leases are kept.
const MAX_CUT_OFF: usize = 100_000;

/// Tasks of lost workers.
#[derive(Default)]
pub(super) struct CutOffTasks {
    /// The leases under which lost workers may still have tasks.
    lost: HashMap<UnitId, Lease>,
    /// Tasks that a worker has while the store is about to hand out their units again.
    returned: HashMap<UnitId, ReturnedTask>,
}

struct ReturnedTask {
    worker: WorkerKey,
    lease: Lease,
    /// The result, if the run has ended.
    report: Option<Box<RunReport>>,
    deadline: Duration,
}

impl CutOffTasks {
    /// A worker was counted as lost with these tasks.
    pub(super) fn on_lost(&mut self, leases: &[Lease]) {
        if self.lost.len() + leases.len() > MAX_CUT_OFF {
            self.lost.clear();
        }
        self.lost.extend(leases.iter().map(|lease| (lease.unit, *lease)));
    }

    /// A worker has begun the task, under another lease than the lost one.
    pub(super) fn on_started(&mut self, lease: Lease) {
        if self.lost.get(&lease.unit).is_some_and(|lost| *lost != lease) {
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
        leases.into_iter().filter(|lease| !self.takes_back(now, worker, *lease)).collect()
    }

    fn takes_back(&mut self, now: Duration, worker: WorkerKey, lease: Lease) -> bool {
        if self.cut_off.lost.get(&lease.unit) != Some(&lease) || self.shutdown.is_some() {
            return false;
        }
        if self.scheduler.task(lease.unit).is_some() {
            let adopted = self.scheduler.adopt(worker, lease);
            self.cut_off.lost.remove(&lease.unit);
            return adopted;
        }
        let returned = ReturnedTask { worker, lease, report: None, deadline: now + ADOPTION_WAIT };
        self.cut_off.returned.insert(lease.unit, returned);
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
        let expired = self.cut_off.returned.extract_if(|_, returned| now >= returned.deadline);
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
