//! Calls and the lives of those who make them: units that end, workers that die.

use longshore_core::ledger::{CallStatus, NewCall};
use longshore_core::store::{Finish, Finished, Kept};
use longshore_core::{Payload, UnitState};

use super::kit::*;
use super::ledger_kit::*;
use crate::World;

fn state(text: &str) -> Payload {
    Payload::from(text.as_bytes())
}

pub(super) async fn a_finish_writes_what_its_calls_came_to(world: &World) {
    let (session, lease, asked) = world.asking().await;
    world.admit(&asked).await;
    let calls = vec![ended(&asked, answered(10, 70)), ended(&call(), answered(1, 1))];
    let finish = Finish { calls, ..Finish::new(lease, done()) };
    let answer = world.store.finish(session, vec![finish]).await.unwrap();
    assert_eq!(answer, [Finished::Recorded(UnitState::Done)]);
    assert_eq!(world.kept(asked.id).await.end, Some(answered(10, 70)));
    assert_eq!(world.month().await, (22, 71, 0, 0));
}

pub(super) async fn calls_go_with_any_end(world: &World) {
    for outcome in [failed(), retry_after(secs(60))] {
        let (session, lease, asked) = world.asking().await;
        world.admit(&asked).await;
        let calls = vec![ended(&asked, answered(10, 70))];
        let checkpoint = Some(state("kept"));
        let finish = Finish { calls, checkpoint, ..Finish::new(lease, outcome) };
        world.store.finish(session, vec![finish]).await.unwrap();
        assert_eq!(world.kept(asked.id).await.status, CallStatus::Success);
    }
    assert_eq!(world.month().await, (40, 140, 0, 0));
}

pub(super) async fn a_finish_heard_twice_counts_its_calls_once(world: &World) {
    let (session, lease, asked) = world.asking().await;
    for _ in 0..3 {
        // One that was not journalled has no row to be recognised by but its own.
        let calls = vec![ended(&asked, answered(10, 70))];
        let finish = Finish { calls, ..Finish::new(lease, done()) };
        world.store.finish(session, vec![finish]).await.unwrap();
    }
    let late = ended(&call(), answered(5, 5));
    let finish = Finish { calls: vec![late], ..Finish::new(lease, done()) };
    world.store.finish(session, vec![finish]).await.unwrap();
    assert_eq!(world.calls().await.len(), 1, "a repeat writes nothing, whatever it brings");
    assert_eq!(world.month().await, (20, 70, 0, 0));
}

pub(super) async fn a_lost_lease_writes_no_call(world: &World) {
    let (session, lease, asked) = world.asking().await;
    world.kill(session).await;
    let calls = || vec![ended(&asked, answered(10, 70))];
    let finish = Finish { calls: calls(), ..Finish::new(lease, done()) };
    let answer = world.store.finish(session, vec![finish]).await.unwrap();
    assert_eq!(answer, [Finished::LeaseLost]);
    let kept = Kept { calls: calls(), ..Kept::new(state("late")) };
    assert!(!world.store.checkpoint(session, lease, kept).await.unwrap());
    assert!(world.calls().await.is_empty());
    assert_eq!(world.month().await, (0, 0, 0, 0));
}

pub(super) async fn a_checkpoint_writes_what_its_calls_came_to(world: &World) {
    let (session, lease, asked) = world.asking().await;
    world.admit(&asked).await;
    let keep = |calls| Kept { calls, ..Kept::new(state("answer")) };
    for _ in 0..2 {
        let kept = keep(vec![ended(&asked, answered(10, 70))]);
        assert!(world.store.checkpoint(session, lease, kept).await.unwrap());
    }
    let repeat = keep(vec![ended(&call(), answered(1, 1))]);
    assert!(world.store.checkpoint(session, lease, repeat).await.unwrap());
    assert_eq!(world.calls().await.len(), 1, "a state that is kept already adds nothing");
    assert_eq!(world.month().await, (20, 70, 0, 0));
    world.finish(session, lease, done()).await;
    assert_eq!(world.month().await, (20, 70, 0, 0));
}

/// What an open call becomes when whoever made it is gone.
async fn is_maybe_billed(world: &World, call: &NewCall) {
    let kept = world.kept(call.id).await;
    assert_eq!((kept.status, kept.logged_at), (CallStatus::MaybeBilled, Some(world.now())));
    let end = kept.end.unwrap();
    assert_eq!((end.status, end.estimated), (CallStatus::MaybeBilled, true));
    assert_eq!((end.tokens_in + end.tokens_out, end.cost_picos), (100, 1_000));
}

pub(super) async fn a_dead_sessions_open_calls_may_have_been_billed(world: &World) {
    let (session, _, open) = world.asking().await;
    let settled = call_of(session);
    let others = call_of(world.session().await);
    for call in [&open, &settled, &others] {
        world.admit(call).await;
    }
    world.record(ended(&settled, answered(10, 70))).await;
    world.clock.advance(secs(60));
    world.kill(session).await;
    is_maybe_billed(world, &open).await;
    assert_eq!(world.kept(settled.id).await.status, CallStatus::Success);
    assert_eq!(world.kept(others.id).await.status, CallStatus::Open);
    assert_eq!(world.month().await, (120, 1_070, 100, 1_000));
    world.record(ended(&open, answered(1, 1))).await;
    is_maybe_billed(world, &open).await;
}

pub(super) async fn a_closed_sessions_open_calls_may_have_been_billed(world: &World) {
    let session = world.session().await;
    let open = call_of(session);
    world.admit(&open).await;
    world.store.close_session(session).await.unwrap();
    is_maybe_billed(world, &open).await;
    assert_eq!(world.month().await, (100, 1_000, 0, 0));
}

pub(super) async fn a_former_lifes_open_calls_may_have_been_billed(world: &World) {
    let (former, _, open) = world.asking().await;
    world.admit(&open).await;
    let session = world.session().await;
    world.store.adopt(former, session).await.unwrap();
    is_maybe_billed(world, &open).await;
}

pub(super) async fn a_session_that_beats_keeps_its_calls_open(world: &World) {
    let session = world.session().await;
    let open = call_of(session);
    world.admit(&open).await;
    world.store.beat(session, Default::default()).await.unwrap();
    let stale = longshore_core::stall::Dead { session, beats: 0 };
    world.store.reclaim(&[stale]).await.unwrap();
    assert_eq!(world.kept(open.id).await.status, CallStatus::Open);
}
