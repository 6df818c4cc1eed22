//! Outcomes: the state after each outcome of a handler, and every action on every state.

use longshore_core::store::{FinishResult, UnitAction};
use longshore_core::{Failure, NewUnit, Outcome, Payload, Policy, RetryPolicy, UnitId, UnitState};

use super::helpers::*;
use crate::StoreFixture;

fn retry() -> Outcome {
    Outcome::Retry { failure: Failure::new("again", "not yet"), after: None }
}

pub(super) async fn done_keeps_its_result(fixture: &StoreFixture) {
    let session = fixture.session().await;
    let result = Payload::from(b"[42]".as_slice());
    let id = fixture.send_and_finish(session, Outcome::Done(Some(result.clone()))).await;
    let unit = fixture.unit(id).await;
    assert_eq!((unit.state, unit.result), (UnitState::Done, Some(result)));
    assert_eq!((unit.session, unit.failure, unit.since), (None, None, fixture.now()));
}

pub(super) async fn fail_ends_a_unit_at_once(fixture: &StoreFixture) {
    let session = fixture.session().await;
    let id = fixture.send_and_finish(session, failed()).await;
    let unit = fixture.unit(id).await;
    assert_eq!((unit.state, unit.attempt), (UnitState::Failed, 1));
    assert_eq!(unit.failure, Some(Failure::new("broken", "it broke")));
}

pub(super) async fn cancel_ends_a_unit_at_once(fixture: &StoreFixture) {
    let session = fixture.session().await;
    let id = fixture.send_and_finish(session, Outcome::Cancel).await;
    assert_eq!(fixture.state(id).await, UnitState::Cancelled);
}

pub(super) async fn retry_waits_as_long_as_it_was_told(fixture: &StoreFixture) {
    let session = fixture.session().await;
    let id = fixture.send_and_finish(session, retry_after(secs(30))).await;
    let unit = fixture.unit(id).await;
    assert_eq!((unit.state, unit.since), (UnitState::Scheduled, fixture.now() + secs(30)));
    assert_eq!(unit.failure.unwrap().code, "again");
    fixture.clock.advance(secs(29));
    fixture.promote().await;
    assert!(fixture.claim(session, 1).await.is_empty());
    fixture.clock.advance(secs(1));
    fixture.promote().await;
    assert_eq!(fixture.claim_one(session).await.unit.attempt, 2);
}

pub(super) async fn retry_without_a_delay_is_ready_at_once(fixture: &StoreFixture) {
    let session = fixture.session().await;
    let id = fixture.send_and_finish(session, retry_after(secs(0))).await;
    assert_eq!(fixture.state(id).await, UnitState::Ready);
}

pub(super) async fn retry_waits_by_policy_if_it_was_not_told(fixture: &StoreFixture) {
    let base = secs(100);
    let slow = RetryPolicy { base, ..RetryPolicy::default() };
    let session = fixture.session_with(Policy { retry: slow, ..Policy::default() }).await;
    let id = fixture.send_and_finish(session, retry()).await;
    let unit = fixture.unit(id).await;
    let expected = RetryPolicy { base, ..RetryPolicy::default() }.delay(id, 1);
    assert_eq!((unit.state, unit.since), (UnitState::Scheduled, fixture.now() + expected));
}

pub(super) async fn the_last_attempt_fails_the_unit(fixture: &StoreFixture) {
    let session = fixture.session_with(attempts(2)).await;
    let id = fixture.send_and_finish(session, retry_after(secs(0))).await;
    let second = fixture.claim_one(session).await;
    let end = fixture.finish(session, second.lease, retry_after(secs(0))).await;
    assert_eq!(end, FinishResult::Recorded(UnitState::Failed));
    let unit = fixture.unit(id).await;
    assert_eq!((unit.attempt, unit.failure.unwrap().code.as_str()), (2, "again"));
}

pub(super) async fn the_senders_policy_goes_before_the_kinds(fixture: &StoreFixture) {
    let session = fixture.session_with(attempts(9)).await;
    let id = fixture.send(NewUnit { policy: Some(attempts(1)), ..unit() }).await;
    let held = fixture.claim_one(session).await;
    fixture.finish(session, held.lease, retry_after(secs(0))).await;
    assert_eq!(fixture.state(id).await, UnitState::Failed);
}

pub(super) async fn age_ends_retries(fixture: &StoreFixture) {
    let retry = RetryPolicy { max_age: Some(secs(60)), ..RetryPolicy::default() };
    let session = fixture.session_with(Policy { retry, ..Policy::default() }).await;
    let id = fixture.send_and_finish(session, retry_after(secs(61))).await;
    assert_eq!(fixture.state(id).await, UnitState::Failed);
}

pub(super) async fn a_retry_that_would_miss_its_deadline_fails_now(fixture: &StoreFixture) {
    let deadline = Some(fixture.now() + secs(10));
    let id = fixture.send(NewUnit { deadline, ..unit() }).await;
    let session = fixture.session().await;
    let held = fixture.claim_one(session).await;
    fixture.finish(session, held.lease, retry_after(secs(10))).await;
    assert_eq!(fixture.state(id).await, UnitState::Failed);
}

