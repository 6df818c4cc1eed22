use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use longshore::UnitId;
use longshore::worker_session::Lease;
use proptest::prelude::*;

use super::{
    Assignment, Location, Obstacle, ResourceRequest, TaskScheduler, WorkerEntry, WorkerKey, WorkerRecord,
};

const NOW: Duration = Duration::from_secs(100);
const LATER: Duration = Duration::from_secs(101);

/// Script run time that allows no prefill.
const SLOW: Duration = Duration::from_secs(10);

fn lease() -> Lease {
    Lease { unit: UnitId::new(), fence: 1 }
}

fn worker(scheduler: &mut TaskScheduler<()>, threads: u32) -> WorkerKey {
    worker_with(scheduler, threads, &[])
}

fn worker_with(scheduler: &mut TaskScheduler<()>, threads: u32, resources: &[(&str, u32)]) -> WorkerKey {
    let resources = resources.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    let mut worker = WorkerEntry::new(UnitId::new().to_string(), threads, resources);
    worker.prefill.on_end(SLOW);
    scheduler.on_register(NOW, worker, &[]).0
}

/// A worker that is prefilled with as many tasks as it has threads.
fn quick(uid: &str, threads: u32) -> WorkerEntry {
    let mut worker = WorkerEntry::new(uid, threads, BTreeMap::new());
    worker.prefill.on_end(Duration::from_millis(100));
    worker
}

fn task(scheduler: &mut TaskScheduler<()>, rank: i64, threads: u32) -> Lease {
    task_with(scheduler, rank, ResourceRequest::threads(threads))
}

fn task_with(scheduler: &mut TaskScheduler<()>, rank: i64, request: ResourceRequest) -> Lease {
    let lease = lease();
    scheduler.add(NOW, lease, rank, request, ());
    lease
}

fn assign(scheduler: &mut TaskScheduler<()>, now: Duration) -> Vec<(UnitId, WorkerKey)> {
    scheduler.schedule(now).into_iter().map(|Assignment { worker, unit }| (unit, worker)).collect()
}

#[test]
fn a_task_goes_to_the_worker_that_it_fills_best() {
    let mut scheduler = TaskScheduler::default();
    let (large, small) = (worker(&mut scheduler, 8), worker(&mut scheduler, 2));
    let two = task(&mut scheduler, 1, 2);
    let four = task(&mut scheduler, 2, 4);
    assert_eq!(assign(&mut scheduler, NOW), [(two.unit, small), (four.unit, large)]);
}

#[test]
fn the_smallest_rank_goes_first() {
    let mut scheduler = TaskScheduler::default();
    let worker = worker(&mut scheduler, 1);
    let (late, early) = (task(&mut scheduler, 9, 1), task(&mut scheduler, 5, 1));
    assert_eq!(assign(&mut scheduler, NOW), [(early.unit, worker)]);
    scheduler.on_task_done(NOW, worker, early, SLOW).unwrap();
    assert_eq!(assign(&mut scheduler, NOW), [(late.unit, worker)]);
}

#[test]
fn one_that_does_not_fit_holds_up_nobody_else() {
    let mut scheduler = TaskScheduler::default();
    let worker = worker(&mut scheduler, 4);
    let first = task(&mut scheduler, 1, 3);
    let _wide = task(&mut scheduler, 2, 4);
    let narrow = task(&mut scheduler, 3, 1);
    assert_eq!(assign(&mut scheduler, NOW), [(first.unit, worker), (narrow.unit, worker)]);
}

#[test]
fn a_wide_task_has_a_worker_kept_for_it_after_a_while() {
    let mut scheduler = TaskScheduler::default();
    let workers = [worker(&mut scheduler, 4), worker(&mut scheduler, 4)];
    let narrow: Vec<Lease> = (0..8).map(|rank| task(&mut scheduler, rank, 1)).collect();
    assert_eq!(assign(&mut scheduler, NOW).len(), 8);
    let wide = task(&mut scheduler, 10, 4);
    let mut later: Vec<Lease> = (20..40).map(|rank| task(&mut scheduler, rank, 1)).collect();
    assert!(assign(&mut scheduler, LATER).is_empty());
    // The first tasks end one by one. Other tasks replace them, but not at the reserved worker.
    let mut assigned = Vec::new();
    for lease in narrow {
        let at = scheduler.holder(lease.unit).unwrap();
        scheduler.on_task_done(LATER, at, lease, SLOW).unwrap();
        assigned.extend(assign(&mut scheduler, LATER));
    }
    let wide_at = assigned.iter().find(|(unit, _)| *unit == wide.unit).unwrap().1;
    assert!(workers.contains(&wide_at));
    later.retain(|lease| assigned.iter().any(|(unit, _)| *unit == lease.unit));
    assert_eq!(later.len(), 4, "the other worker was kept full");
}

