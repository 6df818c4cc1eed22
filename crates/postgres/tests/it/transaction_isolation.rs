//! A caller's open transaction blocks no other operation. A dropped future leaves no operation half
//! done, inside such a transaction or not.

use std::sync::Arc;
use std::time::Duration;

use longshore::store::{BatchChunk, FinishRequest, FinishResult, SendResult};
use longshore::unit::{ConcurrencyCap, Dedup, DedupWindow, OnDuplicate};
use longshore::worker_session::Lease;
use longshore::{
    BatchId, BatchStatus, Enqueue as _, Maintenance as _, NewBatch, NewUnit, Outcome, Queries as _, Scope,
    UnitId, UnitState, WorkerApi as _,
};
use tokio::time::{Instant, timeout};

use crate::transactions::{OrderApp, connect, order_app, unit};

/// Shorter than the lock timeout of the store, longer than any operation takes.
const BLOCKED_TIMEOUT: Duration = Duration::from_secs(5);

fn done(lease: Lease) -> FinishRequest {
    FinishRequest::new(lease, Outcome::Done(None))
}

fn capped(limit: u32) -> NewUnit {
    NewUnit { cap: Some(ConcurrencyCap { key: "key".into(), limit }), ..unit() }
}

fn after(needs: &[UnitId]) -> NewUnit {
    let mut waiting = unit();
    waiting.dependencies.units = needs.to_vec();
    waiting
}

async fn send(app: &OrderApp, units: Vec<NewUnit>) -> Vec<UnitId> {
    let ids = units.iter().map(|unit| unit.id).collect();
    app.store.send(&Scope::All, units).await.unwrap();
    ids
}

#[tokio::test]
async fn a_claim_does_not_wait_for_a_finish_in_a_callers_transaction() {
    let mut app = order_app().await;
    send(&app, vec![capped(1), capped(1)]).await;
    let held = app.claim(9).await;
    assert_eq!(held.len(), 1);
    let (mut tasks, store) = (tokio::task::JoinSet::new(), Arc::clone(&app.store));
    let mut own = connect(&app.database, &mut tasks).await;
    let tx = own.transaction().await.unwrap();
    let ended = store.finish_in(&tx, app.session, &[done(held[0])]).await.unwrap();
    // One more unit of the cap key, and one without: the open transaction affects neither.
    let sent = send(&app, vec![capped(1), unit()]).await;
    let held = timeout(BLOCKED_TIMEOUT, app.claim(9)).await.unwrap();
    assert_eq!(held.iter().map(|lease| lease.unit).collect::<Vec<_>>(), [sent[1]]);
    tx.commit().await.unwrap();
    store.run_post_commit(ended.post_commit).await.unwrap();
    assert_eq!(app.claim(9).await.len(), 1, "the next of the key");
    app.assert_consistent().await;
    app.tasks.shutdown().await;
}

#[tokio::test]
async fn a_place_under_a_cap_is_found_although_nobody_tells_of_it() {
    let mut app = order_app().await;
    send(&app, vec![capped(2), capped(2), capped(2)]).await;
    let held = app.claim(9).await;
    assert_eq!(held.len(), 2);
    let store = Arc::clone(&app.store);
    let tx = app.own.transaction().await.unwrap();
    let ended = store.finish_in(&tx, app.session, &[done(held[0])]).await.unwrap();
    tx.commit().await.unwrap();
    drop(ended);
    assert_eq!(app.claim(9).await.len(), 0, "it is parked");
    store.promote(100).await.unwrap();
    assert_eq!(app.claim(9).await.len(), 1);
}

#[tokio::test]
async fn a_finish_does_not_wait_for_who_begins_to_wait_in_a_callers_transaction() {
    let mut app = order_app().await;
    let key = |window| Dedup { key: "k".into(), window, on_duplicate: OnDuplicate::Existing };
    for runs_post_commit in [true, false] {
        let keyed = NewUnit { dedup: Some(key(DedupWindow::WhileLive)), ..unit() };
        let sent = send(&app, vec![keyed.clone(), unit()]).await;
        let held = app.claim(9).await;
        assert_eq!(held.len(), 2);
        let (session, store) = (app.session, Arc::clone(&app.store));
        let (waiting, second) = (after(&sent), NewUnit { id: unit().id, ..keyed });
        let waits = waiting.id;
        let mut tasks = tokio::task::JoinSet::new();
        let mut own = connect(&app.database, &mut tasks).await;
        let tx = own.transaction().await.unwrap();
        let answer = store.send_in(&tx, &Scope::All, &[waiting, second]).await.unwrap();
        assert_eq!(answer.value, [SendResult::Created(waits), SendResult::Existing(sent[0])]);
        let ends = held.iter().map(|lease| done(*lease)).collect();
        let ended = timeout(BLOCKED_TIMEOUT, store.finish(session, ends)).await.unwrap().unwrap();
        assert_eq!(ended, vec![FinishResult::Recorded(UnitState::Done); 2]);
        app.assert_consistent().await;
        tx.commit().await.unwrap();
        app.assert_consistent().await;
        assert_eq!(app.state(waits).await, UnitState::Blocked, "its dependency's end is not processed yet");
        match runs_post_commit {
            true => store.run_post_commit(answer.post_commit).await.unwrap(),
            false => drop(store.promote(100).await.unwrap()),
        }
        let next = app.take().await;
        assert_eq!(next.unit, waits);
        store.finish(session, vec![done(next)]).await.unwrap();
        app.assert_consistent().await;
    }
    app.tasks.shutdown().await;
}

