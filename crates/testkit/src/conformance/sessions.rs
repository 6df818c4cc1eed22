//! Worker sessions: heartbeats, commands, closing, adoption, and reclaiming the units of dead sessions.

use longshore_core::failure_detector::StalledSession;
use longshore_core::store::CheckpointRequest;
use longshore_core::store::{ClaimRequest, FinishResult, Heartbeat, ProgressNote};
use longshore_core::unit::Progress;
use longshore_core::worker_session::WorkerCommand;
use longshore_core::{Error, NewUnit, OnLost, Policy, SessionId, UnitState};

use super::helpers::*;
use crate::StoreFixture;

fn beat() -> Heartbeat {
    Heartbeat::default()
}

pub(super) async fn an_open_session_is_listed(fixture: &StoreFixture) {
    let id = fixture.session().await;
    fixture.send_many(2).await;
    fixture.claim(id, 2).await;
    fixture.clock.advance(secs(3));
    fixture.store.heartbeat(id, beat()).await.unwrap();
    let sessions = fixture.store.sessions().await.unwrap();
    assert_eq!(sessions.len(), 1);
    let session = &sessions[0];
    assert_eq!((session.id, session.beats, session.held), (id, 1, 2));
    assert_eq!((session.label.as_str(), session.slots, session.ttl), ("case", 1000, secs(15)));
    assert_eq!((session.kinds.as_slice(), session.command), ([kind()].as_slice(), WorkerCommand::Work));
    assert_eq!((session.opened_at + secs(3), session.beat_at), (fixture.now(), fixture.now()));
}

pub(super) async fn every_beat_moves_the_counter(fixture: &StoreFixture) {
    let id = fixture.session().await;
    for expected in 1..=3 {
        fixture.store.heartbeat(id, beat()).await.unwrap();
        assert_eq!(fixture.store.sessions().await.unwrap()[0].beats, expected);
    }
}

pub(super) async fn a_beat_counts_leases_and_brings_cancel_requests(fixture: &StoreFixture) {
    let sent = fixture.send_many(3).await;
    let session = fixture.session().await;
    let held = fixture.claim(session, 3).await;
    fixture.cancel(sent[1]).await;
    let answer = fixture.store.heartbeat(session, beat()).await.unwrap();
    assert_eq!((answer.held, answer.cancel), (3, vec![sent[1]]));
    assert!(answer.to_release.is_empty() && answer.order == WorkerCommand::Work);
    fixture.finish_all(session, &held, done()).await;
    let answer = fixture.store.heartbeat(session, beat()).await.unwrap();
    assert!(answer.held == 0 && answer.cancel.is_empty());
}

pub(super) async fn a_beat_carries_progress(fixture: &StoreFixture) {
    let id = fixture.send(unit()).await;
    let session = fixture.session().await;
    let lease = fixture.claim_one(session).await.lease;
    let progress = Progress { fraction: None, message: Some("copying".into()) };
    let note = ProgressNote { lease, progress: progress.clone() };
    fixture.store.heartbeat(session, Heartbeat { progress: vec![note], ..beat() }).await.unwrap();
    assert_eq!(fixture.unit(id).await.progress, Some(progress));
}

pub(super) async fn an_order_is_heard_with_the_next_beat(fixture: &StoreFixture) {
    let session = fixture.session().await;
    for order in [WorkerCommand::Quiet, WorkerCommand::Drain, WorkerCommand::Stop, WorkerCommand::Work] {
        fixture.store.command_worker(session, order).await.unwrap();
        assert_eq!(fixture.store.heartbeat(session, beat()).await.unwrap().order, order);
    }
    let unknown_session = fixture.store.command_worker(SessionId::new(), WorkerCommand::Stop).await;
    assert!(unknown_session.is_err(), "{unknown_session:?}");
}

pub(super) async fn a_closed_session_gives_everything_back(fixture: &StoreFixture) {
    let sent = fixture.send_many(3).await;
    let session = fixture.session_with(attempts(1)).await;
    let held = fixture.claim_with(ClaimRequest { prefetch: 2, ..claim(session, 1) }).await.units;
    fixture.store.close_session(session).await.unwrap();
    for id in sent {
        let unit = fixture.unit(id).await;
        assert_eq!((unit.state, unit.attempt, unit.lost), (UnitState::Ready, 0, 0));
    }
    assert_eq!(fixture.finish(session, held[0].lease, done()).await, FinishResult::LeaseLost);
    assert!(fixture.store.sessions().await.unwrap().is_empty());
    fixture.store.close_session(session).await.unwrap();
}

pub(super) async fn an_ended_session_is_told_so(fixture: &StoreFixture) {
    let (closed, killed) = (fixture.session().await, fixture.session().await);
    fixture.store.close_session(closed).await.unwrap();
    fixture.kill(killed).await;
    for id in [closed, killed, SessionId::new()] {
        let answer = fixture.store.heartbeat(id, beat()).await;
        assert!(matches!(answer, Err(Error::SessionGone(gone)) if gone == id), "{answer:?}");
    }
}

