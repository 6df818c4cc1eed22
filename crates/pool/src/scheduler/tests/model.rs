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
    PassedOver(usize),
    Died(usize, Cause),
    PutBack(usize),
    Withdraw(usize),
    LeaveLine(usize),
    Tend,
    Pass(Duration),
    SetAhead(usize, usize),
    TakeAhead(usize),
    Replace(usize),
    Abandon(usize),
    Unwanted(usize, Duration),
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
        1 => which.clone().prop_map(Event::PassedOver),
        1 => (which.clone(), prop_oneof![Just(Cause::Died), Just(Cause::Panic)])
            .prop_map(|(which, cause)| Event::Died(which, cause)),
        1 => which.clone().prop_map(Event::PutBack),
        2 => which.clone().prop_map(Event::Withdraw),
        1 => which.clone().prop_map(Event::LeaveLine),
        4 => Just(Event::Tend),
        2 => time.clone().prop_map(Event::Pass),
        1 => (which.clone(), 0..4_usize).prop_map(|(which, ahead)| Event::SetAhead(which, ahead)),
        1 => which.clone().prop_map(Event::TakeAhead),
        1 => which.clone().prop_map(Event::Replace),
        1 => which.clone().prop_map(Event::Abandon),
        1 => (which, time).prop_map(|(which, time)| Event::Unwanted(which, time)),
        1 => (0..3_usize, 1..4_usize).prop_map(|(min, more)| Event::Resize(min, min + more)),
        1 => Just(Event::Close),
    ]
}

/// A backend that executes the scheduler's commands.
struct World {
    table: Table<JobId>,
    now: Instant,
    jobs: usize,
    /// Workers that were started and are not ready yet.
    starting: BTreeSet<WorkerId>,
    /// Workers that are ready, and their calls.
    ready: BTreeMap<WorkerId, Vec<JobId>>,
    /// Workers that were told to stop.
    leaving: BTreeMap<WorkerId, Cause>,
    tickets: BTreeMap<JobId, Ticket>,
    out: BTreeSet<JobId>,
    largest: usize,
    /// When maintenance runs if nothing requests it earlier.
    keeper: Option<Instant>,
}

impl World {
    fn new(settings: Settings, threads: bool) -> Self {
        let largest = settings.max;
        Self {
            table: Table::new(settings, threads),
            now: Instant::now(),
            jobs: 0,
            starting: BTreeSet::new(),
            ready: BTreeMap::new(),
            leaving: BTreeMap::new(),
            tickets: BTreeMap::new(),
            out: BTreeSet::new(),
            largest,
            keeper: None,
        }
    }

    fn out(&mut self, job: JobId) {
        self.tickets.remove(&job);
        assert!(self.out.insert(job), "job {job} came out twice");
    }

    fn give(&mut self, id: WorkerId, job: JobId) {
        self.tickets.remove(&job);
        let held = self.ready.get_mut(&id).expect("calls go to workers that are ready");
        assert!(!self.leaving.contains_key(&id), "worker {id} was told to end");
        assert!(!held.contains(&job) && !self.out.contains(&job));
        held.push(job);
    }

    fn start(&mut self, id: WorkerId) {
        assert!(self.starting.insert(id), "worker {id} was started twice");
    }

    fn submitted(&mut self, job: JobId, submitted: Submitted<JobId>) {
        match submitted {
            Submitted::Given(id, given) => {
                assert_eq!(job, given);
                self.give(id, given);
            }
            Submitted::Queued(ticket, start) => {
                self.tickets.insert(job, ticket);
                start.into_iter().for_each(|id| self.start(id));
            }
            Submitted::Full(job) | Submitted::Closing(job) | Submitted::Nobody(job) => {
                self.out(job);
            }
        }
    }

    fn next(&mut self, id: WorkerId, next: Next<JobId>) {
        match next {
            Next::Take(job) => self.give(id, job),
            Next::Wait => {}
            Next::Leave(cause) => self.end(id, cause),
        }
    }

