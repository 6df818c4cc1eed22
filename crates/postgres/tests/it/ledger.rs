//! The ledger with several concurrent processes, each with its own store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use longshore::accounts::{
    BucketRequest, Budget, CallAdmission, CallEnd, CallRecord, CallStatus, Calls as _, Limits as _, NewCall,
    Usage, UsageBy, UsageFilter,
};
use longshore::failure_detector::StalledSession;
use longshore::store::{ClaimRequest, FinishRequest, FinishResult};
use longshore::worker_session::{Lease, NewSession};
use longshore::{
    Clock, Enqueue as _, Kind, Maintenance as _, NewUnit, Outcome, ProfileName, Queries as _, Scope,
    SessionId, SystemClock, TenantId, Timestamp, UnitId, UnitState, WorkerApi as _,
};
use longshore_postgres::{Listen, PostgresOptions, PostgresStore};
use tokio::task::JoinSet;

use crate::test_server::{Database, Server};
use crate::transactions::order_app;

fn tenant(name: &str) -> TenantId {
    TenantId::new(name).unwrap()
}

fn call(tenant: &TenantId) -> NewCall {
    let call = NewCall::new(tenant.clone(), ProfileName::new("main").unwrap(), "echo", "small");
    NewCall { worker: "test".to_owned(), reserve_tokens: 10, reserve_picos: 1_000, ..call }
}

fn ended(call: &NewCall) -> CallRecord {
    let end = CallEnd {
        tokens_in: 3,
        tokens_out: 4,
        latency_ms: 1,
        attempts: 1,
        cost_picos: 500,
        ..CallEnd::new(CallStatus::Success, "small")
    };
    CallRecord { call: call.clone(), end: Some(end) }
}

/// A store with its own connections, as of a separate process.
async fn open(database: &Database) -> Arc<PostgresStore> {
    let options = PostgresOptions { connections: 4, listen: Listen::Off, ..PostgresOptions::default() };
    Arc::new(PostgresStore::open(&database.url, options).await.unwrap())
}

async fn model_usage(store: &PostgresStore) -> Usage {
    let filter = UsageFilter::default();
    let mut all = store.usage(&Scope::All, &filter, UsageBy::Model).await.unwrap();
    assert_eq!(all.len(), 1);
    all.remove(0)
}

async fn session(store: &PostgresStore, kind: &Kind) -> SessionId {
    let id = SessionId::new();
    let new = NewSession {
        kinds: BTreeMap::from([(kind.clone(), longshore::Policy::default())]),
        slots: 8,
        ..NewSession::new(id, "")
    };
    store.open_session(new).await.unwrap();
    id
}

async fn claim(store: &PostgresStore, session: SessionId, kind: &Kind) -> Vec<Lease> {
    let claim = ClaimRequest::new(session, vec![kind.clone()], 8);
    store.claim(claim).await.unwrap().units.iter().map(|held| held.lease).collect()
}

