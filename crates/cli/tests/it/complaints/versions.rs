//! 3: rows that every transaction updates, whose dead versions pile up behind a long-running reader.

use std::sync::Arc;

use longshore::{BatchId, Client, Context, NewBatch, Store, Worker};
use longshore_postgres::tokio_postgres::{NoTls, connect};
use tokio::task::{JoinSet, block_in_place};

use super::kit::{Ground, assert_in_order, brisk, counts, kind, units};

const UNITS: usize = 20_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn complaint_03_under_a_long_running_reader_no_row_gathers_dead_versions() {
    // Nobody clears away, as if the reader held the horizon from the beginning of time.
    let ground = block_in_place(|| Ground::postgres_with(&[("autovacuum", "off")]));
    drop(ground.open().await);
    let mut tasks = JoinSet::new();
    let (mut reader, connection) =
        connect(&ground.server.as_ref().unwrap().url(), NoTls).await.unwrap();
    tasks.spawn(connection);
    let open = reader.build_transaction().isolation_level(
        longshore_postgres::tokio_postgres::IsolationLevel::RepeatableRead,
    );
    let open = open.start().await.unwrap();
    let seen = "SELECT count(*) FROM longshore_unit";
    assert_eq!(open.query_one(seen, &[]).await.unwrap().get::<_, i64>(0), 0);

    pass_all(&ground).await;
    assert_eq!(open.query_one(seen, &[]).await.unwrap().get::<_, i64>(0), 0, "it read all along");
    open.rollback().await.unwrap();
    ground.until_left().await;
    assert_few_versions(&ground);
}

/// All units go through one batch and one queue: whatever is counted, is counted in one place.
async fn pass_all(ground: &Ground) {
    let store = ground.open().await;
    let id = BatchId::new("b").unwrap();
    let mut writer = Client::new(Arc::clone(&store)).open_batch(NewBatch::new(id)).await.unwrap();
    for chunk in 0..UNITS / 1_000 {
        writer.add(units(1_000), chunk.to_string()).await.unwrap();
    }
    writer.seal().await.unwrap();
    let worker = Worker::builder(Arc::clone(&store))
        .slots(32)
        .until_idle(true)
        .handle_fn(kind(), brisk(), |_: Context, _: u64| async { Ok::<(), String>(()) })
        .build()
        .unwrap();
    assert_eq!(worker.run().await.unwrap().done, UNITS as u64);
    assert_eq!(counts(&*store as &dyn Store).await.done, UNITS as u64);
    assert_in_order(&*store).await;
}

/// A unit's row has a version for each of its states: sent, claimed, ended. Whatever is shared has
/// few, however many units passed.
fn assert_few_versions(ground: &Ground) {
    let updates = ground.ask("SELECT relname, n_tup_upd FROM pg_stat_user_tables ORDER BY relname");
    let mut tables = 0;
    for line in updates.lines() {
        let (table, updates) = line.split_once('\t').unwrap();
        let updates: usize = updates.parse().unwrap();
        let most = if table == "longshore_unit" { 2 * UNITS + UNITS / 100 } else { UNITS / 100 };
        assert!(updates <= most, "{table} was updated {updates} times for {UNITS} units");
        tables += 1;
    }
    assert!(tables > 10, "the store's tables: {updates}");
    // Units are updated: the numbers are those of this run.
    assert!(ground.number(OF_UNITS) >= UNITS as u64);
    // What is added up for the counts: a row per transaction since it was last folded, not per unit.
    let plan = ground.ask("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM longshore_count");
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    let pages = plan[0]["Plan"]["Shared Hit Blocks"].as_u64().unwrap()
        + plan[0]["Plan"]["Shared Read Blocks"].as_u64().unwrap();
    assert!(pages < UNITS as u64 / 50, "{pages} pages to read the counts");
}

const OF_UNITS: &str = "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'longshore_unit'";