pub(super) async fn snooze_uses_no_attempt(fixture: &StoreFixture) {
    let session = fixture.session_with(attempts(1)).await;
    let id = fixture.send_and_finish(session, Outcome::Snooze(secs(5))).await;
    let unit = fixture.unit(id).await;
    assert_eq!((unit.state, unit.attempt), (UnitState::Scheduled, 0));
    assert_eq!(unit.since, fixture.now() + secs(5));
}

pub(super) async fn an_interruption_uses_no_attempt(fixture: &StoreFixture) {
    let session = fixture.session_with(attempts(1)).await;
    let id = fixture.send_and_finish(session, Outcome::Interrupted).await;
    let unit = fixture.unit(id).await;
    assert_eq!((unit.state, unit.attempt), (UnitState::Ready, 0));
    assert_eq!(fixture.claim_one(session).await.unit.attempt, 1);
}

pub(super) async fn a_run_that_its_holder_lost_is_repeated_until_it_was_lost_too_often(
    fixture: &StoreFixture,
) {
    let policy = Policy { max_lost: 2, ..attempts(1) };
    let session = fixture.session_with(policy).await;
    let id = fixture.send_and_finish(session, Outcome::Lost("node n7 is gone".into())).await;
    let unit = fixture.unit(id).await;
    assert_eq!((unit.state, unit.attempt, unit.lost), (UnitState::Ready, 1, 1));
    let again = fixture.claim_one(session).await;
    fixture.finish(session, again.lease, Outcome::Lost("node n8 is gone".into())).await;
    let unit = fixture.unit(id).await;
    assert_eq!((unit.state, unit.lost), (UnitState::Failed, 2));
    let Failure { code, message } = unit.failure.unwrap();
    assert_eq!((code.as_str(), message.as_str()), ("lost", "node n8 is gone (2 of 2 allowed)"));
}

pub(super) async fn a_unit_that_its_holder_lost_twice_runs_alone(fixture: &StoreFixture) {
    let session = fixture.session().await;
    let id = fixture.send_and_finish(session, Outcome::Lost("gone".into())).await;
    let again = fixture.claim_one(session).await;
    fixture.finish(session, again.lease, Outcome::Lost("gone".into())).await;
    let held = fixture.claim_one(session).await;
    assert!(held.alone && held.unit.id == id);
    fixture.finish(session, held.lease, Outcome::Interrupted).await;
    assert_eq!(fixture.unit(id).await.lost, 0, "a run that comes to an end clears it");
}

pub(super) async fn failures_are_listed_oldest_first(fixture: &StoreFixture) {
    let session = fixture.session_with(attempts(3)).await;
    let id = fixture.send_and_finish(session, retry_after(secs(0))).await;
    fixture.clock.advance(secs(1));
    let held = fixture.claim_one(session).await;
    fixture.finish(session, held.lease, failed()).await;
    let listed = fixture.store.failures(&ALL, id).await.unwrap();
    let codes: Vec<_> = listed.iter().map(|f| (f.attempt, f.failure.code.as_str())).collect();
    assert_eq!(codes, [(1, "again"), (2, "broken")]);
    assert_eq!((listed[1].at, listed[1].session), (fixture.now(), Some(session)));
}

pub(super) async fn done_in_spite_of_a_cancel_request_is_done(fixture: &StoreFixture) {
    let id = fixture.send(unit()).await;
    let session = fixture.session().await;
    let held = fixture.claim_one(session).await;
    fixture.cancel(id).await;
    fixture.finish(session, held.lease, done()).await;
    assert_eq!(fixture.state(id).await, UnitState::Done);
}

pub(super) async fn no_other_run_follows_a_cancel_request(fixture: &StoreFixture) {
    let session = fixture.session().await;
    for outcome in [retry_after(secs(0)), Outcome::Snooze(secs(1)), Outcome::Interrupted] {
        let id = fixture.send(unit()).await;
        let held = fixture.claim_one(session).await;
        fixture.cancel(id).await;
        fixture.finish(session, held.lease, outcome).await;
        assert_eq!(fixture.state(id).await, UnitState::Cancelled);
    }
}

/// A unit in `state`. The dependency of a blocked unit is on the queue `aside`, so that other cases do not claim it.
async fn unit_in_state(fixture: &StoreFixture, state: UnitState) -> UnitId {
    let session = fixture.session().await;
    match state {
        UnitState::Blocked => {
            let other = fixture.send(NewUnit { queue: queue("aside"), ..unit() }).await;
            let mut blocked = unit();
            blocked.dependencies.units = vec![other];
            fixture.send(blocked).await
        }
        UnitState::Scheduled => fixture.send_and_finish(session, retry_after(secs(60))).await,
        UnitState::Ready => fixture.send(unit()).await,
        UnitState::Leased => {
            fixture.send(unit()).await;
            fixture.claim_one(session).await.unit.id
        }
        UnitState::Done => fixture.send_and_finish(session, done()).await,
        UnitState::Failed => fixture.send_and_finish(session, failed()).await,
        UnitState::Cancelled => fixture.send_and_finish(session, Outcome::Cancel).await,
    }
}

