//! Bulk units are locked in groups: operations lock in one order, and no operation keeps the group of others for long.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use longshore::outcome::Params;
use longshore::store::{
    CheckpointRequest, ClaimRequest, FinishRequest, FinishResult, Heartbeat, ProgressNote, Queues, Retention,
    UnitAction, UnitSelection,
};
use longshore::unit::Progress;
use longshore::worker_session::{Lease, NewSession};
use longshore::{
    Admin as _, Effect, Maintenance as _, Policy, Queries as _, Scope, SessionId, UnitId, UnitState,
    WorkerApi as _,
};
use longshore_postgres::tokio_postgres::IsolationLevel;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::bulk_units::{done, one, send};
use crate::test_server::Server;
use crate::transactions::{OrderApp, connect, kind, order_app, unit};

const ALL: Scope = Scope::All;
/// Shorter than the lock timeout of the store, longer than any operation takes.
const BLOCKED_TIMEOUT: Duration = Duration::from_secs(5);
/// A backend waits for a lock.
const WAITING: &str = "wait_event_type = 'Lock'";

/// Finishes runs in a task, which may wait for locks.
fn start_finish(app: &OrderApp, ends: Vec<FinishRequest>) -> JoinSet<Vec<FinishResult>> {
    let (store, session) = (Arc::clone(&app.store), app.session);
    let mut task = JoinSet::new();
    task.spawn(async move { store.finish(session, ends).await.unwrap() });
    task
}

async fn finish(app: &OrderApp, leases: &[Lease]) {
    let ends = leases.iter().copied().map(done).collect();
    let ended = timeout(BLOCKED_TIMEOUT, app.store.finish(app.session, ends)).await.unwrap().unwrap();
    assert_eq!(ended, vec![FinishResult::Recorded(UnitState::Done); leases.len()]);
}

async fn assert_done(app: &OrderApp, units: u64) {
    assert_eq!(app.store.totals(&ALL, &Queues::All).await.unwrap().counts.done, units);
    app.assert_consistent().await;
}

/// Tries to cancel units in a task. Of units that are done it changes nothing, but it locks and settles them.
fn start_cancel(app: &OrderApp, ids: Vec<UnitId>) -> JoinSet<()> {
    let store = Arc::clone(&app.store);
    let mut task = JoinSet::new();
    task.spawn(async move {
        store.apply_unit_action(&ALL, UnitSelection::Ids(ids), UnitAction::Cancel).await.unwrap();
    });
    task
}

#[tokio::test]
async fn a_heartbeat_with_progress_does_not_wait_for_a_locked_lease_group() {
    let app = order_app().await;
    send(&app, 3).await;
    let lease = app.claim(3).await[0];
    let progress = Progress { fraction: Some(0.5), message: None };
    let beat = || Heartbeat {
        progress: vec![ProgressNote { lease, progress: progress.clone() }],
        ..Heartbeat::default()
    };
    let mut tasks = JoinSet::new();
    let mut own = connect(&app.database, &mut tasks).await;
    let open = own.transaction().await.unwrap();
    open.query("SELECT 1 FROM longshore_lease_group FOR UPDATE", &[]).await.unwrap();
    let reply = timeout(BLOCKED_TIMEOUT, app.store.heartbeat(app.session, beat())).await.unwrap().unwrap();
    assert_eq!(reply.held, 3);
    open.rollback().await.unwrap();
    app.store.heartbeat(app.session, beat()).await.unwrap();
    assert_eq!(app.store.unit(&ALL, lease.unit).await.unwrap().progress, Some(progress));
    app.assert_consistent().await;
}

#[tokio::test]
async fn a_finish_with_a_slow_effect_keeps_no_other_unit_from_ending() {
    let app = order_app().await;
    send(&app, 64).await;
    let leases = app.claim(64).await;
    let mut tasks = JoinSet::new();
    let mut own = connect(&app.database, &mut tasks).await;
    let open = own.transaction().await.unwrap();
    open.execute("UPDATE orders SET state = 'held' WHERE id = 1", &[]).await.unwrap();
    let sql = "UPDATE orders SET state = 'done' WHERE id = 1".to_owned();
    let effect = Effect { sql, params: Params::Ordered(Vec::new()), expected_rows: Some(1) };
    // The second has no effect, and is part of the same transaction.
    let ends = vec![FinishRequest { effects: vec![effect], ..done(leases[0]) }, done(leases[1])];
    let mut slow = start_finish(&app, ends);
    app.database.wait_for_activity(WAITING).await;
    finish(&app, &leases[2..]).await;
    open.rollback().await.unwrap();
    let ended = slow.join_next().await.unwrap().unwrap();
    assert_eq!(ended, vec![FinishResult::Recorded(UnitState::Done); 2]);
    assert_done(&app, 64).await;
}

/// Otherwise it would deadlock with a transaction that has the row and needs the group.
#[tokio::test]
async fn a_finish_that_waits_for_a_row_has_no_lease_group_locked() {
    let app = order_app().await;
    send(&app, 3).await;
    let group = app.claim(3).await;
    // The next unit of the stream is claimed by its row.
    let saved = CheckpointRequest::new(one());
    app.store.checkpoint(app.session, group[0], saved).await.unwrap();
    send(&app, 1).await;
    let row = app.take().await;
    let mut tasks = JoinSet::new();
    let mut own = connect(&app.database, &mut tasks).await;
    let open = own.transaction().await.unwrap();
    let lock = format!("SELECT 1 FROM longshore_unit WHERE id = '{}' AND state = 3 FOR UPDATE", row.unit);
    assert_eq!(open.query(&lock, &[]).await.unwrap().len(), 1);
    let mut ending = start_finish(&app, vec![done(group[1]), done(row)]);
    app.database.wait_for_activity(WAITING).await;
    let groups = open.query("SELECT 1 FROM longshore_lease_group FOR UPDATE NOWAIT", &[]).await.unwrap();
    assert_eq!(groups.len(), 1);
    open.rollback().await.unwrap();
    let ended = ending.join_next().await.unwrap().unwrap();
    assert_eq!(ended, vec![FinishResult::Recorded(UnitState::Done); 2]);
    finish(&app, &[group[0], group[2]]).await;
    assert_done(&app, 4).await;
}

