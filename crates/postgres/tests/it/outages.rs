//! The server stops, restarts, or terminates connections.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longshore_core::store::{ClaimRequest, Enqueue, FinishRequest, FinishResult, Queries, Queues, WorkerApi};
use longshore_core::worker_session::NewSession;
use longshore_core::{Error, Kind, NewUnit, Outcome, Policy, Result, Scope, SessionId, UnitState};
use longshore_postgres::{PostgresOptions, PostgresStore};
use longshore_testkit::servers::PrivatePostgres;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::Instant;

/// Longer than anything here should take.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

fn kind() -> Kind {
    Kind::new("work").unwrap()
}

pub(crate) fn unit() -> NewUnit {
    NewUnit::new(kind(), serde_json::json!({}))
}

fn server() -> PrivatePostgres {
    block_in_place(|| PrivatePostgres::start().unwrap())
}

async fn open(url: &str) -> Arc<PostgresStore> {
    Arc::new(PostgresStore::open(url, PostgresOptions::default()).await.unwrap())
}

/// Retries until the store answers, as every client does.
pub(crate) async fn retry_until_ok<T, F: Future<Output = Result<T>>>(mut call: impl FnMut() -> F) -> T {
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(error) => assert!(error.is_retryable() && Instant::now() < until, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Whether another store's commit wakes `waiting`: three times in a row, because a store that has
/// just begun to listen wakes by itself.
pub(crate) async fn is_woken(waiting: &PostgresStore, sender: &PostgresStore) -> bool {
    for _ in 0..3 {
        let seen = waiting.wait_for_ready(u64::MAX, Duration::ZERO).await;
        retry_until_ok(|| sender.send(&Scope::All, vec![unit()])).await;
        // Sooner than a listening worker polls without a notification.
        if waiting.wait_for_ready(seen, Duration::from_secs(3)).await == seen {
            return false;
        }
    }
    true
}

/// Waits until notifications of `sender`'s commits arrive at `listener`.
pub(crate) async fn wait_until_notified(listener: &PostgresStore, sender: &PostgresStore) {
    let until = Instant::now() + TEST_TIMEOUT;
    while !(listener.is_listening() && is_woken(listener, sender).await && listener.is_listening()) {
        assert!(Instant::now() < until, "no notification arrives");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_away_says_so_and_works_again_when_it_is_back() {
    let mut server = server();
    let store = open(&server.url()).await;
    store.send(&Scope::All, vec![unit(), unit()]).await.unwrap();
    block_in_place(|| server.stop());
    for _ in 0..3 {
        let error = store.send(&Scope::All, vec![unit()]).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        assert!(!error.to_string().contains(server.password()), "{error}");
    }
    assert!(store.totals(&Scope::All, &Queues::All).await.unwrap_err().is_retryable());
    block_in_place(|| server.restart().unwrap());
    retry_until_ok(|| store.send(&Scope::All, vec![unit()])).await;
    let totals = store.totals(&Scope::All, &Queues::All).await.unwrap();
    assert_eq!(totals.counts.ready, 3);
    assert_eq!(store.verify().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_confirmed_survives_a_crash_of_the_server() {
    let mut server = server();
    let store = open(&server.url()).await;
    for _ in 0..20 {
        store.send(&Scope::All, (0..50).map(|_| unit()).collect()).await.unwrap();
    }
    block_in_place(|| server.restart_immediate().unwrap());
    let totals = retry_until_ok(|| store.totals(&Scope::All, &Queues::All)).await;
    assert_eq!(totals.counts.ready, 1000);
    assert_eq!(retry_until_ok(|| store.verify()).await, []);
}

/// A claim does not wait for the disk: a crash undoes it, and another session claims the unit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whose_claim_a_crash_took_back_is_not_taken_for_the_next_holder() {
    let settings = [("wal_writer_delay", "10s"), ("wal_writer_flush_after", "0")];
    let mut server = block_in_place(|| PrivatePostgres::start_with(&settings).unwrap());
    let store = open(&server.url()).await;
    let (first, second) = (SessionId::new(), SessionId::new());
    for id in [first, second] {
        store.open_session(new_session(id)).await.unwrap();
    }
    // The server may have written the claim to the disk by itself: then once more, with another unit.
    let mut tries = 0..5;
    let (lost, units) = loop {
        assert!(tries.next().is_some(), "every claim was on the disk already");
        retry_until_ok(|| store.send(&Scope::All, vec![unit()])).await;
        let lost = retry_until_ok(|| store.claim(claim(first))).await.units[0].lease;
        block_in_place(|| server.restart_immediate().unwrap());
        let units = retry_until_ok(|| store.claim(claim(second))).await.units;
        if !units.is_empty() {
            break (lost, units);
        }
    };
    let late = FinishRequest::new(lost, Outcome::Done(None));
    let answers = retry_until_ok(|| store.finish(first, vec![late.clone()])).await;
    assert_eq!(answers, [FinishResult::LeaseLost]);
    let end = FinishRequest::new(units[0].lease, Outcome::Done(None));
    let answers = retry_until_ok(|| store.finish(second, vec![end.clone()])).await;
    assert_eq!(answers, [FinishResult::Recorded(UnitState::Done)]);
    // The first session's finish is still refused: the second session's record is not taken for its
    // own.
    let answers = retry_until_ok(|| store.finish(first, vec![late.clone()])).await;
    assert_eq!(answers, [FinishResult::LeaseLost]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_are_heard_again_after_a_restart() {
    let mut server = server();
    let (listener, sender) = (open(&server.url()).await, open(&server.url()).await);
    wait_until_notified(&listener, &sender).await;
    block_in_place(|| server.restart_immediate().unwrap());
    wait_until_notified(&listener, &sender).await;
}

/// Sends until `over` is set, and returns the number of units.
async fn send_until(store: Arc<PostgresStore>, over: Arc<AtomicBool>) -> u64 {
    let mut sent = 0;
    while !over.load(Ordering::Relaxed) {
        let units: Vec<NewUnit> = (0..10).map(|_| unit()).collect();
        // After an error the same units are sent again: they may be stored already.
        retry_until_ok(|| store.send(&Scope::All, units.clone())).await;
        sent += 10;
    }
    sent
}

/// Claims and finishes until nothing is left of all that was sent.
async fn work_until(store: Arc<PostgresStore>, sent_all: Arc<AtomicBool>) {
    let session = SessionId::new();
    retry_until_ok(|| store.open_session(new_session(session))).await;
    loop {
        let last = sent_all.load(Ordering::Relaxed);
        let units = retry_until_ok(|| store.claim(claim(session))).await.units;
        if units.is_empty() && last {
            break;
        }
        let ends = units.iter().map(|held| FinishRequest::new(held.lease, Outcome::Done(None)));
        let ends: Vec<FinishRequest> = ends.collect();
        retry_until_ok(|| store.finish(session, ends.clone())).await;
    }
    // Releases units that were claimed by a call with a lost reply.
    retry_until_ok(|| store.close_session(session)).await;
}

pub(crate) fn new_session(id: SessionId) -> NewSession {
    NewSession {
        kinds: BTreeMap::from([(kind(), Policy::default())]),
        slots: 10,
        ttl: TEST_TIMEOUT,
        ..NewSession::new(id, "test")
    }
}

fn claim(session: SessionId) -> ClaimRequest {
    ClaimRequest::new(session, vec![kind()], 10)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_cut_in_the_middle_lose_and_repeat_nothing() {
    let server = server();
    let (over, sent_all) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (mut senders, mut workers) = (JoinSet::new(), JoinSet::new());
    for _ in 0..2 {
        let store = open(&server.url()).await;
        senders.spawn(send_until(Arc::clone(&store), Arc::clone(&over)));
        workers.spawn(work_until(store, Arc::clone(&sent_all)));
    }
    let store = open(&server.url()).await;
    for cut in 1..=10 {
        // Terminate again after there was traffic since the last time.
        let wanted = cut * 50;
        let moved = async || {
            let totals = retry_until_ok(|| store.totals(&Scope::All, &Queues::All)).await;
            totals.counts.done >= wanted
        };
        let until = Instant::now() + TEST_TIMEOUT;
        while !moved().await {
            assert!(Instant::now() < until, "nothing moves");
        }
        block_in_place(|| server.run(TERMINATE_CONNECTIONS).unwrap());
    }
    over.store(true, Ordering::Relaxed);
    let sent: u64 = senders.join_all().await.into_iter().sum();
    sent_all.store(true, Ordering::Relaxed);
    workers.join_all().await;
    let counts = retry_until_ok(|| store.totals(&Scope::All, &Queues::All)).await.counts;
    assert_eq!((counts.total(), counts.leased), (sent, 0));
    assert_eq!(counts.done + counts.ready, sent);
    assert_eq!(retry_until_ok(|| store.verify()).await, []);
}

/// Terminates every connection of the store, whatever it is doing.
pub(crate) const TERMINATE_CONNECTIONS: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE application_name = 'longshore' AND pid <> pg_backend_pid()";
