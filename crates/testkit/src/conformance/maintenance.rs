//! Maintenance: promotion, expiry, pruning, leader election.

use longshore_core::store::{FinishResult, QueueChange, Retention};
use longshore_core::{BatchStatus, NewBatch, NewUnit, SessionId, UnitState};

use super::helpers::*;
use crate::StoreFixture;

pub(super) async fn promotion_is_bounded_and_says_if_there_is_more(fixture: &StoreFixture) {
    let due = Some(fixture.now() + secs(1));
    for _ in 0..5 {
        fixture.send(NewUnit { not_before: due, ..unit() }).await;
    }
    fixture.clock.advance(secs(1));
    let first = fixture.store.promote(3).await.unwrap();
    assert_eq!((first.due, first.more), (3, true));
    let second = fixture.store.promote(3).await.unwrap();
    assert_eq!((second.due, second.more), (2, false));
    assert_eq!(fixture.store.promote(3).await.unwrap().due, 0);
}

pub(super) async fn next_due_is_the_time_to_the_first_scheduled_unit(fixture: &StoreFixture) {
    let next_due = async || fixture.store.promote(10).await.unwrap().next_due;
    assert_eq!(next_due().await, None);
    fixture.send(unit()).await;
    assert_eq!(next_due().await, None, "a ready unit is not scheduled");
    for seconds in [90, 30, 60] {
        let due = Some(fixture.now() + secs(seconds));
        fixture.send(NewUnit { not_before: due, ..unit() }).await;
    }
    assert_eq!(next_due().await, Some(secs(30)));
    fixture.clock.advance(secs(10));
    assert_eq!(next_due().await, Some(secs(20)));
    fixture.clock.advance(secs(30));
    assert_eq!(next_due().await, Some(secs(20)), "the first unit is promoted");
}

pub(super) async fn a_waiting_unit_fails_at_its_deadline(fixture: &StoreFixture) {
    let deadline = Some(fixture.now() + secs(10));
    let ready = fixture.send(NewUnit { deadline, ..unit() }).await;
    let scheduled = NewUnit { deadline, not_before: Some(fixture.now() + secs(5)), ..unit() };
    let scheduled = fixture.send(scheduled).await;
    let mut blocked = NewUnit { deadline, ..unit() };
    blocked.dependencies.units = vec![fixture.send(unit()).await];
    let blocked = fixture.send(blocked).await;
    fixture.clock.advance(secs(9));
    assert_eq!(fixture.store.promote(100).await.unwrap().expired, 0);
    fixture.clock.advance(secs(1));
    assert_eq!(fixture.store.promote(100).await.unwrap().expired, 3);
    for id in [ready, scheduled, blocked] {
        let unit = fixture.unit(id).await;
        assert_eq!((unit.state, unit.failure.unwrap().code.as_str()), (UnitState::Failed, "deadline"));
    }
}

pub(super) async fn an_expired_unit_is_not_claimed(fixture: &StoreFixture) {
    let deadline = Some(fixture.now() + secs(10));
    let late = fixture.send(NewUnit { deadline, ..unit() }).await;
    let fine = fixture.send(unit()).await;
    fixture.clock.advance(secs(10));
    let session = fixture.session().await;
    assert_eq!(ids(&fixture.claim(session, 9).await), [fine]);
    fixture.promote().await;
    assert_eq!(fixture.state(late).await, UnitState::Failed);
}

pub(super) async fn expiry_reaches_batch_and_dependants(fixture: &StoreFixture) {
    let id = batch_id("b");
    fixture.open_batch(NewBatch::new(id.clone())).await;
    let first = NewUnit { deadline: Some(fixture.now() + secs(10)), ..unit() };
    let mut second = unit();
    second.dependencies.units = vec![first.id];
    fixture.add_chunk(&id, "", "2", vec![first, second]).await;
    fixture.store.seal_batch(&ALL, &id).await.unwrap();
    fixture.clock.advance(secs(10));
    fixture.promote().await;
    let batch = fixture.batch(&id).await;
    assert_eq!((batch.counts.failed, batch.counts.cancelled), (1, 1));
    assert_eq!(batch.status, BatchStatus::Complete);
}