async fn check_action(
    fixture: &StoreFixture,
    action: UnitAction,
    table: [(UnitState, (u64, u64, u64), UnitState); 7],
) {
    for (state, (changed, requested, skipped), after) in table {
        let id = unit_in_state(fixture, state).await;
        assert_eq!(fixture.state(id).await, state);
        let got = fixture.act_on_units(&[id], action).await;
        let got = (got.changed, got.requested, got.skipped);
        assert_eq!(got, (changed, requested, skipped), "{action:?} of a unit that is {state}");
        assert_eq!(fixture.state(id).await, after, "{action:?} of a unit that is {state}");
        // So that the next row does not claim it.
        fixture.act_on_units(&[id], UnitAction::Cancel).await;
    }
}

pub(super) async fn cancelling_every_state(fixture: &StoreFixture) {
    use UnitState::{Blocked, Cancelled, Done, Failed, Leased, Ready, Scheduled};
    let table = [
        (Blocked, (1, 0, 0), Cancelled),
        (Scheduled, (1, 0, 0), Cancelled),
        (Ready, (1, 0, 0), Cancelled),
        (Leased, (0, 1, 0), Leased),
        (Done, (0, 0, 1), Done),
        (Failed, (0, 0, 1), Failed),
        (Cancelled, (0, 0, 1), Cancelled),
    ];
    // Otherwise a claim would take the dependency of the blocked unit.
    let pause = longshore_core::store::QueueChange { paused: Some(true), capacity: None };
    fixture.store.change_queue(&ALL, &queue("aside"), pause).await.unwrap();
    check_action(fixture, UnitAction::Cancel, table).await;
}

pub(super) async fn retrying_every_state(fixture: &StoreFixture) {
    use UnitState::{Blocked, Cancelled, Done, Failed, Leased, Ready, Scheduled};
    let table = [
        (Blocked, (0, 0, 1), Blocked),
        (Scheduled, (1, 0, 0), Ready),
        (Ready, (0, 0, 1), Ready),
        (Leased, (0, 0, 1), Leased),
        (Done, (0, 0, 1), Done),
        (Failed, (1, 0, 0), Ready),
        (Cancelled, (1, 0, 0), Ready),
    ];
    let pause = longshore_core::store::QueueChange { paused: Some(true), capacity: None };
    fixture.store.change_queue(&ALL, &queue("aside"), pause).await.unwrap();
    check_action(fixture, UnitAction::Retry, table).await;
}

pub(super) async fn waking_every_state(fixture: &StoreFixture) {
    use UnitState::{Blocked, Cancelled, Done, Failed, Leased, Ready, Scheduled};
    let table = [
        (Blocked, (0, 0, 1), Blocked),
        (Scheduled, (1, 0, 0), Ready),
        (Ready, (0, 0, 1), Ready),
        (Leased, (0, 0, 1), Leased),
        (Done, (0, 0, 1), Done),
        (Failed, (0, 0, 1), Failed),
        (Cancelled, (0, 0, 1), Cancelled),
    ];
    let pause = longshore_core::store::QueueChange { paused: Some(true), capacity: None };
    fixture.store.change_queue(&ALL, &queue("aside"), pause).await.unwrap();
    check_action(fixture, UnitAction::Wake, table).await;
}

pub(super) async fn a_woken_unit_keeps_its_attempts_and_what_it_reached(fixture: &StoreFixture) {
    let session = fixture.session().await;
    let id = fixture.send_and_finish(session, retry_after(secs(60))).await;
    assert_eq!(fixture.act_on_units(&[id], UnitAction::Wake).await.changed, 1);
    let held = fixture.claim_one(session).await;
    assert_eq!((held.unit.id, held.unit.attempt), (id, 2), "the first one was used");
    fixture.finish(session, held.lease, Outcome::Snooze(secs(60))).await;
    assert_eq!(fixture.act_on_units(&[id], UnitAction::Wake).await.changed, 1);
    assert_eq!(fixture.claim_one(session).await.unit.attempt, 2, "and a snooze uses none");
}

pub(super) async fn finishing_works_on_leased_units_only(fixture: &StoreFixture) {
    let session = fixture.session().await;
    for (outcome, state) in [
        (done(), UnitState::Done),
        (failed(), UnitState::Failed),
        (Outcome::Cancel, UnitState::Cancelled),
        (retry_after(secs(60)), UnitState::Scheduled),
    ] {
        let id = fixture.send(unit()).await;
        let held = fixture.claim_one(session).await;
        fixture.finish(session, held.lease, outcome).await;
        let wrong = longshore_core::worker_session::Lease { fence: held.lease.fence + 1, ..held.lease };
        assert_eq!(fixture.finish(session, wrong, done()).await, FinishResult::LeaseLost);
        assert_eq!(fixture.state(id).await, state);
    }
}