#[test]
fn a_worker_is_not_kept_for_a_task_that_its_lifetime_no_longer_suffices_for() {
    let mut scheduler = TaskScheduler::default();
    let mut leaving = WorkerEntry::new("w", 2, BTreeMap::new());
    leaving.prefill.on_end(SLOW);
    leaving.interrupts_at = Some(NOW + Duration::from_secs(60));
    let worker = scheduler.on_register(NOW, leaving, &[]).0;
    let running = task(&mut scheduler, 0, 1);
    assert_eq!(assign(&mut scheduler, NOW), [(running.unit, worker)]);
    let minute = ResourceRequest { time: Some(Duration::from_secs(59)), ..ResourceRequest::threads(2) };
    let wide = task_with(&mut scheduler, 1, minute);
    assert_eq!(assign(&mut scheduler, LATER), []);
    let narrow = task(&mut scheduler, 2, 1);
    assert_eq!(assign(&mut scheduler, LATER), [], "reserved for the wide task");
    let later = LATER + Duration::from_secs(1);
    assert_eq!(assign(&mut scheduler, later), [(narrow.unit, worker)], "58 seconds are left");
    let obstacles = scheduler.obstacles(later, &scheduler.task(wide.unit).unwrap().request, wide.unit);
    assert!(obstacles[0].1.iter().any(|obstacle| matches!(obstacle, Obstacle::TimeLeft { .. })));
}

#[test]
fn resources_are_counted_and_what_nobody_has_waits() {
    let mut scheduler = TaskScheduler::default();
    let worker = worker_with(&mut scheduler, 8, &[("gpu", 2)]);
    let gpu = |count: u32| ResourceRequest {
        resources: BTreeMap::from([("gpu".to_owned(), longshore::ResourceAmount::whole(count))]),
        ..ResourceRequest::threads(1)
    };
    let two = task_with(&mut scheduler, 1, gpu(2));
    let one = task_with(&mut scheduler, 2, gpu(1));
    let _three = task_with(&mut scheduler, 3, gpu(3));
    assert_eq!(assign(&mut scheduler, NOW), [(two.unit, worker)]);
    scheduler.on_task_done(NOW, worker, two, SLOW).unwrap();
    assert_eq!(assign(&mut scheduler, NOW), [(one.unit, worker)]);
    assert_eq!(scheduler.waiting(), 1);
}

#[test]
fn who_must_run_alone_runs_alone() {
    let mut scheduler = TaskScheduler::default();
    let worker = worker(&mut scheduler, 4);
    let other = task(&mut scheduler, 1, 1);
    let exclusive =
        task_with(&mut scheduler, 2, ResourceRequest { exclusive: true, ..ResourceRequest::threads(1) });
    assert_eq!(assign(&mut scheduler, NOW), [(other.unit, worker)]);
    assert!(assign(&mut scheduler, LATER).is_empty(), "and has the worker kept for it");
    let late = task(&mut scheduler, 3, 1);
    assert!(assign(&mut scheduler, LATER).is_empty());
    scheduler.on_task_done(LATER, worker, other, SLOW).unwrap();
    let assigned = assign(&mut scheduler, LATER);
    assert_eq!(assigned.first(), Some(&(exclusive.unit, worker)));
    assert!(assigned.iter().all(|(unit, _)| *unit != late.unit), "nothing is put beside it");
}

#[test]
fn of_a_lost_worker_only_what_may_have_begun_is_lost() {
    let mut scheduler = TaskScheduler::default();
    let id = scheduler.on_register(NOW, quick("w", 2), &[]).0;
    let leases: Vec<Lease> = (0..4).map(|rank| task(&mut scheduler, rank, 1)).collect();
    assert_eq!(assign(&mut scheduler, NOW).len(), 4, "two to run, two ahead");
    let lost = scheduler.on_worker_lost(NOW, id);
    let begun: Vec<Lease> = lost.lost.iter().map(|task| task.lease).collect();
    assert_eq!((begun.as_slice(), lost.requeued), (&leases[..2], 2));
    let next = scheduler.on_register(NOW, WorkerEntry::new("x", 2, BTreeMap::new()), &[]).0;
    assert_eq!(assign(&mut scheduler, NOW), [(leases[2].unit, next), (leases[3].unit, next)]);
}