fn retention(done: u64, failed: u64, batches: u64) -> Retention {
    Retention { done: secs(done), failed: secs(failed), batches: secs(batches), ..Retention::default() }
}

pub(super) async fn ended_units_are_kept_as_long_as_they_should(fixture: &StoreFixture) {
    let session = fixture.session().await;
    let good = fixture.send_and_finish(session, done()).await;
    let bad = fixture.send_and_finish(session, failed()).await;
    let gone = fixture.send_and_finish(session, longshore_core::Outcome::Cancel).await;
    let live = fixture.send(unit()).await;
    fixture.clock.advance(secs(50));
    let there = async |id| fixture.store.unit(&ALL, id).await.is_ok();
    assert_eq!(fixture.store.prune(retention(51, 100, 100), 100).await.unwrap().units, 0);
    assert_eq!(fixture.store.prune(retention(50, 100, 100), 100).await.unwrap().units, 2);
    assert!(!there(good).await && !there(gone).await && there(bad).await);
    fixture.clock.advance(secs(50));
    assert_eq!(fixture.store.prune(retention(50, 100, 100), 100).await.unwrap().units, 1);
    assert!(!there(bad).await && there(live).await);
}

pub(super) async fn pruning_is_bounded_and_says_if_there_is_more(fixture: &StoreFixture) {
    fixture.send_many(5).await;
    let session = fixture.session().await;
    let held = fixture.claim(session, 5).await;
    fixture.finish_all(session, &held, done()).await;
    fixture.clock.advance(secs(50));
    let first = fixture.store.prune(retention(1, 1, 1), 3).await.unwrap();
    assert!(first.more && first.units <= 3, "{first:?}");
    let mut units = first.units;
    for _ in 0..5 {
        units += fixture.store.prune(retention(1, 1, 1), 3).await.unwrap().units;
    }
    assert_eq!(units, 5);
}

pub(super) async fn queues_without_units_and_settings_are_pruned(fixture: &StoreFixture) {
    let session = fixture.session().await;
    for name in ["kept", "paused", "idle"] {
        let id = fixture.send(NewUnit { queue: queue(name), ..unit() }).await;
        if name != "kept" {
            fixture.cancel(id).await;
        }
    }
    // One lane keeps a queue with settings in the list.
    let id = fixture.send(NewUnit { queue: queue("paused"), tenant: tenant("other"), ..unit() }).await;
    fixture.cancel(id).await;
    let pause = QueueChange { paused: Some(true), capacity: None };
    fixture.store.change_queue(&ALL, &queue("paused"), pause).await.unwrap();
    for _ in 0..3 {
        fixture.clock.advance(secs(2 * 3600));
        fixture.store.prune(retention(3600, 3600, 3600), 100).await.unwrap();
    }
    let queues = fixture.store.queues(&ALL).await.unwrap();
    let mut names: Vec<&str> = queues.iter().map(|lane| lane.queue.as_str()).collect();
    // PostgreSQL deletes a lane only once every transaction that may have used it has ended.
    names.dedup();
    assert_eq!(names, ["kept", "paused"]);
    let again = fixture.send(NewUnit { queue: queue("idle"), ..unit() }).await;
    assert!(ids(&fixture.claim(session, 9).await).contains(&again));
}

pub(super) async fn the_first_and_last_failures_of_a_unit_are_kept(fixture: &StoreFixture) {
    let session = fixture.session().await;
    let id = fixture.send(NewUnit { policy: Some(attempts(u32::MAX)), ..unit() }).await;
    for _ in 0..60 {
        let held = fixture.claim_one(session).await;
        fixture.finish(session, held.lease, retry_after(secs(0))).await;
        fixture.promote().await;
    }
    let failures = fixture.store.failures(&ALL, id).await.unwrap();
    let kept: Vec<u32> = failures.iter().map(|failure| failure.attempt).collect();
    assert_eq!(kept, (1..=10).chain(21..=60).collect::<Vec<u32>>());
}

