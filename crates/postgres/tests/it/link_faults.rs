//! Connections to a server that accepts no writes, and connections that receive no more replies.

use std::sync::Arc;
use std::time::Duration;

use longshore::permits::{AcquireRequest, IfFull};
use longshore::store::Heartbeat;
use longshore::unit::{Dedup, DedupWindow, OnDuplicate};
use longshore::{
    Enqueue as _, NewUnit, PermitId, Permits as _, PoolName, Priority, Scope, SessionId, WorkerApi as _,
};
use longshore_postgres::{Listen, PostgresOptions, PostgresStore};
use longshore_testkit::fault_proxy::{Direction, FaultProxy, LinkFault};
use longshore_testkit::servers::PrivatePostgres;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::{sleep, timeout};

use crate::outages::{TERMINATE_CONNECTIONS, new_session, retry_until_ok, unit, wait_until_notified};

const ALL: Scope = Scope::All;

fn server_and_proxy() -> (PrivatePostgres, FaultProxy) {
    let server = block_in_place(|| PrivatePostgres::start().unwrap());
    let proxy = FaultProxy::start(format!("127.0.0.1:{}", server.port())).unwrap();
    (server, proxy)
}

/// Opens a store through the proxy.
async fn open(server: &PrivatePostgres, proxy: &FaultProxy, options: &PostgresOptions) -> Arc<PostgresStore> {
    let url = server.url_at_port(proxy.address().port());
    Arc::new(retry_until_ok(|| PostgresStore::open(&url, options.clone())).await)
}

/// A store that waits shortly for replies, with two connections.
fn impatient() -> PostgresOptions {
    let timeout = Duration::from_millis(400);
    PostgresOptions { connections: 2, timeout, listen: Listen::Off, ..PostgresOptions::default() }
}

