//! Units that only have to run once: their rows are not written by a claim or a success, and every other operation
//! finds them where they are.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use longshore::store::{CheckpointRequest, FinishRequest, FinishResult, Queues, UnitAction, UnitSelection};
use longshore::worker_session::Lease;
use longshore::{
    Admin as _, Enqueue as _, Failure, Maintenance as _, NewUnit, Outcome, Payload, Queries as _, Scope,
    UnitId, UnitState, WorkerApi as _,
};
use tokio::task::JoinSet;

use crate::transactions::{OrderApp, order_app, unit};

const ALL: Scope = Scope::All;

pub(crate) fn one() -> Payload {
    Payload::from(b"1".as_slice())
}

pub(crate) fn done(lease: Lease) -> FinishRequest {
    FinishRequest::new(lease, Outcome::Done(None))
}

pub(crate) async fn send(app: &OrderApp, count: usize) -> Vec<UnitId> {
    let units: Vec<NewUnit> = (0..count).map(|_| unit()).collect();
    let ids = units.iter().map(|unit| unit.id).collect();
    app.store.send(&ALL, units).await.unwrap();
    ids
}

#[tokio::test]
async fn a_unit_that_succeeds_at_once_is_written_once() {
    let app = order_app().await;
    let ids = send(&app, 200).await;
    let rows = || app.database.run("SELECT ctid, xmin, id FROM longshore_unit ORDER BY id");
    let before = rows();
    let leases = app.claim(200).await;
    assert_eq!(app.state(ids[0]).await, UnitState::Leased);
    app.store.finish(app.session, leases.into_iter().map(done).collect()).await.unwrap();
    assert_eq!(rows(), before);
    let unit = app.store.unit(&ALL, ids[0]).await.unwrap();
    assert_eq!((unit.state, unit.attempt, unit.session), (UnitState::Done, 1, None));
    assert_eq!(app.store.totals(&ALL, &Queues::All).await.unwrap().counts.done, 200);
    app.assert_consistent().await;
}

/// Every third unit of a claim is finished in another way, in calls of another size each.
#[tokio::test]
async fn units_that_were_claimed_together_may_end_in_any_way_and_order() {
    let app = order_app().await;
    let ids = send(&app, 150).await;
    let mut leases = app.claim(150).await;
    leases.reverse();
    let end = |(at, lease): (usize, Lease)| match at % 3 {
        0 => done(lease),
        1 => FinishRequest::new(lease, Outcome::Done(Some(one()))),
        _ => FinishRequest::new(lease, Outcome::Fail(Failure::new("bad", "as it was told"))),
    };
    let mut ends: Vec<FinishRequest> = leases.iter().copied().enumerate().map(end).collect();
    let repeated: Vec<FinishRequest> = ends[..3].to_vec();
    for size in (1..=ends.len()).cycle() {
        let rest = ends.split_off(size.min(ends.len()));
        let expected = |end: &FinishRequest| match &end.outcome {
            Outcome::Done(_) => UnitState::Done,
            _ => UnitState::Failed,
        };
        let expected: Vec<FinishResult> =
            ends.iter().map(|end| FinishResult::Recorded(expected(end))).collect();
        assert_eq!(app.store.finish(app.session, ends).await.unwrap(), expected);
        app.assert_consistent().await;
        ends = rest;
        if ends.is_empty() {
            break;
        }
    }
    // As after a lost reply; then with a fence that is not the units' own.
    let again = app.store.finish(app.session, repeated.clone()).await.unwrap();
    let states = [UnitState::Done, UnitState::Done, UnitState::Failed];
    assert_eq!(again, states.map(FinishResult::Recorded));
    for end in repeated {
        let lease = Lease { fence: end.lease.fence + 1, ..end.lease };
        let answer = app.store.finish(app.session, vec![done(lease)]).await.unwrap();
        assert_eq!(answer, [FinishResult::LeaseLost]);
    }
    let counts = app.store.totals(&ALL, &Queues::All).await.unwrap().counts;
    assert_eq!((counts.done, counts.failed, counts.live()), (100, 50, 0));
    assert_eq!(app.store.unit(&ALL, ids[148]).await.unwrap().result, Some(one()));
    app.assert_consistent().await;
}

#[tokio::test]
async fn a_caller_that_finishes_one_unit_keeps_no_other_from_ending() {
    let mut app = order_app().await;
    send(&app, 64).await;
    let leases = app.claim(64).await;
    let open = app.own.transaction().await.unwrap();
    let ended = app.store.finish_in(&open, app.session, &[done(leases[0])]).await.unwrap();
    let others = leases[1..].iter().copied().map(done).collect();
    let others = tokio::time::timeout(Duration::from_secs(5), app.store.finish(app.session, others));
    assert_eq!(others.await.unwrap().unwrap(), vec![FinishResult::Recorded(UnitState::Done); 63]);
    open.commit().await.unwrap();
    app.store.run_post_commit(ended.post_commit).await.unwrap();
    assert_eq!(app.store.totals(&ALL, &Queues::All).await.unwrap().counts.done, 64);
    app.assert_consistent().await;
}

