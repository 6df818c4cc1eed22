//! Explains why tasks wait, from the scheduler's own decision whether they fit.

use longshore::UnitId;

use super::Core;
use crate::request::{TaskPosition, UnfitScripts, WorkerObstacles};
use crate::scheduler::{Obstacle, ResourceRequest, WorkerEntry, WorkerState};

/// Where a unit's task is, and why each worker is not given it.
pub(in crate::server) struct TaskExplanation {
    /// `None`: the server has not claimed the unit.
    pub(in crate::server) position: Option<TaskPosition>,
    pub(in crate::server) workers: Vec<WorkerObstacles>,
    pub(in crate::server) unfit: Vec<Obstacle>,
    pub(in crate::server) shutting_down: bool,
}

impl Core {
    pub(super) fn explain(&self, unit: UnitId, request: ResourceRequest) -> TaskExplanation {
        // The claimed task also says whether it must run alone.
        let request = self.scheduler.task(unit).map_or(request, |task| task.request.clone());
        let workers = self.scheduler.obstacles(self.now(), &request, unit).into_iter();
        let workers = workers.filter_map(|(id, obstacles)| {
            let (entry, worker) = (self.scheduler.worker(id)?, self.workers.get(&id)?);
            Some(WorkerObstacles {
                uid: entry.uid.clone(),
                host: worker.host.clone(),
                pid: worker.pid,
                obstacles,
            })
        });
        TaskExplanation {
            position: self.position(unit),
            workers: workers.collect(),
            unfit: self.unfit(&request),
            shutting_down: self.shutdown.is_some(),
        }
    }

    fn position(&self, unit: UnitId) -> Option<TaskPosition> {
        self.scheduler.task(unit)?;
        let Some(id) = self.scheduler.holder(unit) else {
            let restored = self.scheduler.is_restored(unit);
            return Some(if restored { TaskPosition::Restored } else { TaskPosition::Queued });
        };
        let host = self.workers.get(&id).map(|worker| worker.host.clone()).unwrap_or_default();
        Some(match self.scheduler.has_started(unit) {
            true => TaskPosition::Running { host },
            false => TaskPosition::Assigned { host },
        })
    }

    /// If no worker of the pool can ever run the request, whether connected or launched later: what
    /// keeps it from the worker that comes closest. Empty if one can, or if none is known.
    pub(super) fn unfit(&self, request: &ResourceRequest) -> Vec<Obstacle> {
        let now = self.now();
        let lasting = |worker: &WorkerEntry, now| -> Vec<Obstacle> {
            worker.obstacles(now, request).filter(Obstacle::is_permanent).collect()
        };
        // A launched worker begins its life when it is launched.
        let launched: Vec<WorkerEntry> = self.launched_workers();
        let launched = launched.iter().map(|worker| lasting(worker, std::time::Duration::ZERO));
        let connected = self.scheduler.workers().map(|(_, worker)| worker);
        let connected = connected.filter(|worker| worker.state != WorkerState::Draining);
        let obstacles = launched.chain(connected.map(|worker| lasting(worker, now)));
        obstacles.min_by_key(Vec::len).unwrap_or_default()
    }

    /// Workers as the pool launches them, one of each allocation.
    fn launched_workers(&self) -> Vec<WorkerEntry> {
        let entries = self.allocations.as_ref().map(|table| table.entries()).unwrap_or_default();
        let staying = entries.iter().filter(|entry| !entry.is_leaving);
        staying.map(|entry| entry.allocation.worker()).collect()
    }

    /// Queued tasks that no worker can ever run.
    pub(super) fn unfit_queued(&self) -> Vec<UnfitScripts> {
        let queued = self.scheduler.waiting_requests().map(|(request, count, unit)| UnfitScripts {
            scripts: count as u64,
            unit,
            obstacles: self.unfit(request),
        });
        queued.filter(|scripts| !scripts.obstacles.is_empty()).collect()
    }
}
