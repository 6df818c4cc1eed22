//! 3: rows that every transaction updates, and their dead versions behind a long-running reader.

use std::sync::Arc;

use longshore::{BatchId, Client, NewBatch, Outcome, Store};
use longshore_postgres::tokio_postgres::{IsolationLevel, NoTls, connect};
use tokio::task::{JoinSet, block_in_place};

use super::fixture::{StoreFixture, assert_consistent, claim, counts, finish, session, units};
use crate::support::pick_size;

/// Units per transaction.
const UNITS_PER_TX: usize = 10;
/// Updates that a shared row may get: created, changed, rolled up.
const MAX_SHARED_UPDATES: usize = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn complaint_03_under_a_long_running_reader_no_row_gathers_dead_versions() {
    let all = pick_size(6_000, 20_000);
    // Autovacuum is off, as if the reader had held the horizon from the beginning.
    let fixture = block_in_place(|| StoreFixture::postgres_with(&[("autovacuum", "off")]));
    drop(fixture.open().await);
    let mut tasks = JoinSet::new();
    let url = fixture.server.as_ref().unwrap().url();
    let (mut reader, connection) = connect(&url, NoTls).await.unwrap();
    tasks.spawn(connection);
    let open = reader.build_transaction().isolation_level(IsolationLevel::RepeatableRead);
    let open = open.start().await.unwrap();
    let visible_units = async || {
        let row = open.query_one("SELECT count(*) FROM longshore_unit", &[]).await.unwrap();
        row.get::<_, i64>(0)
    };
    assert_eq!(visible_units().await, 0);
    run_all_units(&fixture, all).await;
    assert_eq!(visible_units().await, 0, "its snapshot is unchanged");
    open.rollback().await.unwrap();
    fixture.wait_for_disconnect().await;
    assert_few_versions(&fixture, all);
}

/// All units go through one batch and one queue, run by four workers on two stores, so all counters
/// are shared.
async fn run_all_units(fixture: &StoreFixture, all: usize) {
    let stores = [fixture.open().await, fixture.open().await];
    let new = NewBatch::new(BatchId::new("b").unwrap());
    let mut writer = Client::new(Arc::clone(&stores[0])).open_batch(new).await.unwrap();
    for chunk in 0..5 {
        writer.add(units(all / 5), chunk.to_string()).await.unwrap();
    }
    writer.seal().await.unwrap();
    let mut workers = JoinSet::new();
    for nth in 0..4 {
        workers.spawn(run_worker(Arc::clone(&stores[nth % 2])));
    }
    workers.join_all().await;
    assert_eq!(counts(&*stores[1]).await.done, all as u64);
    assert_consistent(&*stores[1]).await;
}

async fn run_worker(store: Arc<dyn Store>) {
    let session = session(&*store).await;
    loop {
        let held = claim(&*store, session, u32::try_from(UNITS_PER_TX).unwrap()).await;
        if held.is_empty() {
            break store.close_session(session).await.unwrap();
        }
        finish(&*store, session, &held, &Outcome::Done(None)).await;
    }
}

/// The row of a unit that succeeds at once has one version. Shared rows have few versions, although many hundreds of
/// transactions touch them.
fn assert_few_versions(fixture: &StoreFixture, all: usize) {
    let updates = fixture.query("SELECT relname, n_tup_upd FROM pg_stat_user_tables ORDER BY relname");
    for line in updates.lines() {
        let (table, updates) = line.split_once('\t').unwrap();
        let updates: usize = updates.parse().unwrap();
        match table {
            "longshore_unit" => assert_eq!(updates, 0),
            _ => assert!(updates <= MAX_SHARED_UPDATES, "{table} was updated {updates} times"),
        }
    }
    let moved = fixture
        .query_number("SELECT n_tup_ins FROM pg_stat_user_tables WHERE relname = 'longshore_stream_delta'");
    assert!(moved >= 2 * (all / UNITS_PER_TX) as u64, "{moved} transactions moved the counts");
    // Reading the counts adds up one row per transaction, not one per unit.
    let plan = fixture.query("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM longshore_stream_count");
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    let pages =
        ["Shared Hit Blocks", "Shared Read Blocks"].map(|what| plan[0]["Plan"][what].as_u64().unwrap());
    let pages: u64 = pages.iter().sum();
    assert!(pages <= moved / 10, "{pages} pages to read the counts");
}
