//! Tasks: coming, running, ending.

use std::time::Duration;

use longshore::UnitId;
use longshore::session::Lease;

use super::{Location, ResourceRequest, Stage, Task, TaskScheduler, WorkerKey};

impl<C> TaskScheduler<C> {
    /// A task that was claimed just now.
    pub fn add(
        &mut self,
        now: Duration,
        lease: Lease,
        rank: i64,
        request: ResourceRequest,
        data: C,
    ) {
        let task = Task {
            lease,
            worker_lease: lease,
            rank,
            request,
            data,
            location: Location::Waiting,
            since: now,
        };
        self.enqueue(&task);
        self.tasks.insert(lease.unit, task);
    }

    /// A task of an earlier life: whoever has it may come back. It is known there as `told`.
    pub fn add_restored(
        &mut self,
        now: Duration,
        (lease, worker_lease): (Lease, Lease),
        rank: i64,
        request: ResourceRequest,
        data: C,
    ) {
        let task = Task {
            lease,
            worker_lease,
            rank,
            request,
            data,
            location: Location::Restored,
            since: now,
        };
        self.restored.insert(lease.unit);
        self.tasks.insert(lease.unit, task);
    }

    /// Those of an earlier life that nobody came back with: gone from the board.
    pub fn take_restored(&mut self) -> Vec<Task<C>> {
        let units = std::mem::take(&mut self.restored);
        units.into_iter().filter_map(|unit| self.tasks.remove(&unit)).collect()
    }

    /// Those of an earlier life that nobody came back with wait again: no worker has them.
    pub fn requeue_restored(&mut self, now: Duration) {
        for unit in std::mem::take(&mut self.restored) {
            if let Some(task) = self.tasks.get_mut(&unit) {
                task.worker_lease = task.lease;
            }
            self.requeue(now, unit);
        }
    }

    /// How many of an earlier life nobody has come back with yet.
    pub fn restored_count(&self) -> usize {
        self.restored.len()
    }

    /// A worker has begun a task.
    pub fn on_task_started(&mut self, id: WorkerKey, lease: Lease) {
        if let Some(task) =
            self.tasks.get_mut(&lease.unit).filter(|task| task.worker_lease == lease)
            && task.location == Location::AtWorker(id, Stage::Assigned)
        {
            task.location = Location::AtWorker(id, Stage::Started);
        }
    }

    /// A worker has ended a task, after running it for so long. `None` if it was not its own.
    pub fn on_task_done(
        &mut self,
        now: Duration,
        id: WorkerKey,
        lease: Lease,
        ran: Duration,
    ) -> Option<Task<C>> {
        let task = self.tasks.get(&lease.unit).filter(|task| task.worker_lease == lease)?;
        if !matches!(task.location, Location::AtWorker(worker, _) if worker == id) {
            return None;
        }
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.prefill.on_end(ran);
            worker.idle_since = now;
        }
        self.unassign(lease.unit);
        self.reindex(id);
        self.tasks.remove(&lease.unit)
    }

    /// A worker gives a task back that it has not begun.
    pub fn on_task_returned(&mut self, now: Duration, id: WorkerKey, lease: Lease) {
        let task = self.tasks.get(&lease.unit).filter(|task| task.worker_lease == lease);
        if task.is_some_and(
            |task| matches!(task.location, Location::AtWorker(worker, _) if worker == id),
        ) {
            self.unassign(lease.unit);
            self.requeue(now, lease.unit);
            self.reindex(id);
        }
    }

    /// Takes a task off the board that waits. `None` if a worker has it: it must be asked.
    pub fn withdraw(&mut self, unit: UnitId) -> Option<Task<C>> {
        let task = self.tasks.get(&unit).filter(|task| task.location == Location::Waiting)?;
        let (request, key) = (task.request.clone(), (task.rank, unit));
        self.dequeue(&request, key);
        self.tasks.remove(&unit)
    }

    /// Takes all off the board that wait.
    pub fn withdraw_all(&mut self) -> Vec<Task<C>> {
        let units = std::mem::take(&mut self.waiting).into_values().flatten();
        units.filter_map(|(_, unit)| self.tasks.remove(&unit)).collect()
    }

    /// The worker that has a task.
    pub fn holder(&self, unit: UnitId) -> Option<WorkerKey> {
        match self.tasks.get(&unit)?.location {
            Location::AtWorker(id, _) => Some(id),
            Location::Waiting | Location::Restored => None,
        }
    }

    /// Every task, in no order.
    pub fn tasks(&self) -> impl Iterator<Item = (UnitId, &Task<C>)> {
        self.tasks.iter().map(|(unit, task)| (*unit, task))
    }

    /// A task by its unit.
    pub fn task(&self, unit: UnitId) -> Option<&Task<C>> {
        self.tasks.get(&unit)
    }

    /// Whether a worker has said that it has begun the task.
    pub fn has_started(&self, unit: UnitId) -> bool {
        self.tasks
            .get(&unit)
            .is_some_and(|task| matches!(task.location, Location::AtWorker(_, Stage::Started)))
    }

    fn enqueue(&mut self, task: &Task<C>) {
        let queue = self.waiting.entry(task.request.clone()).or_default();
        queue.insert((task.rank, task.lease.unit));
    }

    pub(super) fn dequeue(&mut self, request: &ResourceRequest, key: (i64, UnitId)) {
        if let Some(queue) = self.waiting.get_mut(request) {
            queue.remove(&key);
            if queue.is_empty() {
                self.waiting.remove(request);
            }
        }
        self.reserved.retain(|_, unit| *unit != key.1);
    }

    pub(super) fn requeue(&mut self, now: Duration, unit: UnitId) {
        let Some(task) = self.tasks.get_mut(&unit) else { return };
        (task.location, task.since) = (Location::Waiting, now);
        let (request, key) = (task.request.clone(), (task.rank, unit));
        self.waiting.entry(request).or_default().insert(key);
    }

    pub(super) fn assign_task(&mut self, unit: UnitId, id: WorkerKey) {
        let Some(task) = self.tasks.get_mut(&unit) else { return };
        task.location = Location::AtWorker(id, Stage::Assigned);
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.assign(unit, &task.request);
        }
    }

    /// Takes a task from its worker; it is nowhere then.
    pub(super) fn unassign(&mut self, unit: UnitId) {
        let Some(task) = self.tasks.get(&unit) else { return };
        if let Location::AtWorker(id, _) = task.location
            && let Some(worker) = self.workers.get_mut(&id)
        {
            worker.release(unit, &task.request);
        }
    }
}
