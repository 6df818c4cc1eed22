//! Applies random events to the scheduler, with a simulated backend that executes its commands.
//! Every submitted call comes out exactly once, whatever happens, and at the end nothing is left.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::super::*;

type JobId = usize;

#[derive(Debug, Clone)]
enum Event {
    Submit { priority: u8, wait: bool },
    Ready(usize),
    StartFailed(usize),
    Finished(usize),
    Skipped(usize),
    Died(usize, EndCause),
    Requeue(usize),
    Withdraw(usize),
    LeaveOverflow(usize),
    Maintain,
    AdvanceTime(Duration),
    SetPrefetch(usize, usize),
    SetConcurrency(usize, usize),
    Drain(usize),
    PrefetchNext(usize),
    Replace(usize),
    Abandon(usize),
    ScheduleAbandon(usize, Duration),
    Resize(usize, usize),
    Close,
}

fn event() -> impl Strategy<Value = Event> {
    let which = 0..8_usize;
    let time = (0..40_u64).prop_map(Duration::from_secs);
    prop_oneof![
        8 => (1..4_u8, any::<bool>()).prop_map(|(priority, wait)| Event::Submit { priority, wait }),
        6 => which.clone().prop_map(Event::Ready),
        1 => which.clone().prop_map(Event::StartFailed),
        8 => which.clone().prop_map(Event::Finished),
        1 => which.clone().prop_map(Event::Skipped),
        1 => (which.clone(), prop_oneof![Just(EndCause::Died), Just(EndCause::Panic)])
            .prop_map(|(which, cause)| Event::Died(which, cause)),
        1 => which.clone().prop_map(Event::Requeue),
        2 => which.clone().prop_map(Event::Withdraw),
        1 => which.clone().prop_map(Event::LeaveOverflow),
        4 => Just(Event::Maintain),
        2 => time.clone().prop_map(Event::AdvanceTime),
        1 => (which.clone(), 0..4_usize).prop_map(|(which, prefetch)| Event::SetPrefetch(which, prefetch)),
        1 => (which.clone(), 1..4_usize).prop_map(|(which, most)| Event::SetConcurrency(which, most)),
        1 => which.clone().prop_map(Event::Drain),
        1 => which.clone().prop_map(Event::PrefetchNext),
        1 => which.clone().prop_map(Event::Replace),
        1 => which.clone().prop_map(Event::Abandon),
        1 => (which, time).prop_map(|(which, time)| Event::ScheduleAbandon(which, time)),
        1 => (0..3_usize, 1..4_usize).prop_map(|(min, more)| Event::Resize(min, min + more)),
        1 => Just(Event::Close),
    ]
}

impl ScheduledCall for JobId {
    fn is_isolated(&self) -> bool {
        self % 5 == 4
    }
}

/// A backend that executes the scheduler's commands.
struct SimulatedPool {
    scheduler: WorkerScheduler<JobId>,
    now: Instant,
    jobs: usize,
    /// Workers that were started and are not ready yet.
    starting: BTreeSet<WorkerId>,
    /// Workers that are ready, and their calls.
    ready: BTreeMap<WorkerId, Vec<JobId>>,
    /// Workers that were told to stop.
    leaving: BTreeMap<WorkerId, EndCause>,
    tickets: BTreeMap<JobId, Ticket>,
    out: BTreeSet<JobId>,
    max_workers: usize,
    resized: bool,
    /// When maintenance runs if nothing requests it earlier.
    maintenance_at: Option<Instant>,
}

impl SimulatedPool {
    fn new(settings: PoolSettings, threads: bool) -> Self {
        let max_workers = settings.max;
        Self {
            scheduler: WorkerScheduler::new(settings, threads),
            now: Instant::now(),
            jobs: 0,
            starting: BTreeSet::new(),
            ready: BTreeMap::new(),
            leaving: BTreeMap::new(),
            tickets: BTreeMap::new(),
            out: BTreeSet::new(),
            max_workers,
            resized: false,
            maintenance_at: None,
        }
    }

