//! Single decisions of the scheduler. `model` applies random events to it.
#![expect(clippy::panic, clippy::expect_used, reason = "test helpers may panic")]

mod model;

use std::time::{Duration, Instant};

use super::*;

impl ScheduledCall for &'static str {
    fn is_isolated(&self) -> bool {
        self.starts_with("alone")
    }
}

fn settings() -> PoolSettings {
    PoolSettings { min: 1, max: 2, queue: 2, max_calls: None, ..PoolSettings::default() }
}

/// A scheduler with ready workers, and the time.
fn scheduler(settings: PoolSettings) -> (WorkerScheduler<&'static str>, Instant) {
    let now = Instant::now();
    let mut scheduler = WorkerScheduler::new(settings, true);
    for command in scheduler.maintain(now) {
        let BackendCommand::Start(id) = command else { panic!("{command:?}") };
        assert_eq!(scheduler.ready(id, now), (NextAction::Wait, None));
    }
    (scheduler, now)
}

fn refuse(
    scheduler: &mut WorkerScheduler<&'static str>,
    job: &'static str,
    now: Instant,
) -> CallAdmission<&'static str> {
    scheduler.submit(job, 5, WhenQueueFull::Refuse, now)
}

fn wait(
    scheduler: &mut WorkerScheduler<&'static str>,
    job: &'static str,
    now: Instant,
) -> CallAdmission<&'static str> {
    scheduler.submit(job, 5, WhenQueueFull::Wait, now)
}

#[test]
fn a_call_goes_to_a_free_worker_then_to_a_new_one_then_waits_then_is_refused() {
    let (mut scheduler, now) = scheduler(settings());
    assert_eq!(refuse(&mut scheduler, "a", now), CallAdmission::Assigned(1, "a"));
    assert_eq!(refuse(&mut scheduler, "b", now), CallAdmission::Queued((5, 1), Some(2)));
    assert_eq!(scheduler.ready(2, now).0, NextAction::Run("b"));
    assert_eq!(refuse(&mut scheduler, "c", now), CallAdmission::Queued((5, 2), None));
    assert_eq!(refuse(&mut scheduler, "d", now), CallAdmission::Queued((5, 3), None));
    assert_eq!(refuse(&mut scheduler, "e", now), CallAdmission::Full("e"));
    assert_eq!(scheduler.finished(1, now), NextAction::Run("c"));
    assert_eq!(scheduler.finished(2, now), NextAction::Run("d"));
    assert_eq!(scheduler.finished(1, now), NextAction::Wait);
}

#[test]
fn without_a_queue_every_worker_can_still_be_used() {
    let (mut scheduler, now) = scheduler(PoolSettings { min: 0, queue: 0, ..settings() });
    assert_eq!(refuse(&mut scheduler, "a", now), CallAdmission::Queued((5, 1), Some(1)));
    assert_eq!(refuse(&mut scheduler, "b", now), CallAdmission::Queued((5, 2), Some(2)));
    assert_eq!(refuse(&mut scheduler, "c", now), CallAdmission::Full("c"));
    assert_eq!(scheduler.ready(2, now).0, NextAction::Run("a"));
}

#[test]
fn who_waits_for_a_place_gets_it_in_the_order_of_coming_and_nobody_overtakes() {
    let (mut scheduler, now) = scheduler(PoolSettings { max: 1, queue: 1, ..settings() });
    assert_eq!(wait(&mut scheduler, "a", now), CallAdmission::Assigned(1, "a"));
    for (number, job) in ["b", "c", "d"].into_iter().enumerate() {
        let ticket = (5, 1 + number as u64);
        assert_eq!(wait(&mut scheduler, job, now), CallAdmission::Queued(ticket, None));
    }
    // Even the most urgent call does not overtake calls that wait for queue space, or later calls
    // could wait for ever.
    assert!(matches!(scheduler.submit("e", 1, WhenQueueFull::Wait, now), CallAdmission::Queued(..)));
    assert_eq!(refuse(&mut scheduler, "f", now), CallAdmission::Full("f"));
    let command: Vec<_> = (0..4).map(|_| scheduler.finished(1, now)).collect();
    assert_eq!(command, ["b", "c", "d", "e"].map(NextAction::Run));
}

