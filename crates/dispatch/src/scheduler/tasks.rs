//! Task events: added, started, ended, returned, withdrawn.

use std::collections::BTreeSet;
use std::time::Duration;

use longshore::UnitId;
use longshore::worker_session::Lease;

use super::{Location, ResourceRequest, Stage, Task, TaskScheduler, WorkerKey, WorkerRecord};

impl<C> TaskScheduler<C> {
    /// Adds a task that the server has just claimed.
    pub fn add(&mut self, now: Duration, lease: Lease, rank: i64, request: ResourceRequest, data: C) {
        let task =
            Task { lease, worker_lease: lease, rank, request, data, location: Location::Waiting, since: now };
        self.enqueue(&task);
        self.tasks.insert(lease.unit, task);
    }

    /// Adds a task that an earlier server process had claimed. The worker that holds it under
    /// `worker_lease` may reconnect.
    pub fn add_restored(
        &mut self,
        now: Duration,
        (lease, worker_lease): (Lease, Lease),
        rank: i64,
        request: ResourceRequest,
        data: C,
    ) {
        let task =
            Task { lease, worker_lease, rank, request, data, location: Location::Restored, since: now };
        self.restored.insert(lease.unit);
        self.tasks.insert(lease.unit, task);
    }

    /// Removes the restored tasks that no worker has reported.
    pub fn take_restored(&mut self) -> Vec<Task<C>> {
        let units = std::mem::take(&mut self.restored);
        units.into_iter().filter_map(|unit| self.tasks.remove(&unit)).collect()
    }

    /// Removes the restored tasks that these workers, which have not reconnected, had started. Those
    /// that the records name had; others may have, as far as a worker has threads that no named task
    /// occupies, in the order of assignment.
    pub fn take_started<'a>(&mut self, missing: impl Iterator<Item = &'a WorkerRecord>) -> Vec<Task<C>> {
        let threads = |unit: &UnitId| self.tasks.get(unit).map_or(0, |task| task.request.threads);
        let (mut started, mut free) = (BTreeSet::new(), 0_u32);
        for WorkerRecord { threads: all, running } in missing {
            let running: Vec<UnitId> =
                running.iter().filter(|unit| self.restored.contains(unit)).copied().collect();
            free = free.saturating_add(all.saturating_sub(running.iter().map(threads).sum()));
            started.extend(running);
        }
        let others = self.restored.difference(&started).filter_map(|unit| self.tasks.get(unit));
        let mut others: Vec<_> =
            others.map(|task| (task.rank, task.lease.unit, task.request.threads)).collect();
        others.sort_unstable();
        for (_, unit, threads) in others {
            if threads > free {
                break;
            }
            free -= threads;
            started.insert(unit);
        }
        self.restored.retain(|unit| !started.contains(unit));
        started.into_iter().filter_map(|unit| self.tasks.remove(&unit)).collect()
    }

    /// Queues the restored tasks that no worker has reported. Call this if no worker can hold them.
    pub fn requeue_restored(&mut self, now: Duration) {
        for unit in std::mem::take(&mut self.restored) {
            if let Some(task) = self.tasks.get_mut(&unit) {
                task.worker_lease = task.lease;
            }
            self.requeue(now, unit);
        }
    }

    /// Whether the task was restored and no worker has reported it yet.
    pub fn is_restored(&self, unit: UnitId) -> bool {
        self.restored.contains(&unit)
    }

    /// Number of restored tasks that no worker has reported yet.
    pub fn restored_count(&self) -> usize {
        self.restored.len()
    }

    /// A worker has started a task.
    pub fn on_task_started(&mut self, now: Duration, id: WorkerKey, lease: Lease) {
        if let Some(task) = self.tasks.get_mut(&lease.unit).filter(|task| task.worker_lease == lease)
            && task.location == Location::AtWorker(id, Stage::Assigned)
        {
            (task.location, task.since) = (Location::AtWorker(id, Stage::Started), now);
        }
    }

    /// A worker has ended a task after running it for `ran`. Returns `None` if the task is not
    /// assigned to this worker.
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

    /// A worker returns a task that it has not started.
    pub fn on_task_returned(&mut self, now: Duration, id: WorkerKey, lease: Lease) {
        let task = self.tasks.get(&lease.unit).filter(|task| task.worker_lease == lease);
        if task.is_some_and(|task| matches!(task.location, Location::AtWorker(worker, _) if worker == id)) {
            self.unassign(lease.unit);
            self.requeue(now, lease.unit);
            self.reindex(id);
        }
    }

    /// Removes a queued task. Returns `None` if a worker has it: the server must ask that worker.
    pub fn withdraw(&mut self, unit: UnitId) -> Option<Task<C>> {
        let task = self.tasks.get(&unit).filter(|task| task.location == Location::Waiting)?;
        let (request, key) = (task.request.clone(), (task.rank, unit));
        self.dequeue(&request, key);
        self.tasks.remove(&unit)
    }

    /// Removes all queued tasks.
    pub fn withdraw_all(&mut self) -> Vec<Task<C>> {
        let units = std::mem::take(&mut self.waiting).into_values().flatten();
        units.filter_map(|(_, unit)| self.tasks.remove(&unit)).collect()
    }

    /// The worker that has this task.
    pub fn holder(&self, unit: UnitId) -> Option<WorkerKey> {
        match self.tasks.get(&unit)?.location {
            Location::AtWorker(id, _) => Some(id),
            Location::Waiting | Location::Restored => None,
        }
    }

    /// All tasks, in no order.
    pub fn tasks(&self) -> impl Iterator<Item = (UnitId, &Task<C>)> {
        self.tasks.iter().map(|(unit, task)| (*unit, task))
    }

    /// The task of this unit.
    pub fn task(&self, unit: UnitId) -> Option<&Task<C>> {
        self.tasks.get(&unit)
    }

    /// Whether a worker has reported that the task started.
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

    /// Frees the task's resources at its worker. The caller requeues or removes the task.
    pub(super) fn unassign(&mut self, unit: UnitId) {
        let Some(task) = self.tasks.get(&unit) else { return };
        if let Location::AtWorker(id, _) = task.location
            && let Some(worker) = self.workers.get_mut(&id)
        {
            worker.release(unit, &task.request);
        }
    }
}