/// The work of one process: units of three tenants make calls, and while their finishes are being
/// recorded, another process reclaims the session.
async fn race_finish_and_reclaim(own: Arc<PostgresStore>, other: Arc<PostgresStore>, nth: usize) {
    let kind = Kind::new(format!("k{nth}")).unwrap();
    let tenants = ["a", "b", "c"].map(tenant);
    for round in 0..12 {
        let session = session(&own, &kind).await;
        let units: Vec<NewUnit> = (0..8)
            .map(|at| NewUnit {
                tenant: tenants[(at + round) % 3].clone(),
                ..NewUnit::new(kind.clone(), serde_json::json!({}))
            })
            .collect();
        own.send(&Scope::All, units).await.unwrap();
        let held = claim(&own, session, &kind).await;
        let calls: Vec<NewCall> = held
            .iter()
            .enumerate()
            .map(|(at, lease)| NewCall {
                unit: Some(lease.unit),
                session: Some(session),
                ..call(&tenants[(at + nth) % 3])
            })
            .collect();
        let admitted = own.admit_calls(calls.clone()).await.unwrap();
        let may = |at: usize| !matches!(admitted[at], CallAdmission::OverBudget(_));
        let calls = calls.iter().enumerate().filter(|(at, _)| may(*at)).map(|(_, call)| call);
        let records: Vec<CallRecord> = calls.map(ended).collect();
        let ends = held
            .iter()
            .map(|lease| {
                let of = |record: &&CallRecord| record.call.unit == Some(lease.unit);
                let calls = records.iter().filter(of).cloned().collect();
                FinishRequest { calls, ..FinishRequest::new(*lease, Outcome::Done(None)) }
            })
            .collect();
        let (dead, beats) = (session, 0);
        let dead = [StalledSession { session: dead, beats }];
        let (finished, reclaimed) = tokio::join!(own.finish(session, ends), other.reclaim(&dead));
        finished.unwrap();
        reclaimed.unwrap();
        // Recording the same ends again changes nothing: an end is final.
        own.record_calls(records.into_iter().take(2).collect()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_processes_keep_exact_books_while_sessions_die() {
    let server = Server::start().await;
    let database = server.database().await;
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(open(&database).await);
    }
    let budget = Budget { tokens: Some(600), cost_picos: None, warn_at: 1.0 };
    stores[0].put_budget(&Scope::All, &tenant("a"), Some(budget)).await.unwrap();
    let mut all = JoinSet::new();
    for nth in 0..4 {
        let (own, other) = (Arc::clone(&stores[nth]), Arc::clone(&stores[(nth + 1) % 4]));
        all.spawn(race_finish_and_reclaim(own, other, nth));
    }
    all.join_all().await;
    assert_eq!(stores[0].verify().await.unwrap(), []);
    let model_usage = model_usage(&stores[0]).await;
    assert_eq!(model_usage.open, 0, "no session is left that could end a call");
    let month = stores[0].budget(&Scope::All, &tenant("a")).await.unwrap();
    assert_eq!(month.reserved_tokens, 0);
    // Less than the budget if the last calls were rejected because of others' reservations.
    assert!((400..=600).contains(&month.spent_tokens), "{month:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_many_units_ask_at_once_is_asked_once() {
    let server = Server::start().await;
    let database = server.database().await;
    let stores = [open(&database).await, open(&database).await];
    let mut all = JoinSet::new();
    for nth in 0..32 {
        let store = Arc::clone(&stores[nth % 2]);
        let unit = Some(UnitId::new());
        let call = NewCall { request_id: "r".to_owned(), unit, ..call(&tenant("a")) };
        all.spawn(async move { store.admit_calls(vec![call]).await.unwrap().remove(0) });
    }
    let answers = all.join_all().await;
    let admitted = answers.iter().filter(|answer| **answer == CallAdmission::Admitted).count();
    assert_eq!(admitted, 1, "{answers:?}");
    assert_eq!(model_usage(&stores[0]).await.calls, 1);
    assert_eq!(stores[0].verify().await.unwrap(), []);
}

/// A clock that is an hour ahead.
struct ClockOneHourAhead;

impl Clock for ClockOneHourAhead {
    fn now(&self) -> Timestamp {
        SystemClock.now() + Duration::from_secs(3_600)
    }
}

#[tokio::test]
async fn a_bucket_goes_by_the_servers_clock() {
    let database = Server::start().await.database().await;
    let store = open(&database).await;
    let (clock, max_clock_skew) = (Arc::new(ClockOneHourAhead), Duration::MAX);
    let options = PostgresOptions { clock, max_clock_skew, ..PostgresOptions::default() };
    let ahead = PostgresStore::open(&database.url, options).await.unwrap();
    let draw = || BucketRequest {
        bucket: "b".to_owned(),
        per_minute: 1.0,
        capacity: 60.0,
        amount: 60.0,
        minimum: 60.0,
    };
    assert_eq!(store.draw(vec![draw()]).await.unwrap()[0].taken, 60.0);
    let drawn = ahead.draw(vec![draw()]).await.unwrap()[0];
    assert_eq!(drawn.taken, 0.0, "an hour has not passed");
    assert!(drawn.wait > Duration::from_secs(3_000), "{drawn:?}");
}

#[tokio::test]
async fn calls_in_a_callers_transaction_share_its_fate() {
    let mut app = order_app().await;
    app.store.send(&Scope::All, vec![crate::transactions::unit()]).await.unwrap();
    let lease = app.take().await;
    let of_unit =
        NewCall { unit: Some(lease.unit), session: Some(app.session), ..call(&TenantId::default()) };
    app.store.admit_calls(vec![of_unit.clone()]).await.unwrap();
    let end =
        FinishRequest { calls: vec![ended(&of_unit)], ..FinishRequest::new(lease, Outcome::Done(None)) };
    for commit in [false, true] {
        let store = Arc::clone(&app.store);
        let tx = app.own.transaction().await.unwrap();
        let done = store.finish_in(&tx, app.session, std::slice::from_ref(&end)).await.unwrap();
        assert_eq!(done.value, [FinishResult::Recorded(UnitState::Done)]);
        assert_eq!(model_usage(&store).await.open, 1, "not before the commit");
        if commit {
            tx.commit().await.unwrap();
            store.run_post_commit(done.post_commit).await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
        assert_eq!(model_usage(&store).await.open, u64::from(!commit));
    }
    app.assert_consistent().await;
}

#[tokio::test]
async fn differences_are_folded_and_the_month_stays_the_same() {
    let database = Server::start().await.database().await;
    let store = open(&database).await;
    for _ in 0..3 {
        let call = call(&tenant("a"));
        store.admit_calls(vec![call.clone()]).await.unwrap();
        store.record_calls(vec![ended(&call)]).await.unwrap();
    }
    let before = store.budget(&Scope::All, &tenant("a")).await.unwrap();
    assert_eq!(database.run("SELECT count(*) FROM longshore_monthly_spend_delta").trim(), "6");
    store.promote(100).await.unwrap();
    assert_eq!(database.run("SELECT count(*) FROM longshore_monthly_spend_delta").trim(), "0");
    assert_eq!(store.budget(&Scope::All, &tenant("a")).await.unwrap(), before);
    assert_eq!((before.spent_tokens, before.spent_picos), (21, 1_500));
    assert_eq!(store.verify().await.unwrap(), []);
}

#[tokio::test]
async fn books_that_do_not_add_up_are_found() {
    let database = Server::start().await.database().await;
    let store = open(&database).await;
    let call = call(&tenant("a"));
    store.admit_calls(vec![call.clone()]).await.unwrap();
    store.record_calls(vec![ended(&call)]).await.unwrap();
    for wrong in [
        "UPDATE longshore_call SET cost_picos = cost_picos + 1",
        "DELETE FROM longshore_monthly_spend_delta",
        "DELETE FROM longshore_call",
    ] {
        assert_eq!(store.verify().await.unwrap(), []);
        database.run(&format!(
            "CREATE TABLE kept_call AS TABLE longshore_call;
            CREATE TABLE kept_spend AS TABLE longshore_monthly_spend_delta; {wrong}"
        ));
        let found = store.verify().await.unwrap();
        assert!(found.iter().any(|found| found.rule == "books_are_exact"), "{wrong}: {found:?}");
        database.run(
            "DELETE FROM longshore_call; DELETE FROM longshore_monthly_spend_delta;
             INSERT INTO longshore_call TABLE kept_call; INSERT INTO longshore_monthly_spend_delta
             TABLE kept_spend;
             DROP TABLE kept_call; DROP TABLE kept_spend",
        );
    }
}

#[tokio::test]
async fn an_end_is_whole_or_there_is_none() {
    let database = Server::start().await.database().await;
    let store = open(&database).await;
    store.admit_calls(vec![call(&tenant("a"))]).await.unwrap();
    for (change, why) in [
        ("status = 1", "an end without numbers"),
        ("logged_at = 1", "an open call that was logged"),
        ("code = 'INTERNAL'", "an open call that went wrong"),
        ("status = 4", "no such status"),
    ] {
        let refused = database.try_run(&format!("UPDATE longshore_call SET {change}"));
        assert!(refused.is_err(), "{why}");
    }
}

/// The conditions are the same as in `usage`: see `UsageConditions` there.
#[tokio::test]
async fn usage_of_a_batch_or_of_a_tenant_over_a_time_looks_at_no_other_calls() {
    let database = Server::start().await.database().await;
    for (condition, index) in [
        ("c.batch = 'nightly'", "longshore_call_batch"),
        ("c.tenant = 'acme' AND c.opened_at >= 7", "longshore_call_tenant"),
        ("c.opened_at >= 7", "longshore_call_opened"),
    ] {
        // Without this setting the planner reads an empty table sequentially.
        let plan = database.run(&format!(
            "SET enable_seqscan = off; EXPLAIN SELECT coalesce(c.batch, ''), count(*)
             FROM longshore_call c WHERE true AND {condition} GROUP BY 1"
        ));
        assert!(plan.contains(index), "{condition}: {plan}");
    }
}
