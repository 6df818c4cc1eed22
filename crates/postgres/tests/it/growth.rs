//! Queues, lanes and streams that are no longer used are deleted. No process that has cached one, and no open
//! transaction that has sent a unit into one, loses a unit by that.

use std::sync::Arc;
use std::time::Duration;

use longshore::store::{Retention, UnitAction, UnitSelection};
use longshore::unit::{Dedup, DedupWindow, OnDuplicate};
use longshore::{
    Admin as _, Enqueue as _, Maintenance as _, NewUnit, Queries as _, QueueName, Scope, UnitId, UnitState,
};
use longshore_postgres::tokio_postgres::IsolationLevel;
use longshore_postgres::{ClockSource, PostgresOptions, PostgresStore};
use longshore_testkit::ManualClock;
use longshore_testkit::year::{Year, assert_flat};
use tokio::task::JoinSet;

use crate::test_server::{Database, Server};
use crate::transactions::{connect, unit};

const ALL: Scope = Scope::All;
const HOUR: Duration = Duration::from_secs(3600);

struct PrunedStore {
    store: PostgresStore,
    clock: Arc<ManualClock>,
    database: Arc<Database>,
    _server: Server,
}

impl PrunedStore {
    async fn open() -> Self {
        let server = Server::start().await;
        let database = server.database().await;
        let clock = Arc::new(ManualClock::default());
        let store = open_store(&database, &clock).await;
        Self { store, clock, database, _server: server }
    }

    /// Prunes every two hours, with a retention of one.
    async fn prune(&self, rounds: usize) {
        let retention = Retention { done: HOUR, failed: HOUR, batches: HOUR, ..Retention::default() };
        for _ in 0..rounds {
            self.clock.advance(2 * HOUR);
            self.store.prune(retention, 1_000).await.unwrap();
        }
    }

    /// The numbers of streams, lanes and queues.
    fn counts(&self) -> String {
        let sql =
            "SELECT (SELECT count(*) FROM longshore_stream) || ' ' || (SELECT count(*) FROM longshore_lane)
            || ' ' || (SELECT count(*) FROM longshore_queue)";
        self.database.run(sql).trim().to_owned()
    }

    async fn assert_ready(&self, id: UnitId) {
        assert_eq!(self.store.unit(&ALL, id).await.unwrap().state, UnitState::Ready);
        assert_eq!(self.store.verify().await.unwrap(), []);
    }
}

async fn open_store(database: &Database, clock: &Arc<ManualClock>) -> PostgresStore {
    let (clock, clock_source) = (clock.clone(), ClockSource::Local);
    let options = PostgresOptions { clock, clock_source, ..PostgresOptions::default() };
    PostgresStore::open(&database.url, options).await.unwrap()
}

fn unit_in(queue: &str) -> NewUnit {
    NewUnit { queue: QueueName::new(queue).unwrap(), ..unit() }
}

/// Sends units, one per call, and cancels them.
async fn send_and_cancel(store: &PostgresStore, queues: &[&str]) {
    for queue in queues {
        let unit = unit_in(queue);
        let id = unit.id;
        store.send(&ALL, vec![unit]).await.unwrap();
        store.apply_unit_action(&ALL, UnitSelection::Ids(vec![id]), UnitAction::Cancel).await.unwrap();
    }
}

#[tokio::test]
async fn queues_without_units_are_deleted_and_processes_that_cached_them_create_them_again() {
    let pruned = PrunedStore::open().await;
    let other = open_store(&pruned.database, &pruned.clock).await;
    send_and_cancel(&other, &["plain", "keyed", "caller"]).await;
    assert_eq!(pruned.counts(), "3 3 3");
    pruned.prune(6).await;
    assert_eq!(pruned.counts(), "0 0 0");

    let plain = unit_in("plain");
    let dedup =
        Dedup { key: "k".into(), window: DedupWindow::WhileLive, on_duplicate: OnDuplicate::Existing };
    let keyed = NewUnit { dedup: Some(dedup), ..unit_in("keyed") };
    let called = unit_in("caller");
    let ids = [plain.id, keyed.id, called.id];
    other.send(&ALL, vec![plain]).await.unwrap();
    other.send(&ALL, vec![keyed]).await.unwrap();
    let mut tasks = JoinSet::new();
    let mut own = connect(&pruned.database, &mut tasks).await;
    let transaction = own.transaction().await.unwrap();
    let sent = other.send_in(&transaction, &ALL, &[called]).await.unwrap();
    transaction.commit().await.unwrap();
    other.run_post_commit(sent.post_commit).await.unwrap();
    for id in ids {
        pruned.assert_ready(id).await;
    }
    assert_eq!(pruned.counts(), "3 3 3");
}