pub(super) async fn a_batch_still_counts_its_pruned_units(fixture: &StoreFixture) {
    let id = batch_id("b");
    fixture.send_sealed_batch(NewBatch::new(id.clone()), 4).await;
    let session = fixture.session().await;
    let held = fixture.claim(session, 3).await;
    fixture.finish_all(session, &held, done()).await;
    fixture.clock.advance(secs(50));
    assert_eq!(fixture.store.prune(retention(1, 1, 1), 100).await.unwrap().units, 3);
    let batch = fixture.batch(&id).await;
    assert_eq!((batch.counts.done, batch.counts.total()), (3, 4));
    let last = fixture.claim_one(session).await;
    let recorded = fixture.finish(session, last.lease, done()).await;
    assert_eq!(recorded, FinishResult::Recorded(UnitState::Done));
    assert_eq!(fixture.batch(&id).await.status, BatchStatus::Complete);
}

pub(super) async fn ended_batches_are_pruned_and_open_ones_kept(fixture: &StoreFixture) {
    let (ended, open) = (batch_id("ended"), batch_id("open"));
    fixture.send_sealed_batch(NewBatch::new(ended.clone()), 1).await;
    let session = fixture.session().await;
    let held = fixture.claim(session, 1).await;
    fixture.finish_all(session, &held, done()).await;
    fixture.send_sealed_batch(NewBatch::new(open.clone()), 1).await;
    fixture.clock.advance(secs(50));
    assert_eq!(fixture.store.prune(retention(1, 1, 100), 100).await.unwrap().batches, 0);
    fixture.clock.advance(secs(50));
    assert_eq!(fixture.store.prune(retention(1, 1, 100), 100).await.unwrap().batches, 1);
    assert!(fixture.store.batch(&ALL, &ended).await.is_err());
    assert_eq!(fixture.batch(&open).await.counts.ready, 1);
    fixture.open_batch(NewBatch::new(ended)).await;
}

pub(super) async fn one_session_leads_at_a_time(fixture: &StoreFixture) {
    let (a, b) = (fixture.session().await, fixture.session().await);
    let lead = async |role: &str, who: SessionId| {
        fixture.store.acquire_leadership(role, who, secs(10)).await.unwrap()
    };
    assert!(lead("pruner", a).await);
    assert!(!lead("pruner", b).await);
    assert!(lead("reclaimer", b).await, "each role has its own leader");
    fixture.clock.advance(secs(9));
    assert!(lead("pruner", a).await, "renewed");
    fixture.clock.advance(secs(9));
    assert!(!lead("pruner", b).await);
    fixture.clock.advance(secs(1));
    assert!(lead("pruner", b).await, "the lease of the leader expired");
    assert!(!lead("pruner", a).await);
}

pub(super) async fn a_leader_from_before_the_clock_went_back_does_not_lead_for_ever(fixture: &StoreFixture) {
    let (old, new) = (fixture.session().await, fixture.session().await);
    let lead = async |who| fixture.store.acquire_leadership("promoter", who, secs(5)).await.unwrap();
    assert!(lead(old).await);
    assert!(!lead(new).await);
    fixture.clock.set(fixture.now() - secs(3600));
    assert!(lead(new).await, "the old term would last an hour");
    assert!(!lead(old).await);
    fixture.clock.advance(secs(5));
    assert!(lead(old).await);
}

pub(super) async fn a_session_that_ended_leads_no_more(fixture: &StoreFixture) {
    let (closed, killed, heir) = (fixture.session().await, fixture.session().await, fixture.session().await);
    let lead = async |session| fixture.store.acquire_leadership("r", session, secs(60)).await.unwrap();
    assert!(lead(closed).await);
    assert!(!lead(killed).await);
    fixture.store.close_session(closed).await.unwrap();
    assert!(lead(killed).await, "a closed session gives up leadership immediately");
    fixture.kill(killed).await;
    assert!(lead(heir).await, "a reclaimed session does, too");
}
