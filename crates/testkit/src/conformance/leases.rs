//! Leases: one holder, fences, starts and releases, and repeated finishes.

use std::collections::BTreeSet;

use longshore_core::store::{CheckpointRequest, Heartbeat};
use longshore_core::store::{ClaimRequest, FinishRequest, FinishResult, ProgressNote};
use longshore_core::unit::{MAX_PAYLOAD, Progress};
use longshore_core::worker_session::Lease;
use longshore_core::{Error, Failure, NewUnit, Outcome, Payload, SessionId, UnitState};

use super::helpers::*;
use crate::StoreFixture;

fn ahead(session: SessionId, free: u32, ahead: u32) -> ClaimRequest {
    ClaimRequest { prefetch: ahead, ..claim(session, free) }
}

pub(super) async fn one_holder(world: &StoreFixture) {
    let sent: BTreeSet<_> = world.send_many(40).await.into_iter().collect();
    let (a, b, c, d) = tokio::join!(world.session(), world.session(), world.session(), world.session());
    let (a, b, c, d) =
        tokio::join!(world.claim(a, 15), world.claim(b, 15), world.claim(c, 15), world.claim(d, 15));
    let all: Vec<_> = [a, b, c, d].iter().flat_map(|held| ids(held)).collect();
    assert_eq!(all.len(), 40, "each unit went to exactly one");
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), sent);
}

pub(super) async fn a_claimed_unit_shows_its_holder(world: &StoreFixture) {
    let id = world.send(unit()).await;
    let session = world.session().await;
    world.clock.advance(secs(5));
    let held = world.claim_one(session).await;
    assert!(held.started && !held.alone);
    assert_eq!((held.lease.unit, held.unit.attempt), (id, 1));
    let unit = world.unit(id).await;
    assert_eq!((unit.state, unit.session), (UnitState::Leased, Some(session)));
    assert_eq!((unit.since, unit.started_at), (world.now(), Some(world.now())));
    assert_eq!((unit.fence, unit.attempt), (held.lease.fence, 1));
}

pub(super) async fn a_claim_starts_what_fits_and_adds_the_rest_unstarted(world: &StoreFixture) {
    let sent = world.send_many(10).await;
    let session = world.session().await;
    let held = world.claim_with(ahead(session, 2, 3)).await.units;
    assert_eq!(ids(&held), sent[..5]);
    let started: Vec<(bool, u32)> = held.iter().map(|h| (h.started, h.unit.attempt)).collect();
    assert_eq!(started, [(true, 1), (true, 1), (false, 0), (false, 0), (false, 0)]);
    let only_ahead = world.claim_with(ahead(session, 0, 2)).await.units;
    assert!(only_ahead.len() == 2 && only_ahead.iter().all(|held| !held.started));
}

pub(super) async fn starting_counts_the_attempt_once(world: &StoreFixture) {
    let id = world.send(unit()).await;
    let session = world.session().await;
    let held = world.claim_with(ahead(session, 0, 1)).await.units;
    for _ in 0..2 {
        let started = world.store.start(session, &leases(&held)).await.unwrap();
        assert_eq!(started, [Some(world.now())]);
    }
    let unit = world.unit(id).await;
    assert_eq!((unit.attempt, unit.started_at), (1, Some(world.now())));
}

pub(super) async fn a_unit_that_was_taken_away_does_not_start(world: &StoreFixture) {
    world.send_many(2).await;
    let session = world.session().await;
    let held = world.claim_with(ahead(session, 0, 2)).await.units;
    world.store.release(session, &leases(&held)[..1]).await.unwrap();
    let started = world.store.start(session, &leases(&held)).await.unwrap();
    assert_eq!(started, [None, Some(world.now())]);
    let other = world.session().await;
    let theirs = world.store.start(other, &leases(&held)).await.unwrap();
    assert_eq!(theirs, [None, None], "a lease is its session's alone");
}

