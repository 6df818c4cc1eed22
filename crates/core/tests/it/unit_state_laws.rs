//! What must hold for every unit, event and policy.

use std::time::Duration;

use longshore_core::unit_state::{Event, TransitionInput, transition};
use longshore_core::{Failure, OnLost, Outcome, Policy, Priority, RetryPolicy, Timestamp, UnitId, UnitState};
use proptest::prelude::*;

use crate::unit_state::NOW;

fn units() -> impl Strategy<Value = TransitionInput> {
    let state = (0..UnitState::ALL.len()).prop_map(|n| UnitState::ALL[n]);
    let counts = (0..7_u32, 0..7_u32, any::<bool>(), any::<bool>());
    let later = || proptest::option::of(0..5000_u64);
    let times = (0..5000_u64, later(), later(), any::<bool>());
    (any::<[u8; 16]>(), state, 1..10_u8, counts, times).prop_map(|(id, state, level, c, t)| TransitionInput {
        id: UnitId::from_bytes(id),
        state,
        priority: Priority::new(level).unwrap(),
        attempt: c.0,
        lost: c.1,
        started: c.2,
        created_at: NOW - Duration::from_secs(t.0),
        ready_at: NOW - Duration::from_secs(t.0 / 2),
        deadline: t.1.map(|by| NOW - Duration::from_secs(2500) + Duration::from_secs(by)),
        cancel_requested: c.3,
        checkpointed: t.3,
        not_before: t.2.map(|by| NOW - Duration::from_secs(2500) + Duration::from_secs(by)),
    })
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    let after = (0..5000_u64).prop_map(Duration::from_secs);
    let failure = || Failure::new("law", "of nature");
    prop_oneof![
        Just(Outcome::Done(None)),
        proptest::option::of(after.clone())
            .prop_map(move |after| Outcome::Retry { failure: failure(), after }),
        after.prop_map(Outcome::Snooze),
        Just(Outcome::Fail(failure())),
        Just(Outcome::Cancel),
        Just(Outcome::Interrupted),
    ]
}

fn policies() -> impl Strategy<Value = Policy> {
    let age = proptest::option::of((1..5000_u64).prop_map(Duration::from_secs));
    let on_lost = prop_oneof![Just(OnLost::Rerun), Just(OnLost::Fail)];
    (1..7_u32, age, on_lost, 1..7_u32).prop_map(|(max_attempts, max_age, on_lost, max_lost)| {
        let retry = RetryPolicy { max_attempts, max_age, ..RetryPolicy::default() };
        Policy { retry, on_lost, max_lost, ..Policy::default() }
    })
}

fn events(outcome: &Outcome) -> [Event<'_>; 9] {
    [
        Event::Finished(outcome),
        Event::Released,
        Event::Lost,
        Event::Due,
        Event::Unblocked,
        Event::DependencyFailed(UnitId::from_bytes([9; 16])),
        Event::Expired,
        Event::Cancel,
        Event::Retry,
    ]
}

proptest! {
    #[test]
    fn every_step_lands_where_its_state_says(
        unit in units(), outcome in outcomes(), policy in policies()
    ) {
        for event in events(&outcome) {
            let Ok(step) = transition(&unit, &event, &policy, NOW) else { continue };
            match step.state {
                UnitState::Ready => {
                    // A unit that did not run keeps its old rank; others go to the end.
                    let back = match event {
                        Event::Released | Event::Finished(Outcome::Interrupted) => true,
                        Event::Lost => !unit.started,
                        _ => false,
                    };
                    let from = if back { unit.ready_at } else { NOW };
                    prop_assert_eq!(step.sort_key, unit.priority.rank(from));
                }
                UnitState::Scheduled => prop_assert!(step.sort_key > NOW),
                UnitState::Done | UnitState::Failed | UnitState::Cancelled => {
                    prop_assert_eq!(step.sort_key, NOW);
                }
                UnitState::Blocked | UnitState::Leased => {
                    prop_assert!(false, "{event:?} led to {}", step.state);
                }
            }
            prop_assert!(step.state != UnitState::Failed || step.failure.is_some());
        }
    }

    #[test]
    fn only_a_retry_brings_an_ended_unit_back(
        unit in units(), outcome in outcomes(), policy in policies()
    ) {
        for event in events(&outcome).into_iter().filter(|_| unit.state.is_final()) {
            let back = transition(&unit, &event, &policy, NOW).is_ok();
            let may = event == Event::Retry && unit.state != UnitState::Done;
            prop_assert_eq!(back, may, "{:?}", event);
        }
    }

    #[test]
    fn attempts_never_grow_and_shrink_only_where_promised(
        unit in units(), outcome in outcomes(), policy in policies()
    ) {
        for event in events(&outcome) {
            let Ok(step) = transition(&unit, &event, &policy, NOW) else { continue };
            prop_assert!(step.attempt <= unit.attempt);
            let refunds = matches!(
                event,
                Event::Released
                    | Event::Retry
                    | Event::Finished(Outcome::Snooze(_) | Outcome::Interrupted)
            );
            prop_assert!(refunds || step.attempt == unit.attempt, "{event:?}");
        }
    }

    #[test]
    fn nothing_runs_again_past_its_bounds(
        unit in units(), outcome in outcomes(), policy in policies()
    ) {
        let unit = TransitionInput { state: UnitState::Leased, ..unit };
        let step = transition(&unit, &Event::Finished(&outcome), &policy, NOW).unwrap();
        let again = !step.state.is_final();
        if again && matches!(outcome, Outcome::Retry { .. }) {
            prop_assert!(unit.attempt < policy.retry.max_attempts);
            let due = if step.state == UnitState::Scheduled { step.sort_key } else { NOW };
            prop_assert!(unit.deadline.is_none_or(|deadline| due < deadline));
        }
        prop_assert!(!(again && unit.cancel_requested));
        let lost = transition(&unit, &Event::Lost, &policy, NOW).unwrap();
        let rerun = lost.state == UnitState::Ready && unit.started;
        let may = policy.on_lost == OnLost::Rerun || unit.checkpointed;
        prop_assert!(!rerun || (lost.lost < policy.max_lost && may));
    }

    #[test]
    fn the_decision_depends_on_nothing_else(
        unit in units(), outcome in outcomes(), policy in policies(), shift in 0..1_000_000_i64
    ) {
        for event in events(&outcome) {
            let first = transition(&unit, &event, &policy, NOW);
            prop_assert_eq!(&first, &transition(&unit, &event, &policy, NOW));
            // The same transition an hour later gives the same result.
            let by = Duration::from_micros(shift.unsigned_abs());
            let later = TransitionInput {
                created_at: unit.created_at + by,
                ready_at: unit.ready_at + by,
                deadline: unit.deadline.map(|deadline| deadline + by),
                not_before: unit.not_before.map(|due| due + by),
                ..unit
            };
            let second = transition(&later, &event, &policy, NOW + by);
            let state = |step: &Result<longshore_core::unit_state::Transition, _>| {
                step.as_ref().ok().map(|step| (step.state, step.sort_key))
            };
            let moved = state(&first).map(|(state, sort_key): (UnitState, Timestamp)| (state, sort_key + by));
            prop_assert_eq!(moved, state(&second));
        }
    }
}
