//! `unit_state::next` as a table: every event on every state.

use std::time::Duration;

use longshore_core::unit_state::{Event, Transition, TransitionInput, runs_alone, transition};
use longshore_core::{Failure, OnLost, Outcome, Policy, Priority, RetryPolicy, Timestamp, UnitId, UnitState};

use UnitState::{Blocked, Cancelled, Done, Failed, Leased, Ready, Scheduled};

pub(crate) const NOW: Timestamp = Timestamp::from_micros(1_000_000_000_000);

pub(crate) fn unit_in(state: UnitState) -> TransitionInput {
    TransitionInput {
        id: UnitId::from_bytes([7; 16]),
        state,
        priority: Priority::NORMAL,
        attempt: 1,
        lost: 0,
        started: state == Leased,
        created_at: NOW - Duration::from_secs(100),
        ready_at: NOW - Duration::from_secs(50),
        deadline: None,
        cancel_requested: false,
        checkpointed: false,
        not_before: None,
    }
}

fn step(unit: &TransitionInput, event: &Event<'_>) -> Transition {
    transition(unit, event, &Policy::default(), NOW).unwrap()
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn retry(after: Option<Duration>) -> Outcome {
    Outcome::Retry { failure: Failure::new("again", "not yet"), after }
}

#[test]
fn every_event_on_every_state() {
    let done = Outcome::Done(None);
    let id = UnitId::from_bytes([1; 16]);
    let table = [
        (Event::Finished(&done), [None, None, None, Some(Done), None, None, None]),
        (Event::Released, [None, None, None, Some(Ready), None, None, None]),
        (Event::Lost, [None, None, None, Some(Ready), None, None, None]),
        (Event::Due, [None, Some(Ready), None, None, None, None, None]),
        (Event::Unblocked, [Some(Ready), None, None, None, None, None, None]),
        (Event::DependencyFailed(id), [Some(Cancelled), None, None, None, None, None, None]),
        (Event::Expired, [Some(Failed), Some(Failed), Some(Failed), None, None, None, None]),
        (Event::Cancel, [Some(Cancelled), Some(Cancelled), Some(Cancelled), None, None, None, None]),
        (Event::Retry, [None, Some(Ready), None, None, None, Some(Ready), Some(Ready)]),
    ];
    for (event, row) in table {
        for (state, expected) in UnitState::ALL.into_iter().zip(row) {
            let got = transition(&unit_in(state), &event, &Policy::default(), NOW);
            assert_eq!(got.as_ref().ok().map(|step| step.state), expected, "{event:?} on {state}");
            if let Err(refused) = got {
                assert_eq!(refused.state, state);
            }
        }
    }
}

#[test]
fn every_outcome_has_its_end() {
    let unit = unit_in(Leased);
    let failure = Failure::new("broken", "it broke");
    let end = |outcome: &Outcome| step(&unit, &Event::Finished(outcome));
    assert_eq!(end(&Outcome::Done(None)).state, Done);
    let failed = end(&Outcome::Fail(failure.clone()));
    assert_eq!((failed.state, failed.failure), (Failed, Some(failure)));
    assert_eq!(end(&Outcome::Cancel).state, Cancelled);
    let snoozed = end(&Outcome::Snooze(secs(5)));
    assert_eq!((snoozed.state, snoozed.sort_key, snoozed.attempt), (Scheduled, NOW + secs(5), 0));
    let interrupted = end(&Outcome::Interrupted);
    assert_eq!((interrupted.state, interrupted.attempt), (Ready, 0));
    let old_sort_key = Priority::NORMAL.rank(unit.ready_at);
    assert_eq!(interrupted.sort_key, old_sort_key, "it did not have its turn");
    assert_eq!(step(&unit, &Event::Released).sort_key, old_sort_key);
    let retried = end(&retry(Some(secs(5))));
    assert_eq!((retried.state, retried.sort_key, retried.attempt), (Scheduled, NOW + secs(5), 1));
    assert_eq!(retried.failure.unwrap().code, "again");
    assert_eq!(end(&retry(Some(secs(0)))).state, Ready);
}

#[test]
fn a_retry_without_a_delay_waits_by_policy() {
    let unit = unit_in(Leased);
    let policy = RetryPolicy { base: secs(1000), ..RetryPolicy::default() };
    let delay = policy.delay(unit.id, 1);
    let policy = Policy { retry: policy, ..Policy::default() };
    let got = transition(&unit, &Event::Finished(&retry(None)), &policy, NOW).unwrap();
    assert_eq!(got.sort_key, NOW + delay);
}

#[test]
fn the_last_attempt_and_old_age_end_retries() {
    let ends = |attempt, policy: RetryPolicy| {
        let unit = TransitionInput { attempt, ..unit_in(Leased) };
        let policy = Policy { retry: policy, ..Policy::default() };
        transition(&unit, &Event::Finished(&retry(Some(secs(1)))), &policy, NOW).unwrap().state
    };
    let three = RetryPolicy { max_attempts: 3, ..RetryPolicy::default() };
    assert_eq!(ends(2, three.clone()), Scheduled);
    assert_eq!(ends(3, three), Failed);
    let young = |age| RetryPolicy { max_age: Some(secs(age)), ..RetryPolicy::default() };
    assert_eq!(ends(1, young(101)), Scheduled, "sent 100 s ago, due in 1 s");
    assert_eq!(ends(1, young(100)), Failed);
}

#[test]
fn a_deadline_ends_what_would_run_after_it() {
    let by = |deadline| TransitionInput { deadline: Some(deadline), ..unit_in(Leased) };
    let end = |unit: &TransitionInput, outcome: &Outcome| step(unit, &Event::Finished(outcome)).state;
    let soon = by(NOW + secs(10));
    assert_eq!(end(&soon, &retry(Some(secs(9)))), Scheduled);
    assert_eq!(end(&soon, &retry(Some(secs(10)))), Failed);
    let late = by(NOW);
    assert_eq!(end(&late, &Outcome::Done(None)), Done, "late but done is done");
    assert_eq!(end(&late, &Outcome::Snooze(secs(1))), Failed);
    assert_eq!(end(&late, &Outcome::Interrupted), Failed);
    assert_eq!(step(&late, &Event::Lost).state, Failed);
}

#[test]
fn a_cancel_request_allows_no_further_run() {
    let unit = TransitionInput { cancel_requested: true, ..unit_in(Leased) };
    for outcome in [retry(None), Outcome::Snooze(secs(1)), Outcome::Interrupted] {
        assert_eq!(step(&unit, &Event::Finished(&outcome)).state, Cancelled, "{outcome:?}");
    }
    assert_eq!(step(&unit, &Event::Released).state, Cancelled);
    assert_eq!(step(&unit, &Event::Lost).state, Cancelled);
    assert_eq!(step(&unit, &Event::Finished(&Outcome::Done(None))).state, Done);
}

#[test]
fn a_lost_run_counts_and_an_unstarted_one_does_not() {
    let started = step(&unit_in(Leased), &Event::Lost);
    assert_eq!((started.state, started.lost, started.attempt), (Ready, 1, 1));
    assert_eq!(started.failure.unwrap().code, "lost");
    let unstarted = TransitionInput { started: false, attempt: 0, ..unit_in(Leased) };
    let waiting = step(&unstarted, &Event::Lost);
    assert_eq!((waiting.state, waiting.lost, waiting.failure), (Ready, 0, None));
}

#[test]
fn a_unit_lost_too_often_or_not_repeatable_fails() {
    let lost = |lost, policy: &Policy| {
        transition(&TransitionInput { lost, ..unit_in(Leased) }, &Event::Lost, policy, NOW).unwrap()
    };
    let policy = Policy { max_lost: 3, ..Policy::default() };
    assert_eq!(lost(1, &policy).state, Ready);
    assert_eq!((lost(2, &policy).state, lost(2, &policy).lost), (Failed, 3));
    let once = Policy { on_lost: OnLost::Fail, ..Policy::default() };
    assert_eq!(lost(0, &once).state, Failed);
}

#[test]
fn a_unit_that_may_not_be_repeated_goes_on_from_its_checkpoint() {
    let policy = Policy { on_lost: OnLost::Fail, max_lost: 2, ..Policy::default() };
    let lost = |lost| {
        let unit = TransitionInput { lost, checkpointed: true, ..unit_in(Leased) };
        transition(&unit, &Event::Lost, &policy, NOW).unwrap().state
    };
    assert_eq!([lost(0), lost(1)], [Ready, Failed]);
}

#[test]
fn a_run_that_came_to_its_end_clears_its_unit_of_lost_ones() {
    let unit = TransitionInput { lost: 2, ..unit_in(Leased) };
    for outcome in [retry(Some(secs(1))), Outcome::Snooze(secs(1)), Outcome::Interrupted] {
        assert_eq!(step(&unit, &Event::Finished(&outcome)).lost, 0, "{outcome:?}");
    }
    assert_eq!(step(&unit, &Event::Released).lost, 2, "it did not run");
}

#[test]
fn a_unit_for_later_does_not_become_ready_because_it_was_blocked() {
    let by = |due| TransitionInput { not_before: Some(due), ..unit_in(Blocked) };
    let unblocked = step(&by(NOW + secs(9)), &Event::Unblocked);
    assert_eq!((unblocked.state, unblocked.sort_key), (Scheduled, NOW + secs(9)));
    assert_eq!(step(&by(NOW - secs(9)), &Event::Unblocked).state, Ready);
}

#[test]
fn an_operators_retry_gives_fresh_attempts() {
    for state in [Failed, Cancelled, Scheduled] {
        let unit = TransitionInput { attempt: 5, lost: 3, ..unit_in(state) };
        let got = step(&unit, &Event::Retry);
        assert_eq!((got.state, got.attempt, got.lost), (Ready, 0, 0));
    }
}

#[test]
fn a_failed_dependency_is_named() {
    let id = UnitId::from_bytes([1; 16]);
    let got = step(&unit_in(Blocked), &Event::DependencyFailed(id));
    let failure = got.failure.unwrap();
    assert!(failure.code == "dependency" && failure.message.contains(&id.to_string()));
}

#[test]
fn a_unit_runs_alone_from_its_second_loss_on() {
    assert_eq!([0, 1, 2, 3].map(runs_alone), [false, false, true, true]);
}