pub(super) async fn a_unit_with_a_cancel_request_does_not_start(world: &StoreFixture) {
    let id = world.send(unit()).await;
    let session = world.session().await;
    let held = world.claim_with(ahead(session, 0, 1)).await.units;
    assert_eq!(world.cancel(id).await.requested, 1);
    assert_eq!(world.store.start(session, &leases(&held)).await.unwrap(), [None]);
    world.store.release(session, &leases(&held)).await.unwrap();
    assert_eq!(world.state(id).await, UnitState::Cancelled);
}

pub(super) async fn a_unit_past_its_deadline_does_not_start(world: &StoreFixture) {
    let deadline = Some(world.now() + secs(10));
    world.send(NewUnit { deadline, ..unit() }).await;
    let session = world.session().await;
    let held = world.claim_with(ahead(session, 0, 1)).await.units;
    world.clock.advance(secs(10));
    assert_eq!(world.store.start(session, &leases(&held)).await.unwrap(), [None]);
    world.store.release(session, &leases(&held)).await.unwrap();
}

pub(super) async fn a_released_unit_uses_no_attempt(world: &StoreFixture) {
    let id = world.send(unit()).await;
    let session = world.session().await;
    let held = world.claim_with(ahead(session, 0, 1)).await.units;
    world.store.release(session, &leases(&held)).await.unwrap();
    world.store.release(session, &leases(&held)).await.unwrap();
    let unit = world.unit(id).await;
    assert_eq!((unit.state, unit.attempt, unit.session), (UnitState::Ready, 0, None));
    let stale = world.finish(session, held[0].lease, done()).await;
    assert_eq!(stale, FinishResult::LeaseLost, "its fence moved with the release");
    assert_eq!(world.claim_one(session).await.unit.id, id);
}

pub(super) async fn a_started_unit_cannot_be_released(world: &StoreFixture) {
    let id = world.send(unit()).await;
    let session = world.session().await;
    let held = world.claim_one(session).await;
    world.store.release(session, &[held.lease]).await.unwrap();
    assert_eq!(world.state(id).await, UnitState::Leased);
    assert_eq!(world.finish(session, held.lease, done()).await, FinishResult::Recorded(UnitState::Done));
}

/// A separate start after the claim has the same effect as a start with the claim.
pub(super) async fn what_was_started_ahead_is_started_for_everybody(world: &StoreFixture) {
    let sent = world.send_many(4).await;
    let (session, heir) = (world.session().await, world.session().await);
    let held = world.claim_with(ahead(session, 0, 4)).await.units;
    let started = world.store.start(session, &leases(&held)[..3]).await.unwrap();
    assert_eq!(started, [Some(world.now()); 3]);
    world.store.release(session, &leases(&held)).await.unwrap();
    assert_eq!(world.state(sent[2]).await, UnitState::Leased, "it runs");
    assert_eq!(world.state(sent[3]).await, UnitState::Ready, "it had not started");
    let retry = Outcome::Retry { failure: Failure::new("no", "not yet"), after: Some(secs(0)) };
    world.finish(session, held[0].lease, retry).await;
    let listed = world.store.failures(&ALL, sent[0]).await.unwrap();
    assert_eq!((world.unit(sent[0]).await.attempt, listed[0].attempt), (1, 1));
    let adopted = world.store.adopt(session, heir).await.unwrap();
    assert!(adopted.iter().all(|held| held.started && held.unit.attempt == 1), "{adopted:?}");
    assert_eq!(adopted.len(), 2);
    world.kill(heir).await;
    let lost = world.unit(sent[1]).await;
    assert_eq!((lost.state, lost.attempt, lost.lost), (UnitState::Ready, 1, 1));
}

pub(super) async fn the_end_of_a_run_that_was_not_started_counts_it(world: &StoreFixture) {
    let sent = world.send_many(2).await;
    let session = world.session().await;
    let held = world.claim_with(ahead(session, 0, 2)).await.units;
    world.finish(session, held[0].lease, done()).await;
    let fail = Outcome::Fail(Failure::new("no", "never"));
    world.finish(session, held[1].lease, fail).await;
    let attempts = [world.unit(sent[0]).await.attempt, world.unit(sent[1]).await.attempt];
    assert_eq!(attempts, [1, 1]);
    assert_eq!(world.store.failures(&ALL, sent[1]).await.unwrap()[0].attempt, 1);
}

