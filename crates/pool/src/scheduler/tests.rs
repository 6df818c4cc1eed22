//! Single decisions of the scheduler. `model` applies random events to it.
#![expect(clippy::panic, clippy::expect_used, reason = "test helpers may panic")]

mod model;

use std::time::{Duration, Instant};

use super::*;

fn settings() -> Settings {
    Settings { min: 1, max: 2, queue: 2, max_calls: None, ..Settings::default() }
}

/// A scheduler with ready workers, and the time.
fn table(settings: Settings) -> (Table<&'static str>, Instant) {
    let now = Instant::now();
    let mut table = Table::new(settings, true);
    for order in table.tend(now) {
        let Order::Start(id) = order else { panic!("{order:?}") };
        assert_eq!(table.ready(id, now), (Next::Wait, None));
    }
    (table, now)
}

fn refuse(
    table: &mut Table<&'static str>,
    job: &'static str,
    now: Instant,
) -> Submitted<&'static str> {
    table.submit(job, 5, WhenFull::Refuse, now)
}

fn wait(
    table: &mut Table<&'static str>,
    job: &'static str,
    now: Instant,
) -> Submitted<&'static str> {
    table.submit(job, 5, WhenFull::Wait, now)
}

#[test]
fn a_call_goes_to_a_free_worker_then_to_a_new_one_then_waits_then_is_refused() {
    let (mut table, now) = table(settings());
    assert_eq!(refuse(&mut table, "a", now), Submitted::Given(1, "a"));
    assert_eq!(refuse(&mut table, "b", now), Submitted::Queued((5, 1), Some(2)));
    assert_eq!(table.ready(2, now).0, Next::Take("b"));
    assert_eq!(refuse(&mut table, "c", now), Submitted::Queued((5, 2), None));
    assert_eq!(refuse(&mut table, "d", now), Submitted::Queued((5, 3), None));
    assert_eq!(refuse(&mut table, "e", now), Submitted::Full("e"));
    assert_eq!(table.finished(1, now), Next::Take("c"));
    assert_eq!(table.finished(2, now), Next::Take("d"));
    assert_eq!(table.finished(1, now), Next::Wait);
}

#[test]
fn without_a_queue_every_worker_can_still_be_used() {
    let (mut table, now) = table(Settings { min: 0, queue: 0, ..settings() });
    assert_eq!(refuse(&mut table, "a", now), Submitted::Queued((5, 1), Some(1)));
    assert_eq!(refuse(&mut table, "b", now), Submitted::Queued((5, 2), Some(2)));
    assert_eq!(refuse(&mut table, "c", now), Submitted::Full("c"));
    assert_eq!(table.ready(2, now).0, Next::Take("a"));
}

#[test]
fn who_waits_for_a_place_gets_it_in_the_order_of_coming_and_nobody_overtakes() {
    let (mut table, now) = table(Settings { max: 1, queue: 1, ..settings() });
    assert_eq!(wait(&mut table, "a", now), Submitted::Given(1, "a"));
    for (number, job) in ["b", "c", "d"].into_iter().enumerate() {
        let ticket = (5, 1 + number as u64);
        assert_eq!(wait(&mut table, job, now), Submitted::Queued(ticket, None));
    }
    // Even the most urgent call does not overtake calls that wait for queue space, or later calls
    // could wait for ever.
    assert!(matches!(table.submit("e", 1, WhenFull::Wait, now), Submitted::Queued(..)));
    assert_eq!(refuse(&mut table, "f", now), Submitted::Full("f"));
    let order: Vec<_> = (0..4).map(|_| table.finished(1, now)).collect();
    assert_eq!(order, ["b", "c", "d", "e"].map(Next::Take));
}

#[test]
fn the_most_urgent_goes_first_and_equals_in_the_order_of_coming() {
    let (mut table, now) = table(Settings { max: 1, queue: 9, ..settings() });
    assert_eq!(refuse(&mut table, "first", now), Submitted::Given(1, "first"));
    for (job, priority) in [("late", 9), ("a", 5), ("b", 5), ("urgent", 1)] {
        table.submit(job, priority, WhenFull::Refuse, now);
    }
    let order: Vec<_> = (0..4).map(|_| table.finished(1, now)).collect();
    assert_eq!(order, ["urgent", "a", "b", "late"].map(Next::Take));
}

#[test]
fn a_withdrawn_call_makes_room_for_the_next_in_line() {
    let (mut table, now) = table(Settings { max: 1, queue: 1, ..settings() });
    for job in ["a", "b", "c", "d"] {
        wait(&mut table, job, now);
    }
    assert_eq!(table.withdraw((5, 1)), Some("b"));
    assert_eq!(table.withdraw((5, 1)), None);
    assert_eq!(table.withdraw_from_line((5, 2)), None, "c has moved up");
    assert_eq!(table.withdraw_from_line((5, 3)), Some("d"));
    assert_eq!(table.finished(1, now), Next::Take("c"));
}