#[test]
fn a_late_word_of_a_lost_worker_changes_nothing() {
    let mut scheduler = TaskScheduler::default();
    let worker = worker(&mut scheduler, 1);
    let lease = task(&mut scheduler, 1, 1);
    assign(&mut scheduler, NOW);
    scheduler.on_worker_lost(NOW, worker);
    assert!(!scheduler.on_heartbeat(NOW, worker));
    assert!(scheduler.on_task_done(NOW, worker, lease, SLOW).is_none());
    scheduler.on_task_started(Duration::ZERO, worker, lease);
    scheduler.on_task_returned(NOW, worker, lease);
    assert!(scheduler.is_empty());
}

#[test]
fn an_older_life_of_a_unit_cannot_end_it() {
    let mut scheduler = TaskScheduler::default();
    let worker = worker(&mut scheduler, 1);
    let lease = task(&mut scheduler, 1, 1);
    assign(&mut scheduler, NOW);
    let older = Lease { fence: 0, ..lease };
    assert!(scheduler.on_task_done(NOW, worker, older, SLOW).is_none());
    assert!(scheduler.on_task_done(NOW, worker, lease, SLOW).is_some());
    assert!(scheduler.on_task_done(NOW, worker, lease, SLOW).is_none(), "an end counts once");
}

#[test]
fn a_worker_that_comes_back_keeps_what_is_its_own_and_forgets_the_rest() {
    let mut scheduler = TaskScheduler::default();
    let new = || WorkerEntry::new("w", 2, BTreeMap::new());
    let id = scheduler.on_register(NOW, new(), &[]).0;
    let (first, second) = (task(&mut scheduler, 1, 1), task(&mut scheduler, 2, 1));
    assign(&mut scheduler, NOW);
    scheduler.on_disconnect(NOW, id);
    let foreign = lease();
    let (again, diff) = scheduler.on_register(NOW, new(), &[first, foreign]);
    assert_eq!((again, diff.forget, diff.missing), (id, vec![foreign], 1));
    assert_eq!(scheduler.holder(first.unit), Some(id));
    assert_eq!(assign(&mut scheduler, NOW), [(second.unit, id)], "it never got there");
}

#[test]
fn tasks_of_an_earlier_life_find_their_worker_or_are_given_up() {
    let mut scheduler = TaskScheduler::default();
    let (found, lost) = (lease(), lease());
    let worker_lease = |lease: Lease| Lease { fence: 0, ..lease };
    for lease in [found, lost] {
        scheduler.add_restored(NOW, (lease, worker_lease(lease)), 1, ResourceRequest::threads(1), ());
    }
    let worker = WorkerEntry::new("w", 1, BTreeMap::new());
    let (id, diff) = scheduler.on_register(NOW, worker, &[worker_lease(found)]);
    assert!(diff.forget.is_empty() && scheduler.restored_count() == 1);
    let done = scheduler.on_task_done(NOW, id, worker_lease(found), SLOW).unwrap();
    assert_eq!(done.lease, found, "it is finished by the claim of this life");
    let given_up: Vec<Lease> = scheduler.take_restored().into_iter().map(|task| task.lease).collect();
    assert_eq!(given_up, [lost]);
}

/// Seventy-seven claimed, four running: after the loss of worker and server only the four had started.
#[test]
fn of_tasks_of_an_earlier_life_only_those_count_that_a_missing_worker_had_started() {
    let restored = |count: i64| {
        let mut scheduler = TaskScheduler::default();
        let leases: Vec<Lease> = (0..count).map(|_| lease()).collect();
        for (rank, lease) in (0..).zip(&leases) {
            scheduler.add_restored(NOW, (*lease, *lease), rank, ResourceRequest::threads(1), ());
        }
        (scheduler, leases)
    };
    let units = |leases: &[Lease]| leases.iter().map(|lease| lease.unit).collect::<BTreeSet<_>>();
    for (running, expected) in [(&[20, 30, 40, 50][..], &[20, 30, 40, 50][..]), (&[20, 30], &[0, 1, 20, 30])]
    {
        let (mut scheduler, leases) = restored(77);
        let pick = |numbers: &[usize]| numbers.iter().map(|at| leases[*at]).collect::<Vec<_>>();
        let running = pick(running).iter().map(|lease| lease.unit).collect();
        let missing = [WorkerRecord { threads: 4, running }];
        let started = scheduler.take_started(missing.iter());
        let started: Vec<Lease> = started.into_iter().map(|task| task.lease).collect();
        assert_eq!(units(&started), units(&pick(expected)));
        assert_eq!(scheduler.restored_count(), 73);
    }
}