#[test]
fn the_most_urgent_goes_first_and_equals_in_the_order_of_coming() {
    let (mut scheduler, now) = scheduler(PoolSettings { max: 1, queue: 9, ..settings() });
    assert_eq!(refuse(&mut scheduler, "first", now), CallAdmission::Assigned(1, "first"));
    for (job, priority) in [("late", 9), ("a", 5), ("b", 5), ("urgent", 1)] {
        scheduler.submit(job, priority, WhenQueueFull::Refuse, now);
    }
    let command: Vec<_> = (0..4).map(|_| scheduler.finished(1, now)).collect();
    assert_eq!(command, ["urgent", "a", "b", "late"].map(NextAction::Run));
}

#[test]
fn a_withdrawn_call_makes_room_for_the_next_in_line() {
    let (mut scheduler, now) = scheduler(PoolSettings { max: 1, queue: 1, ..settings() });
    for job in ["a", "b", "c", "d"] {
        wait(&mut scheduler, job, now);
    }
    assert_eq!(scheduler.withdraw((5, 1)), Some("b"));
    assert_eq!(scheduler.withdraw((5, 1)), None);
    assert_eq!(scheduler.withdraw_from_overflow((5, 2)), None, "c has moved up");
    assert_eq!(scheduler.withdraw_from_overflow((5, 3)), Some("d"));
    assert_eq!(scheduler.finished(1, now), NextAction::Run("c"));
}

#[test]
fn a_worn_worker_works_on_until_its_replacement_is_ready() {
    let (mut scheduler, now) = scheduler(PoolSettings { max: 1, max_calls: Some(4), ..settings() });
    for _ in 0..3 {
        refuse(&mut scheduler, "a", now);
        assert_eq!(scheduler.finished(1, now), NextAction::Wait);
    }
    assert!(scheduler.take_maintenance_request());
    assert_eq!(scheduler.maintain(now), [BackendCommand::Start(2)]);
    assert_eq!(scheduler.maintain(now), [], "one replacement is enough");
    assert_eq!(refuse(&mut scheduler, "b", now), CallAdmission::Assigned(1, "b"));
    assert_eq!(scheduler.ready(2, now), (NextAction::Wait, None), "the old worker runs a call");
    assert_eq!(scheduler.finished(1, now), NextAction::Stop(EndCause::Calls));
}

#[test]
fn a_worker_gets_no_more_calls_than_its_maximum() {
    let settings = PoolSettings { max: 1, max_calls: Some(2), ..settings() };
    let (mut scheduler, now) = scheduler(settings);
    // It runs one call at a time; others wait in its pipe.
    scheduler.set_prefetch(1, 3);
    assert_eq!(refuse(&mut scheduler, "a", now), CallAdmission::Assigned(1, "a"));
    assert_eq!(refuse(&mut scheduler, "b", now), CallAdmission::Assigned(1, "b"));
    assert_eq!(refuse(&mut scheduler, "c", now), CallAdmission::Queued((5, 1), None));
    assert_eq!(scheduler.prefetch_next(1), None);
    assert_eq!(scheduler.finished(1, now), NextAction::Wait);
    // It counts against `max` until its last call has ended, so that no more calls run than may.
    assert_eq!(scheduler.active_workers(), 1);
    assert_eq!(scheduler.finished(1, now), NextAction::Stop(EndCause::Calls));
    assert!(scheduler.take_maintenance_request());
    assert_eq!(scheduler.maintain(now), [BackendCommand::Start(2)]);
    assert_eq!(scheduler.ready(2, now).0, NextAction::Run("c"));
}