    fn out(&mut self, job: JobId) {
        self.tickets.remove(&job);
        assert!(self.out.insert(job), "job {job} came out twice");
    }

    fn assign(&mut self, id: WorkerId, job: JobId) {
        self.tickets.remove(&job);
        let held = self.ready.get_mut(&id).expect("calls go to workers that are ready");
        assert!(!self.leaving.contains_key(&id), "worker {id} was told to stop");
        assert!(!held.contains(&job) && !self.out.contains(&job));
        assert!(
            held.is_empty() || !held.iter().chain([&job]).any(JobId::is_isolated),
            "{job} beside {held:?}"
        );
        held.push(job);
    }

    fn start(&mut self, id: WorkerId) {
        assert!(self.starting.insert(id), "worker {id} was started twice");
    }

    fn submitted(&mut self, job: JobId, submitted: CallAdmission<JobId>) {
        match submitted {
            CallAdmission::Assigned(id, given) => {
                assert_eq!(job, given);
                self.assign(id, given);
            }
            CallAdmission::Queued(ticket, start) => {
                self.tickets.insert(job, ticket);
                start.into_iter().for_each(|id| self.start(id));
            }
            CallAdmission::Full(job) | CallAdmission::Closing(job) | CallAdmission::NoWorker(job) => {
                self.out(job);
            }
        }
    }

    fn next(&mut self, id: WorkerId, next: NextAction<JobId>) {
        match next {
            NextAction::Run(job) => self.assign(id, job),
            NextAction::Wait => {}
            NextAction::Stop(cause) => self.end(id, cause),
        }
    }

    /// A worker ends. Only an abandoned one may still have calls.
    fn end(&mut self, id: WorkerId, cause: EndCause) {
        let held = self.ready.remove(&id).unwrap_or_default();
        assert!(held.is_empty() || cause == EndCause::Timeout, "worker {id} ends with {held:?}");
        self.worker_ended(id, cause, held);
    }

    fn worker_ended(&mut self, id: WorkerId, cause: EndCause, held: Vec<JobId>) {
        self.leaving.remove(&id);
        held.into_iter().for_each(|job| self.out(job));
        let (left, _) = self.scheduler.worker_ended(id, cause, self.now);
        left.into_iter().for_each(|job| self.out(job));
    }

    fn command(&mut self, command: BackendCommand) {
        match command {
            BackendCommand::Start(id) => self.start(id),
            BackendCommand::Stop(id, cause) => {
                assert!(self.ready[&id].is_empty(), "worker {id} is not free");
                assert!(self.leaving.insert(id, cause).is_none(), "worker {id} ends twice");
            }
            BackendCommand::ReportSlowStart(id) => assert!(self.starting.contains(&id)),
        }
    }

    fn maintain(&mut self) {
        let commands = self.scheduler.maintain(self.now);
        if commands.iter().any(|command| matches!(command, BackendCommand::ReportSlowStart(_))) {
            let left = self.scheduler.take_unservable(self.now);
            left.into_iter().for_each(|job| self.out(job));
        }
        commands.into_iter().for_each(|command| self.command(command));
        self.maintenance_at = self.scheduler.next_maintenance(self.now);
    }

    fn become_ready(&mut self, id: WorkerId) {
        self.starting.remove(&id);
        self.ready.insert(id, Vec::new());
        let (next, command) = self.scheduler.ready(id, self.now);
        command.into_iter().for_each(|command| self.command(command));
        self.next(id, next);
    }

    fn finish(&mut self, id: WorkerId) {
        let Some(job) = self.ready.get_mut(&id).and_then(Vec::pop) else { return };
        self.out(job);
        let next = self.scheduler.finished(id, self.now);
        self.next(id, next);
    }

    /// A worker that is ready and was not told to stop.
    fn pick(&self, which: usize) -> Option<WorkerId> {
        self.ready.keys().filter(|id| !self.leaving.contains_key(id)).nth(which).copied()
    }

