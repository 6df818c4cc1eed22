//! Tasks of a worker: queued, running, and ended without acknowledgement. No I/O.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use longshore::worker_session::Lease;
use longshore::{ResourceAmount, UnitId};
use tokio::time::Instant;

use crate::scheduler::{ResourcePool, ResourceShare};
use crate::script::RunReport;
use crate::wire::{TaskEvent, TaskOrder};

/// Tasks and free resources of a worker.
#[derive(Debug)]
pub(super) struct TaskTable {
    threads: u32,
    free: u32,
    resources: BTreeMap<String, u32>,
    pools: BTreeMap<String, ResourcePool>,
    /// Names of a resource's instances, if they have other names than their numbers.
    names: BTreeMap<String, Vec<String>>,
    /// Number of processors.
    cpus: usize,
    /// Processors that no pinned task has.
    free_cpus: BTreeSet<usize>,
    queued: VecDeque<QueuedTask>,
    running: HashMap<UnitId, RunningTask>,
    unacknowledged: HashMap<Lease, (u64, Box<RunReport>)>,
    next_seq: u64,
}

#[derive(Debug)]
struct QueuedTask {
    order: TaskOrder,
    /// It wants processors of its own.
    is_pinned: bool,
    /// When the run must have ended.
    deadline: Option<Instant>,
}

#[derive(Debug)]
struct RunningTask {
    lease: Lease,
    threads: u32,
    shares: Vec<(String, ResourceShare)>,
    cpus: Vec<usize>,
}

/// A task to start, with the resource instances assigned to it.
#[derive(Debug)]
pub(super) struct TaskStart {
    pub(super) order: TaskOrder,
    pub(super) ids: BTreeMap<String, Vec<String>>,
    /// Of a pinned task as many processors as it has threads, which no other pinned task has; none, if the worker has
    /// fewer.
    pub(super) cpus: Vec<usize>,
    /// When the run must have ended.
    pub(super) deadline: Option<Instant>,
}

impl TaskTable {
    pub(super) fn new(
        threads: u32,
        resources: BTreeMap<String, u32>,
        names: BTreeMap<String, Vec<String>>,
        cpus: BTreeSet<usize>,
    ) -> Self {
        let pools = resources.iter().map(|(name, count)| (name.clone(), ResourcePool::new(name, *count)));
        Self {
            threads,
            free: threads,
            pools: pools.collect(),
            names,
            cpus: cpus.len(),
            free_cpus: cpus,
            resources,
            queued: VecDeque::new(),
            running: HashMap::new(),
            unacknowledged: HashMap::new(),
            next_seq: 0,
        }
    }

    /// Queues a task. Its remaining time also elapses while it is queued.
    pub(super) fn enqueue(&mut self, now: Instant, order: TaskOrder, is_pinned: bool) {
        let deadline = order.time_left.and_then(|left| now.checked_add(left));
        self.queued.push_back(QueuedTask { order, is_pinned, deadline });
    }

    /// The next task, if its resources are free. Tasks start in order of arrival.
    pub(super) fn start_next(&mut self) -> Option<TaskStart> {
        let QueuedTask { order, is_pinned, .. } = self.queued.front()?;
        // The server does not send tasks that never fit. If it does, they run with less.
        let threads = order.threads.min(self.threads);
        let suffices = |(name, needs): (&String, &ResourceAmount)| {
            let most = ResourceAmount::whole(self.resources.get(name).copied().unwrap_or(0));
            self.pools.get(name).is_none_or(|pool| pool.suffices((*needs).min(most)))
        };
        // It waits for processors that other pinned scripts have; it cannot wait for more than there are.
        let wanted = if *is_pinned && threads as usize <= self.cpus { threads as usize } else { 0 };
        if threads > self.free || wanted > self.free_cpus.len() || !order.resources.iter().all(suffices) {
            return None;
        }
        let QueuedTask { order, deadline, .. } = self.queued.pop_front()?;
        self.free -= threads;
        let (mut shares, mut ids) = (Vec::new(), BTreeMap::new());
        for (name, needs) in &order.resources {
            let Some(pool) = self.pools.get_mut(name) else { continue };
            let share = pool.take(*needs);
            ids.insert(name.clone(), self.instance_names(name, *needs, &share));
            shares.push((name.clone(), share));
        }
        let cpus: Vec<usize> = self.free_cpus.iter().copied().take(wanted).collect();
        self.free_cpus.retain(|cpu| !cpus.contains(cpu));
        let running_task = RunningTask { lease: order.lease, threads, shares, cpus: cpus.clone() };
        self.running.insert(order.lease.unit, running_task);
        Some(TaskStart { order, ids, cpus, deadline })
    }

    /// What a script is told of its share: the instances, or how much of memory and the like.
    fn instance_names(&self, name: &str, needs: ResourceAmount, share: &ResourceShare) -> Vec<String> {
        if self.pools.get(name).is_some_and(ResourcePool::is_divisible) {
            return vec![needs.to_string()];
        }
        let names = self.names.get(name);
        let named = |instance: usize| names.and_then(|names| names.get(instance)).cloned();
        share.instances().map(|instance| named(instance).unwrap_or_else(|| instance.to_string())).collect()
    }

    /// A script has ended. Its report is kept until the server acknowledges it.
    pub(super) fn finish(&mut self, lease: Lease, report: RunReport) -> Option<TaskEvent> {
        self.free_slot(lease.unit)?;
        Some(self.finish_unstarted(lease, report))
    }

