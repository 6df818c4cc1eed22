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

pub(super) async fn one_holder(fixture: &StoreFixture) {
    let sent: BTreeSet<_> = fixture.send_many(40).await.into_iter().collect();
    let (a, b, c, d) =
        tokio::join!(fixture.session(), fixture.session(), fixture.session(), fixture.session());
    let (a, b, c, d) =
        tokio::join!(fixture.claim(a, 15), fixture.claim(b, 15), fixture.claim(c, 15), fixture.claim(d, 15));
    let all: Vec<_> = [a, b, c, d].iter().flat_map(|held| ids(held)).collect();
    assert_eq!(all.len(), 40, "each unit went to exactly one");
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), sent);
}

pub(super) async fn a_claimed_unit_shows_its_holder(fixture: &StoreFixture) {
    let id = fixture.send(unit()).await;
    let session = fixture.session().await;
    fixture.clock.advance(secs(5));
    let held = fixture.claim_one(session).await;
    assert!(held.started && !held.alone);
    assert_eq!((held.lease.unit, held.unit.attempt), (id, 1));
    let unit = fixture.unit(id).await;
    assert_eq!((unit.state, unit.session), (UnitState::Leased, Some(session)));
    assert_eq!((unit.since, unit.started_at), (fixture.now(), Some(fixture.now())));
    assert_eq!((unit.fence, unit.attempt), (held.lease.fence, 1));
}

pub(super) async fn a_claim_starts_what_fits_and_adds_the_rest_unstarted(fixture: &StoreFixture) {
    let sent = fixture.send_many(10).await;
    let session = fixture.session().await;
    let held = fixture.claim_with(ahead(session, 2, 3)).await.units;
    assert_eq!(ids(&held), sent[..5]);
    let started: Vec<(bool, u32)> = held.iter().map(|h| (h.started, h.unit.attempt)).collect();
    assert_eq!(started, [(true, 1), (true, 1), (false, 0), (false, 0), (false, 0)]);
    let only_ahead = fixture.claim_with(ahead(session, 0, 2)).await.units;
    assert!(only_ahead.len() == 2 && only_ahead.iter().all(|held| !held.started));
}

pub(super) async fn starting_counts_the_attempt_once(fixture: &StoreFixture) {
    let id = fixture.send(unit()).await;
    let session = fixture.session().await;
    let held = fixture.claim_with(ahead(session, 0, 1)).await.units;
    for _ in 0..2 {
        let started = fixture.store.start(session, &leases(&held)).await.unwrap();
        assert_eq!(started, [Some(fixture.now())]);
    }
    let unit = fixture.unit(id).await;
    assert_eq!((unit.attempt, unit.started_at), (1, Some(fixture.now())));
}

pub(super) async fn a_unit_that_was_taken_away_does_not_start(fixture: &StoreFixture) {
    fixture.send_many(2).await;
    let session = fixture.session().await;
    let held = fixture.claim_with(ahead(session, 0, 2)).await.units;
    fixture.store.release(session, &leases(&held)[..1]).await.unwrap();
    let started = fixture.store.start(session, &leases(&held)).await.unwrap();
    assert_eq!(started, [None, Some(fixture.now())]);
    let other = fixture.session().await;
    let theirs = fixture.store.start(other, &leases(&held)).await.unwrap();
    assert_eq!(theirs, [None, None], "a lease is its session's alone");
}

pub(super) async fn a_unit_with_a_cancel_request_does_not_start(fixture: &StoreFixture) {
    let id = fixture.send(unit()).await;
    let session = fixture.session().await;
    let held = fixture.claim_with(ahead(session, 0, 1)).await.units;
    assert_eq!(fixture.cancel(id).await.requested, 1);
    assert_eq!(fixture.store.start(session, &leases(&held)).await.unwrap(), [None]);
    fixture.store.release(session, &leases(&held)).await.unwrap();
    assert_eq!(fixture.state(id).await, UnitState::Cancelled);
}

pub(super) async fn a_unit_past_its_deadline_does_not_start(fixture: &StoreFixture) {
    let deadline = Some(fixture.now() + secs(10));
    fixture.send(NewUnit { deadline, ..unit() }).await;
    let session = fixture.session().await;
    let held = fixture.claim_with(ahead(session, 0, 1)).await.units;
    fixture.clock.advance(secs(10));
    assert_eq!(fixture.store.start(session, &leases(&held)).await.unwrap(), [None]);
    fixture.store.release(session, &leases(&held)).await.unwrap();
}