#[tokio::test]
async fn a_send_reopens_a_retired_queue() {
    let pruned = PrunedStore::open().await;
    send_and_cancel(&pruned.store, &["q"]).await;
    pruned.prune(3).await;
    assert_eq!(pruned.database.run("SELECT retired_at IS NOT NULL FROM longshore_stream").trim(), "t");
    let unit = unit_in("q");
    let id = unit.id;
    pruned.store.send(&ALL, vec![unit]).await.unwrap();
    pruned.prune(6).await;
    pruned.assert_ready(id).await;
    assert_eq!(pruned.counts(), "1 1 1");
}

#[tokio::test]
async fn a_transaction_that_is_open_for_long_keeps_the_stream_that_it_has_sent_to() {
    let pruned = PrunedStore::open().await;
    send_and_cancel(&pruned.store, &["q"]).await;
    pruned.prune(1).await;
    let mut tasks = JoinSet::new();
    let mut own = connect(&pruned.database, &mut tasks).await;
    let transaction = own.transaction().await.unwrap();
    let unit = unit_in("q");
    let id = unit.id;
    let sent = pruned.store.send_in(&transaction, &ALL, &[unit]).await.unwrap();
    pruned.prune(6).await;
    assert_eq!(pruned.counts(), "1 1 1");
    transaction.commit().await.unwrap();
    pruned.store.run_post_commit(sent.post_commit).await.unwrap();
    pruned.prune(6).await;
    pruned.assert_ready(id).await;
}

#[tokio::test]
async fn a_transaction_with_an_old_snapshot_keeps_the_stream_that_it_sends_to() {
    let pruned = PrunedStore::open().await;
    send_and_cancel(&pruned.store, &["q"]).await;
    pruned.prune(1).await;
    let mut tasks = JoinSet::new();
    let mut own = connect(&pruned.database, &mut tasks).await;
    let old_snapshot = own.build_transaction().isolation_level(IsolationLevel::RepeatableRead);
    let transaction = old_snapshot.start().await.unwrap();
    transaction.batch_execute("SELECT FROM longshore_stream").await.unwrap();
    while pruned.database.run("SELECT 1 FROM longshore_stream WHERE retired_xid IS NULL").trim() == "1" {
        pruned.prune(1).await;
    }
    let unit = unit_in("q");
    let id = unit.id;
    let sent = pruned.store.send_in(&transaction, &ALL, &[unit]).await.unwrap();
    pruned.prune(3).await;
    transaction.commit().await.unwrap();
    pruned.store.run_post_commit(sent.post_commit).await.unwrap();
    pruned.prune(3).await;
    pruned.assert_ready(id).await;
}

#[tokio::test]
async fn a_send_from_a_snapshot_older_than_its_queue_says_what_to_do() {
    let pruned = PrunedStore::open().await;
    let mut tasks = JoinSet::new();
    let mut own = connect(&pruned.database, &mut tasks).await;
    let mut messages = Vec::new();
    for _ in 0..2 {
        let old_snapshot = own.build_transaction().isolation_level(IsolationLevel::RepeatableRead);
        let transaction = old_snapshot.start().await.unwrap();
        transaction.batch_execute("SELECT FROM longshore_stream").await.unwrap();
        let sent = pruned.store.send_in(&transaction, &ALL, &[unit_in("q")]).await;
        messages.extend(sent.err().map(|error| (error.is_retryable(), error.to_string())));
        transaction.commit().await.unwrap();
    }
    assert_eq!(messages.len(), 1, "the second transaction succeeds");
    assert!(messages[0].0 && messages[0].1.contains("READ COMMITTED"), "{messages:?}");
}

#[tokio::test]
async fn a_year_of_queues_and_batches_leaves_a_store_as_small_and_fast_as_before() {
    let year = match std::env::var_os("LONGSHORE_SOAK") {
        Some(_) => Year { days: 365, units: 10_000_000, queues: 10_000, batches: 100_000 },
        None => Year { days: 15, units: 3_000, queues: 150, batches: 150 },
    };
    let server = Server::start().await;
    let database = server.database().await;
    let fixture = database.fixture().await;
    let bytes = || {
        // As autovacuum does once a minute; a day takes less here.
        database.run("VACUUM");
        database.run("SELECT pg_database_size(current_database())").trim().parse().unwrap()
    };
    assert_flat(&year.run(&fixture, bytes).await);
}
