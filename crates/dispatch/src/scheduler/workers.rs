//! Worker events: registered, seen, disconnected, lost, left.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use longshore::UnitId;
use longshore::worker_session::Lease;

use super::{
    Location, ReconnectDiff, Stage, Task, TaskScheduler, WorkerEntry, WorkerKey, WorkerLoss, WorkerRecord,
    WorkerState,
};

impl<C> TaskScheduler<C> {
    /// A worker registers, for the first time or after a reconnect. `held` are the leases that it
    /// has.
    pub fn on_register(
        &mut self,
        now: Duration,
        new: WorkerEntry,
        held: &[Lease],
    ) -> (WorkerKey, ReconnectDiff) {
        let id = match self.by_uid.get(&new.uid) {
            Some(id) => *id,
            None => {
                self.next_key += 1;
                WorkerKey(self.next_key)
            }
        };
        self.by_uid.insert(new.uid.clone(), id);
        let previous = self.workers.remove(&id);
        let mut worker = new;
        (worker.last_seen, worker.state, worker.idle_since) = (now, WorkerState::Working, now);
        if let Some(previous) = previous {
            worker.restore_from(previous);
        }
        self.workers.insert(id, worker);
        let diff = self.reconcile(now, id, held);
        self.reindex(id);
        (id, diff)
    }

    /// Compares the leases that a worker holds with the tasks assigned to it.
    fn reconcile(&mut self, now: Duration, id: WorkerKey, held: &[Lease]) -> ReconnectDiff {
        let mut diff = ReconnectDiff::default();
        let mut found = BTreeSet::new();
        for lease in held {
            let task = self.tasks.get(&lease.unit).filter(|task| task.worker_lease == *lease);
            match task.map(|task| task.location) {
                Some(Location::AtWorker(worker, _)) if worker == id => _ = found.insert(lease.unit),
                Some(Location::Restored) => {
                    self.restored.remove(&lease.unit);
                    self.assign_task(lease.unit, id);
                    found.insert(lease.unit);
                }
                _ => diff.forget.push(*lease),
            }
        }
        let should: Vec<UnitId> = self.workers.get(&id).map_or_else(Vec::new, WorkerEntry::tasks);
        for unit in should.into_iter().filter(|unit| !found.contains(unit)) {
            self.unassign(unit);
            self.requeue(now, unit);
            diff.missing += 1;
        }
        diff
    }

    /// A worker has the task of this unit since before it was counted as lost, under an older lease.
    /// Returns whether it keeps the task: no other worker has it.
    pub fn adopt(&mut self, id: WorkerKey, worker_lease: Lease) -> bool {
        let task = self.tasks.get_mut(&worker_lease.unit);
        let Some(task) = task.filter(|task| task.location == Location::Waiting) else { return false };
        task.worker_lease = worker_lease;
        let (request, key) = (task.request.clone(), (task.rank, worker_lease.unit));
        self.dequeue(&request, key);
        self.assign_task(worker_lease.unit, id);
        self.reindex(id);
        true
    }

    /// Puts back a lost task: its worker has registered again and still has it.
    pub fn reinstate(&mut self, id: WorkerKey, task: Task<C>) {
        let unit = task.lease.unit;
        self.tasks.insert(unit, task);
        self.assign_task(unit, id);
        self.reindex(id);
    }

    /// Queues a lost task: its worker has registered again without it, so the worker never got it or has
    /// returned it.
    pub fn requeue_lost(&mut self, now: Duration, mut task: Task<C>) {
        let unit = task.lease.unit;
        task.worker_lease = task.lease;
        self.tasks.insert(unit, task);
        self.requeue(now, unit);
    }

    /// Units that have run for at least `age`, by the uid of their worker.
    pub fn running_units(&self, now: Duration, age: Duration) -> BTreeMap<String, WorkerRecord> {
        let records = self.workers.values().map(|worker| {
            let is_old = |unit: &UnitId| {
                let task = self.tasks.get(unit);
                task.is_some_and(|task| {
                    matches!(task.location, Location::AtWorker(_, Stage::Started))
                        && now.saturating_sub(task.since) >= age
                })
            };
            // A worker starts tasks in the order of assignment, each on one thread or more.
            let running = worker.tasks().into_iter().take(worker.threads as usize).filter(is_old).collect();
            (worker.uid.clone(), WorkerRecord { threads: worker.threads, running })
        });
        records.collect()
    }

    /// A message of the worker arrived. Returns false if the worker is unknown.
    pub fn on_heartbeat(&mut self, now: Duration, id: WorkerKey) -> bool {
        self.workers.get_mut(&id).map(|worker| worker.last_seen = now).is_some()
    }

    /// The worker's connection broke. It may reconnect.
    pub fn on_disconnect(&mut self, now: Duration, id: WorkerKey) {
        self.set_state(id, WorkerState::Disconnected(now));
    }

    /// The worker accepts no more tasks.
    pub fn on_draining(&mut self, id: WorkerKey) {
        self.set_state(id, WorkerState::Draining);
    }

    fn set_state(&mut self, id: WorkerKey, state: WorkerState) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.state = state;
        }
        self.reserved.remove(&id);
        self.reindex(id);
    }

    /// Restarts all liveness timeouts. The server calls this after it could not read messages
    /// itself.
    pub fn reset_liveness(&mut self, now: Duration) {
        for worker in self.workers.values_mut() {
            worker.last_seen = now;
            if let WorkerState::Disconnected(since) = &mut worker.state {
                *since = now;
            }
        }
    }

    /// Workers that sent nothing for `ttl`, or have been disconnected for `grace`.
    pub fn overdue(&self, now: Duration, ttl: Duration, grace: Duration) -> Vec<WorkerKey> {
        let is_overdue = |worker: &WorkerEntry| match worker.state {
            WorkerState::Disconnected(since) => now.saturating_sub(since) >= grace,
            _ => now.saturating_sub(worker.last_seen) >= ttl,
        };
        self.workers.iter().filter(|(_, worker)| is_overdue(worker)).map(|(id, _)| *id).collect()
    }

    /// The worker is gone for good. Tasks that it had started, or may have, are lost; the others
    /// are queued.
    pub fn on_worker_lost(&mut self, now: Duration, id: WorkerKey) -> WorkerLoss<C> {
        let mut lost = WorkerLoss { lost: Vec::new(), requeued: 0 };
        let Some(worker) = self.workers.get(&id) else { return lost };
        let (threads, uid, units) = (worker.threads, worker.uid.clone(), worker.tasks());
        let mut ahead = 0;
        for unit in units {
            let Some(task) = self.tasks.get(&unit) else { continue };
            // A worker starts tasks in order of assignment, and may have died before it reported a
            // start.
            let may_have_started = ahead + task.request.threads <= threads;
            ahead += task.request.threads;
            let started = matches!(task.location, Location::AtWorker(_, Stage::Started));
            self.unassign(unit);
            if started || may_have_started {
                lost.lost.extend(self.tasks.remove(&unit));
            } else {
                self.requeue(now, unit);
                lost.requeued += 1;
            }
        }
        self.workers.remove(&id);
        self.by_uid.remove(&uid);
        self.reserved.remove(&id);
        self.unindex(id);
        lost
    }

    /// The worker left after it had ended or returned its tasks. Tasks it still has were not
    /// started.
    pub fn on_worker_left(&mut self, now: Duration, id: WorkerKey) {
        for unit in self.workers.get(&id).map_or_else(Vec::new, WorkerEntry::tasks) {
            self.unassign(unit);
            self.requeue(now, unit);
        }
        self.on_worker_lost(now, id);
    }
}