pub(super) async fn a_released_unit_uses_no_attempt(fixture: &StoreFixture) {
    let id = fixture.send(unit()).await;
    let session = fixture.session().await;
    let held = fixture.claim_with(ahead(session, 0, 1)).await.units;
    fixture.store.release(session, &leases(&held)).await.unwrap();
    fixture.store.release(session, &leases(&held)).await.unwrap();
    let unit = fixture.unit(id).await;
    assert_eq!((unit.state, unit.attempt, unit.session), (UnitState::Ready, 0, None));
    let stale = fixture.finish(session, held[0].lease, done()).await;
    assert_eq!(stale, FinishResult::LeaseLost, "its fence moved with the release");
    assert_eq!(fixture.claim_one(session).await.unit.id, id);
}

pub(super) async fn a_started_unit_cannot_be_released(fixture: &StoreFixture) {
    let id = fixture.send(unit()).await;
    let session = fixture.session().await;
    let held = fixture.claim_one(session).await;
    fixture.store.release(session, &[held.lease]).await.unwrap();
    assert_eq!(fixture.state(id).await, UnitState::Leased);
    assert_eq!(fixture.finish(session, held.lease, done()).await, FinishResult::Recorded(UnitState::Done));
}

/// A separate start after the claim has the same effect as a start with the claim.
pub(super) async fn what_was_started_ahead_is_started_for_everybody(fixture: &StoreFixture) {
    let sent = fixture.send_many(4).await;
    let (session, heir) = (fixture.session().await, fixture.session().await);
    let held = fixture.claim_with(ahead(session, 0, 4)).await.units;
    let started = fixture.store.start(session, &leases(&held)[..3]).await.unwrap();
    assert_eq!(started, [Some(fixture.now()); 3]);
    fixture.store.release(session, &leases(&held)).await.unwrap();
    assert_eq!(fixture.state(sent[2]).await, UnitState::Leased, "it runs");
    assert_eq!(fixture.state(sent[3]).await, UnitState::Ready, "it had not started");
    let retry = Outcome::Retry { failure: Failure::new("no", "not yet"), after: Some(secs(0)) };
    fixture.finish(session, held[0].lease, retry).await;
    let listed = fixture.store.failures(&ALL, sent[0]).await.unwrap();
    assert_eq!((fixture.unit(sent[0]).await.attempt, listed[0].attempt), (1, 1));
    let adopted = fixture.store.adopt(session, heir).await.unwrap();
    assert!(adopted.iter().all(|held| held.started && held.unit.attempt == 1), "{adopted:?}");
    assert_eq!(adopted.len(), 2);
    fixture.kill(heir).await;
    let lost = fixture.unit(sent[1]).await;
    assert_eq!((lost.state, lost.attempt, lost.lost), (UnitState::Ready, 1, 1));
}

pub(super) async fn the_end_of_a_run_that_was_not_started_counts_it(fixture: &StoreFixture) {
    let sent = fixture.send_many(2).await;
    let session = fixture.session().await;
    let held = fixture.claim_with(ahead(session, 0, 2)).await.units;
    fixture.finish(session, held[0].lease, done()).await;
    let fail = Outcome::Fail(Failure::new("no", "never"));
    fixture.finish(session, held[1].lease, fail).await;
    let attempts = [fixture.unit(sent[0]).await.attempt, fixture.unit(sent[1]).await.attempt];
    assert_eq!(attempts, [1, 1]);
    assert_eq!(fixture.store.failures(&ALL, sent[1]).await.unwrap()[0].attempt, 1);
}

pub(super) async fn stale_holder_cannot_finish(fixture: &StoreFixture) {
    let id = fixture.send(unit()).await;
    let (first, second) = (fixture.session().await, fixture.session().await);
    let stale = fixture.claim_one(first).await;
    fixture.kill(first).await;
    assert_eq!(fixture.finish(first, stale.lease, done()).await, FinishResult::LeaseLost);
    let fresh = fixture.claim_one(second).await;
    assert!(fresh.lease.fence > stale.lease.fence);
    assert_eq!(fixture.finish(first, stale.lease, done()).await, FinishResult::LeaseLost);
    assert_eq!(fixture.finish(second, stale.lease, done()).await, FinishResult::LeaseLost);
    assert_eq!(fixture.state(id).await, UnitState::Leased, "the finishes changed nothing");
    let recorded = fixture.finish(second, fresh.lease, done()).await;
    assert_eq!(recorded, FinishResult::Recorded(UnitState::Done));
}