pub(super) async fn the_units_of_the_dead_run_again(fixture: &StoreFixture) {
    let id = fixture.send(unit()).await;
    let session = fixture.session().await;
    fixture.claim_one(session).await;
    let reclaimed = fixture.kill(session).await;
    assert_eq!((reclaimed.sessions, reclaimed.requeued, reclaimed.failed), (1, 1, 0));
    let unit = fixture.unit(id).await;
    assert_eq!((unit.state, unit.lost, unit.attempt), (UnitState::Ready, 1, 1));
    assert_eq!(unit.failure.unwrap().code, "lost");
    let listed = fixture.store.failures(&ALL, id).await.unwrap();
    assert_eq!((listed.len(), listed[0].session), (1, Some(session)));
}

pub(super) async fn neighbours_that_had_not_started_are_not_blamed(fixture: &StoreFixture) {
    let sent = fixture.send_many(2).await;
    let session = fixture.session().await;
    fixture.claim_with(ClaimRequest { prefetch: 1, ..claim(session, 1) }).await;
    fixture.kill(session).await;
    let (started, waiting) = (fixture.unit(sent[0]).await, fixture.unit(sent[1]).await);
    assert_eq!((started.lost, waiting.lost), (1, 0));
    assert_eq!((waiting.attempt, waiting.failure), (0, None));
}

pub(super) async fn a_unit_lost_too_often_fails(fixture: &StoreFixture) {
    let policy = Policy { max_lost: 2, ..Policy::default() };
    let id = fixture.send(unit()).await;
    for rescued in [1, 0] {
        let session = fixture.session_with(policy.clone()).await;
        fixture.claim_one(session).await;
        assert_eq!(fixture.kill(session).await.requeued, rescued);
    }
    let unit = fixture.unit(id).await;
    assert_eq!((unit.state, unit.lost), (UnitState::Failed, 2));
}

pub(super) async fn a_unit_that_must_not_run_twice_fails_when_lost(fixture: &StoreFixture) {
    let policy = Policy { on_lost: OnLost::Fail, ..Policy::default() };
    let id = fixture.send(NewUnit { policy: Some(policy), ..unit() }).await;
    let session = fixture.session().await;
    fixture.claim_one(session).await;
    assert_eq!(fixture.kill(session).await.failed, 1);
    assert_eq!(fixture.state(id).await, UnitState::Failed);
}

pub(super) async fn a_lost_unit_with_a_cancel_request_is_cancelled(fixture: &StoreFixture) {
    let id = fixture.send(unit()).await;
    let session = fixture.session().await;
    fixture.claim_one(session).await;
    fixture.cancel(id).await;
    let reclaimed = fixture.kill(session).await;
    assert_eq!((reclaimed.requeued, reclaimed.failed), (0, 0), "neither rescued nor failed");
    assert_eq!(fixture.state(id).await, UnitState::Cancelled);
}

pub(super) async fn a_session_that_beat_meanwhile_is_not_reclaimed(fixture: &StoreFixture) {
    let id = fixture.send(unit()).await;
    let session = fixture.session().await;
    let held = fixture.claim_one(session).await;
    fixture.store.heartbeat(session, beat()).await.unwrap();
    let reclaimed = fixture.store.reclaim(&[StalledSession { session, beats: 0 }]).await.unwrap();
    assert_eq!(reclaimed.sessions, 0);
    assert_eq!(fixture.state(id).await, UnitState::Leased);
    assert_eq!(fixture.finish(session, held.lease, done()).await, FinishResult::Recorded(UnitState::Done));
}

pub(super) async fn no_clock_takes_a_lease_away(fixture: &StoreFixture) {
    let id = fixture.send(unit()).await;
    let session = fixture.session().await;
    fixture.claim_one(session).await;
    fixture.clock.advance(secs(1_000_000));
    fixture.promote().await;
    fixture.store.prune(Default::default(), 100).await.unwrap();
    assert_eq!(fixture.state(id).await, UnitState::Leased);
    fixture.store.heartbeat(session, beat()).await.unwrap();
}

pub(super) async fn a_restarted_process_adopts_its_former_leases(fixture: &StoreFixture) {
    fixture.send_many(3).await;
    let (from, to) = (fixture.session().await, fixture.session().await);
    let old = fixture.claim_with(ClaimRequest { prefetch: 1, ..claim(from, 2) }).await.units;
    let mut new = fixture.store.adopt(from, to).await.unwrap();
    new.sort_by_key(|held| held.unit.id);
    assert_eq!(ids(&new), ids(&old));
    let started: Vec<bool> = new.iter().map(|held| held.started).collect();
    assert_eq!(started, [true, true, false]);
    assert!(new.iter().all(|held| held.unit.session == Some(to)));
    assert!(new.iter().zip(&old).all(|(new, old)| new.lease.fence > old.lease.fence));
    assert_eq!(fixture.finish(from, old[0].lease, done()).await, FinishResult::LeaseLost);
    assert_eq!(fixture.finish(to, old[0].lease, done()).await, FinishResult::LeaseLost);
    let recorded = fixture.finish(to, new[0].lease, done()).await;
    assert_eq!(recorded, FinishResult::Recorded(UnitState::Done));
    assert!(matches!(fixture.store.heartbeat(from, beat()).await, Err(Error::SessionGone(_))));
    assert_eq!(fixture.store.heartbeat(to, beat()).await.unwrap().held, 2);
}