/// Workers finish, save checkpoints, release and die while operators cancel and senders add dependants.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_needs_more_of_a_unit_meets_its_claim_and_its_end() {
    let app = Arc::new(order_app().await);
    for round in 0..12 {
        let ids = send(&app, 96).await;
        let mut tasks = JoinSet::new();
        let (store, needs) = (Arc::clone(&app.store), ids.clone());
        tasks.spawn(async move {
            for needs in needs.chunks(8) {
                let mut waits = unit();
                waits.dependencies.units = needs[..2].to_vec();
                store.send(&ALL, vec![waits]).await.unwrap();
            }
        });
        let (store, cancelled) = (Arc::clone(&app.store), ids.clone());
        tasks.spawn(async move {
            for id in cancelled.iter().skip(3).step_by(8) {
                store
                    .apply_unit_action(&ALL, UnitSelection::Ids(vec![*id]), UnitAction::Cancel)
                    .await
                    .unwrap();
            }
        });
        let worker = Arc::clone(&app);
        tasks.spawn(async move {
            loop {
                let leases = worker.claim(40).await;
                if leases.is_empty() {
                    break;
                }
                let saved = CheckpointRequest::new(one());
                worker.store.checkpoint(worker.session, leases[0], saved).await.unwrap();
                for part in leases.chunks(13) {
                    let ends = part.iter().copied().map(done).collect();
                    worker.store.finish(worker.session, ends).await.unwrap();
                }
            }
        });
        tasks.join_all().await;
        // What a dependency released after the last claim.
        let left = app.claim(96).await;
        app.store.finish(app.session, left.into_iter().map(done).collect()).await.unwrap();
        let counts = app.store.totals(&ALL, &Queues::All).await.unwrap().counts;
        assert_eq!(counts.live(), 0, "round {round}");
        app.assert_consistent().await;
    }
}

#[tokio::test]
async fn done_units_are_listed_by_their_end_and_pruned_in_portions() {
    let app = order_app().await;
    let ids = send(&app, 90).await;
    let leases = app.claim(90).await;
    for part in leases.chunks(30) {
        app.store.finish(app.session, part.iter().copied().map(done).collect()).await.unwrap();
    }
    let filter = longshore::store::UnitFilter { state: Some(UnitState::Done), ..Default::default() };
    let (mut seen, mut after) = (HashSet::new(), None);
    loop {
        let page = app.store.units(&ALL, &filter, after.as_deref(), 7).await.unwrap();
        assert!(page.items.iter().all(|unit| seen.insert(unit.id)), "no unit is listed twice");
        let Some(next) = page.next else { break };
        after = Some(next);
    }
    assert_eq!(seen, ids.into_iter().collect());
    let now = longshore::store::Retention { done: Duration::ZERO, ..Default::default() };
    let mut pruned = 0;
    while pruned < 90 {
        let units = app.store.prune(now, 40).await.unwrap().units;
        assert!((1..=40).contains(&units), "{units}");
        pruned += units;
        app.assert_consistent().await;
    }
    assert_eq!(app.database.run("SELECT count(*) FROM longshore_done_group").trim(), "0");
}

/// An id that does not ascend with time.
fn random_id() -> UnitId {
    let mut bytes = *UnitId::new().as_bytes();
    bytes.reverse();
    UnitId::from_bytes(bytes)
}

#[tokio::test]
async fn a_done_unit_is_found_among_many_groups_whatever_its_id() {
    let mut app = order_app().await;
    let random =
        |count| -> Vec<NewUnit> { (0..count).map(|_| NewUnit { id: random_id(), ..unit() }).collect() };
    // Before the first claim, and one portion after the other.
    let sends = [vec![random(64 * 30)], (0..30).map(|_| random(64)).collect()];
    let mut ids = Vec::new();
    for portion in sends.into_iter().flatten() {
        ids.extend(portion.iter().step_by(64).map(|unit| unit.id));
        app.store.send(&ALL, portion).await.unwrap();
        loop {
            let leases = app.claim(64).await;
            if leases.is_empty() {
                break;
            }
            app.store.finish(app.session, leases.into_iter().map(done).collect()).await.unwrap();
        }
    }
    let counted = app.own.transaction().await.unwrap();
    for id in &ids {
        let sql = format!("SELECT state FROM longshore_unit_current WHERE id = '{id}'");
        assert_eq!(counted.query_one(&sql, &[]).await.unwrap().get::<_, i16>(0), 4);
    }
    let sql = "SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_xact_user_tables
        WHERE relname = 'longshore_done_group'";
    let fetched: i64 = counted.query_one(sql, &[]).await.unwrap().get(0);
    assert!(fetched <= ids.len() as i64 * 2, "{fetched} groups are read for {} units", ids.len());
    drop(counted);
    app.assert_consistent().await;
}

/// Claims return bulk units in arrays, and an array has at most a gigabyte. `LONGSHORE_SOAK` claims as much.
#[tokio::test]
async fn large_units_are_not_bulk() {
    let app = order_app().await;
    let sized = |bytes| NewUnit { payload: Payload::from(vec![b'1'; bytes]), ..unit() };
    let soak = std::env::var_os("LONGSHORE_SOAK").is_some();
    let large = if soak { longshore::unit::MAX_PAYLOAD } else { 17 << 10 };
    app.store.send(&ALL, vec![sized(15 << 10)]).await.unwrap();
    for _ in 0..64 {
        app.store.send(&ALL, vec![sized(large)]).await.unwrap();
    }
    let states = "SELECT state, count(*) FROM longshore_unit GROUP BY state ORDER BY state";
    assert_eq!(app.database.run(states).trim(), "2\t64\n9\t1");
    let mut claimed = 0;
    while claimed < 65 {
        let leases = app.claim(64).await;
        claimed += leases.len();
        assert!(!leases.is_empty(), "{claimed}");
        app.store.finish(app.session, leases.into_iter().map(done).collect()).await.unwrap();
    }
    app.assert_consistent().await;
}