#[test]
fn a_worker_that_was_counted_as_lost_keeps_a_task_that_waits() {
    let mut scheduler = TaskScheduler::default();
    let old = task(&mut scheduler, 1, 1);
    let first = scheduler.on_register(NOW, WorkerEntry::new("w", 1, BTreeMap::new()), &[]).0;
    assign(&mut scheduler, NOW);
    let lost = scheduler.on_worker_lost(NOW, first).lost;
    assert_eq!(lost.iter().map(|task| task.worker_lease).collect::<Vec<_>>(), [old]);
    let new = Lease { fence: old.fence + 1, ..old };
    scheduler.add(NOW, new, 1, ResourceRequest::threads(1), ());
    let (again, diff) = scheduler.on_register(NOW, WorkerEntry::new("w", 1, BTreeMap::new()), &[old]);
    assert_eq!(diff.forget, [old], "the server decides whether it is adopted");
    assert!(scheduler.adopt(again, old));
    assert!(assign(&mut scheduler, NOW).is_empty() && !scheduler.adopt(again, old));
    assert_eq!(scheduler.on_task_done(NOW, again, old, SLOW).unwrap().lease, new);
}

#[test]
fn a_lost_task_goes_back_to_its_worker_or_into_the_queue() {
    let mut scheduler = TaskScheduler::default();
    let leases: Vec<Lease> = (0..2).map(|rank| task(&mut scheduler, rank, 1)).collect();
    let first = scheduler.on_register(NOW, WorkerEntry::new("w", 2, BTreeMap::new()), &[]).0;
    assert_eq!(assign(&mut scheduler, NOW).len(), 2);
    let mut lost = scheduler.on_worker_lost(NOW, first).lost;
    let (again, _) = scheduler.on_register(NOW, WorkerEntry::new("w", 2, BTreeMap::new()), &leases[..1]);
    scheduler.requeue_lost(NOW, lost.pop().unwrap());
    scheduler.reinstate(again, lost.pop().unwrap());
    assert_eq!(scheduler.worker(again).unwrap().load(), 1);
    assert_eq!(assign(&mut scheduler, NOW), [(leases[1].unit, again)]);
    for lease in leases {
        assert_eq!(scheduler.on_task_done(NOW, again, lease, SLOW).unwrap().lease, lease);
    }
    assert_eq!(scheduler.worker(again).unwrap().load(), 0);
}

#[test]
fn what_waits_at_a_busy_worker_is_asked_back_for_an_idle_one() {
    let mut scheduler = TaskScheduler::default();
    let busy = scheduler.on_register(NOW, quick("a", 1), &[]).0;
    let leases: Vec<Lease> = (0..2).map(|rank| task(&mut scheduler, rank, 1)).collect();
    assert_eq!(assign(&mut scheduler, NOW).len(), 2);
    assert!(scheduler.tasks_to_retract().is_empty(), "no worker is idle");
    let idle = worker(&mut scheduler, 1);
    assert_eq!(scheduler.tasks_to_retract(), [Assignment { worker: busy, unit: leases[1].unit }]);
    scheduler.on_task_returned(NOW, busy, leases[1]);
    assert_eq!(assign(&mut scheduler, NOW), [(leases[1].unit, idle)]);
}

#[test]
fn a_worker_that_drains_or_is_away_is_given_nothing() {
    let mut scheduler = TaskScheduler::default();
    let (draining, away) = (worker(&mut scheduler, 4), worker(&mut scheduler, 4));
    scheduler.on_draining(draining);
    scheduler.on_disconnect(NOW, away);
    task(&mut scheduler, 1, 1);
    assert!(assign(&mut scheduler, NOW).is_empty());
    assert_eq!((scheduler.threads_to_claim(), scheduler.largest_worker().threads), (0, 0));
    assert_eq!(scheduler.overdue(LATER, SLOW, Duration::from_secs(1)), [away]);
}