pub(super) async fn a_former_run_of_the_same_session_is_stale(fixture: &StoreFixture) {
    let id = fixture.send(unit()).await;
    let session = fixture.session().await;
    let former = fixture.claim_one(session).await;
    fixture.finish(session, former.lease, retry_after(secs(0))).await;
    let present = fixture.claim_one(session).await;
    assert!(present.lease.fence > former.lease.fence, "every claim moves the fence");
    assert_eq!(fixture.finish(session, former.lease, done()).await, FinishResult::LeaseLost);
    assert_eq!(fixture.state(id).await, UnitState::Leased);
}

pub(super) async fn anothers_lease_is_of_no_use(fixture: &StoreFixture) {
    let sent = fixture.send_many(2).await;
    let (holder, other) = (fixture.session().await, fixture.session().await);
    let held = fixture.claim_with(ahead(holder, 1, 1)).await.units;
    assert_eq!(fixture.finish(other, held[0].lease, done()).await, FinishResult::LeaseLost);
    let state = Payload::from(b"mine".as_slice());
    assert!(!fixture.store.checkpoint(other, held[0].lease, CheckpointRequest::new(state)).await.unwrap());
    fixture.store.release(other, &leases(&held)).await.unwrap();
    for id in sent {
        let unit = fixture.unit(id).await;
        assert_eq!((unit.state, unit.session), (UnitState::Leased, Some(holder)));
        assert_eq!(unit.checkpoint, None);
    }
}

pub(super) async fn merely_late_is_not_stale(fixture: &StoreFixture) {
    let deadline = Some(fixture.now() + secs(60));
    fixture.send(NewUnit { deadline, ..unit() }).await;
    let session = fixture.session().await;
    let held = fixture.claim_one(session).await;
    fixture.clock.advance(secs(100_000));
    fixture.promote().await;
    let recorded = fixture.finish(session, held.lease, done()).await;
    assert_eq!(recorded, FinishResult::Recorded(UnitState::Done));
}

pub(super) async fn a_finish_heard_twice_is_recorded_once(fixture: &StoreFixture) {
    let batch = batch_id("b");
    fixture.send_sealed_batch(longshore_core::NewBatch::new(batch.clone()), 2).await;
    let session = fixture.session().await;
    let held = fixture.claim(session, 2).await;
    for _ in 0..2 {
        let answer = fixture.finish(session, held[0].lease, done()).await;
        assert_eq!(answer, FinishResult::Recorded(UnitState::Done));
        let answer = fixture.finish(session, held[1].lease, retry_after(secs(9))).await;
        assert_eq!(answer, FinishResult::Recorded(UnitState::Scheduled));
    }
    let counts = fixture.batch(&batch).await.counts;
    assert_eq!((counts.done, counts.scheduled, counts.total()), (1, 1, 2));
    assert_eq!(fixture.unit(held[1].unit.id).await.attempt, 1);
}

pub(super) async fn a_second_word_on_the_same_run_is_not_heard(fixture: &StoreFixture) {
    let id = fixture.send(unit()).await;
    let session = fixture.session().await;
    let held = fixture.claim_one(session).await;
    fixture.finish(session, held.lease, done()).await;
    let second = fixture.finish(session, held.lease, failed()).await;
    assert_eq!(second, FinishResult::Recorded(UnitState::Done));
    assert_eq!(fixture.state(id).await, UnitState::Done);
}

pub(super) async fn a_lost_lease_does_not_hold_up_its_neighbours(fixture: &StoreFixture) {
    fixture.send_many(3).await;
    let session = fixture.session().await;
    let held = fixture.claim(session, 3).await;
    let mut finishes: Vec<FinishRequest> =
        held.iter().map(|held| FinishRequest::new(held.lease, done())).collect();
    finishes[1].lease.fence += 100;
    let answers = fixture.store.finish(session, finishes).await.unwrap();
    let recorded = FinishResult::Recorded(UnitState::Done);
    assert_eq!(answers, [recorded.clone(), FinishResult::LeaseLost, recorded]);
    assert_eq!(fixture.state(held[1].unit.id).await, UnitState::Leased);
}

