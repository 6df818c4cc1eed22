use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use longshore::UnitId;
use longshore::session::Lease;
use proptest::prelude::*;

use super::{Board, Given, Need, Place, Seat, SeatId};

const NOW: Duration = Duration::from_secs(100);
const LATER: Duration = Duration::from_secs(101);

/// How long scripts take at these workers: too long to be given ahead.
const SLOW: Duration = Duration::from_secs(10);

fn lease() -> Lease {
    Lease { unit: UnitId::new(), fence: 1 }
}

fn seat(board: &mut Board<()>, threads: u32) -> SeatId {
    seat_with(board, threads, &[])
}

fn seat_with(board: &mut Board<()>, threads: u32, resources: &[(&str, u32)]) -> SeatId {
    let resources = resources.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    let mut seat = Seat::new(UnitId::new().to_string(), threads, resources);
    seat.pace.on_end(SLOW);
    board.on_register(NOW, seat, &[]).0
}

/// A worker that is given as much ahead as it can run.
fn quick(uid: &str, threads: u32) -> Seat {
    let mut seat = Seat::new(uid, threads, BTreeMap::new());
    seat.pace.on_end(Duration::from_millis(100));
    seat
}

fn task(board: &mut Board<()>, rank: i64, threads: u32) -> Lease {
    task_with(board, rank, Need::threads(threads))
}

fn task_with(board: &mut Board<()>, rank: i64, need: Need) -> Lease {
    let lease = lease();
    board.add(NOW, lease, rank, need, ());
    lease
}

fn to(board: &mut Board<()>, now: Duration) -> Vec<(UnitId, SeatId)> {
    board.schedule(now).into_iter().map(|Given { seat, unit }| (unit, seat)).collect()
}

#[test]
fn a_task_goes_to_the_worker_that_it_fills_best() {
    let mut board = Board::default();
    let (large, small) = (seat(&mut board, 8), seat(&mut board, 2));
    let two = task(&mut board, 1, 2);
    let four = task(&mut board, 2, 4);
    assert_eq!(to(&mut board, NOW), [(two.unit, small), (four.unit, large)]);
}

#[test]
fn the_smallest_rank_goes_first() {
    let mut board = Board::default();
    let seat = seat(&mut board, 1);
    let (late, early) = (task(&mut board, 9, 1), task(&mut board, 5, 1));
    assert_eq!(to(&mut board, NOW), [(early.unit, seat)]);
    board.on_task_done(NOW, seat, early, SLOW).unwrap();
    assert_eq!(to(&mut board, NOW), [(late.unit, seat)]);
}

#[test]
fn one_that_does_not_fit_holds_up_nobody_else() {
    let mut board = Board::default();
    let seat = seat(&mut board, 4);
    let first = task(&mut board, 1, 3);
    let _wide = task(&mut board, 2, 4);
    let narrow = task(&mut board, 3, 1);
    assert_eq!(to(&mut board, NOW), [(first.unit, seat), (narrow.unit, seat)]);
}

#[test]
fn a_wide_task_has_a_worker_kept_for_it_after_a_while() {
    let mut board = Board::default();
    let seats = [seat(&mut board, 4), seat(&mut board, 4)];
    let narrow: Vec<Lease> = (0..8).map(|rank| task(&mut board, rank, 1)).collect();
    assert_eq!(to(&mut board, NOW).len(), 8);
    let wide = task(&mut board, 10, 4);
    let mut later: Vec<Lease> = (20..40).map(|rank| task(&mut board, rank, 1)).collect();
    assert!(to(&mut board, LATER).is_empty());
    // One by one the first ones end; others take their places, but not at the worker that is kept.
    let mut given = Vec::new();
    for lease in narrow {
        let at = board.holder(lease.unit).unwrap();
        board.on_task_done(LATER, at, lease, SLOW).unwrap();
        given.extend(to(&mut board, LATER));
    }
    let wide_at = given.iter().find(|(unit, _)| *unit == wide.unit).unwrap().1;
    assert!(seats.contains(&wide_at));
    later.retain(|lease| given.iter().any(|(unit, _)| *unit == lease.unit));
    assert_eq!(later.len(), 4, "the other worker was kept full");
}