#[test]
fn a_used_up_worker_with_capacity_to_spare_keeps_no_call_waiting() {
    let settings = PoolSettings { max: 1, max_calls: Some(2), max_abandoned: 1, ..settings() };
    let (mut scheduler, now) = scheduler(settings);
    for (old, new, job) in [(1, 2, "c"), (2, 3, "d")] {
        scheduler.set_concurrency(old, 2);
        while scheduler.workers[&old].calls < 2 {
            assert_eq!(refuse(&mut scheduler, "long", now), CallAdmission::Assigned(old, "long"));
        }
        scheduler.maintain(now);
        assert_eq!(scheduler.active_workers(), 1, "worker {old} runs as many calls as it may");
        assert!(matches!(refuse(&mut scheduler, job, now), CallAdmission::Queued(_, None)));
        scheduler.finished(old, now);
        assert!(scheduler.take_maintenance_request());
        let started = scheduler.maintain(now);
        if old == 1 {
            assert_eq!(started, [BackendCommand::Start(new)]);
            assert_eq!(scheduler.ready(new, now).0, NextAction::Run(job));
        } else {
            assert_eq!(started, [], "worker 1 still runs a call, and no more than one may");
        }
    }
    assert_eq!(scheduler.finished(1, now), NextAction::Stop(EndCause::Calls));
    assert!(scheduler.take_maintenance_request());
    assert_eq!(scheduler.maintain(now), [BackendCommand::Start(3)]);
    assert_eq!(scheduler.ready(3, now).0, NextAction::Run("d"));
}

#[test]
fn a_worker_with_a_hanging_call_drains_beside_its_replacement_unless_too_many_do() {
    let (mut scheduler, now) = scheduler(PoolSettings { max: 1, max_abandoned: 1, ..settings() });
    scheduler.set_concurrency(1, 2);
    for _ in 0..2 {
        assert_eq!(refuse(&mut scheduler, "long", now), CallAdmission::Assigned(1, "long"));
    }
    assert!(scheduler.drain(1) && scheduler.drain(1));
    assert_eq!(scheduler.maintain(now), [BackendCommand::Start(2)]);
    scheduler.ready(2, now);
    scheduler.set_concurrency(2, 2);
    assert_eq!(refuse(&mut scheduler, "long", now), CallAdmission::Assigned(2, "long"));
    assert!(!scheduler.drain(2), "worker 1 drains");
    assert_eq!(scheduler.maintain(now), []);
    assert_eq!(refuse(&mut scheduler, "a", now), CallAdmission::Assigned(2, "a"), "it works on");
    scheduler.worker_ended(1, EndCause::Timeout, now);
    assert!(scheduler.drain(2));
    assert_eq!(scheduler.maintain(now), [BackendCommand::Start(3)]);
}

#[test]
fn too_many_replaced_workers_that_still_run_a_call_delay_further_replacements() {
    let settings = PoolSettings { max: 1, max_calls: Some(4), max_abandoned: 1, ..settings() };
    let (mut scheduler, now) = scheduler(settings);
    for (old, new) in [(1, 2), (2, 3)] {
        for _ in 0..3 {
            refuse(&mut scheduler, "short", now);
            scheduler.finished(old, now);
        }
        if old == 1 {
            assert_eq!(scheduler.maintain(now), [BackendCommand::Start(new)]);
            refuse(&mut scheduler, "long", now);
            scheduler.ready(new, now);
        }
    }
    assert_eq!(scheduler.maintain(now), [], "worker 1 still runs its last call");
    assert_eq!(scheduler.finished(1, now), NextAction::Stop(EndCause::Calls));
    assert!(scheduler.take_maintenance_request());
    assert_eq!(scheduler.maintain(now), [BackendCommand::Start(3)]);
}