pub(super) async fn stale_holder_cannot_finish(world: &StoreFixture) {
    let id = world.send(unit()).await;
    let (first, second) = (world.session().await, world.session().await);
    let stale = world.claim_one(first).await;
    world.kill(first).await;
    assert_eq!(world.finish(first, stale.lease, done()).await, FinishResult::LeaseLost);
    let fresh = world.claim_one(second).await;
    assert!(fresh.lease.fence > stale.lease.fence);
    assert_eq!(world.finish(first, stale.lease, done()).await, FinishResult::LeaseLost);
    assert_eq!(world.finish(second, stale.lease, done()).await, FinishResult::LeaseLost);
    assert_eq!(world.state(id).await, UnitState::Leased, "the finishes changed nothing");
    let recorded = world.finish(second, fresh.lease, done()).await;
    assert_eq!(recorded, FinishResult::Recorded(UnitState::Done));
}

pub(super) async fn a_former_run_of_the_same_session_is_stale(world: &StoreFixture) {
    let id = world.send(unit()).await;
    let session = world.session().await;
    let former = world.claim_one(session).await;
    world.finish(session, former.lease, retry_after(secs(0))).await;
    let present = world.claim_one(session).await;
    assert!(present.lease.fence > former.lease.fence, "every claim moves the fence");
    assert_eq!(world.finish(session, former.lease, done()).await, FinishResult::LeaseLost);
    assert_eq!(world.state(id).await, UnitState::Leased);
}

pub(super) async fn anothers_lease_is_of_no_use(world: &StoreFixture) {
    let sent = world.send_many(2).await;
    let (holder, other) = (world.session().await, world.session().await);
    let held = world.claim_with(ahead(holder, 1, 1)).await.units;
    assert_eq!(world.finish(other, held[0].lease, done()).await, FinishResult::LeaseLost);
    let state = Payload::from(b"mine".as_slice());
    assert!(!world.store.checkpoint(other, held[0].lease, CheckpointRequest::new(state)).await.unwrap());
    world.store.release(other, &leases(&held)).await.unwrap();
    for id in sent {
        let unit = world.unit(id).await;
        assert_eq!((unit.state, unit.session), (UnitState::Leased, Some(holder)));
        assert_eq!(unit.checkpoint, None);
    }
}

pub(super) async fn merely_late_is_not_stale(world: &StoreFixture) {
    let deadline = Some(world.now() + secs(60));
    world.send(NewUnit { deadline, ..unit() }).await;
    let session = world.session().await;
    let held = world.claim_one(session).await;
    world.clock.advance(secs(100_000));
    world.promote().await;
    let recorded = world.finish(session, held.lease, done()).await;
    assert_eq!(recorded, FinishResult::Recorded(UnitState::Done));
}

pub(super) async fn a_finish_heard_twice_is_recorded_once(world: &StoreFixture) {
    let batch = batch_id("b");
    world.send_sealed_batch(longshore_core::NewBatch::new(batch.clone()), 2).await;
    let session = world.session().await;
    let held = world.claim(session, 2).await;
    for _ in 0..2 {
        let answer = world.finish(session, held[0].lease, done()).await;
        assert_eq!(answer, FinishResult::Recorded(UnitState::Done));
        let answer = world.finish(session, held[1].lease, retry_after(secs(9))).await;
        assert_eq!(answer, FinishResult::Recorded(UnitState::Scheduled));
    }
    let counts = world.batch(&batch).await.counts;
    assert_eq!((counts.done, counts.scheduled, counts.total()), (1, 1, 2));
    assert_eq!(world.unit(held[1].unit.id).await.attempt, 1);
}