pub(super) async fn an_unknown_unit_cannot_be_finished(fixture: &StoreFixture) {
    let session = fixture.session().await;
    let lease = Lease { unit: unit().id, fence: 1 };
    assert_eq!(fixture.finish(session, lease, done()).await, FinishResult::LeaseLost);
}

pub(super) async fn a_checkpoint_is_there_for_the_next_run(fixture: &StoreFixture) {
    let id = fixture.send(unit()).await;
    let session = fixture.session().await;
    let held = fixture.claim_one(session).await;
    let state = Payload::from(b"half-way".as_slice());
    assert!(
        fixture.store.checkpoint(session, held.lease, CheckpointRequest::new(state.clone())).await.unwrap()
    );
    fixture.finish(session, held.lease, retry_after(secs(0))).await;
    let again = fixture.claim_one(session).await;
    assert_eq!(again.unit.checkpoint, Some(state));
    fixture.kill(session).await;
    let other = Payload::from(b"stale".as_slice());
    assert!(!fixture.store.checkpoint(session, again.lease, CheckpointRequest::new(other)).await.unwrap());
    let stored = fixture.unit(id).await.checkpoint.unwrap();
    assert_eq!(stored.as_bytes(), b"half-way");
}

/// A payload larger than what stores keep inline in the row.
fn large(first: u8) -> Payload {
    let mut bytes = vec![b'c'; 5_000];
    bytes[0] = first;
    Payload::from(bytes)
}

pub(super) async fn a_checkpoint_survives_whatever_ends_the_run(fixture: &StoreFixture) {
    for state in [Payload::from(b"half-way".as_slice()), large(1)] {
        let id = fixture.send(unit()).await;
        let session = fixture.session().await;
        let held = fixture.claim_one(session).await;
        assert!(
            fixture
                .store
                .checkpoint(session, held.lease, CheckpointRequest::new(state.clone()))
                .await
                .unwrap()
        );
        let mut lease = held.lease;
        let ends = [Outcome::Snooze(secs(5)), Outcome::Interrupted, retry_after(secs(5))];
        for end in ends {
            fixture.finish(session, lease, end.clone()).await;
            assert_eq!(fixture.unit(id).await.checkpoint, Some(state.clone()), "after {end:?}");
            fixture.clock.advance(secs(5));
            fixture.promote().await;
            let again = fixture.claim_one(session).await;
            assert_eq!(again.unit.checkpoint, Some(state.clone()), "after {end:?}");
            lease = again.lease;
        }
        fixture.kill(session).await;
        let heir = fixture.session().await;
        let again = fixture.claim_one(heir).await;
        assert_eq!(again.unit.checkpoint, Some(state), "after a reclaim");
        fixture.finish(heir, again.lease, failed()).await;
    }
}

pub(super) async fn a_checkpoint_replaces_the_one_before(fixture: &StoreFixture) {
    let id = fixture.send(unit()).await;
    let session = fixture.session().await;
    let held = fixture.claim_one(session).await;
    let small = || Payload::from(b"small".as_slice());
    for state in [large(1), large(2), small(), large(3)] {
        assert!(
            fixture
                .store
                .checkpoint(session, held.lease, CheckpointRequest::new(state.clone()))
                .await
                .unwrap()
        );
        assert_eq!(fixture.unit(id).await.checkpoint, Some(state));
    }
    fixture.finish(session, held.lease, retry_after(secs(0))).await;
    assert_eq!(fixture.claim_one(session).await.unit.checkpoint, Some(large(3)));
}

pub(super) async fn progress_is_shown_while_a_unit_runs(fixture: &StoreFixture) {
    let id = fixture.send(unit()).await;
    let session = fixture.session().await;
    let held = fixture.claim_one(session).await;
    let progress = Progress { fraction: Some(0.5), message: Some("half".into()) };
    let notes = vec![ProgressNote { lease: held.lease, progress: progress.clone() }];
    let beat =
        || fixture.store.heartbeat(session, Heartbeat { progress: notes.clone(), ..Heartbeat::default() });
    beat().await.unwrap();
    assert_eq!(fixture.unit(id).await.progress, Some(progress));
    fixture.finish(session, held.lease, retry_after(secs(0))).await;
    assert_eq!(fixture.unit(id).await.progress, None, "progress belongs to the run");
    beat().await.unwrap();
    assert_eq!(fixture.unit(id).await.progress, None, "the lease is gone");
}

