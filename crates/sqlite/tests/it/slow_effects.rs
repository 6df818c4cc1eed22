//! Effects that take long.

use std::sync::Arc;
use std::time::Duration;

use longshore::effect_budget::EFFECT_TIMEOUT;
use longshore::outcome::Params;
use longshore::{
    Context, Effect, Enqueue as _, HandlerReply, HandlerResult, Kind, NewUnit, Policy, Queries as _,
    RetryPolicy, Scope, Worker,
};
use longshore_sqlite::rusqlite::Connection;
use longshore_sqlite::{SqliteOptions, SqliteStore};
use tokio::sync::Barrier;

const UNITS: usize = 20;
const ENDLESS: &str = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)
    INSERT INTO note SELECT count(*) FROM n";

fn is_slow(index: usize) -> bool {
    index.is_multiple_of(7)
}

#[tokio::test]
async fn effects_that_exceed_their_time_limit_fail_and_the_others_are_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("longshore.db");
    let own = Connection::open(&path).unwrap();
    own.execute_batch("CREATE TABLE note (number INTEGER)").unwrap();
    let options = SqliteOptions { effect_timeout: Duration::from_millis(500), ..SqliteOptions::default() };
    let store = Arc::new(SqliteStore::open(&path, options).unwrap());
    let kind = Kind::new("work").unwrap();
    let units: Vec<_> =
        (0..UNITS).map(|index| NewUnit::new(kind.clone(), serde_json::json!(index))).collect();
    let ids: Vec<_> = units.iter().map(|unit| unit.id).collect();
    store.send(&Scope::All, units).await.unwrap();

    let barrier = Arc::new(Barrier::new(UNITS));
    let handler = move |_: Context, index: usize| {
        let barrier = Arc::clone(&barrier);
        async move {
            barrier.wait().await;
            let sql = if is_slow(index) { ENDLESS } else { "INSERT INTO note VALUES (1)" }.to_owned();
            let effect = Effect { sql, params: Params::Ordered(vec![]), expected_rows: Some(1) };
            HandlerResult::Ok(HandlerReply::new(()).with_effects([effect]))
        }
    };
    let once = RetryPolicy { max_attempts: 1, ..RetryPolicy::default() };
    let worker = Worker::builder(store.clone())
        .slots(u32::try_from(UNITS).unwrap())
        .handle_fn(kind, Policy { retry: once, ..Policy::default() }, handler)
        .until_idle(true)
        .build()
        .unwrap();
    let report = tokio::time::timeout(Duration::from_secs(60), worker.run()).await;
    let report = report.expect("the worker is stuck").unwrap();
    assert_eq!((report.done, report.failed, report.lost), (17, 3, 0));
    for id in ids.iter().enumerate().filter(|(index, _)| is_slow(*index)).map(|(_, id)| *id) {
        let unit = store.unit(&Scope::All, id).await.unwrap();
        assert_eq!(unit.failure.unwrap().code, EFFECT_TIMEOUT);
    }
    let notes: i64 = own.query_row("SELECT count(*) FROM note", [], |row| row.get(0)).unwrap();
    assert_eq!(notes, 17, "each of the others once");
}
