//! Calls at the end of a unit or a session: finishes, checkpoints, and dead workers.

use longshore_accounts::{CallStatus, NewCall};
use longshore_core::store::{CheckpointRequest, FinishRequest, FinishResult};
use longshore_core::{Payload, UnitState};

use super::helpers::*;
use super::ledger_helpers::*;
use crate::StoreFixture;

fn state(text: &str) -> Payload {
    Payload::from(text.as_bytes())
}

pub(super) async fn a_finish_writes_what_its_calls_came_to(fixture: &StoreFixture) {
    let (session, lease, asked) = fixture.claim_unit_for_call().await;
    fixture.admit(&asked).await;
    let calls =
        vec![finished_call(&asked, successful_end(10, 70)), finished_call(&call(), successful_end(1, 1))];
    let finish = FinishRequest { calls, ..FinishRequest::new(lease, done()) };
    let answer = fixture.store.finish(session, vec![finish]).await.unwrap();
    assert_eq!(answer, [FinishResult::Recorded(UnitState::Done)]);
    assert_eq!(fixture.stored_call(asked.id).await.end, Some(successful_end(10, 70)));
    assert_eq!(fixture.month_sums().await, (22, 71, 0, 0));
}

pub(super) async fn calls_go_with_any_end(fixture: &StoreFixture) {
    for outcome in [failed(), retry_after(secs(60))] {
        let (session, lease, asked) = fixture.claim_unit_for_call().await;
        fixture.admit(&asked).await;
        let calls = vec![finished_call(&asked, successful_end(10, 70))];
        let checkpoint = Some(state("stored"));
        let finish = FinishRequest { calls, checkpoint, ..FinishRequest::new(lease, outcome) };
        fixture.store.finish(session, vec![finish]).await.unwrap();
        assert_eq!(fixture.stored_call(asked.id).await.status, CallStatus::Success);
    }
    assert_eq!(fixture.month_sums().await, (40, 140, 0, 0));
}

pub(super) async fn a_finish_heard_twice_counts_its_calls_once(fixture: &StoreFixture) {
    let (session, lease, asked) = fixture.claim_unit_for_call().await;
    for _ in 0..3 {
        // The call was not admitted before, so only its own row can identify a repeat.
        let calls = vec![finished_call(&asked, successful_end(10, 70))];
        let finish = FinishRequest { calls, ..FinishRequest::new(lease, done()) };
        fixture.store.finish(session, vec![finish]).await.unwrap();
    }
    let late = finished_call(&call(), successful_end(5, 5));
    let finish = FinishRequest { calls: vec![late], ..FinishRequest::new(lease, done()) };
    fixture.store.finish(session, vec![finish]).await.unwrap();
    assert_eq!(fixture.calls().await.len(), 1, "a repeated finish writes no calls");
    assert_eq!(fixture.month_sums().await, (20, 70, 0, 0));
}

pub(super) async fn a_lost_lease_writes_no_call(fixture: &StoreFixture) {
    let (session, lease, asked) = fixture.claim_unit_for_call().await;
    fixture.kill(session).await;
    let calls = || vec![finished_call(&asked, successful_end(10, 70))];
    let finish = FinishRequest { calls: calls(), ..FinishRequest::new(lease, done()) };
    let answer = fixture.store.finish(session, vec![finish]).await.unwrap();
    assert_eq!(answer, [FinishResult::LeaseLost]);
    let request = CheckpointRequest { calls: calls(), ..CheckpointRequest::new(state("late")) };
    assert!(!fixture.store.checkpoint(session, lease, request).await.unwrap());
    assert!(fixture.calls().await.is_empty());
    assert_eq!(fixture.month_sums().await, (0, 0, 0, 0));
}

pub(super) async fn a_checkpoint_writes_what_its_calls_came_to(fixture: &StoreFixture) {
    let (session, lease, asked) = fixture.claim_unit_for_call().await;
    fixture.admit(&asked).await;
    let keep = |calls| CheckpointRequest { calls, ..CheckpointRequest::new(state("answer")) };
    for _ in 0..2 {
        let request = keep(vec![finished_call(&asked, successful_end(10, 70))]);
        assert!(fixture.store.checkpoint(session, lease, request).await.unwrap());
    }
    let repeat = keep(vec![finished_call(&call(), successful_end(1, 1))]);
    assert!(fixture.store.checkpoint(session, lease, repeat).await.unwrap());
    assert_eq!(fixture.calls().await.len(), 1, "a repeated checkpoint adds no calls");
    assert_eq!(fixture.month_sums().await, (20, 70, 0, 0));
    fixture.finish(session, lease, done()).await;
    assert_eq!(fixture.month_sums().await, (20, 70, 0, 0));
}

/// Asserts that an open call of an ended session counts as maybe billed.
async fn assert_maybe_billed(fixture: &StoreFixture, call: &NewCall) {
    let stored = fixture.stored_call(call.id).await;
    assert_eq!((stored.status, stored.logged_at), (CallStatus::MaybeBilled, Some(fixture.now())));
    let end = stored.end.unwrap();
    assert_eq!((end.status, end.estimated), (CallStatus::MaybeBilled, true));
    assert_eq!((end.tokens_in + end.tokens_out, end.cost_picos), (100, 1_000));
}

pub(super) async fn a_dead_sessions_open_calls_may_have_been_billed(fixture: &StoreFixture) {
    let (session, _, open) = fixture.claim_unit_for_call().await;
    let settled = session_call(session);
    let others = session_call(fixture.session().await);
    for call in [&open, &settled, &others] {
        fixture.admit(call).await;
    }
    fixture.record(finished_call(&settled, successful_end(10, 70))).await;
    fixture.clock.advance(secs(60));
    fixture.kill(session).await;
    assert_maybe_billed(fixture, &open).await;
    assert_eq!(fixture.stored_call(settled.id).await.status, CallStatus::Success);
    assert_eq!(fixture.stored_call(others.id).await.status, CallStatus::Open);
    assert_eq!(fixture.month_sums().await, (120, 1_070, 100, 1_000));
    fixture.record(finished_call(&open, successful_end(1, 1))).await;
    assert_maybe_billed(fixture, &open).await;
}

pub(super) async fn a_closed_sessions_open_calls_may_have_been_billed(fixture: &StoreFixture) {
    let session = fixture.session().await;
    let open = session_call(session);
    fixture.admit(&open).await;
    fixture.store.close_session(session).await.unwrap();
    assert_maybe_billed(fixture, &open).await;
    assert_eq!(fixture.month_sums().await, (100, 1_000, 0, 0));
}

pub(super) async fn a_former_lifes_open_calls_may_have_been_billed(fixture: &StoreFixture) {
    let (former, _, open) = fixture.claim_unit_for_call().await;
    fixture.admit(&open).await;
    let session = fixture.session().await;
    fixture.store.adopt(former, session).await.unwrap();
    assert_maybe_billed(fixture, &open).await;
}

pub(super) async fn a_session_that_beats_keeps_its_calls_open(fixture: &StoreFixture) {
    let session = fixture.session().await;
    let open = session_call(session);
    fixture.admit(&open).await;
    fixture.store.heartbeat(session, Default::default()).await.unwrap();
    let stale = longshore_core::failure_detector::StalledSession { session, beats: 0 };
    fixture.store.reclaim(&[stale]).await.unwrap();
    assert_eq!(fixture.stored_call(open.id).await.status, CallStatus::Open);
}