pub(super) async fn held_lists_every_lease(fixture: &StoreFixture) {
    fixture.send_many(3).await;
    let session = fixture.session().await;
    let held = fixture.claim_with(ahead(session, 1, 2)).await.units;
    let mut listed = fixture.store.leases_of(session).await.unwrap();
    listed.sort_by_key(|lease| lease.unit);
    assert_eq!(listed, leases(&held));
    fixture.finish(session, held[0].lease, done()).await;
    fixture.store.release(session, &[held[1].lease]).await.unwrap();
    assert_eq!(fixture.store.leases_of(session).await.unwrap(), [held[2].lease]);
}

pub(super) async fn an_unknown_session_claims_nothing(fixture: &StoreFixture) {
    let id = fixture.send(unit()).await;
    let unknown = SessionId::new();
    let answer = fixture.store.claim(claim(unknown, 1)).await;
    assert!(matches!(answer, Err(Error::SessionGone(gone)) if gone == unknown), "{answer:?}");
    assert_eq!(fixture.state(id).await, UnitState::Ready);
}

pub(super) async fn an_oversized_result_leaves_the_unit_held(fixture: &StoreFixture) {
    fixture.send(unit()).await;
    let session = fixture.session().await;
    let held = fixture.claim_one(session).await;
    let large = Outcome::Done(Some(Payload::from(vec![b'x'; MAX_PAYLOAD + 1])));
    let finish = FinishRequest::new(held.lease, large);
    assert!(fixture.store.finish(session, vec![finish]).await.is_err());
    let recorded = fixture.finish(session, held.lease, failed()).await;
    assert_eq!(recorded, FinishResult::Recorded(UnitState::Failed));
}

pub(super) async fn a_unit_that_is_done_has_no_checkpoint(fixture: &StoreFixture) {
    for state in [Payload::from(b"half-way".as_slice()), large(1)] {
        for saved_with_finish in [false, true] {
            let id = fixture.send(unit()).await;
            let session = fixture.session().await;
            let lease = fixture.claim_one(session).await.lease;
            let request = CheckpointRequest::new(state.clone());
            assert!(fixture.store.checkpoint(session, lease, request).await.unwrap());
            let checkpoint = saved_with_finish.then(|| state.clone());
            let finish = vec![FinishRequest { checkpoint, ..FinishRequest::new(lease, done()) }];
            let answers = fixture.store.finish(session, finish).await.unwrap();
            assert_eq!(answers, [FinishResult::Recorded(UnitState::Done)]);
            assert_eq!(fixture.unit(id).await.checkpoint, None);
        }
    }
}

pub(super) async fn a_checkpoint_may_come_with_the_end_of_a_run(fixture: &StoreFixture) {
    for state in [Payload::from(b"from here".as_slice()), large(2)] {
        let id = fixture.send(unit()).await;
        let session = fixture.session().await;
        let held = fixture.claim_one(session).await;
        let end = |lease, outcome| {
            let checkpoint = Some(state.clone());
            vec![FinishRequest { checkpoint, ..FinishRequest::new(lease, outcome) }]
        };
        let again = end(held.lease, retry_after(secs(0)));
        let answers = fixture.store.finish(session, again).await.unwrap();
        assert_eq!(answers, [FinishResult::Recorded(UnitState::Ready)]);
        let next = fixture.claim_one(session).await;
        assert_eq!(next.unit.checkpoint, Some(state.clone()));
        // A repeat is recognised as stale and writes nothing.
        let stale = vec![FinishRequest {
            checkpoint: Some(Payload::from(b"stale".as_slice())),
            ..FinishRequest::new(held.lease, done())
        }];
        assert_eq!(fixture.store.finish(session, stale).await.unwrap(), [FinishResult::LeaseLost]);
        assert_eq!(fixture.unit(id).await.checkpoint, Some(state.clone()));
        fixture.finish(session, next.lease, done()).await;
    }
}
