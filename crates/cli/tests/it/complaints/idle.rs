//! 11 and 12: the cost of idle workers, and what waking workers costs senders.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::poll_fn;
use longshore::store::Beat;
use longshore::{Context, Intake as _, SessionId, Worker};
use longshore_postgres::tokio_postgres::{AsyncMessage, Client, NoTls, connect};
use longshore_sqlite::rusqlite;
use longshore_testkit::InstrumentedStore;
use tokio::sync::mpsc;
use tokio::task::{JoinSet, block_in_place};

use super::kit::{ALL, Ground, brisk, claim, kind, send, session, unit, units, until};

/// The number of heartbeats over which calls are counted.
const BEATS: u64 = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn complaint_11_an_idle_worker_asks_for_little_and_beats_in_one_row() {
    let [one, two] = block_in_place(Ground::both);
    tokio::join!(an_idle_worker_asks_for_little(&one), an_idle_worker_asks_for_little(&two));
    for ground in [one, two] {
        a_beat_changes_one_row(&ground).await;
    }
}

async fn an_idle_worker_asks_for_little(ground: &Ground) {
    let store = Arc::new(InstrumentedStore::new(ground.open().await));
    let worker = Worker::builder(store.clone())
        .slots(64)
        .ttl(Duration::from_secs(4))
        .handle_fn(kind(), brisk(), |_: Context, _: u64| async { Ok::<(), String>(()) })
        .build()
        .unwrap();
    let control = worker.control();
    let watch = async {
        until(async || store.calls("beat") >= BEATS).await;
        control.drain();
    };
    let (report, ()) = tokio::join!(worker.run(), watch);
    report.unwrap();
    // Four heartbeats per TTL: one a second. The other calls are claims and maintenance.
    let stats = store.stats();
    let asked: u64 = stats.iter().filter(|(verb, _)| **verb != "wake").map(|(_, s)| s.calls).sum();
    assert!(asked <= 15 * BEATS, "{}: {asked} calls in {BEATS} beats: {stats:#?}", ground.name());
    assert!(stats["claim"].calls <= 3 * BEATS, "{}: {stats:#?}", ground.name());
}

/// A heartbeat writes one session row and no unit row, however many units the worker holds.
async fn a_beat_changes_one_row(ground: &Ground) {
    let store = ground.open().await;
    send(&store, units(200)).await;
    let ids: [SessionId; 2] = [session(&*store).await, session(&*store).await];
    for id in ids {
        assert_eq!(claim(&*store, id, 100).await.len(), 100);
    }
    let before = unit_rows(ground);
    assert_eq!(before.len(), 200);
    for _ in 0..BEATS {
        for id in ids {
            let answer = store.beat(id, Beat::default()).await.unwrap();
            assert_eq!(answer.held, 100);
        }
    }
    assert_eq!(unit_rows(ground), before, "{}", ground.name());
    let sessions = store.sessions().await.unwrap();
    let beats: Vec<u64> = sessions.iter().map(|session| session.beats).collect();
    assert_eq!(beats, [BEATS; 2], "{}: one row for each worker", ground.name());
}

/// All unit rows; on PostgreSQL with their physical position, which changes when a row is written.
fn unit_rows(ground: &Ground) -> Vec<String> {
    if ground.server.is_some() {
        let rows = ground.ask("SELECT ctid, xmin, id FROM longshore_unit ORDER BY id");
        return rows.lines().map(str::to_owned).collect();
    }
    let db = rusqlite::Connection::open(ground.place.path("longshore.db")).unwrap();
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
    let ground = block_in_place(|| Ground::postgres_with(&settings));
    let store = ground.open_postgres().await;
    let mut tasks = JoinSet::new();
    let (listener, mut notices) = listen(&ground, &mut tasks).await;

    // There are far fewer notifications than sends.
    const SENDS: u64 = 1_000;
    let mut senders = JoinSet::new();
    for nth in 0..SENDS {
        let store = Arc::clone(&store);
        senders.spawn(async move { store.send(&ALL, vec![unit(nth)]).await.unwrap().len() });
    }
    assert_eq!(senders.join_all().await.len() as u64, SENDS);
    let heard = last_heard(&listener, &mut notices).await;
    assert!((1..SENDS / 4).contains(&heard), "{heard} notices of {SENDS} sends");

    // One connection blocks in a commit with a NOTIFY and holds the lock that all such commits take.
    let (sitter, _) = listen(&ground, &mut tasks).await;
    sitter.batch_execute("SET synchronous_commit = on").await.unwrap();
    let sits = "BEGIN; CREATE TABLE sits (); NOTIFY other; COMMIT";
    tasks.spawn(async move { sitter.batch_execute(sits).await });
    until(async || ground.number(SITS) == 1).await;
    let peer = "SET lock_timeout = '50ms'; NOTIFY other";
    assert!(listener.batch_execute(peer).await.is_err(), "the lock is held, peers wait for it");
    for nth in 0..20 {
        assert_eq!(store.send(&ALL, vec![unit(nth)]).await.unwrap().len(), 1);
    }
    // Once the lock is free, the notification is sent.
    ground.ask("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
    notices.recv().await.unwrap();
}

const SITS: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

/// A connection that listens as a store does, and the notifications it receives.
async fn listen(
    ground: &Ground,
    tasks: &mut JoinSet<Result<(), longshore_postgres::tokio_postgres::Error>>,
) -> (Client, mpsc::UnboundedReceiver<String>) {
    let url = ground.server.as_ref().unwrap().url();
    let (client, mut connection) = connect(&url, NoTls).await.unwrap();
    let (tell, notices) = mpsc::unbounded_channel();
    tasks.spawn(async move {
        while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(notice) = message? {
                let _ = tell.send(notice.payload().to_owned());
            }
        }
        Ok(())
    });
    client.batch_execute("LISTEN longshore").await.unwrap();
    (client, notices)
}

/// Counts the notifications that arrive before the test's own, which it sends once the store is idle.
async fn last_heard(listener: &Client, notices: &mut mpsc::UnboundedReceiver<String>) -> u64 {
    let mut heard = 0;
    // The notifier sends its last entry shortly after the sends return, so the test's first own
    // notification may arrive before it, but not all three.
    for nth in 0..3 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let own = format!("own {nth}");
        listener.batch_execute(&format!("NOTIFY longshore, '{own}'")).await.unwrap();
        loop {
            let notice = notices.recv().await.unwrap();
            if notice == own {
                break;
            }
            heard += 1;
        }
    }
    heard
}
