//! Effects that violate a deferred key, which SQLite checks only at the commit of the whole group.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use longshore::outcome::Params;
use longshore::{
    Client, Context, Effect, HandlerReply, Kind, NewUnit, Policy, Queries as _, Scope, SqlValue, Unit,
    UnitState, Worker,
};
use longshore_sqlite::rusqlite::Connection;
use longshore_sqlite::{SqliteOptions, SqliteStore};

fn kind() -> Kind {
    Kind::new("card").unwrap()
}

/// A store beside a table of cards, which must reference account 1 at commit.
fn store_at(path: &Path) -> Arc<SqliteStore> {
    let own = Connection::open(path).unwrap();
    own.execute_batch(
        "CREATE TABLE account (id INTEGER PRIMARY KEY); INSERT INTO account VALUES (1);
         CREATE TABLE card (account INTEGER NOT NULL REFERENCES account (id)
         DEFERRABLE INITIALLY DEFERRED)",
    )
    .unwrap();
    Arc::new(SqliteStore::open(path, SqliteOptions::default()).unwrap())
}

fn cards(path: &Path) -> i64 {
    let own = Connection::open(path).unwrap();
    own.query_row("SELECT count(*) FROM card", [], |row| row.get(0)).unwrap()
}

/// A handler that inserts a card for the account in the payload.
async fn give(_: Context, account: i64) -> longshore::HandlerResult<()> {
    let sql = "INSERT INTO card VALUES (?1)".to_owned();
    let params = Params::Ordered(vec![SqlValue::Int(account)]);
    Ok(HandlerReply::new(()).with_effects([Effect { sql, params, expected_rows: Some(1) }]))
}

/// Works until no unit is left. If the store hung, it would never end.
async fn work(store: &Arc<SqliteStore>) {
    let worker = Worker::builder(store.clone())
        .slots(20)
        .handle_fn(kind(), Policy::default(), give)
        .until_idle(true)
        .build()
        .unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(60), worker.run()).await;
    ended.expect("the store is stuck").unwrap();
}

#[tokio::test]
async fn a_worker_whose_unit_breaks_a_deferred_key_fails_that_unit_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let store = store_at(&path);
    let unit = |at| NewUnit::new(kind(), serde_json::json!(if at == 17 { 99 } else { 1 }));
    let units: Vec<NewUnit> = (0..40).map(unit).collect();
    let bad = units[17].id;
    let client = Client::new(store.clone());
    client.send_many(units, longshore::WhenFull::Reject).await.unwrap();
    work(&store).await;
    let totals = store.totals(&Scope::All, &longshore::store::Queues::All).await.unwrap();
    assert_eq!((totals.counts.done, totals.counts.failed), (39, 1));
    let Unit { state, failure, .. } = store.unit(&Scope::All, bad).await.unwrap();
    let failure = failure.unwrap();
    assert_eq!((state, failure.code.as_str()), (UnitState::Failed, "refused"));
    assert!(failure.message.contains("FOREIGN KEY"), "{failure}");
    assert_eq!(cards(&path), 39);
    assert_eq!(store.verify().await.unwrap(), []);
}