#[test]
fn a_worn_worker_works_on_until_its_replacement_is_ready() {
    let (mut table, now) = table(Settings { max: 1, max_calls: Some(1), ..settings() });
    refuse(&mut table, "a", now);
    assert_eq!(table.finished(1, now), Next::Wait);
    assert!(table.take_alarm());
    assert_eq!(table.tend(now), [Order::Start(2)]);
    assert_eq!(table.tend(now), [], "one replacement is enough");
    assert_eq!(refuse(&mut table, "b", now), Submitted::Given(1, "b"));
    assert_eq!(table.ready(2, now), (Next::Wait, None), "the former is at a call");
    assert_eq!(table.finished(1, now), Next::Leave(Cause::Calls));
}

#[test]
fn a_replacement_whose_former_died_takes_its_seat() {
    let (mut table, now) = table(Settings { max: 1, max_calls: Some(1), ..settings() });
    refuse(&mut table, "a", now);
    table.finished(1, now);
    assert_eq!(table.tend(now), [Order::Start(2)]);
    table.gone(1, Cause::Died, now);
    assert_eq!(table.tend(now), []);
    assert_eq!(table.ready(2, now), (Next::Wait, None));
    assert_eq!(table.fault(), None);
}

#[test]
fn lives_are_spread_by_an_eighth_either_way() {
    let mut settings = Settings { min: 40, max: 40, max_calls: Some(800), ..settings() };
    settings.max_age = Some(Duration::from_secs(800));
    let (table, now) = table(settings);
    let lives: Vec<u64> = table.workers.values().map(|seat| seat.max_calls.unwrap()).collect();
    assert!(lives.iter().all(|life| (700..=900).contains(life)), "{lives:?}");
    let mut distinct = lives.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert!(distinct.len() > 30, "{lives:?}");
    let ages = table.workers.values().map(|seat| (seat.ends_at().unwrap() - now).as_secs());
    assert!(ages.clone().all(|age| (699..=900).contains(&age)));
    assert!(ages.clone().max().unwrap() - ages.min().unwrap() > 100);
}

#[test]
fn idle_workers_end_down_to_the_least_and_the_keeper_knows_when() {
    let (mut table, now) = table(settings());
    refuse(&mut table, "a", now);
    refuse(&mut table, "b", now);
    assert_eq!(table.ready(2, now).0, Next::Take("b"));
    let later = now + Duration::from_secs(1);
    assert_eq!((table.finished(1, later), table.finished(2, later)), (Next::Wait, Next::Wait));
    let end = later + table.settings.idle_timeout;
    assert_eq!(table.tend_at(later), Some(end));
    assert_eq!(table.tend(end - Duration::from_millis(1)), []);
    assert_eq!(table.tend(end), [Order::End(2, Cause::Idle)]);
    assert_eq!(table.tend(end + table.settings.idle_timeout), []);
    assert_eq!(table.tend_at(end), None, "nothing is left to look after");
}

#[test]
fn a_start_that_failed_tells_those_who_wait_and_is_not_repeated_at_once() {
    let now = Instant::now();
    let mut table = Table::new(settings(), false);
    assert_eq!(table.tend(now), [Order::Start(1)]);
    assert_eq!(refuse(&mut table, "a", now), Submitted::Queued((5, 1), None));
    assert_eq!(table.start_failed(1, now), ["a"]);
    assert_eq!(table.tend(now), []);
    assert_eq!(refuse(&mut table, "b", now), Submitted::Nobody("b"));
    let again = table.tend_at(now).unwrap();
    assert_eq!(again, now + BACKOFF.0);
    assert_eq!(table.tend(again), [Order::Start(2)]);
    table.start_failed(2, again);
    assert_eq!(table.tend_at(again), Some(again + BACKOFF.0 * 2));
}

#[test]
fn a_start_that_failed_leaves_calls_to_others_that_work() {
    let (mut table, now) = table(settings());
    refuse(&mut table, "a", now);
    assert_eq!(refuse(&mut table, "b", now), Submitted::Queued((5, 1), Some(2)));
    assert_eq!(table.start_failed(2, now), [""; 0]);
    assert_eq!(table.tend(now), []);
    assert_eq!(table.finished(1, now), Next::Take("b"));
}

#[test]
fn a_worker_that_ends_before_its_first_call_is_a_start_that_failed() {
    let (mut table, now) = table(settings());
    let (left, useless) = table.gone(1, Cause::Died, now);
    assert!(left.is_empty() && useless);
    assert_eq!(table.tend(now), []);
    assert_eq!(table.tend(now + BACKOFF.0), [Order::Start(2)]);
}

#[test]
fn an_abandoned_worker_is_replaced_and_leaves_when_it_is_done() {
    let (mut table, now) = table(Settings { max: 1, max_abandoned: 1, ..settings() });
    refuse(&mut table, "a", now);
    table.unwanted(1, now, now);
    assert_eq!(table.counts().abandoned, 1);
    assert_eq!(table.tend(now), [Order::Start(2)]);
    table.ready(2, now);
    assert_eq!(refuse(&mut table, "b", now), Submitted::Given(2, "b"));
    table.unwanted(2, now, now);
    assert_eq!(table.counts().abandoned, 1, "no more than may be");
    assert_eq!(table.finished(1, now), Next::Leave(Cause::Timeout));
    table.gone(1, Cause::Timeout, now);
    assert_eq!(table.tend(now), [Order::Start(3)], "now the second may be, too");
    assert_eq!(table.counts().abandoned, 1);
}