#[test]
fn an_isolated_call_shares_its_worker_with_no_other() {
    let (mut scheduler, now) = scheduler(PoolSettings { max: 1, ..settings() });
    scheduler.set_prefetch(1, 3);
    assert_eq!(refuse(&mut scheduler, "a", now), CallAdmission::Assigned(1, "a"));
    assert_eq!(refuse(&mut scheduler, "alone", now), CallAdmission::Queued((5, 1), None));
    assert_eq!(refuse(&mut scheduler, "b", now), CallAdmission::Queued((5, 2), None), "no overtaking");
    assert_eq!(scheduler.prefetch_next(1), None);
    assert_eq!(scheduler.finished(1, now), NextAction::Run("alone"));
    assert_eq!(scheduler.prefetch_next(1), None);
    assert_eq!(scheduler.finished(1, now), NextAction::Run("b"));
    assert_eq!(refuse(&mut scheduler, "c", now), CallAdmission::Assigned(1, "c"));
}

#[test]
fn a_replacement_whose_former_died_takes_its_seat() {
    let (mut scheduler, now) = scheduler(PoolSettings { max: 1, max_calls: Some(4), ..settings() });
    for _ in 0..3 {
        refuse(&mut scheduler, "a", now);
        scheduler.finished(1, now);
    }
    assert_eq!(scheduler.maintain(now), [BackendCommand::Start(2)]);
    scheduler.worker_ended(1, EndCause::Died, now);
    assert_eq!(scheduler.maintain(now), []);
    assert_eq!(scheduler.ready(2, now), (NextAction::Wait, None));
    assert_eq!(scheduler.invariant_violation(), None);
}

#[test]
fn lives_are_spread_over_an_eighth_or_two() {
    let mut settings = PoolSettings { min: 40, max: 40, max_calls: Some(800), ..settings() };
    settings.max_age = Some(Duration::from_secs(800));
    let (scheduler, now) = scheduler(settings);
    let lives: Vec<u64> = scheduler.workers.values().map(|slot| slot.replace_after.unwrap()).collect();
    assert!(lives.iter().all(|life| (600..=700).contains(life)), "{lives:?}");
    let mut distinct = lives.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert!(distinct.len() > 30, "{lives:?}");
    let ages = scheduler.workers.values().map(|slot| (slot.expires_at().unwrap() - now).as_secs());
    assert!(ages.clone().all(|age| (699..=900).contains(&age)));
    assert!(ages.clone().max().unwrap() - ages.min().unwrap() > 100);
}

#[test]
fn idle_workers_end_down_to_the_least_and_the_keeper_knows_when() {
    let (mut scheduler, now) = scheduler(settings());
    refuse(&mut scheduler, "a", now);
    refuse(&mut scheduler, "b", now);
    assert_eq!(scheduler.ready(2, now).0, NextAction::Run("b"));
    let later = now + Duration::from_secs(1);
    assert_eq!(
        (scheduler.finished(1, later), scheduler.finished(2, later)),
        (NextAction::Wait, NextAction::Wait)
    );
    let end = later + scheduler.settings.idle_timeout;
    assert_eq!(scheduler.next_maintenance(later), Some(end));
    assert_eq!(scheduler.maintain(end - Duration::from_millis(1)), []);
    assert_eq!(scheduler.maintain(end), [BackendCommand::Stop(2, EndCause::Idle)]);
    assert_eq!(scheduler.maintain(end + scheduler.settings.idle_timeout), []);
    assert_eq!(scheduler.next_maintenance(end), None, "no maintenance is left");
}

#[test]
fn a_start_that_failed_tells_those_who_wait_and_is_not_repeated_at_once() {
    let now = Instant::now();
    let mut scheduler = WorkerScheduler::new(settings(), false);
    assert_eq!(scheduler.maintain(now), [BackendCommand::Start(1)]);
    assert_eq!(refuse(&mut scheduler, "a", now), CallAdmission::Queued((5, 1), None));
    assert_eq!(scheduler.start_failed(1, now), ["a"]);
    assert_eq!(scheduler.maintain(now), []);
    assert_eq!(refuse(&mut scheduler, "b", now), CallAdmission::NoWorker("b"));
    let again = scheduler.next_maintenance(now).unwrap();
    assert_eq!(again, now + START_BACKOFF.0);
    assert_eq!(scheduler.maintain(again), [BackendCommand::Start(2)]);
    scheduler.start_failed(2, again);
    assert_eq!(scheduler.next_maintenance(again), Some(again + START_BACKOFF.0 * 2));
}