#[test]
fn resources_are_counted_and_what_nobody_has_waits() {
    let mut board = Board::default();
    let seat = seat_with(&mut board, 8, &[("gpu", 2)]);
    let gpu = |count: u32| Need {
        resources: BTreeMap::from([("gpu".to_owned(), count)]),
        ..Need::threads(1)
    };
    let two = task_with(&mut board, 1, gpu(2));
    let one = task_with(&mut board, 2, gpu(1));
    let _three = task_with(&mut board, 3, gpu(3));
    assert_eq!(to(&mut board, NOW), [(two.unit, seat)]);
    board.on_task_done(NOW, seat, two, SLOW).unwrap();
    assert_eq!(to(&mut board, NOW), [(one.unit, seat)]);
    assert_eq!(board.waiting(), 1);
}

#[test]
fn who_must_run_alone_runs_alone() {
    let mut board = Board::default();
    let seat = seat(&mut board, 4);
    let other = task(&mut board, 1, 1);
    let alone = task_with(&mut board, 2, Need { alone: true, ..Need::threads(1) });
    assert_eq!(to(&mut board, NOW), [(other.unit, seat)]);
    assert!(to(&mut board, LATER).is_empty(), "and has the worker kept for it");
    let late = task(&mut board, 3, 1);
    assert!(to(&mut board, LATER).is_empty());
    board.on_task_done(LATER, seat, other, SLOW).unwrap();
    let given = to(&mut board, LATER);
    assert_eq!(given.first(), Some(&(alone.unit, seat)));
    assert!(given.iter().all(|(unit, _)| *unit != late.unit), "nothing is put beside it");
}

#[test]
fn of_a_lost_worker_only_what_may_have_begun_is_lost() {
    let mut board = Board::default();
    let id = board.on_register(NOW, quick("w", 2), &[]).0;
    let leases: Vec<Lease> = (0..4).map(|rank| task(&mut board, rank, 1)).collect();
    assert_eq!(to(&mut board, NOW).len(), 4, "two to run, two ahead");
    let lost = board.on_worker_lost(NOW, id);
    assert_eq!((lost.lost.as_slice(), lost.kept), (&leases[..2], 2));
    let next = board.on_register(NOW, Seat::new("x", 2, BTreeMap::new()), &[]).0;
    assert_eq!(to(&mut board, NOW), [(leases[2].unit, next), (leases[3].unit, next)]);
}

#[test]
fn a_late_word_of_a_lost_worker_changes_nothing() {
    let mut board = Board::default();
    let seat = seat(&mut board, 1);
    let lease = task(&mut board, 1, 1);
    to(&mut board, NOW);
    board.on_worker_lost(NOW, seat);
    assert!(!board.on_heartbeat(NOW, seat));
    assert!(board.on_task_done(NOW, seat, lease, SLOW).is_none());
    board.on_task_started(seat, lease);
    board.on_task_returned(NOW, seat, lease);
    assert!(board.is_empty());
}

#[test]
fn an_older_life_of_a_unit_cannot_end_it() {
    let mut board = Board::default();
    let seat = seat(&mut board, 1);
    let lease = task(&mut board, 1, 1);
    to(&mut board, NOW);
    let older = Lease { fence: 0, ..lease };
    assert!(board.on_task_done(NOW, seat, older, SLOW).is_none());
    assert!(board.on_task_done(NOW, seat, lease, SLOW).is_some());
    assert!(board.on_task_done(NOW, seat, lease, SLOW).is_none(), "an end counts once");
}

#[test]
fn a_worker_that_comes_back_keeps_what_is_its_own_and_forgets_the_rest() {
    let mut board = Board::default();
    let new = || Seat::new("w", 2, BTreeMap::new());
    let id = board.on_register(NOW, new(), &[]).0;
    let (first, second) = (task(&mut board, 1, 1), task(&mut board, 2, 1));
    to(&mut board, NOW);
    board.on_disconnect(NOW, id);
    let foreign = lease();
    let (again, reunion) = board.on_register(NOW, new(), &[first, foreign]);
    assert_eq!((again, reunion.forget, reunion.missing), (id, vec![foreign], 1));
    assert_eq!(board.holder(first.unit), Some(id));
    assert_eq!(to(&mut board, NOW), [(second.unit, id)], "it never got there");
}

