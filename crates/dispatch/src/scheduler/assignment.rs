//! Assigns tasks to workers, and decides how many to claim and to retract.

use std::collections::BTreeSet;
use std::time::Duration;

use longshore::{ResourceAmount, UnitId};

use super::obstacle::Obstacle;
use super::resource_request::ResourceRequest;
use super::worker_entry::{WorkerEntry, WorkerKey};
use super::{Location, Stage, TaskScheduler};

/// A task that fits nowhere lets others pass for this long. Then a worker is reserved for it.
const RESERVE_AFTER: Duration = Duration::from_millis(500);
/// Minimum limit, in threads, for queued tasks. Below the limit, free threads are claimed for even
/// if queued tasks fit nowhere.
const MIN_BACKLOG: u32 = 256;

/// A task and the worker that gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assignment {
    /// The worker.
    pub worker: WorkerKey,
    /// The task.
    pub unit: UnitId,
}

impl<C> TaskScheduler<C> {
    /// Assigns queued tasks to workers with free threads, and prefills fast workers. Each task is
    /// assigned once: it stays with its worker until the worker ends it, returns it or is lost.
    pub fn schedule(&mut self, now: Duration) -> Vec<Assignment> {
        let mut assigned = Vec::new();
        let mut blocked = BTreeSet::new();
        self.drop_vain_reservations(now);
        while let Some((request, unit)) = self.next_waiting(&blocked) {
            match self.best_fit(now, &request, unit) {
                Some(worker) => {
                    let reserved = self.reserved.len();
                    assigned.push(self.assign(&request, unit, worker));
                    if self.reserved.len() < reserved {
                        // Another worker was reserved for this task: it takes others again.
                        blocked.clear();
                    }
                }
                None => {
                    self.reserve_worker(now, &request, unit);
                    blocked.insert(request);
                }
            }
        }
        self.prefill(now, &blocked, &mut assigned);
        assigned
    }

    /// The task with the smallest rank in all queues that are not blocked.
    fn next_waiting(&self, blocked: &BTreeSet<ResourceRequest>) -> Option<(ResourceRequest, UnitId)> {
        let queues = self.waiting.iter().filter(|(request, _)| !blocked.contains(request));
        let heads = queues.filter_map(|(request, queue)| Some((queue.first()?, request)));
        heads.min_by_key(|(head, _)| **head).map(|((_, unit), request)| (request.clone(), *unit))
    }

    /// The worker with the least free threads that suffice, unless it is reserved for another task.
    fn best_fit(&self, now: Duration, request: &ResourceRequest, unit: UnitId) -> Option<WorkerKey> {
        let is_free = |id: &WorkerKey| {
            let worker = self.workers.get(id);
            worker.is_some_and(|worker| !self.is_reserved(*id, unit) && worker.fits(now, request))
        };
        let mut candidates = self.by_free_threads.range((request.threads, WorkerKey(0))..).map(|(_, id)| *id);
        candidates.find(is_free)
    }

    /// Whether the worker is reserved for another task.
    fn is_reserved(&self, id: WorkerKey, unit: UnitId) -> bool {
        self.reserved.get(&id).is_some_and(|holder| *holder != unit)
    }

    /// Why each worker is not given the unit's task now, if it has this request. A worker without
    /// obstacle may get it with the next [`schedule`](Self::schedule).
    pub fn obstacles(
        &self,
        now: Duration,
        request: &ResourceRequest,
        unit: UnitId,
    ) -> Vec<(WorkerKey, Vec<Obstacle>)> {
        let of_worker = |(id, worker): (&WorkerKey, &WorkerEntry)| {
            let reserved = self.is_reserved(*id, unit).then_some(Obstacle::Reserved);
            (*id, worker.obstacles(now, request).chain(reserved).collect())
        };
        self.workers.iter().map(of_worker).collect()
    }

    /// Requests of queued tasks, each with their number and one of them.
    pub fn waiting_requests(&self) -> impl Iterator<Item = (&ResourceRequest, usize, UnitId)> {
        let queues = self.waiting.iter();
        queues.filter_map(|(request, queue)| Some((request, queue.len(), queue.first()?.1)))
    }

    /// Ends the reservations of workers that cannot run the task any more: too little of their
    /// lifetime is left.
    fn drop_vain_reservations(&mut self, now: Duration) {
        let (workers, tasks) = (&self.workers, &self.tasks);
        self.reserved.retain(|id, unit| {
            workers
                .get(id)
                .zip(tasks.get(unit))
                .is_some_and(|(worker, task)| worker.could_fit(now, &task.request))
        });
    }

    fn assign(&mut self, request: &ResourceRequest, unit: UnitId, worker: WorkerKey) -> Assignment {
        if let Some(task) = self.tasks.get_mut(&unit) {
            task.location = Location::AtWorker(worker, Stage::Assigned);
            let key = (task.rank, unit);
            self.dequeue(request, key);
        }
        if let Some(at) = self.workers.get_mut(&worker) {
            at.assign(unit, request);
        }
        self.reindex(worker);
        Assignment { worker, unit }
    }