    fn pick_ticket(&self, which: usize) -> Option<(JobId, Ticket)> {
        self.tickets.iter().nth(which).map(|(job, ticket)| (*job, *ticket))
    }

    fn apply(&mut self, event: &Event) {
        match *event {
            Event::Submit { priority, wait } => {
                let when = if wait { WhenQueueFull::Wait } else { WhenQueueFull::Refuse };
                let job = self.jobs;
                self.jobs += 1;
                let submitted = self.scheduler.submit(job, priority, when, self.now);
                self.submitted(job, submitted);
            }
            Event::Ready(which) => {
                if let Some(id) = self.starting.iter().nth(which).copied() {
                    self.become_ready(id);
                }
            }
            Event::StartFailed(which) => {
                if let Some(id) = self.starting.iter().nth(which).copied() {
                    self.starting.remove(&id);
                    let left = self.scheduler.start_failed(id, self.now);
                    left.into_iter().for_each(|job| self.out(job));
                }
            }
            Event::Maintain => self.maintain(),
            Event::AdvanceTime(time) => self.now += time,
            Event::Resize(min, max) => {
                (self.max_workers, self.resized) = (self.max_workers.max(max), true);
                self.scheduler.resize(min, max);
            }
            Event::Close => {
                let rejected = self.scheduler.close();
                rejected.into_iter().for_each(|job| self.out(job));
            }
            Event::Withdraw(which) => {
                if let Some((job, ticket)) = self.pick_ticket(which) {
                    assert_eq!(self.scheduler.withdraw(ticket), Some(job));
                    self.out(job);
                }
            }
            Event::LeaveOverflow(which) => {
                if let Some((_, ticket)) = self.pick_ticket(which)
                    && let Some(job) = self.scheduler.withdraw_from_overflow(ticket)
                {
                    self.out(job);
                }
            }
            _ => self.apply_to_worker(event),
        }
    }

    fn apply_to_worker(&mut self, event: &Event) {
        let (Event::Finished(which)
        | Event::Skipped(which)
        | Event::Died(which, _)
        | Event::Requeue(which)
        | Event::SetPrefetch(which, _)
        | Event::SetConcurrency(which, _)
        | Event::Drain(which)
        | Event::PrefetchNext(which)
        | Event::Replace(which)
        | Event::Abandon(which)
        | Event::ScheduleAbandon(which, _)) = *event
        else {
            return;
        };
        let Some(id) = self.pick(which) else { return };
        match *event {
            Event::Finished(_) => self.finish(id),
            Event::Skipped(_) => {
                if let Some(job) = self.ready.get_mut(&id).and_then(Vec::pop) {
                    self.out(job);
                    let next = self.scheduler.call_skipped(id, self.now);
                    self.next(id, next);
                }
            }
            Event::Died(_, cause) => {
                let held = self.ready.remove(&id).unwrap_or_default();
                self.worker_ended(id, cause, held);
            }
            Event::Requeue(_) => {
                // As the process backend does: the worker has ended, and its unstarted calls are
                // requeued.
                let held = self.ready.remove(&id).unwrap_or_default();
                self.worker_ended(id, EndCause::Died, Vec::new());
                for job in held {
                    let submitted = self.scheduler.requeue(job, 2, self.now);
                    self.submitted(job, submitted);
                }
            }
            Event::SetPrefetch(_, prefetch) => self.scheduler.set_prefetch(id, prefetch),
            // Known from its start.
            Event::SetConcurrency(..) if self.scheduler.workers[&id].calls > 0 => {}
            Event::SetConcurrency(_, most) => self.scheduler.set_concurrency(id, most),
            // Only a worker with calls drains.
            Event::Drain(_) if self.ready[&id].is_empty() => {}
            Event::Drain(_) => _ = self.scheduler.drain(id),
            Event::PrefetchNext(_) => {
                if let Some(job) = self.scheduler.prefetch_next(id) {
                    self.assign(id, job);
                }
            }
            Event::Replace(_) => self.scheduler.replace(id, EndCause::Requested),
            Event::Abandon(_) => self.scheduler.abandon(id),
            Event::ScheduleAbandon(_, time) => {
                self.scheduler.schedule_abandon(id, self.now + time, self.now);
            }
            _ => {}
        }
    }