#[test]
fn silence_does_not_count_while_nobody_listened() {
    let mut scheduler = TaskScheduler::default();
    let (quiet, away) = (worker(&mut scheduler, 4), worker(&mut scheduler, 4));
    scheduler.on_disconnect(NOW, away);
    let second = Duration::from_secs(1);
    assert_eq!(scheduler.overdue(LATER, second, second), [quiet, away]);
    scheduler.reset_liveness(LATER);
    assert!(scheduler.overdue(LATER, second, second).is_empty());
    assert_eq!(scheduler.overdue(LATER + second, second, second), [quiet, away]);
}

#[test]
fn what_is_slow_is_claimed_only_for_who_is_free() {
    let mut scheduler = TaskScheduler::default();
    let id = worker(&mut scheduler, 2);
    assert_eq!(scheduler.threads_to_claim(), 2);
    let first = task(&mut scheduler, 1, 2);
    assign(&mut scheduler, NOW);
    assert_eq!(scheduler.threads_to_claim(), 0, "what comes later may be more urgent");
    scheduler.on_task_done(NOW, id, first, SLOW).unwrap();
    let _wide = task(&mut scheduler, 2, 3);
    assign(&mut scheduler, NOW);
    assert_eq!(scheduler.threads_to_claim(), 2, "a task that fits nowhere blocks no other");
}

/// An event of the simulation.
#[derive(Debug, Clone)]
enum Event {
    Join(u32),
    Add(i64, u32, bool),
    End(usize),
    Start(usize),
    Return(usize),
    Lose(usize),
    Leave(usize),
    Break(usize),
    Rejoin(usize),
    Withdraw(usize),
    Pass,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => (1..6u32).prop_map(Event::Join),
        6 => (0..50i64, 1..6u32, prop::bool::weighted(0.1)).prop_map(|(r, t, a)| Event::Add(r, t, a)),
        6 => any::<usize>().prop_map(Event::End),
        3 => any::<usize>().prop_map(Event::Start),
        1 => any::<usize>().prop_map(Event::Return),
        1 => any::<usize>().prop_map(Event::Lose),
        1 => any::<usize>().prop_map(Event::Leave),
        1 => any::<usize>().prop_map(Event::Break),
        1 => any::<usize>().prop_map(Event::Rejoin),
        1 => any::<usize>().prop_map(Event::Withdraw),
        3 => Just(Event::Pass),
    ]
}

/// A scheduler, and the units that it must know.
#[derive(Default)]
struct Simulation {
    scheduler: TaskScheduler<()>,
    now: Duration,
    alive: BTreeSet<UnitId>,
    uids: u32,
}

impl Simulation {
    fn pick<T: Copy>(of: &[T], at: usize) -> Option<T> {
        of.get(at.checked_rem(of.len())?).copied()
    }

    fn workers(&self) -> Vec<WorkerKey> {
        self.scheduler.workers().map(|(id, _)| id).collect()
    }

    /// A task that is assigned to a worker.
    fn assigned(&self, at: usize) -> Option<(WorkerKey, Lease)> {
        let all: Vec<(WorkerKey, UnitId)> = self
            .scheduler
            .workers()
            .flat_map(|(id, worker)| worker.tasks().into_iter().map(move |unit| (id, unit)))
            .collect();
        let (id, unit) = Self::pick(&all, at)?;
        Some((id, self.scheduler.task(unit)?.worker_lease))
    }