#[test]
fn a_start_that_failed_leaves_calls_to_others_that_work() {
    let (mut scheduler, now) = scheduler(settings());
    refuse(&mut scheduler, "a", now);
    assert_eq!(refuse(&mut scheduler, "b", now), CallAdmission::Queued((5, 1), Some(2)));
    assert_eq!(scheduler.start_failed(2, now), [""; 0]);
    assert_eq!(scheduler.maintain(now), []);
    assert_eq!(scheduler.finished(1, now), NextAction::Run("b"));
}

#[test]
fn a_worker_that_ends_before_its_first_call_is_a_start_that_failed() {
    let (mut scheduler, now) = scheduler(settings());
    let (left, failed_early) = scheduler.worker_ended(1, EndCause::Died, now);
    assert!(left.is_empty() && failed_early);
    assert_eq!(scheduler.maintain(now), []);
    assert_eq!(scheduler.maintain(now + START_BACKOFF.0), [BackendCommand::Start(2)]);
}

#[test]
fn an_abandoned_worker_is_replaced_and_leaves_when_it_is_done() {
    let (mut scheduler, now) = scheduler(PoolSettings { max: 1, max_abandoned: 1, ..settings() });
    refuse(&mut scheduler, "a", now);
    scheduler.schedule_abandon(1, now, now);
    assert_eq!(scheduler.counts().abandoned, 1);
    assert_eq!(scheduler.maintain(now), [BackendCommand::Start(2)]);
    scheduler.ready(2, now);
    assert_eq!(refuse(&mut scheduler, "b", now), CallAdmission::Assigned(2, "b"));
    scheduler.schedule_abandon(2, now, now);
    assert_eq!(scheduler.counts().abandoned, 1, "no more than may be");
    assert_eq!(scheduler.finished(1, now), NextAction::Stop(EndCause::Timeout));
    scheduler.worker_ended(1, EndCause::Timeout, now);
    assert_eq!(scheduler.maintain(now), [BackendCommand::Start(3)], "now the second may be, too");
    assert_eq!(scheduler.counts().abandoned, 1);
}

#[test]
fn a_call_taken_back_keeps_its_thread_until_its_time_is_over() {
    let (mut scheduler, now) = scheduler(PoolSettings { max: 1, ..settings() });
    refuse(&mut scheduler, "a", now);
    let deadline = now + Duration::from_secs(9);
    scheduler.schedule_abandon(1, deadline, now);
    assert_eq!((scheduler.maintain(now), scheduler.next_maintenance(now)), (vec![], Some(deadline)));
    assert_eq!(scheduler.maintain(deadline), [BackendCommand::Start(2)]);
    assert_eq!(scheduler.finished(1, deadline), NextAction::Stop(EndCause::Timeout));
}

#[test]
fn a_thread_that_takes_too_long_to_start_is_given_up() {
    let now = Instant::now();
    let mut scheduler = WorkerScheduler::new(settings(), true);
    assert_eq!(scheduler.maintain(now), [BackendCommand::Start(1)]);
    refuse(&mut scheduler, "a", now);
    let late = now + scheduler.settings.start_timeout;
    assert_eq!(scheduler.next_maintenance(now), Some(late));
    assert_eq!(scheduler.maintain(late), [BackendCommand::ReportSlowStart(1)]);
    assert_eq!(scheduler.take_unservable(late), ["a"]);
    assert_eq!(scheduler.maintain(late + START_BACKOFF.0), [BackendCommand::Start(2)]);
    assert_eq!(scheduler.ready(1, late).0, NextAction::Stop(EndCause::Timeout));
}