#[test]
fn tasks_of_an_earlier_life_find_their_worker_or_are_given_up() {
    let mut board = Board::default();
    let (found, lost) = (lease(), lease());
    let told = |lease: Lease| Lease { fence: 0, ..lease };
    for lease in [found, lost] {
        board.add_astray(NOW, (lease, told(lease)), 1, Need::threads(1), ());
    }
    let seat = Seat::new("w", 1, BTreeMap::new());
    let (id, reunion) = board.on_register(NOW, seat, &[told(found)]);
    assert!(reunion.forget.is_empty() && board.astray() == 1);
    let done = board.on_task_done(NOW, id, told(found), SLOW).unwrap();
    assert_eq!(done.lease, found, "it is finished by the claim of this life");
    let given_up: Vec<Lease> = board.give_up_astray().into_iter().map(|task| task.lease).collect();
    assert_eq!(given_up, [lost]);
}

#[test]
fn what_waits_at_a_busy_worker_is_asked_back_for_an_idle_one() {
    let mut board = Board::default();
    let busy = board.on_register(NOW, quick("a", 1), &[]).0;
    let leases: Vec<Lease> = (0..2).map(|rank| task(&mut board, rank, 1)).collect();
    assert_eq!(to(&mut board, NOW).len(), 2);
    assert!(board.recalls().is_empty(), "nobody is idle");
    let idle = seat(&mut board, 1);
    assert_eq!(board.recalls(), [Given { seat: busy, unit: leases[1].unit }]);
    board.on_task_returned(NOW, busy, leases[1]);
    assert_eq!(to(&mut board, NOW), [(leases[1].unit, idle)]);
}

#[test]
fn a_worker_that_drains_or_is_away_is_given_nothing() {
    let mut board = Board::default();
    let (draining, away) = (seat(&mut board, 4), seat(&mut board, 4));
    board.on_draining(draining);
    board.on_disconnect(NOW, away);
    task(&mut board, 1, 1);
    assert!(to(&mut board, NOW).is_empty());
    assert_eq!((board.wants(), board.largest().threads), (0, 0));
    assert_eq!(board.overdue(LATER, SLOW, Duration::from_secs(1)), [away]);
}

#[test]
fn silence_does_not_count_while_nobody_listened() {
    let mut board = Board::default();
    let (quiet, away) = (seat(&mut board, 4), seat(&mut board, 4));
    board.on_disconnect(NOW, away);
    let second = Duration::from_secs(1);
    assert_eq!(board.overdue(LATER, second, second), [quiet, away]);
    board.on_deafness(LATER);
    assert!(board.overdue(LATER, second, second).is_empty());
    assert_eq!(board.overdue(LATER + second, second, second), [quiet, away]);
}

#[test]
fn what_is_slow_is_claimed_only_for_who_is_free() {
    let mut board = Board::default();
    let id = seat(&mut board, 2);
    assert_eq!(board.wants(), 2);
    let first = task(&mut board, 1, 2);
    to(&mut board, NOW);
    assert_eq!(board.wants(), 0, "what comes later may be more urgent");
    board.on_task_done(NOW, id, first, SLOW).unwrap();
    let _wide = task(&mut board, 2, 3);
    to(&mut board, NOW);
    assert_eq!(board.wants(), 2, "what fits nowhere keeps nobody from what does");
}

/// What may happen to a board.
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

/// A board with what the world beside it knows.
#[derive(Default)]
struct World {
    board: Board<()>,
    now: Duration,
    alive: BTreeSet<UnitId>,
    uids: u32,
}

impl World {
    fn pick<T: Copy>(of: &[T], at: usize) -> Option<T> {
        of.get(at.checked_rem(of.len())?).copied()
    }

    fn seats(&self) -> Vec<SeatId> {
        self.board.seats().map(|(id, _)| id).collect()
    }

    /// A task that some worker has.
    fn given(&self, at: usize) -> Option<(SeatId, Lease)> {
        let all: Vec<(SeatId, UnitId)> = self
            .board
            .seats()
            .flat_map(|(id, seat)| seat.tasks().into_iter().map(move |unit| (id, unit)))
            .collect();
        let (id, unit) = Self::pick(&all, at)?;
        Some((id, self.board.task(unit)?.told))
    }

