//! 3: rows that every transaction updates, and their dead versions behind a long-running reader.

use std::sync::Arc;

use longshore::{BatchId, Client, NewBatch, Outcome, Store};
use longshore_postgres::tokio_postgres::{IsolationLevel, NoTls, connect};
use tokio::task::{JoinSet, block_in_place};

use super::kit::{Ground, assert_in_order, claim, counts, finish, session, units};
use crate::support::soaked;

/// Units per transaction.
const TOGETHER: usize = 10;
/// Updates that a shared row may get: created, changed, rolled up.
const HANDFUL: usize = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn complaint_03_under_a_long_running_reader_no_row_gathers_dead_versions() {
    let all = soaked(6_000, 20_000);
    // Autovacuum is off, as if the reader had held the horizon from the beginning.
    let ground = block_in_place(|| Ground::postgres_with(&[("autovacuum", "off")]));
    drop(ground.open().await);
    let mut tasks = JoinSet::new();
    let url = ground.server.as_ref().unwrap().url();
    let (mut reader, connection) = connect(&url, NoTls).await.unwrap();
    tasks.spawn(connection);
    let open = reader.build_transaction().isolation_level(IsolationLevel::RepeatableRead);
    let open = open.start().await.unwrap();
    let sees = async || {
        let seen = open.query_one("SELECT count(*) FROM longshore_unit", &[]).await.unwrap();
        seen.get::<_, i64>(0)
    };
    assert_eq!(sees().await, 0);
    pass(&ground, all).await;
    assert_eq!(sees().await, 0, "it has been reading all along");
    open.rollback().await.unwrap();
    ground.until_left().await;
    assert_few_versions(&ground, all);
}

/// All units go through one batch and one queue, run by four workers on two stores, so all counters
/// are shared.
async fn pass(ground: &Ground, all: usize) {
    let stores = [ground.open().await, ground.open().await];
    let new = NewBatch::new(BatchId::new("b").unwrap());
    let mut writer = Client::new(Arc::clone(&stores[0])).open_batch(new).await.unwrap();
    for chunk in 0..5 {
        writer.add(units(all / 5), chunk.to_string()).await.unwrap();
    }
    writer.seal().await.unwrap();
    let mut workers = JoinSet::new();
    for nth in 0..4 {
        workers.spawn(work(Arc::clone(&stores[nth % 2])));
    }
    workers.join_all().await;
    assert_eq!(counts(&*stores[1]).await.done, all as u64);
    assert_in_order(&*stores[1]).await;
}

async fn work(store: Arc<dyn Store>) {
    let session = session(&*store).await;
    loop {
        let held = claim(&*store, session, u32::try_from(TOGETHER).unwrap()).await;
        if held.is_empty() {
            break store.close_session(session).await.unwrap();
        }
        finish(&*store, session, &held, &Outcome::Done(None)).await;
    }
}

/// A unit's row has a version for each state: sent, claimed, finished (and started, if it was
/// prefetched, as none is here). Shared rows have few versions, although many hundreds of
/// transactions touch them.
fn assert_few_versions(ground: &Ground, all: usize) {
    let updates = ground.ask("SELECT relname, n_tup_upd FROM pg_stat_user_tables ORDER BY relname");
    for line in updates.lines() {
        let (table, updates) = line.split_once('\t').unwrap();
        let updates: usize = updates.parse().unwrap();
        match table {
            "longshore_unit" => assert_eq!(updates, 2 * all),
            _ => assert!(updates <= HANDFUL, "{table} was updated {updates} times"),
        }
    }
    let moved = ground
        .number("SELECT n_tup_ins FROM pg_stat_user_tables WHERE relname = 'longshore_delta'");
    assert!(moved >= 2 * (all / TOGETHER) as u64, "{moved} transactions moved the counts");
    // Reading the counts adds up one row per transaction, not one per unit.
    let plan = ground.ask("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM longshore_count");
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    let pages = ["Shared Hit Blocks", "Shared Read Blocks"]
        .map(|what| plan[0]["Plan"][what].as_u64().unwrap());
    let pages: u64 = pages.iter().sum();
    assert!(pages <= moved / 10, "{pages} pages to read the counts");
}