#[tokio::test]
async fn what_waits_for_two_hears_of_both_though_one_ends_in_a_callers_transaction() {
    let mut app = order_app().await;
    let sent = send(&app, vec![unit(), unit()]).await;
    let waits = send(&app, vec![after(&sent)]).await[0];
    let held = app.claim(9).await;
    let (session, store) = (app.session, Arc::clone(&app.store));
    let tx = app.own.transaction().await.unwrap();
    let first = store.finish_in(&tx, session, &[done(held[0])]).await.unwrap();
    // This finish releases the same dependant meanwhile.
    timeout(BLOCKED_TIMEOUT, store.finish(session, vec![done(held[1])])).await.unwrap().unwrap();
    tx.commit().await.unwrap();
    store.run_post_commit(first.post_commit).await.unwrap();
    assert_eq!(app.take().await.unit, waits);
    app.assert_consistent().await;
}

#[tokio::test]
async fn units_sent_in_a_callers_transaction_wait_for_what_ends_later() {
    let mut app = order_app().await;
    let sent = send(&app, vec![unit()]).await;
    let held = app.take().await;
    let store = Arc::clone(&app.store);
    let waiting = after(&sent);
    let waits = waiting.id;
    let tx = app.own.transaction().await.unwrap();
    let answer = store.send_in(&tx, &Scope::All, &[waiting]).await.unwrap();
    tx.commit().await.unwrap();
    store.run_post_commit(answer.post_commit).await.unwrap();
    assert_eq!(app.state(waits).await, UnitState::Blocked);
    let failure = longshore::Failure::new("x", "y");
    let end = FinishRequest::new(held, Outcome::Fail(failure));
    store.finish(app.session, vec![end]).await.unwrap();
    assert_eq!(app.state(waits).await, UnitState::Cancelled);
    app.assert_consistent().await;
}

/// The future is dropped while it waits for a locked table, after some of its statements.
#[tokio::test]
async fn a_send_that_is_dropped_midway_cannot_be_committed() {
    let mut app = order_app().await;
    let sent = send(&app, vec![unit()]).await;
    let store = Arc::clone(&app.store);
    let mut tasks = tokio::task::JoinSet::new();
    let mut own = connect(&app.database, &mut tasks).await;
    let held = app.own.transaction().await.unwrap();
    held.batch_execute("LOCK TABLE longshore_dependency").await.unwrap();
    let tx = own.transaction().await.unwrap();
    tx.batch_execute("SET CONSTRAINTS ALL IMMEDIATE").await.unwrap();
    let units = [after(&sent)];
    let mut sending = Box::pin(store.send_in(&tx, &Scope::All, &units));
    let waiting = app.database.wait_for_activity("wait_event_type = 'Lock'");
    tokio::select! {
        answer = &mut sending => panic!("{answer:?}"),
        () = waiting => {}
    }
    drop(sending);
    held.rollback().await.unwrap();
    // Another operation of the same transaction does not repair it.
    let more = store.send_in(&tx, &Scope::All, &[unit()]).await;
    assert!(more.is_ok(), "{more:?}");
    let error = tx.commit().await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.constraint(), Some("longshore_operation_was_dropped"), "{error}");
    assert_eq!(app.live().await, 1);
    app.assert_consistent().await;
}

#[tokio::test]
async fn a_finish_that_is_dropped_midway_cannot_be_committed() {
    let mut app = order_app().await;
    let sent = send(&app, vec![unit()]).await;
    send(&app, vec![after(&sent)]).await;
    let lease = app.take().await;
    let store = Arc::clone(&app.store);
    let mut tasks = tokio::task::JoinSet::new();
    let mut own = connect(&app.database, &mut tasks).await;
    let held = app.own.transaction().await.unwrap();
    held.batch_execute("LOCK TABLE longshore_dependency_outbox").await.unwrap();
    let tx = own.transaction().await.unwrap();
    let ends = [done(lease)];
    let mut ending = Box::pin(store.finish_in(&tx, app.session, &ends));
    let waiting = app.database.wait_for_activity("wait_event_type = 'Lock'");
    tokio::select! {
        answer = &mut ending => panic!("{answer:?}"),
        () = waiting => {}
    }
    drop(ending);
    held.rollback().await.unwrap();
    assert!(tx.commit().await.is_err());
    assert_eq!(app.state(lease.unit).await, UnitState::Leased);
    app.assert_consistent().await;
}