#[test]
fn a_closing_table_does_what_waits_and_lets_everybody_go() {
    let (mut scheduler, now) = scheduler(PoolSettings { max: 1, queue: 1, ..settings() });
    for job in ["a", "b", "c"] {
        wait(&mut scheduler, job, now);
    }
    assert_eq!(scheduler.close(), ["c"], "calls that wait for queue space are rejected");
    assert_eq!(refuse(&mut scheduler, "d", now), CallAdmission::Closing("d"));
    assert_eq!(scheduler.maintain(now), []);
    // The worker panics: another one must still run the queued call.
    scheduler.worker_ended(1, EndCause::Panic, now);
    assert_eq!(scheduler.maintain(now), [BackendCommand::Start(2)]);
    assert_eq!(scheduler.ready(2, now).0, NextAction::Run("b"));
    assert_eq!(scheduler.finished(2, now), NextAction::Stop(EndCause::Closing));
    scheduler.worker_ended(2, EndCause::Closing, now);
    assert!(scheduler.is_empty() && scheduler.maintain(now).is_empty());
}

#[test]
fn a_worker_that_starts_while_the_table_closes_goes_at_once() {
    let now = Instant::now();
    let mut scheduler: WorkerScheduler<&str> = WorkerScheduler::new(settings(), true);
    assert_eq!(scheduler.maintain(now), [BackendCommand::Start(1)]);
    scheduler.close();
    assert_eq!(scheduler.ready(1, now).0, NextAction::Stop(EndCause::Closing));
}

#[test]
fn a_smaller_table_lets_the_free_go_at_once_and_the_busy_when_done() {
    let (mut scheduler, now) = scheduler(PoolSettings { min: 3, max: 3, ..settings() });
    refuse(&mut scheduler, "a", now);
    refuse(&mut scheduler, "b", now);
    scheduler.resize(1, 1);
    assert_eq!(scheduler.maintain(now), [BackendCommand::Stop(3, EndCause::Surplus)]);
    assert_eq!(scheduler.finished(1, now), NextAction::Stop(EndCause::Surplus));
    assert_eq!(scheduler.finished(2, now), NextAction::Wait);
    scheduler.resize(2, 4);
    assert_eq!(scheduler.maintain(now), [BackendCommand::Start(4)]);
}

#[test]
fn a_worker_with_calls_ahead_gets_them_only_while_it_is_at_one() {
    let (mut scheduler, now) = scheduler(PoolSettings { max: 1, ..settings() });
    scheduler.set_prefetch(1, 2);
    assert_eq!(refuse(&mut scheduler, "a", now), CallAdmission::Assigned(1, "a"));
    assert_eq!(refuse(&mut scheduler, "b", now), CallAdmission::Assigned(1, "b"));
    scheduler.set_prefetch(1, 0);
    assert_eq!(refuse(&mut scheduler, "c", now), CallAdmission::Queued((5, 1), None));
    assert_eq!(scheduler.finished(1, now), NextAction::Wait, "it has one more than it may");
    assert_eq!(scheduler.prefetch_next(1), None);
    scheduler.set_prefetch(1, 1);
    assert_eq!(scheduler.prefetch_next(1), Some("c"));
    assert_eq!(scheduler.requeue("c", 5, now), CallAdmission::Queued((5, 2), None));
}

#[test]
fn workers_that_want_to_be_replaced_before_their_first_call_are_so_ever_more_slowly() {
    let (mut scheduler, start) = scheduler(PoolSettings { max: 1, ..settings() });
    let (mut now, mut id, mut waits) = (start, 1, Vec::new());
    for _ in 0..4 {
        scheduler.replace(id, EndCause::Requested);
        let before = now;
        let next = loop {
            match scheduler.maintain(now).as_slice() {
                [BackendCommand::Start(next)] => break *next,
                _ => now = scheduler.next_maintenance(now).expect("a time for the next start"),
            }
        };
        waits.push(now - before);
        assert!(scheduler.ready(next, now).1.is_some());
        scheduler.worker_ended(id, EndCause::Requested, now);
        id = next;
    }
    let millis = [0, 100, 200, 400].map(Duration::from_millis);
    assert_eq!(waits, millis);
}
