//! 11 and 12: the cost of idle workers, and what waking workers costs senders.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::poll_fn;
use longshore::store::Heartbeat;
use longshore::{Context, Enqueue as _, SessionId, Worker};
use longshore_postgres::tokio_postgres::{AsyncMessage, Client, NoTls, connect};
use longshore_sqlite::rusqlite;
use longshore_testkit::InstrumentedStore;
use tokio::sync::mpsc;
use tokio::task::{JoinSet, block_in_place};

use super::fixture::{ALL, StoreFixture, claim, fast_retry, kind, send, session, unit, units, wait_until};

/// The number of heartbeats over which calls are counted.
const HEARTBEATS: u64 = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn complaint_11_an_idle_worker_asks_for_little_and_beats_in_one_row() {
    let [one, two] = block_in_place(StoreFixture::both);
    tokio::join!(assert_few_idle_calls(&one), assert_few_idle_calls(&two));
    for fixture in [one, two] {
        assert_heartbeat_writes_one_row(&fixture).await;
    }
}

async fn assert_few_idle_calls(fixture: &StoreFixture) {
    let store = Arc::new(InstrumentedStore::new(fixture.open().await));
    let worker = Worker::builder(store.clone())
        .slots(64)
        .ttl(Duration::from_secs(4))
        .handle_fn(kind(), fast_retry(), |_: Context, _: u64| async { Ok::<(), String>(()) })
        .build()
        .unwrap();
    let control = worker.control();
    let watch = async {
        wait_until(async || store.calls("heartbeat") >= HEARTBEATS).await;
        control.drain();
    };
    let (report, ()) = tokio::join!(worker.run(), watch);
    report.unwrap();
    // Four heartbeats per TTL: one a second. The other calls are claims and maintenance.
    let stats = store.stats();
    let asked: u64 =
        stats.iter().filter(|(method, _)| **method != "wait_for_ready").map(|(_, s)| s.calls).sum();
    assert!(asked <= 15 * HEARTBEATS, "{}: {asked} calls in {HEARTBEATS} beats: {stats:#?}", fixture.name());
    assert!(stats["claim"].calls <= 3 * HEARTBEATS, "{}: {stats:#?}", fixture.name());
}

/// A heartbeat writes one session row and no unit row, however many units the worker holds.
async fn assert_heartbeat_writes_one_row(fixture: &StoreFixture) {
    let store = fixture.open().await;
    send(&store, units(200)).await;
    let ids: [SessionId; 2] = [session(&*store).await, session(&*store).await];
    for id in ids {
        assert_eq!(claim(&*store, id, 100).await.len(), 100);
    }
    let before = unit_rows(fixture);
    assert_eq!(before.len(), 200);
    for _ in 0..HEARTBEATS {
        for id in ids {
            let answer = store.heartbeat(id, Heartbeat::default()).await.unwrap();
            assert_eq!(answer.held, 100);
        }
    }
    assert_eq!(unit_rows(fixture), before, "{}", fixture.name());
    let sessions = store.sessions().await.unwrap();
    let beats: Vec<u64> = sessions.iter().map(|session| session.beats).collect();
    assert_eq!(beats, [HEARTBEATS; 2], "{}: one row for each worker", fixture.name());
}

/// All unit rows; on PostgreSQL with their physical position, which changes when a row is written.
fn unit_rows(fixture: &StoreFixture) -> Vec<String> {
    if fixture.server.is_some() {
        let rows = fixture.query("SELECT ctid, xmin, id FROM longshore_unit ORDER BY id");
        return rows.lines().map(str::to_owned).collect();
    }
    let db = rusqlite::Connection::open(fixture.dir.path("longshore.db")).unwrap();
    let mut rows = db.prepare("SELECT * FROM longshore_unit ORDER BY id").unwrap();
    let width = rows.column_count();
    let text = |row: &rusqlite::Row<'_>| {
        let values = (0..width).map(|at| format!("{:?}", row.get_ref(at).unwrap()));
        Ok(values.collect::<Vec<_>>().join(" "))
    };
    rows.query_map([], text).unwrap().map(Result::unwrap).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn complaint_12_waking_workers_does_not_make_senders_wait_for_each_other() {
    // A synchronous commit waits for a standby that does not exist, and keeps its locks.
    let settings = [("synchronous_commit", "local"), ("synchronous_standby_names", "nobody")];
    let fixture = block_in_place(|| StoreFixture::postgres_with(&settings));
    let store = fixture.open_postgres().await;
    let mut tasks = JoinSet::new();
    let (listener, mut notifications) = listen(&fixture, &mut tasks).await;

    // There are far fewer notifications than sends.
    const SENDS: u64 = 1_000;
    let mut senders = JoinSet::new();
    for nth in 0..SENDS {
        let store = Arc::clone(&store);
        senders.spawn(async move { store.send(&ALL, vec![unit(nth)]).await.unwrap().len() });
    }
    assert_eq!(senders.join_all().await.len() as u64, SENDS);
    let received = count_notifications(&listener, &mut notifications).await;
    assert!((1..SENDS / 4).contains(&received), "{received} notices of {SENDS} sends");

    // One connection blocks in a commit with a NOTIFY and holds the lock that all such commits take.
    let (committer, _) = listen(&fixture, &mut tasks).await;
    committer.batch_execute("SET synchronous_commit = on").await.unwrap();
    let blocking_commit = "BEGIN; CREATE TABLE sits (); NOTIFY other; COMMIT";
    tasks.spawn(async move { committer.batch_execute(blocking_commit).await });
    wait_until(async || fixture.query_number(BLOCKED_COMMITS) == 1).await;
    let peer = "SET lock_timeout = '50ms'; NOTIFY other";
    assert!(listener.batch_execute(peer).await.is_err(), "the lock is held, peers wait for it");
    for nth in 0..20 {
        assert_eq!(store.send(&ALL, vec![unit(nth)]).await.unwrap().len(), 1);
    }
    // Once the lock is free, the notification is sent.
    fixture.query("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
    notifications.recv().await.unwrap();
}

const BLOCKED_COMMITS: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

/// A connection that listens as a store does, and the notifications it receives.
async fn listen(
    fixture: &StoreFixture,
    tasks: &mut JoinSet<Result<(), longshore_postgres::tokio_postgres::Error>>,
) -> (Client, mpsc::UnboundedReceiver<String>) {
    let url = fixture.server.as_ref().unwrap().url();
    let (client, mut connection) = connect(&url, NoTls).await.unwrap();
    let (sender, notifications) = mpsc::unbounded_channel();
    tasks.spawn(async move {
        while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(notification) = message? {
                let _ = sender.send(notification.payload().to_owned());
            }
        }
        Ok(())
    });
    client.batch_execute("LISTEN longshore").await.unwrap();
    (client, notifications)
}

/// Counts the notifications that arrive before the test's own, which it sends once the store is idle.
async fn count_notifications(listener: &Client, notifications: &mut mpsc::UnboundedReceiver<String>) -> u64 {
    let mut received = 0;
    // The notifier sends its last entry shortly after the sends return, so the test's first own
    // notification may arrive before it, but not all three.
    for nth in 0..3 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let own = format!("own {nth}");
        listener.batch_execute(&format!("NOTIFY longshore, '{own}'")).await.unwrap();
        loop {
            let notification = notifications.recv().await.unwrap();
            if notification == own {
                break;
            }
            received += 1;
        }
    }
    received
}