/// Starts calls, which get no reply, and ends their connections without telling this process.
async fn half_open_during<T: Send + 'static>(
    proxy: &FaultProxy,
    calls: Vec<impl Future<Output = T> + Send + 'static>,
) {
    proxy.set(LinkFault::Stall(Direction::Both));
    let mut running = JoinSet::new();
    for call in calls {
        running.spawn(call);
    }
    // What is sent or being opened arrives at the proxy meanwhile.
    sleep(Duration::from_millis(50)).await;
    proxy.set(LinkFault::HalfOpen);
    proxy.heal();
    running.join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_leaves_connections_to_a_server_that_accepts_no_writes() {
    let server = block_in_place(|| PrivatePostgres::start().unwrap());
    let options = PostgresOptions { connections: 2, ..PostgresOptions::default() };
    let store = Arc::new(PostgresStore::open(&server.url(), options).await.unwrap());
    let session = SessionId::new();
    store.open_session(new_session(session)).await.unwrap();
    store.send(&ALL, vec![unit()]).await.unwrap();
    let dedup = || {
        Some(Dedup { key: "k".into(), window: DedupWindow::WhileLive, on_duplicate: OnDuplicate::Existing })
    };
    // A transaction of several statements, a single statement, and a heartbeat.
    let transaction =
        || async { store.send(&ALL, vec![NewUnit { dedup: dedup(), ..unit() }]).await.map(drop) };
    let statement = || async { store.send(&ALL, vec![unit()]).await.map(drop) };
    let heartbeat = || async { store.heartbeat(session, Heartbeat::default()).await.map(drop) };
    let run = |sql: &str| block_in_place(|| server.run_in("postgres", sql).unwrap());
    // New connections keep this setting until they end.
    run("ALTER DATABASE longshore SET default_transaction_read_only = on");
    run(TERMINATE_CONNECTIONS);
    for _ in 0..2 {
        while !transaction().await.unwrap_err().to_string().contains("read-only") {}
        while !statement().await.unwrap_err().to_string().contains("read-only") {}
        while !heartbeat().await.unwrap_err().to_string().contains("read-only") {}
    }
    run("ALTER DATABASE longshore RESET default_transaction_read_only");
    retry_until_ok(transaction).await;
    retry_until_ok(statement).await;
    retry_until_ok(heartbeat).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_open_connections_do_not_use_up_the_pool() {
    let (server, proxy) = server_and_proxy();
    let store = open(&server, &proxy, &impatient()).await;
    retry_until_ok(|| store.send(&ALL, vec![unit()])).await;
    for _ in 0..10 {
        let send = || {
            let store = Arc::clone(&store);
            async move { store.send(&ALL, vec![unit()]).await.map(drop) }
        };
        half_open_during(&proxy, vec![send(), send()]).await;
        retry_until_ok(send).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_call_without_a_reply_does_not_block_its_pool() {
    let (server, proxy) = server_and_proxy();
    let store = open(&server, &proxy, &impatient()).await;
    let acquire = || {
        let (store, pool) = (Arc::clone(&store), PoolName::new("p").unwrap());
        async move {
            let request = AcquireRequest {
                id: PermitId::new(),
                max: 100,
                weight: 1,
                priority: Priority::default(),
                owner: "test".into(),
                ttl: Duration::from_secs(60),
                if_full: IfFull::Fail,
            };
            store.acquire(&pool, &request).await.map(drop)
        }
    };
    retry_until_ok(acquire).await;
    half_open_during(&proxy, vec![acquire()]).await;
    retry_until_ok(acquire).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_never_opens_does_not_block_the_next_heartbeat() {
    let (server, proxy) = server_and_proxy();
    let store =
        open(&server, &proxy, &PostgresOptions { listen: Listen::Off, ..PostgresOptions::default() }).await;
    let session = SessionId::new();
    store.open_session(new_session(session)).await.unwrap();
    let beat = || {
        let store = Arc::clone(&store);
        async move { store.heartbeat(session, Heartbeat::default()).await.map(drop) }
    };
    let first = timeout(Duration::from_millis(100), beat());
    half_open_during(&proxy, vec![first]).await;
    timeout(Duration::from_secs(12), retry_until_ok(beat)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_accepts_connections_and_never_answers_does_not_keep_heartbeats_from_the_next() {
    let (server, silent) = server_and_proxy();
    let good = FaultProxy::start(format!("127.0.0.1:{}", server.port())).unwrap();
    let one = server.url_at_port(silent.address().port());
    let url = one.replace(&silent.address().to_string(), &format!("{},{}", silent.address(), good.address()));
    assert_ne!(url, one);
    let options = PostgresOptions { timeout: Duration::from_secs(10), ..PostgresOptions::default() };
    let store = Arc::new(PostgresStore::open(&url, options).await.unwrap());
    let session = SessionId::new();
    store.open_session(new_session(session)).await.unwrap();
    retry_until_ok(|| store.heartbeat(session, Heartbeat::default())).await;
    // The connections end unnoticed, and new ones to this host get no answer.
    silent.set(LinkFault::HalfOpen);
    silent.set(LinkFault::Stall(Direction::Both));
    for _ in 0..2 {
        // As the worker does, of which each heartbeat has a time limit of its own.
        retry_until_ok(|| store.heartbeat(session, Heartbeat::default())).await;
        retry_until_ok(|| store.send(&ALL, vec![unit()])).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_notices_that_its_connection_is_half_open() {
    let (server, proxy) = server_and_proxy();
    let listener = open(&server, &proxy, &PostgresOptions::default()).await;
    let sender = PostgresStore::open(&server.url(), PostgresOptions::default()).await.unwrap();
    wait_until_notified(&listener, &sender).await;
    proxy.set(LinkFault::HalfOpen);
    proxy.heal();
    wait_until_notified(&listener, &sender).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_is_refused_as_a_store() {
    let primary = block_in_place(|| PrivatePostgres::start().unwrap());
    PostgresStore::open(&primary.url(), PostgresOptions::default()).await.unwrap();
    let standby = block_in_place(|| primary.start_standby().unwrap());
    let error = PostgresStore::open(&standby.url(), PostgresOptions::default()).await.unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("standby"), "{error}");
}