pub(super) async fn only_known_sessions_adopt_and_are_adopted(fixture: &StoreFixture) {
    let id = fixture.send(unit()).await;
    let (session, idle) = (fixture.session().await, fixture.session().await);
    fixture.claim_one(session).await;
    let unknown = SessionId::new();
    let answer = fixture.store.adopt(unknown, idle).await;
    assert!(matches!(answer, Err(Error::SessionGone(gone)) if gone == unknown), "{answer:?}");
    assert!(fixture.store.adopt(session, unknown).await.is_err());
    assert_eq!(fixture.unit(id).await.session, Some(session));
}

pub(super) async fn a_session_does_not_adopt_itself(fixture: &StoreFixture) {
    let id = fixture.send(unit()).await;
    let session = fixture.session().await;
    let held = fixture.claim_one(session).await;
    let answer = fixture.store.adopt(session, session).await;
    assert!(matches!(answer, Err(Error::Invalid(_))), "{answer:?}");
    assert_eq!(fixture.unit(id).await.session, Some(session));
    let recorded = fixture.finish(session, held.lease, done()).await;
    assert_eq!(recorded, FinishResult::Recorded(UnitState::Done));
}

pub(super) async fn an_adoption_whose_answer_was_lost_is_told_again(fixture: &StoreFixture) {
    fixture.send_many(2).await;
    let (from, to) = (fixture.session().await, fixture.session().await);
    fixture.claim(from, 2).await;
    let mut first = fixture.store.adopt(from, to).await.unwrap();
    let mut again = fixture.store.adopt(from, to).await.unwrap();
    first.sort_by_key(|held| held.unit.id);
    again.sort_by_key(|held| held.unit.id);
    assert_eq!(leases(&again), leases(&first), "and no fence moved");
    assert!(again.iter().all(|held| held.started && held.unit.session == Some(to)));
    fixture.finish_all(to, &again, done()).await;
    let answer = fixture.store.adopt(from, to).await;
    assert!(matches!(answer, Err(Error::SessionGone(gone)) if gone == from), "{answer:?}");
}

pub(super) async fn a_run_that_came_to_its_end_clears_its_unit(fixture: &StoreFixture) {
    let id = fixture.send(unit()).await;
    let doomed = fixture.session().await;
    fixture.claim_one(doomed).await;
    fixture.kill(doomed).await;
    let session = fixture.session().await;
    let held = fixture.claim_one(session).await;
    assert_eq!(held.unit.lost, 1);
    fixture.finish(session, held.lease, retry_after(secs(0))).await;
    assert_eq!(fixture.unit(id).await.lost, 0);
}

pub(super) async fn a_unit_with_a_checkpoint_goes_on_after_its_worker_died(fixture: &StoreFixture) {
    let policy = Policy { on_lost: OnLost::Fail, max_lost: 2, ..Policy::default() };
    let id = fixture.send(NewUnit { policy: Some(policy), ..unit() }).await;
    for rescued in [1, 0] {
        let session = fixture.session().await;
        let held = fixture.claim_one(session).await;
        let state = b"paid".as_slice().into();
        assert!(fixture.store.checkpoint(session, held.lease, CheckpointRequest::new(state)).await.unwrap());
        assert_eq!(fixture.kill(session).await.requeued, rescued, "as often as it may be lost");
    }
    assert_eq!(fixture.state(id).await, UnitState::Failed);
}

pub(super) async fn opening_a_session_twice_is_harmless(fixture: &StoreFixture) {
    let id = SessionId::new();
    let session = || longshore_core::worker_session::NewSession::new(id, "");
    fixture.store.open_session(session()).await.unwrap();
    fixture.store.heartbeat(id, beat()).await.unwrap();
    fixture.store.open_session(session()).await.unwrap();
    assert_eq!(fixture.store.sessions().await.unwrap().len(), 1);
}

pub(super) async fn a_worker_says_how_much_time_it_has_used(fixture: &StoreFixture) {
    let session = fixture.session().await;
    assert_eq!(fixture.store.sessions().await.unwrap()[0].cpu, None);
    let used = |cpu| Heartbeat { cpu, ..beat() };
    fixture.store.heartbeat(session, used(Some(secs(90)))).await.unwrap();
    fixture.store.heartbeat(session, used(None)).await.unwrap();
    let known = fixture.store.sessions().await.unwrap()[0].cpu;
    assert_eq!(known, Some(secs(90)), "a heartbeat without the field changes nothing");
}