pub(super) async fn a_second_word_on_the_same_run_is_not_heard(world: &StoreFixture) {
    let id = world.send(unit()).await;
    let session = world.session().await;
    let held = world.claim_one(session).await;
    world.finish(session, held.lease, done()).await;
    let second = world.finish(session, held.lease, failed()).await;
    assert_eq!(second, FinishResult::Recorded(UnitState::Done));
    assert_eq!(world.state(id).await, UnitState::Done);
}

pub(super) async fn a_lost_lease_does_not_hold_up_its_neighbours(world: &StoreFixture) {
    world.send_many(3).await;
    let session = world.session().await;
    let held = world.claim(session, 3).await;
    let mut finishes: Vec<FinishRequest> =
        held.iter().map(|held| FinishRequest::new(held.lease, done())).collect();
    finishes[1].lease.fence += 100;
    let answers = world.store.finish(session, finishes).await.unwrap();
    let recorded = FinishResult::Recorded(UnitState::Done);
    assert_eq!(answers, [recorded.clone(), FinishResult::LeaseLost, recorded]);
    assert_eq!(world.state(held[1].unit.id).await, UnitState::Leased);
}

pub(super) async fn an_unknown_unit_cannot_be_finished(world: &StoreFixture) {
    let session = world.session().await;
    let lease = Lease { unit: unit().id, fence: 1 };
    assert_eq!(world.finish(session, lease, done()).await, FinishResult::LeaseLost);
}

pub(super) async fn a_checkpoint_is_there_for_the_next_run(world: &StoreFixture) {
    let id = world.send(unit()).await;
    let session = world.session().await;
    let held = world.claim_one(session).await;
    let state = Payload::from(b"half-way".as_slice());
    assert!(
        world.store.checkpoint(session, held.lease, CheckpointRequest::new(state.clone())).await.unwrap()
    );
    world.finish(session, held.lease, retry_after(secs(0))).await;
    let again = world.claim_one(session).await;
    assert_eq!(again.unit.checkpoint, Some(state));
    world.kill(session).await;
    let other = Payload::from(b"stale".as_slice());
    assert!(!world.store.checkpoint(session, again.lease, CheckpointRequest::new(other)).await.unwrap());
    let stored = world.unit(id).await.checkpoint.unwrap();
    assert_eq!(stored.as_bytes(), b"half-way");
}

/// A payload larger than what stores keep inline in the row.
fn large(first: u8) -> Payload {
    let mut bytes = vec![b'c'; 5_000];
    bytes[0] = first;
    Payload::from(bytes)
}

pub(super) async fn a_checkpoint_survives_whatever_ends_the_run(world: &StoreFixture) {
    for state in [Payload::from(b"half-way".as_slice()), large(1)] {
        let id = world.send(unit()).await;
        let session = world.session().await;
        let held = world.claim_one(session).await;
        assert!(
            world.store.checkpoint(session, held.lease, CheckpointRequest::new(state.clone())).await.unwrap()
        );
        let mut lease = held.lease;
        let ends = [Outcome::Snooze(secs(5)), Outcome::Interrupted, retry_after(secs(5))];
        for end in ends {
            world.finish(session, lease, end.clone()).await;
            assert_eq!(world.unit(id).await.checkpoint, Some(state.clone()), "after {end:?}");
            world.clock.advance(secs(5));
            world.promote().await;
            let again = world.claim_one(session).await;
            assert_eq!(again.unit.checkpoint, Some(state.clone()), "after {end:?}");
            lease = again.lease;
        }
        world.kill(session).await;
        let heir = world.session().await;
        let again = world.claim_one(heir).await;
        assert_eq!(again.unit.checkpoint, Some(state), "after a reclaim");
        world.finish(heir, again.lease, failed()).await;
    }
}

pub(super) async fn a_checkpoint_replaces_the_one_before(world: &StoreFixture) {
    let id = world.send(unit()).await;
    let session = world.session().await;
    let held = world.claim_one(session).await;
    let small = || Payload::from(b"small".as_slice());
    for state in [large(1), large(2), small(), large(3)] {
        assert!(
            world.store.checkpoint(session, held.lease, CheckpointRequest::new(state.clone())).await.unwrap()
        );
        assert_eq!(world.unit(id).await.checkpoint, Some(state));
    }
    world.finish(session, held.lease, retry_after(secs(0))).await;
    assert_eq!(world.claim_one(session).await.unit.checkpoint, Some(large(3)));
}