/// The commit takes as long as the test wants, and its caller drops the future before it completes.
#[tokio::test]
async fn a_caller_that_gives_up_in_the_commit_does_not_keep_a_batch_from_its_end() {
    let mut app = order_app().await;
    let id = BatchId::new("b").unwrap();
    app.store.open_batch(&Scope::All, NewBatch::new(id.clone())).await.unwrap();
    let (expected, next, units) = (String::new(), "1".to_owned(), vec![unit()]);
    let chunk = BatchChunk { expected, next, units };
    app.store.add_to_batch(&Scope::All, &id, chunk).await.unwrap();
    (&*app.store as &dyn longshore::Store).seal_batch(&Scope::All, &id).await.unwrap();
    let lease = app.take().await;
    app.database.run(
        "CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS
         'BEGIN PERFORM pg_advisory_xact_lock(42); RETURN NULL; END';
         CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON longshore_stream_delta
         DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slowly()",
    );
    let held = app.own.transaction().await.unwrap();
    held.batch_execute("SELECT pg_advisory_xact_lock(42)").await.unwrap();
    let store = Arc::clone(&app.store);
    let mut ending = Box::pin(store.finish(app.session, vec![done(lease)]));
    let waiting = app.database.wait_for_activity("wait_event_type = 'Lock'");
    tokio::select! {
        answer = &mut ending => panic!("{answer:?}"),
        () = waiting => {}
    }
    drop(ending);
    held.rollback().await.unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while store.batch(&Scope::All, &id).await.unwrap().status != BatchStatus::Complete {
        assert!(Instant::now() < until, "it stays blocked");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    app.assert_consistent().await;
}

/// A send in a single statement cannot be undone, so it runs to completion, including its
/// notification.
#[tokio::test]
async fn a_send_that_is_given_up_midway_is_taken_in_and_counted_once() {
    let mut app = order_app().await;
    // Its stream is cached now, so the next send is a single statement.
    send(&app, vec![unit()]).await;
    app.take().await;
    app.database.run(
        "CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS
         'BEGIN PERFORM pg_advisory_xact_lock(42); RETURN NULL; END';
         CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON longshore_unit
         DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slowly()",
    );
    let held = app.own.transaction().await.unwrap();
    held.batch_execute("SELECT pg_advisory_xact_lock(42)").await.unwrap();
    let (store, given_up) = (Arc::clone(&app.store), unit());
    let seen = store.wait_for_ready(u64::MAX, Duration::ZERO).await;
    let mut sending = Box::pin(store.send(&Scope::All, vec![given_up.clone()]));
    let waiting = app.database.wait_for_activity("wait_event_type = 'Lock'");
    tokio::select! {
        answer = &mut sending => panic!("{answer:?}"),
        () = waiting => {}
    }
    drop(sending);
    held.rollback().await.unwrap();
    assert_ne!(store.wait_for_ready(seen, BLOCKED_TIMEOUT).await, seen, "no worker is woken");
    // The caller does not know the outcome and repeats the send.
    assert_eq!(send(&app, vec![given_up.clone()]).await, [given_up.id]);
    assert_eq!(app.take().await.unit, given_up.id);
    assert_eq!(app.live().await, 2);
    app.assert_consistent().await;
}

/// One finish is plain, the other unit has a dependant: both are recorded, each by its own path.
#[tokio::test]
async fn ends_that_are_plain_and_ends_that_are_not_may_be_said_together() {
    let app = order_app().await;
    let (first, second) = (unit(), unit());
    let waiting = after(&[first.id]);
    let waits = waiting.id;
    send(&app, vec![first, second, waiting]).await;
    let held = app.claim(9).await;
    let ends: Vec<FinishRequest> = held.iter().copied().map(done).collect();
    let recorded = [FinishResult::Recorded(UnitState::Done), FinishResult::Recorded(UnitState::Done)];
    for _ in 0..2 {
        // A repeat after a lost reply.
        assert_eq!(app.store.finish(app.session, ends.clone()).await.unwrap(), recorded);
    }
    assert_eq!(app.state(waits).await, UnitState::Ready);
    app.assert_consistent().await;
}
