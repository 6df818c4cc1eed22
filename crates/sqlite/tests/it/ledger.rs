//! The ledger in a file: schema constraints, `verify`, and several processes.

use std::path::Path;
use std::sync::Arc;

use longshore::accounts::{
    Budget, CallAdmission, CallRecord, Calls as _, Limits as _, NewCall, UsageBy, UsageFilter,
};
use longshore::{ProfileName, Queries as _, Scope, TenantId};
use longshore_sqlite::rusqlite::Connection;
use longshore_sqlite::{SqliteOptions, SqliteStore};
use tokio::task::JoinSet;

fn acme() -> TenantId {
    TenantId::new("acme").unwrap()
}

fn call() -> NewCall {
    let call = NewCall::new(acme(), ProfileName::new("main").unwrap(), "echo", "small");
    NewCall { worker: "case".to_owned(), reserve_tokens: 10, reserve_picos: 1_000, ..call }
}

fn open(path: &Path) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open(path, SqliteOptions::default()).unwrap())
}

#[tokio::test]
async fn books_are_exact() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("longshore.db");
    let store = open(&path);
    let (ended, under_way) = (call(), call());
    store.admit_calls(vec![ended.clone(), under_way]).await.unwrap();
    let end = Some(ended.lost_end());
    store.record_calls(vec![CallRecord { call: ended, end }]).await.unwrap();
    assert_eq!(store.verify().await.unwrap(), []);
    let db = Connection::open(&path).unwrap();
    for (wrong, right) in [
        (
            "longshore_monthly_spend SET spent_picos = spent_picos + 1",
            "longshore_monthly_spend SET spent_picos = spent_picos - 1",
        ),
        (
            "longshore_monthly_spend SET month =
          '2000-01'",
            "longshore_monthly_spend SET month = strftime('%Y-%m')",
        ),
        ("longshore_call SET reserve_tokens = 11 WHERE status = 0", "longshore_call SET reserve_tokens = 10"),
        ("longshore_call SET session = randomblob(16)", "longshore_call SET session = NULL"),
    ] {
        db.execute(&format!("UPDATE {wrong}"), []).unwrap();
        let found = store.verify().await.unwrap();
        assert!(!found.is_empty(), "{wrong}");
        assert!(found.iter().all(|found| found.rule == "books_are_exact"), "{found:?}");
        db.execute(&format!("UPDATE {right}"), []).unwrap();
        assert_eq!(store.verify().await.unwrap(), [], "after {right}");
    }
}

#[tokio::test]
async fn calls_that_come_together_are_written_once_each_whoever_was_there_before() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("longshore.db"));
    let other = open(&folder.path().join("longshore.db"));
    let calls: Vec<NewCall> = (0..70).map(|_| call()).collect();
    let ended = |call: &NewCall| CallRecord { call: call.clone(), end: Some(call.lost_end()) };
    // One has ended, one was written by this store, one by another store.
    store.record_calls(vec![ended(&calls[5])]).await.unwrap();
    store.admit_calls(vec![calls[20].clone()]).await.unwrap();
    other.admit_calls(vec![calls[40].clone()]).await.unwrap();
    let all: Vec<CallRecord> = calls.iter().chain(&calls[60..]).map(ended).collect();
    for _ in 0..2 {
        store.record_calls(all.clone()).await.unwrap();
        let sums = store.usage(&Scope::All, &UsageFilter::default(), UsageBy::Tenant).await;
        let sums = sums.unwrap().remove(0);
        assert_eq!((sums.calls, sums.open, sums.tokens_in), (70, 0, 700));
        assert_eq!(store.verify().await.unwrap(), []);
    }
}

#[tokio::test]
async fn the_schema_knows_what_a_call_may_be() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("longshore.db");
    let store = open(&path);
    store.admit_calls(vec![call()]).await.unwrap();
    let db = Connection::open(&path).unwrap();
    let update = |set: &str| db.execute(&format!("UPDATE longshore_call SET {set}"), []);
    for bad in ["status = 1", "status = 4", "logged_at = 1", "cost_picos = 1", "reserve_tokens = -1"] {
        assert!(update(bad).is_err(), "{bad}");
    }
    let month = "UPDATE longshore_monthly_spend SET reserved_tokens = reserved_tokens - 11";
    assert!(db.execute(month, []).is_err(), "less than nothing is reserved");
}

#[tokio::test]
async fn processes_share_a_budget_to_the_last_token() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("longshore.db");
    let stores = [open(&path), open(&path)];
    let budget = Budget { tokens: Some(500), cost_picos: None, warn_at: 1.0 };
    stores[0].put_budget(&Scope::All, &acme(), Some(budget)).await.unwrap();
    let mut callers = JoinSet::new();
    for at in 0..32 {
        let store = Arc::clone(&stores[at % 2]);
        callers.spawn(async move {
            let calls = (0..4).map(|_| call()).collect();
            let answers = store.admit_calls(calls).await.unwrap();
            let over = |answer: &&CallAdmission| matches!(answer, CallAdmission::OverBudget(_));
            answers.len() - answers.iter().filter(over).count()
        });
    }
    assert_eq!(callers.join_all().await.into_iter().sum::<usize>(), 50);
    let sums = stores[1].usage(&Scope::All, &UsageFilter::default(), UsageBy::Tenant).await;
    assert_eq!(sums.unwrap()[0].open, 50);
    assert_eq!(stores[0].verify().await.unwrap(), []);
}

/// The lists and look-ups of a store with a long history must use an index. The conditions are
/// copied from `SqlConditions` in `usage`.
#[tokio::test]
async fn every_way_to_calls_has_its_index() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("longshore.db");
    let _store = open(&path);
    let db = Connection::open(&path).unwrap();
    for (rest, index) in [
        ("request_id = ?", "longshore_call_request"),
        ("+tenant = ? AND request_id = ? ORDER BY opened_at DESC, id DESC", "longshore_call_request"),
        ("+tenant = ? AND batch = ?", "longshore_call_batch"),
        ("batch = ? ORDER BY opened_at DESC, id DESC LIMIT 9", "longshore_call_batch"),
        ("tenant = ? AND opened_at >= ?", "longshore_call_tenant (tenant=? AND opened_at>?)"),
        ("session = ? AND status = 0 AND session IS NOT NULL", "longshore_call_open"),
        ("opened_at >= ?", "longshore_call_opened"),
        ("(opened_at, id) < (?, ?) ORDER BY opened_at DESC, id DESC LIMIT 9", "longshore_call_opened"),
    ] {
        let sql = format!("EXPLAIN QUERY PLAN SELECT * FROM longshore_call WHERE {rest}");
        let params = vec![1; sql.matches('?').count()];
        let mut statement = db.prepare(&sql).unwrap();
        let params = longshore_sqlite::rusqlite::params_from_iter(params);
        let mut rows = statement.query(params).unwrap();
        let plan: String = rows.next().unwrap().unwrap().get(3).unwrap();
        assert!(plan.contains("SEARCH") && plan.contains(index), "{rest}: {plan}");
    }
}