    fn free_slot(&mut self, unit: UnitId) -> Option<Lease> {
        let running_task = self.running.remove(&unit)?;
        self.free += running_task.threads;
        for (name, share) in running_task.shares {
            if let Some(pool) = self.pools.get_mut(&name) {
                pool.give_back(&share);
            }
        }
        self.free_cpus.extend(running_task.cpus);
        Some(running_task.lease)
    }

    /// The server has recorded the ends of these tasks.
    pub(super) fn acknowledge(&mut self, leases: &[Lease]) {
        for lease in leases {
            self.unacknowledged.remove(lease);
        }
    }

    /// Drops tasks that no longer belong to the worker. Returns the running ones, which must be
    /// stopped.
    pub(super) fn forget(&mut self, leases: &[Lease]) -> Vec<UnitId> {
        self.queued.retain(|task| !leases.contains(&task.order.lease));
        self.acknowledge(leases);
        let running = self.running.iter().filter(|(_, running_task)| leases.contains(&running_task.lease));
        running.map(|(unit, _)| *unit).collect()
    }

    /// Removes queued tasks and returns them to the server: these, or all.
    pub(super) fn return_queued(&mut self, which: Option<&[Lease]>) -> Vec<TaskEvent> {
        let queued = std::mem::take(&mut self.queued).into_iter();
        let is_selected = |task: &QueuedTask| which.is_none_or(|all| all.contains(&task.order.lease));
        let (returned, kept): (VecDeque<QueuedTask>, _) = queued.partition(is_selected);
        self.queued = kept;
        returned.into_iter().map(|task| TaskEvent::Returned(task.order.lease)).collect()
    }

    /// Removes a queued task.
    pub(super) fn remove_queued(&mut self, unit: UnitId) -> Option<TaskOrder> {
        let at = self.queued.iter().position(|task| task.order.lease.unit == unit)?;
        self.queued.remove(at).map(|task| task.order)
    }

    /// A queued task has ended without being started.
    pub(super) fn finish_unstarted(&mut self, lease: Lease, report: RunReport) -> TaskEvent {
        let report = Box::new(report);
        self.unacknowledged.insert(lease, (self.next_seq, report.clone()));
        self.next_seq += 1;
        TaskEvent::Ended(lease, report)
    }

    /// Leases of all tasks, for the registration.
    pub(super) fn held_leases(&self) -> Vec<Lease> {
        let queued = self.queued.iter().map(|task| task.order.lease);
        let running = self.running.values().map(|running_task| running_task.lease);
        queued.chain(running).chain(self.unacknowledged.keys().copied()).collect()
    }

    /// Events to repeat after a reconnect.
    pub(super) fn unacknowledged_events(&self) -> Vec<TaskEvent> {
        let running = self.running.values().map(|running_task| TaskEvent::Started(running_task.lease));
        let mut ended: Vec<_> = self.unacknowledged.iter().collect();
        ended.sort_by_key(|(_, (at, _))| *at);
        let ended = ended.into_iter().map(|(lease, (_, report))| TaskEvent::Ended(*lease, report.clone()));
        running.chain(ended).collect()
    }

    pub(super) fn running(&self) -> usize {
        self.running.len()
    }

    /// Whether more than twice as many tasks are queued as the worker has threads.
    pub(super) fn has_backlog(&self) -> bool {
        self.queued.len() > self.threads as usize * 2
    }

    /// Whether no task is queued or running.
    pub(super) fn is_idle(&self) -> bool {
        self.queued.is_empty() && self.running.is_empty()
    }

    /// Whether there are no tasks at all.
    pub(super) fn is_empty(&self) -> bool {
        self.is_idle() && self.unacknowledged.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use longshore::Rights;

    use super::*;

    fn order(threads: u32) -> TaskOrder {
        TaskOrder {
            lease: Lease { unit: UnitId::new(), fence: 1 },
            rights: Rights::Operator,
            script_id: 0,
            attempt: 1,
            queued: 0,
            index: None,
            line: None,
            threads,
            resources: BTreeMap::new(),
            time_left: None,
        }
    }

    #[test]
    fn only_pinned_tasks_have_processors_and_wait_for_them() {
        let mut table = TaskTable::new(4, BTreeMap::new(), BTreeMap::new(), BTreeSet::from([0, 1]));
        for (threads, is_pinned) in [(1, false), (1, true), (1, true), (1, true)] {
            table.enqueue(Instant::now(), order(threads), is_pinned);
        }
        let mut start = || table.start_next().map(|start| (start.order.lease.unit, start.cpus));
        assert_eq!(start().unwrap().1, [0; 0]);
        let (first, cpus) = start().unwrap();
        assert_eq!((cpus, start().unwrap().1), (vec![0], vec![1]));
        assert!(start().is_none(), "a thread is free, a processor is not");
        table.free_slot(first);
        assert_eq!(table.start_next().unwrap().cpus, [0]);
        // It would wait for ever, and is refused where it starts.
        let mut small = TaskTable::new(4, BTreeMap::new(), BTreeMap::new(), BTreeSet::from([0]));
        small.enqueue(Instant::now(), order(2), true);
        assert_eq!(small.start_next().unwrap().cpus, [0; 0]);
    }
}