    /// Checks what must hold after every event.
    fn check(&self) {
        assert_eq!(self.scheduler.invariant_violation(), None);
        let slots: BTreeMap<_, _> =
            self.scheduler.workers.iter().map(|(id, slot)| (*id, slot.in_flight)).collect();
        let ours = self.ready.iter().map(|(id, held)| (*id, held.len()));
        let ours: BTreeMap<_, _> = ours.chain(self.starting.iter().map(|id| (*id, 0))).collect();
        assert_eq!(slots, ours, "calls in flight");
        let counts = self.scheduler.counts();
        assert_eq!(counts.queue + counts.overflow, self.tickets.len(), "calls that wait");
        let held: usize = self.ready.values().map(Vec::len).sum();
        assert_eq!(self.out.len() + self.tickets.len() + held, self.jobs, "calls in all");
        let replacements = (self.max_workers / 10).max(1);
        assert!(self.scheduler.active_workers() <= self.max_workers);
        let serving = self.scheduler.workers.values().filter(|slot| slot.is_serving()).count();
        assert!(serving <= self.max_workers + replacements, "{serving} workers");
        let leaving = self.scheduler.leaving_with_calls();
        let surplus = if self.resized { self.max_workers } else { 0 };
        assert!(leaving <= self.scheduler.max_leaving() + replacements + surplus, "{leaving} workers leave");
    }

    /// Checks that maintenance which runs only on request or at the announced time misses nothing.
    fn check_maintenance(&self) {
        let mut scheduler = self.scheduler.clone();
        let called =
            scheduler.take_maintenance_request() || self.maintenance_at.is_some_and(|at| at <= self.now);
        if !called {
            assert_eq!(scheduler.maintain(self.now), [], "maintenance was not requested");
        }
    }

    /// Closes the pool and lets everything end.
    fn drain(&mut self) {
        self.apply(&Event::Close);
        for _ in 0..1_000 {
            self.check();
            if self.scheduler.workers.is_empty() && self.tickets.is_empty() {
                return;
            }
            self.now += Duration::from_millis(200);
            self.maintain();
            for id in self.starting.clone() {
                self.become_ready(id);
            }
            for (id, cause) in self.leaving.clone() {
                self.end(id, cause);
            }
            for id in self.ready.keys().copied().collect::<Vec<_>>() {
                self.finish(id);
                self.end_if_abandoned(id);
            }
        }
        panic!("not everything came to its end: {:?}", self.scheduler.counts());
    }

    /// An abandoned process is killed; an abandoned thread ends with its call.
    fn end_if_abandoned(&mut self, id: WorkerId) {
        let abandoned = |slot: &WorkerSlot| slot.phase == Phase::Abandoned;
        if self.scheduler.workers.get(&id).is_some_and(abandoned) && self.ready.contains_key(&id) {
            self.end(id, EndCause::Timeout);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        cases: ProptestConfig::default().cases.max(1_000),
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_call_comes_out_exactly_once_whatever_happens(
        (min, more, queue) in (0..3_usize, 1..4_usize, 0..4_usize),
        max_calls in prop::option::of(1..6_u64),
        (max_age, threads) in (prop::option::of(10..60_u64), any::<bool>()),
        events in prop::collection::vec(event(), 1..200),
    ) {
        let settings = PoolSettings {
            min,
            max: min + more,
            queue,
            max_calls,
            max_age: max_age.map(Duration::from_secs),
            max_abandoned: 2,
            ..PoolSettings::default()
        };
        let mut pool = SimulatedPool::new(settings, threads);
        pool.maintain();
        for event in &events {
            pool.apply(event);
            pool.check();
            pool.check_maintenance();
        }
        pool.drain();
        prop_assert_eq!(pool.out.len(), pool.jobs);
    }
}