#[test]
fn a_call_taken_back_keeps_its_thread_until_its_time_is_over() {
    let (mut table, now) = table(Settings { max: 1, ..settings() });
    refuse(&mut table, "a", now);
    let deadline = now + Duration::from_secs(9);
    table.unwanted(1, deadline, now);
    assert_eq!((table.tend(now), table.tend_at(now)), (vec![], Some(deadline)));
    assert_eq!(table.tend(deadline), [Order::Start(2)]);
    assert_eq!(table.finished(1, deadline), Next::Leave(Cause::Timeout));
}

#[test]
fn a_thread_that_takes_too_long_to_start_is_given_up() {
    let now = Instant::now();
    let mut table = Table::new(settings(), true);
    assert_eq!(table.tend(now), [Order::Start(1)]);
    refuse(&mut table, "a", now);
    let late = now + table.settings.start_timeout;
    assert_eq!(table.tend_at(now), Some(late));
    assert_eq!(table.tend(late), [Order::Late(1)]);
    assert_eq!(table.stranded(late), ["a"]);
    assert_eq!(table.tend(late + BACKOFF.0), [Order::Start(2)]);
    assert_eq!(table.ready(1, late).0, Next::Leave(Cause::Timeout));
}

#[test]
fn a_closing_table_does_what_waits_and_lets_everybody_go() {
    let (mut table, now) = table(Settings { max: 1, queue: 1, ..settings() });
    for job in ["a", "b", "c"] {
        wait(&mut table, job, now);
    }
    assert_eq!(table.close(), ["c"], "who is in line is told");
    assert_eq!(refuse(&mut table, "d", now), Submitted::Closing("d"));
    assert_eq!(table.tend(now), []);
    // The worker panics: another one must still run the queued call.
    table.gone(1, Cause::Panic, now);
    assert_eq!(table.tend(now), [Order::Start(2)]);
    assert_eq!(table.ready(2, now).0, Next::Take("b"));
    assert_eq!(table.finished(2, now), Next::Leave(Cause::Closing));
    table.gone(2, Cause::Closing, now);
    assert!(table.is_empty() && table.tend(now).is_empty());
}

#[test]
fn a_worker_that_starts_while_the_table_closes_goes_at_once() {
    let now = Instant::now();
    let mut table: Table<&str> = Table::new(settings(), true);
    assert_eq!(table.tend(now), [Order::Start(1)]);
    table.close();
    assert_eq!(table.ready(1, now).0, Next::Leave(Cause::Closing));
}

#[test]
fn a_smaller_table_lets_the_free_go_at_once_and_the_busy_when_done() {
    let (mut table, now) = table(Settings { min: 3, max: 3, ..settings() });
    refuse(&mut table, "a", now);
    refuse(&mut table, "b", now);
    table.resize(1, 1);
    assert_eq!(table.tend(now), [Order::End(3, Cause::Surplus)]);
    assert_eq!(table.finished(1, now), Next::Leave(Cause::Surplus));
    assert_eq!(table.finished(2, now), Next::Wait);
    table.resize(2, 4);
    assert_eq!(table.tend(now), [Order::Start(4)]);
}

#[test]
fn a_worker_with_calls_ahead_gets_them_only_while_it_is_at_one() {
    let (mut table, now) = table(Settings { max: 1, ..settings() });
    table.set_ahead(1, 2);
    assert_eq!(refuse(&mut table, "a", now), Submitted::Given(1, "a"));
    assert_eq!(refuse(&mut table, "b", now), Submitted::Given(1, "b"));
    table.set_ahead(1, 0);
    assert_eq!(refuse(&mut table, "c", now), Submitted::Queued((5, 1), None));
    assert_eq!(table.finished(1, now), Next::Wait, "it has one more than it may");
    assert_eq!(table.take_ahead(1), None);
    table.set_ahead(1, 1);
    assert_eq!(table.take_ahead(1), Some("c"));
    assert_eq!(table.put_back("c", 5, now), Submitted::Queued((5, 2), None));
}

#[test]
fn workers_that_want_to_be_replaced_before_their_first_call_are_so_ever_more_slowly() {
    let (mut table, start) = table(Settings { max: 1, ..settings() });
    let (mut now, mut id, mut waits) = (start, 1, Vec::new());
    for _ in 0..4 {
        table.replace(id, Cause::OwnWish);
        let before = now;
        let next = loop {
            match table.tend(now).as_slice() {
                [Order::Start(next)] => break *next,
                _ => now = table.tend_at(now).expect("a time for the next start"),
            }
        };
        waits.push(now - before);
        assert!(table.ready(next, now).1.is_some());
        table.gone(id, Cause::OwnWish, now);
        id = next;
    }
    let millis = [0, 100, 200, 400].map(Duration::from_millis);
    assert_eq!(waits, millis);
}