    fn happen(&mut self, event: Event) {
        self.now += Duration::from_millis(200);
        let now = self.now;
        match event {
            Event::Join(threads) => {
                self.uids += 1;
                let seat = Seat::new(self.uids.to_string(), threads, BTreeMap::new());
                self.board.on_register(now, seat, &[]);
            }
            Event::Add(rank, threads, alone) => {
                let lease = lease();
                let need = Need { alone, ..Need::threads(threads) };
                self.board.add(now, lease, rank, need, ());
                self.alive.insert(lease.unit);
            }
            Event::End(at) => {
                if let Some((id, told)) = self.given(at) {
                    let ran = Duration::from_millis(at as u64 % 300);
                    assert!(self.board.on_task_done(now, id, told, ran).is_some());
                    self.alive.remove(&told.unit);
                }
            }
            Event::Start(at) => {
                if let Some((id, told)) = self.given(at) {
                    self.board.on_task_started(id, told);
                }
            }
            Event::Return(at) => {
                if let Some((id, told)) = self.given(at) {
                    self.board.on_task_returned(now, id, told);
                }
            }
            Event::Lose(at) => {
                if let Some(id) = Self::pick(&self.seats(), at) {
                    for lease in self.board.on_worker_lost(now, id).lost {
                        assert!(self.alive.remove(&lease.unit), "lost once");
                    }
                }
            }
            Event::Leave(at) => {
                if let Some(id) = Self::pick(&self.seats(), at) {
                    self.board.on_worker_left(now, id);
                }
            }
            Event::Break(at) => {
                if let Some(id) = Self::pick(&self.seats(), at) {
                    self.board.on_disconnect(now, id);
                }
            }
            Event::Rejoin(at) => {
                let Some(id) = Self::pick(&self.seats(), at) else { return };
                let Some(seat) = self.board.seat(id) else { return };
                let new = Seat::new(seat.uid.clone(), seat.threads, BTreeMap::new());
                let holds: Vec<Lease> = seat
                    .tasks()
                    .iter()
                    .filter_map(|unit| Some(self.board.task(*unit)?.told))
                    .collect();
                let (again, reunion) = self.board.on_register(now, new, &holds);
                assert_eq!((again, reunion.forget.len(), reunion.missing), (id, 0, 0));
            }
            Event::Withdraw(at) => {
                let all: Vec<UnitId> = self.alive.iter().copied().collect();
                if let Some(unit) = Self::pick(&all, at)
                    && self.board.withdraw(unit).is_some()
                {
                    self.alive.remove(&unit);
                }
            }
            Event::Pass => {}
        }
    }

    /// Everything is somewhere, once, and nobody has more than it should.
    fn check(&self) {
        assert_eq!(self.board.tasks.keys().copied().collect::<BTreeSet<_>>(), self.alive);
        let mut places: Vec<UnitId> =
            self.board.waiting.values().flatten().map(|(_, unit)| *unit).collect();
        for (id, seat) in self.board.seats() {
            let tasks = seat.tasks();
            let load: u32 = tasks.iter().map(|unit| self.board.tasks[unit].need.threads).sum();
            assert_eq!(seat.load(), load);
            assert!(load <= seat.threads + seat.pace.credit(seat.threads).max(2048));
            assert!(tasks.iter().all(|unit| {
                matches!(self.board.tasks[unit].place, Place::At(at, _) if at == id)
            }));
            let alone = tasks.iter().any(|unit| self.board.tasks[unit].need.alone);
            assert!(!alone || tasks.len() == 1, "it runs alone");
            places.extend(tasks);
        }
        places.sort();
        assert_eq!(places, self.alive.iter().copied().collect::<Vec<_>>());
    }
}

proptest! {
    #[test]
    fn whatever_happens_each_task_is_in_one_place(events in prop::collection::vec(event(), 1..120)) {
        let mut world = World::default();
        for event in events {
            world.happen(event);
            let now = world.now;
            let given = world.board.schedule(now);
            let units: BTreeSet<UnitId> = given.iter().map(|given| given.unit).collect();
            prop_assert_eq!(units.len(), given.len(), "given once");
            world.check();
        }
    }

    #[test]
    fn nobody_starves_however_many_others_come(
        wide in 2..5u32,
        rounds in 1..4usize,
    ) {
        let mut world = World::default();
        world.happen(Event::Join(wide));
        world.happen(Event::Add(5, 1, false));
        world.board.schedule(world.now);
        world.happen(Event::Add(10, wide, false));
        let wide: UnitId = *world.board.waiting.values().flatten().map(|(_, unit)| unit).next().unwrap();
        for at in 0..rounds * 40 {
            // Others keep coming, and what runs keeps ending.
            world.happen(Event::Add(20, 1, false));
            world.board.schedule(world.now);
            world.happen(Event::End(at));
            world.board.schedule(world.now);
            if world.board.holder(wide).is_some() || world.board.task(wide).is_none() {
                return Ok(());
            }
        }
        prop_assert!(false, "the wide task never had its turn");
    }
}