    fn apply(&mut self, event: Event) {
        self.now += Duration::from_millis(200);
        let now = self.now;
        match event {
            Event::Join(threads) => {
                self.uids += 1;
                let worker = WorkerEntry::new(self.uids.to_string(), threads, BTreeMap::new());
                self.scheduler.on_register(now, worker, &[]);
            }
            Event::Add(rank, threads, exclusive) => {
                let lease = lease();
                let request = ResourceRequest { exclusive, ..ResourceRequest::threads(threads) };
                self.scheduler.add(now, lease, rank, request, ());
                self.alive.insert(lease.unit);
            }
            Event::End(at) => {
                if let Some((id, worker_lease)) = self.assigned(at) {
                    let ran = Duration::from_millis(at as u64 % 300);
                    assert!(self.scheduler.on_task_done(now, id, worker_lease, ran).is_some());
                    self.alive.remove(&worker_lease.unit);
                }
            }
            Event::Start(at) => {
                if let Some((id, worker_lease)) = self.assigned(at) {
                    self.scheduler.on_task_started(now, id, worker_lease);
                }
            }
            Event::Return(at) => {
                if let Some((id, worker_lease)) = self.assigned(at) {
                    self.scheduler.on_task_returned(now, id, worker_lease);
                }
            }
            Event::Lose(at) => {
                if let Some(id) = Self::pick(&self.workers(), at) {
                    for task in self.scheduler.on_worker_lost(now, id).lost {
                        assert!(self.alive.remove(&task.lease.unit), "lost once");
                    }
                }
            }
            Event::Leave(at) => {
                if let Some(id) = Self::pick(&self.workers(), at) {
                    self.scheduler.on_worker_left(now, id);
                }
            }
            Event::Break(at) => {
                if let Some(id) = Self::pick(&self.workers(), at) {
                    self.scheduler.on_disconnect(now, id);
                }
            }
            Event::Rejoin(at) => {
                let Some(id) = Self::pick(&self.workers(), at) else { return };
                let Some(worker) = self.scheduler.worker(id) else { return };
                let new = WorkerEntry::new(worker.uid.clone(), worker.threads, BTreeMap::new());
                let held: Vec<Lease> = worker
                    .tasks()
                    .iter()
                    .filter_map(|unit| Some(self.scheduler.task(*unit)?.worker_lease))
                    .collect();
                let (again, diff) = self.scheduler.on_register(now, new, &held);
                assert_eq!((again, diff.forget.len(), diff.missing), (id, 0, 0));
            }
            Event::Withdraw(at) => {
                let all: Vec<UnitId> = self.alive.iter().copied().collect();
                if let Some(unit) = Self::pick(&all, at)
                    && self.scheduler.withdraw(unit).is_some()
                {
                    self.alive.remove(&unit);
                }
            }
            Event::Pass => {}
        }
    }

    /// Each task is in exactly one place, and no worker exceeds its limits.
    fn check(&self) {
        assert_eq!(self.scheduler.tasks.keys().copied().collect::<BTreeSet<_>>(), self.alive);
        let mut located: Vec<UnitId> =
            self.scheduler.waiting.values().flatten().map(|(_, unit)| *unit).collect();
        for (id, worker) in self.scheduler.workers() {
            let tasks = worker.tasks();
            let load: u32 = tasks.iter().map(|unit| self.scheduler.tasks[unit].request.threads).sum();
            assert_eq!(worker.load(), load);
            assert!(load <= worker.threads + worker.prefill.credit(worker.threads).max(2048));
            assert!(tasks.iter().all(|unit| {
                matches!(self.scheduler.tasks[unit].location, Location::AtWorker(at, _) if at == id)
            }));
            let exclusive = tasks.iter().any(|unit| self.scheduler.tasks[unit].request.exclusive);
            assert!(!exclusive || tasks.len() == 1, "it runs alone");
            located.extend(tasks);
        }
        located.sort();
        assert_eq!(located, self.alive.iter().copied().collect::<Vec<_>>());
    }
}

proptest! {
    #[test]
    fn whatever_happens_each_task_is_in_one_place(events in prop::collection::vec(event(), 1..120)) {
        let mut simulation = Simulation::default();
        for event in events {
            simulation.apply(event);
            let now = simulation.now;
            let assigned = simulation.scheduler.schedule(now);
            let units: BTreeSet<UnitId> = assigned.iter().map(|assigned| assigned.unit).collect();
            prop_assert_eq!(units.len(), assigned.len(), "given once");
            simulation.check();
        }
    }

    #[test]
    fn nobody_starves_however_many_others_come(
        wide in 2..5u32,
        rounds in 1..4usize,
    ) {
        let mut simulation = Simulation::default();
        simulation.apply(Event::Join(wide));
        simulation.apply(Event::Add(5, 1, false));
        simulation.scheduler.schedule(simulation.now);
        simulation.apply(Event::Add(10, wide, false));
        let wide: UnitId = *simulation.scheduler.waiting.values().flatten().map(|(_, unit)| unit).next().unwrap();
        for at in 0..rounds * 40 {
            // More tasks keep arriving, and running tasks keep ending.
            simulation.apply(Event::Add(20, 1, false));
            simulation.scheduler.schedule(simulation.now);
            simulation.apply(Event::End(at));
            simulation.scheduler.schedule(simulation.now);
            if simulation.scheduler.holder(wide).is_some() || simulation.scheduler.task(wide).is_none() {
                return Ok(());
            }
        }
        prop_assert!(false, "the wide task never had its turn");
    }
}