pub(super) async fn progress_is_shown_while_a_unit_runs(world: &StoreFixture) {
    let id = world.send(unit()).await;
    let session = world.session().await;
    let held = world.claim_one(session).await;
    let progress = Progress { fraction: Some(0.5), message: Some("half".into()) };
    let notes = vec![ProgressNote { lease: held.lease, progress: progress.clone() }];
    let beat = || world.store.heartbeat(session, Heartbeat { cpu: None, progress: notes.clone() });
    beat().await.unwrap();
    assert_eq!(world.unit(id).await.progress, Some(progress));
    world.finish(session, held.lease, retry_after(secs(0))).await;
    assert_eq!(world.unit(id).await.progress, None, "progress belongs to the run");
    beat().await.unwrap();
    assert_eq!(world.unit(id).await.progress, None, "the lease is gone");
}

pub(super) async fn held_lists_every_lease(world: &StoreFixture) {
    world.send_many(3).await;
    let session = world.session().await;
    let held = world.claim_with(ahead(session, 1, 2)).await.units;
    let mut listed = world.store.leases_of(session).await.unwrap();
    listed.sort_by_key(|lease| lease.unit);
    assert_eq!(listed, leases(&held));
    world.finish(session, held[0].lease, done()).await;
    world.store.release(session, &[held[1].lease]).await.unwrap();
    assert_eq!(world.store.leases_of(session).await.unwrap(), [held[2].lease]);
}

pub(super) async fn an_unknown_session_claims_nothing(world: &StoreFixture) {
    let id = world.send(unit()).await;
    let unknown = SessionId::new();
    let answer = world.store.claim(claim(unknown, 1)).await;
    assert!(matches!(answer, Err(Error::SessionGone(gone)) if gone == unknown), "{answer:?}");
    assert_eq!(world.state(id).await, UnitState::Ready);
}

pub(super) async fn an_oversized_result_leaves_the_unit_held(world: &StoreFixture) {
    world.send(unit()).await;
    let session = world.session().await;
    let held = world.claim_one(session).await;
    let large = Outcome::Done(Some(Payload::from(vec![b'x'; MAX_PAYLOAD + 1])));
    let finish = FinishRequest::new(held.lease, large);
    assert!(world.store.finish(session, vec![finish]).await.is_err());
    let recorded = world.finish(session, held.lease, failed()).await;
    assert_eq!(recorded, FinishResult::Recorded(UnitState::Failed));
}

pub(super) async fn a_checkpoint_may_come_with_the_end_of_a_run(world: &StoreFixture) {
    for state in [Payload::from(b"from here".as_slice()), large(2)] {
        let id = world.send(unit()).await;
        let session = world.session().await;
        let held = world.claim_one(session).await;
        let end = |lease, outcome| {
            let checkpoint = Some(state.clone());
            vec![FinishRequest { checkpoint, ..FinishRequest::new(lease, outcome) }]
        };
        let again = end(held.lease, retry_after(secs(0)));
        let answers = world.store.finish(session, again).await.unwrap();
        assert_eq!(answers, [FinishResult::Recorded(UnitState::Ready)]);
        let next = world.claim_one(session).await;
        assert_eq!(next.unit.checkpoint, Some(state.clone()));
        // A repeat is recognised as stale and writes nothing.
        let stale = vec![FinishRequest {
            checkpoint: Some(Payload::from(b"stale".as_slice())),
            ..FinishRequest::new(held.lease, done())
        }];
        assert_eq!(world.store.finish(session, stale).await.unwrap(), [FinishResult::LeaseLost]);
        assert_eq!(world.unit(id).await.checkpoint, Some(state.clone()));
        world.finish(session, next.lease, done()).await;
    }
}