    /// A worker ends. Only an abandoned one may still have calls.
    fn end(&mut self, id: WorkerId, cause: Cause) {
        let held = self.ready.remove(&id).unwrap_or_default();
        assert!(held.is_empty() || cause == Cause::Timeout, "worker {id} ends with {held:?}");
        self.gone(id, cause, held);
    }

    fn gone(&mut self, id: WorkerId, cause: Cause, held: Vec<JobId>) {
        self.leaving.remove(&id);
        held.into_iter().for_each(|job| self.out(job));
        let (left, _) = self.table.gone(id, cause, self.now);
        left.into_iter().for_each(|job| self.out(job));
    }

    fn order(&mut self, order: Order) {
        match order {
            Order::Start(id) => self.start(id),
            Order::End(id, cause) => {
                assert!(self.ready[&id].is_empty(), "worker {id} is not free");
                assert!(self.leaving.insert(id, cause).is_none(), "worker {id} ends twice");
            }
            Order::Late(id) => assert!(self.starting.contains(&id)),
        }
    }

    fn tend(&mut self) {
        let orders = self.table.tend(self.now);
        if orders.iter().any(|order| matches!(order, Order::Late(_))) {
            let left = self.table.stranded(self.now);
            left.into_iter().for_each(|job| self.out(job));
        }
        orders.into_iter().for_each(|order| self.order(order));
        self.keeper = self.table.tend_at(self.now);
    }

    fn become_ready(&mut self, id: WorkerId) {
        self.starting.remove(&id);
        self.ready.insert(id, Vec::new());
        let (next, order) = self.table.ready(id, self.now);
        order.into_iter().for_each(|order| self.order(order));
        self.next(id, next);
    }

    fn finish(&mut self, id: WorkerId) {
        let Some(job) = self.ready.get_mut(&id).and_then(Vec::pop) else { return };
        self.out(job);
        let next = self.table.finished(id, self.now);
        self.next(id, next);
    }

    /// A worker that is ready and was not told to stop.
    fn pick(&self, which: usize) -> Option<WorkerId> {
        self.ready.keys().filter(|id| !self.leaving.contains_key(id)).nth(which).copied()
    }

    fn pick_ticket(&self, which: usize) -> Option<(JobId, Ticket)> {
        self.tickets.iter().nth(which).map(|(job, ticket)| (*job, *ticket))
    }