    /// Reserves the worker that should have room first, if the task has waited for
    /// [`RESERVE_AFTER`].
    fn reserve_worker(&mut self, now: Duration, request: &ResourceRequest, unit: UnitId) {
        let waited = self.tasks.get(&unit).map_or(Duration::ZERO, |task| now - task.since.min(now));
        if waited < RESERVE_AFTER || self.reserved.values().any(|holder| *holder == unit) {
            return;
        }
        let takes = |id: &WorkerKey, worker: &WorkerEntry| {
            worker.indexed_free.is_some() && !self.reserved.contains_key(id) && worker.could_fit(now, request)
        };
        let candidates = self.workers.iter().filter(|(id, worker)| takes(id, worker));
        let least = candidates.min_by_key(|(_, worker)| worker.load().saturating_sub(worker.threads));
        if let Some((id, _)) = least {
            self.reserved.insert(*id, unit);
        }
    }

    /// Assigns tasks beyond the free threads to fast workers. Each worker gets an equal share of
    /// the queued tasks.
    fn prefill(
        &mut self,
        now: Duration,
        blocked: &BTreeSet<ResourceRequest>,
        assigned: &mut Vec<Assignment>,
    ) {
        let candidates: Vec<WorkerKey> =
            self.prefill_candidates.iter().filter(|id| !self.reserved.contains_key(id)).copied().collect();
        let queues: Vec<ResourceRequest> =
            blocked.iter().filter(|request| request.allows_prefill()).cloned().collect();
        for (served, id) in candidates.iter().enumerate() {
            let Some(worker) = self.workers.get(id) else { continue };
            let left: usize =
                queues.iter().filter_map(|request| Some(self.waiting.get(request)?.len())).sum();
            let share = left.div_ceil(candidates.len() - served);
            let mut deficit = worker.prefill_deficit();
            for _ in 0..share {
                let worker = self.workers.get(id);
                let could =
                    |request: &&ResourceRequest| worker.is_some_and(|worker| worker.could_fit(now, request));
                let heads = queues.iter().filter(could).filter_map(|request| {
                    let head = self.waiting.get(request)?.first()?;
                    (request.threads <= deficit).then_some((head, request))
                });
                let Some(((_, unit), request)) = heads.min_by_key(|(head, _)| **head) else {
                    break;
                };
                let (unit, request) = (*unit, request.clone());
                deficit -= request.threads;
                assigned.push(self.assign(&request, unit, *id));
            }
        }
    }

    /// Threads' worth of tasks to claim from the store: the free threads, and four times the
    /// prefill of fast workers, so that claims are few and no worker waits for one. For slow
    /// scripts nothing is claimed ahead, because a claimed task is not overtaken by a more urgent
    /// one that is sent later. If queued tasks fit nowhere, others are claimed as well, up to a
    /// limit.
    pub fn threads_to_claim(&self) -> u32 {
        let sum = |numbers: &mut dyn Iterator<Item = u32>| numbers.fold(0, u32::saturating_add);
        let workers = || self.workers.values().filter(|worker| worker.indexed_free.is_some());
        let quick = sum(&mut workers().map(|worker| worker.prefill.credit(worker.threads)));
        let here = sum(&mut self.waiting.iter().map(|(request, queue)| {
            u32::try_from(queue.len()).unwrap_or(u32::MAX).saturating_mul(request.threads)
        }));
        let free = sum(&mut self.by_free_threads.iter().map(|(free, _)| *free));
        let most = sum(&mut workers().map(|worker| worker.threads)).saturating_mul(4).max(MIN_BACKLOG);
        let free = if here < most { free } else { 0 };
        let ahead = quick.saturating_mul(4);
        // Many small claims would cost a commit each.
        let ahead = Some(ahead.saturating_sub(here)).filter(|more| *more >= ahead / 2).unwrap_or(0);
        free.saturating_add(ahead)
    }

    /// The maximum of threads and of each resource over all working workers.
    pub fn largest_worker(&self) -> ResourceRequest {
        let mut largest = ResourceRequest::default();
        for worker in self.workers.values().filter(|worker| worker.indexed_free.is_some()) {
            largest.threads = largest.threads.max(worker.threads);
            for (name, amount) in &worker.resources {
                let most = largest.resources.entry(name.clone()).or_default();
                *most = (*most).max(ResourceAmount::whole(*amount));
            }
        }
        largest
    }

    /// Prefilled tasks to take back: they wait at a busy worker while another worker is idle and no
    /// task is queued here.
    pub fn tasks_to_retract(&self) -> Vec<Assignment> {
        if !self.waiting.is_empty() {
            return Vec::new();
        }
        let mut idle: u32 = self
            .workers
            .iter()
            .filter(|(id, worker)| worker.indexed_free.is_some() && !self.reserved.contains_key(id))
            .map(|(_, worker)| worker.free_threads())
            .sum();
        let mut retracted = Vec::new();
        for (id, worker) in self.workers.iter().filter(|(_, worker)| worker.load() > worker.threads) {
            let mut beyond = worker.load() - worker.threads;
            for unit in worker.tasks().into_iter().rev() {
                let Some(task) = self.tasks.get(&unit) else { continue };
                let threads = task.request.threads;
                if threads > beyond
                    || threads > idle
                    || task.location != Location::AtWorker(*id, Stage::Assigned)
                {
                    break;
                }
                (beyond, idle) = (beyond - threads, idle - threads);
                retracted.push(Assignment { worker: *id, unit });
            }
        }
        retracted
    }
}