#[tokio::test]
async fn done_groups_are_locked_in_one_order_whatever_units_are_settled() {
    let app = order_app().await;
    let mut ids = send(&app, 4).await;
    ids.sort_unstable();
    let mut leases = app.claim(4).await;
    leases.sort_unstable_by_key(|lease| lease.unit);
    // Two groups, with the outer and the inner units.
    finish(&app, &[leases[0], leases[3]]).await;
    finish(&app, &[leases[1], leases[2]]).await;
    let lock = |first: UnitId| {
        format!("SELECT 1 FROM longshore_done_group WHERE first_id = '{first}' FOR UPDATE NOWAIT")
    };
    let mut tasks = JoinSet::new();
    let mut own = connect(&app.database, &mut tasks).await;
    let open = own.transaction().await.unwrap();
    assert_eq!(open.query(&lock(ids[0]), &[]).await.unwrap().len(), 1);
    // The first of these units is in the second group.
    let mut settling = start_cancel(&app, vec![ids[1], ids[3]]);
    app.database.wait_for_activity(WAITING).await;
    assert_eq!(open.query(&lock(ids[1]), &[]).await.unwrap().len(), 1, "it waits for the first group");
    open.rollback().await.unwrap();
    settling.join_next().await.unwrap().unwrap();
    let settled = "SELECT count(*) FROM longshore_unit WHERE state = 4";
    assert_eq!(app.database.run(settled).trim(), "2");
    assert_done(&app, 4).await;
}

/// Units of done groups are settled while the groups are pruned.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pruning_leaves_no_done_group_behind() {
    let app = order_app().await;
    let now = Retention { done: Duration::ZERO, ..Retention::default() };
    for round in 0..10 {
        let ids = send(&app, 512).await;
        loop {
            let leases = app.claim(64).await;
            if leases.is_empty() {
                break;
            }
            finish(&app, &leases).await;
        }
        let mut settling: Vec<_> =
            (0..2).map(|nth| ids.iter().skip(nth).step_by(7).copied().collect::<Vec<_>>()).collect();
        let mut tasks = JoinSet::new();
        for ids in settling.drain(..) {
            let store = Arc::clone(&app.store);
            tasks.spawn(async move {
                for id in ids {
                    // The unit may be pruned already.
                    let _ =
                        store.apply_unit_action(&ALL, UnitSelection::Ids(vec![id]), UnitAction::Cancel).await;
                }
            });
        }
        let mut pruned = 0;
        while pruned < 512 {
            pruned += app.store.prune(now, 100).await.unwrap().units;
        }
        tasks.join_all().await;
        assert_eq!(
            app.database.run("SELECT count(*) FROM longshore_done_group").trim(),
            "0",
            "round {round}"
        );
        app.assert_consistent().await;
    }
}

#[tokio::test]
async fn two_stores_may_claim_for_one_session_at_the_same_time() {
    let database = Server::start().await.database().await;
    // Their clocks stand still at the same time, so both begin with the same fence.
    let (one, other) = (database.fixture().await, database.fixture().await);
    let session = SessionId::new();
    let kinds = BTreeMap::from([(kind(), Policy::default())]);
    one.store.open_session(NewSession { kinds, slots: 9, ..NewSession::new(session, "") }).await.unwrap();
    one.store.send(&ALL, (0..6).map(|_| unit()).collect()).await.unwrap();
    let mut leases = Vec::new();
    for store in [&one.store, &one.store, &other.store, &other.store] {
        let claim = ClaimRequest { free_slots: 1, ..ClaimRequest::new(session, vec![kind()], 9) };
        leases.extend(store.claim(claim).await.unwrap().units.into_iter().map(|held| held.lease));
    }
    assert_eq!(leases.len(), 4);
    assert_eq!(database.run("SELECT count(DISTINCT fence) FROM longshore_lease_group").trim(), "4");
    let ended = one.store.finish(session, leases.into_iter().map(done).collect()).await.unwrap();
    assert_eq!(ended, vec![FinishResult::Recorded(UnitState::Done); 4]);
    assert_eq!(one.store.verify().await.unwrap(), []);
}

#[tokio::test]
async fn a_finish_in_a_repeatable_read_transaction_succeeds_at_the_second_attempt() {
    let app = order_app().await;
    send(&app, 3).await;
    let lease = app.claim(3).await[0];
    let mut tasks = JoinSet::new();
    let mut own = connect(&app.database, &mut tasks).await;
    for succeeds in [false, true] {
        let level = IsolationLevel::RepeatableRead;
        let open = own.build_transaction().isolation_level(level).start().await.unwrap();
        // The transaction sees the lease as part of its group from now on.
        open.execute("UPDATE orders SET state = 'done' WHERE id = 1", &[]).await.unwrap();
        match app.store.finish_in(&open, app.session, &[done(lease)]).await {
            Ok(ended) => {
                assert_eq!(ended.value, [FinishResult::Recorded(UnitState::Done)]);
                open.commit().await.unwrap();
                app.store.run_post_commit(ended.post_commit).await.unwrap();
                assert!(succeeds);
            }
            Err(error) => {
                assert!(error.is_retryable() && !succeeds, "{error}");
                open.rollback().await.unwrap();
            }
        }
    }
    assert_done(&app, 1).await;
}