    fn happen(&mut self, event: &Event) {
        match *event {
            Event::Submit { priority, wait } => {
                let when = if wait { WhenFull::Wait } else { WhenFull::Refuse };
                let job = self.jobs;
                self.jobs += 1;
                let submitted = self.table.submit(job, priority, when, self.now);
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
                    let left = self.table.start_failed(id, self.now);
                    left.into_iter().for_each(|job| self.out(job));
                }
            }
            Event::Tend => self.tend(),
            Event::Pass(time) => self.now += time,
            Event::Resize(min, max) => {
                self.largest = self.largest.max(max);
                self.table.resize(min, max);
            }
            Event::Close => {
                let line = self.table.close();
                line.into_iter().for_each(|job| self.out(job));
            }
            Event::Withdraw(which) => {
                if let Some((job, ticket)) = self.pick_ticket(which) {
                    assert_eq!(self.table.withdraw(ticket), Some(job));
                    self.out(job);
                }
            }
            Event::LeaveLine(which) => {
                if let Some((_, ticket)) = self.pick_ticket(which)
                    && let Some(job) = self.table.withdraw_from_line(ticket)
                {
                    self.out(job);
                }
            }
            _ => self.happen_to_worker(event),
        }
    }

    fn happen_to_worker(&mut self, event: &Event) {
        let (Event::Finished(which)
        | Event::PassedOver(which)
        | Event::Died(which, _)
        | Event::PutBack(which)
        | Event::SetAhead(which, _)
        | Event::TakeAhead(which)
        | Event::Replace(which)
        | Event::Abandon(which)
        | Event::Unwanted(which, _)) = *event
        else {
            return;
        };
        let Some(id) = self.pick(which) else { return };
        match *event {
            Event::Finished(_) => self.finish(id),
            Event::PassedOver(_) => {
                if let Some(job) = self.ready.get_mut(&id).and_then(Vec::pop) {
                    self.out(job);
                    let next = self.table.passed_over(id, self.now);
                    self.next(id, next);
                }
            }
            Event::Died(_, cause) => {
                let held = self.ready.remove(&id).unwrap_or_default();
                self.gone(id, cause, held);
            }
            Event::PutBack(_) => {
                // As the process backend does: the worker has ended, and its unstarted calls are
                // requeued.
                let held = self.ready.remove(&id).unwrap_or_default();
                self.gone(id, Cause::Died, Vec::new());
                for job in held {
                    let submitted = self.table.put_back(job, 2, self.now);
                    self.submitted(job, submitted);
                }
            }
            Event::SetAhead(_, ahead) => self.table.set_ahead(id, ahead),
            Event::TakeAhead(_) => {
                if let Some(job) = self.table.take_ahead(id) {
                    self.give(id, job);
                }
            }
            Event::Replace(_) => self.table.replace(id, Cause::OwnWish),
            Event::Abandon(_) => self.table.abandon(id),
            Event::Unwanted(_, time) => self.table.unwanted(id, self.now + time, self.now),
            _ => {}
        }
    }

    /// Checks what must hold after every event.
    fn check(&self) {
        assert_eq!(self.table.fault(), None);
        let seats: BTreeMap<_, _> =
            self.table.workers.iter().map(|(id, seat)| (*id, seat.in_flight)).collect();
        let ours = self.ready.iter().map(|(id, held)| (*id, held.len()));
        let ours: BTreeMap<_, _> = ours.chain(self.starting.iter().map(|id| (*id, 0))).collect();
        assert_eq!(seats, ours, "calls in flight");
        let counts = self.table.counts();
        assert_eq!(counts.queue + counts.line, self.tickets.len(), "calls that wait");
        let held: usize = self.ready.values().map(Vec::len).sum();
        assert_eq!(self.out.len() + self.tickets.len() + held, self.jobs, "calls in all");
        let replacements = (self.largest / 10).max(1);
        assert!(self.table.seated() <= self.largest);
        let serving = self.table.workers.values().filter(|seat| seat.serves()).count();
        assert!(serving <= self.largest + replacements, "{serving} workers");
    }

    /// Checks that maintenance which runs only on request or at the announced time misses nothing.
    fn check_keeper(&self) {
        let mut table = self.table.clone();
        let called = table.take_alarm() || self.keeper.is_some_and(|at| at <= self.now);
        if !called {
            assert_eq!(table.tend(self.now), [], "nobody called the keeper");
        }
    }

    /// Closes the pool and lets everything end.
    fn drain(&mut self) {
        self.happen(&Event::Close);
        for _ in 0..1_000 {
            self.check();
            if self.table.workers.is_empty() && self.tickets.is_empty() {
                return;
            }
            self.now += Duration::from_millis(200);
            self.tend();
            for id in self.starting.clone() {
                self.become_ready(id);
            }
            for (id, cause) in self.leaving.clone() {
                self.end(id, cause);
            }
            for id in self.ready.keys().copied().collect::<Vec<_>>() {
                self.finish(id);
                self.let_go(id);
            }
        }
        panic!("not everything came to its end: {:?}", self.table.counts());
    }

    /// An abandoned process is killed; an abandoned thread ends with its call.
    fn let_go(&mut self, id: WorkerId) {
        let given_up = |seat: &Seat| seat.phase == Phase::Abandoned;
        if self.table.workers.get(&id).is_some_and(given_up) && self.ready.contains_key(&id) {
            self.end(id, Cause::Timeout);
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
        let settings = Settings {
            min,
            max: min + more,
            queue,
            max_calls,
            max_age: max_age.map(Duration::from_secs),
            max_abandoned: 2,
            ..Settings::default()
        };
        let mut world = World::new(settings, threads);
        world.tend();
        for event in &events {
            world.happen(event);
            world.check();
            world.check_keeper();
        }
        world.drain();
        prop_assert_eq!(world.out.len(), world.jobs);
    }
}
