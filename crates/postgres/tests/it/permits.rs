//! Bounded pools on a server, used by two processes.

use std::sync::Arc;
use std::time::Duration;

use longshore::permits::{AcquireRequest, AcquireResult, IfFull};
use longshore::store::Retention;
use longshore::{BoundedPool, Maintenance as _, PermitId, Permits, PoolName, Priority};
use longshore_postgres::{Listen, PostgresOptions, PostgresStore};
use longshore_testkit::PermitsFixture;
use longshore_testkit::conformance::{PERMIT_CASES, run_permits};
use longshore_testkit::servers::{PrivatePgbouncer, PrivatePostgres};
use tokio::task::{JoinSet, block_in_place};

use crate::conformance::panic_message;
use crate::test_server::Server;

async fn open(url: &str, listen: Listen) -> Arc<PostgresStore> {
    let options = PostgresOptions { listen, ..PostgresOptions::default() };
    Arc::new(PostgresStore::open(url, options).await.unwrap())
}

fn name() -> PoolName {
    PoolName::new("mjml").unwrap()
}

/// Runs the cases of some topics, four at a time, each in its own database, and reports the failed
/// ones.
async fn run(server: &Server, topics: &str, listen: Listen, by: Option<Arc<PrivatePgbouncer>>) {
    let only = std::env::var("LONGSHORE_CASE").unwrap_or_default();
    let asked = |case: &str| topics.split(' ').any(|topic| case.starts_with(topic));
    let all = PERMIT_CASES.iter().copied();
    let mut cases = all.filter(|case| asked(case) && case.contains(&only));
    let (mut failed, mut running) = (Vec::new(), JoinSet::new());
    loop {
        while running.len() < 4
            && let Some(case) = cases.next()
        {
            let (server, listen, by) = (server.clone(), listen.clone(), by.clone());
            running.spawn(async move { (case, run_case(&server, case, listen, by).await) });
        }
        let Some(ended) = running.join_next().await else { break };
        let (case, words) = ended.unwrap();
        failed.extend(words.map(|words| format!("{case}: {words}")));
    }
    assert!(failed.is_empty(), "{} cases failed:\n{}", failed.len(), failed.join("\n\n"));
}

async fn run_case(
    server: &Server,
    case: &'static str,
    listen: Listen,
    by: Option<Arc<PrivatePgbouncer>>,
) -> Option<String> {
    let database = server.database().await;
    let url = by.map_or_else(|| database.url.clone(), |by| by.pooled_url(&database.url));
    let fixture = PermitsFixture::new(open(&url, listen.clone()).await, open(&url, listen).await);
    let fixture = fixture.keeping(database);
    let mut alone = JoinSet::new();
    alone.spawn(async move { run_permits(case, &fixture).await });
    match tokio::time::timeout(Duration::from_secs(60), alone.join_next()).await {
        Err(_) => Some("timed out".to_owned()),
        Ok(ended) => ended.unwrap().err().map(panic_message),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_are_given_as_by_every_back_end() {
    run(&Server::start().await, "permits", Listen::Auto, None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_are_given_through_a_pooler_where_no_notices_come() {
    let server = Server::start().await;
    let bouncer = Arc::new(server.bouncer().await);
    run(&server, "permits_wakeups permits_regressions permits_chaos", Listen::Off, Some(bouncer)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crashed_server_tells_holders_that_their_permits_are_lost() {
    let mut server = block_in_place(|| PrivatePostgres::start().unwrap());
    let store = open(&server.url(), Listen::Auto).await;
    let pool = BoundedPool::builder(store, name(), 3).lease(Duration::from_secs(3)).build();
    let held = [pool.acquire().await.unwrap(), pool.acquire().await.unwrap()];
    block_in_place(|| server.restart_immediate().unwrap());
    for permit in &held {
        tokio::time::timeout(Duration::from_secs(20), permit.lost()).await.unwrap();
    }
    let next = pool.acquire().await.unwrap();
    assert!(next.fence() > held[1].fence());
    drop(held);
    drop(next);
    pool.flush().await;
    let stats = pool.stats().await.pool.unwrap();
    assert_eq!((stats.in_use, stats.waiting.len(), stats.acquired), (0, 0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pools_that_are_not_used_for_a_month_are_deleted_and_their_fences_do_not_go_back() {
    let server = Server::start().await;
    let database = server.database().await;
    let store = open(&database.url, Listen::Off).await;
    let pool = |name| BoundedPool::builder(store.clone(), PoolName::new(name).unwrap(), 1).build();
    let mut fences = Vec::new();
    for name in ["closed", "crashed", "recent", "unused"] {
        let permit = pool(name).acquire().await.unwrap();
        fences.push(permit.fence());
        permit.release().await.unwrap();
    }
    let _permit = pool("held").acquire().await.unwrap();
    pool("closed").resize(0).await.unwrap();
    let permits: Arc<dyn Permits> = store.clone();
    permits.create(&PoolName::new("new").unwrap(), 3).await.unwrap();
    database.run(
        "UPDATE longshore_bounded_pool SET fence_limit = fence_limit - 31 * 86400000000
           WHERE name <> 'recent' AND fence_limit > 0;
         DELETE FROM longshore_pool_state WHERE name = 'crashed'",
    );
    store.prune(Retention::default(), 100).await.unwrap();
    let left = permits.pools(None).await.unwrap();
    let left: Vec<&str> = left.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(left, ["closed", "held", "new", "recent"]);
    assert_eq!(
        database.run("SELECT count(*) FROM longshore_pool_state WHERE name IN ('unused', 'crashed')").trim(),
        "0"
    );
    assert!(pool("unused").acquire().await.unwrap().fence() > fences[3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_released_permit_goes_to_a_listening_waiter_with_the_reply() {
    let server = Server::start().await;
    let database = server.database().await;
    let store = open(&database.url, Listen::Off).await;
    let permits: &dyn Permits = &*store;
    let ask = |ttl| AcquireRequest {
        id: PermitId::new(),
        max: 1,
        weight: 1,
        priority: Priority::NORMAL,
        owner: "test".into(),
        ttl,
        if_full: IfFull::Wait(Duration::from_secs(600)),
    };
    let (holder, waiter) = (ask(Duration::from_secs(60)), ask(Duration::from_secs(60)));
    permits.acquire(&name(), &holder).await.unwrap();
    let answer = permits.acquire(&name(), &waiter).await.unwrap();
    assert!(matches!(answer, AcquireResult::Waiting { .. }), "{answer:?}");
    let pool = name();
    let mut turn = std::pin::pin!(permits.wait_for_wakeup(&pool, waiter.id));
    assert!(futures_util::poll!(turn.as_mut()).is_pending());
    permits.release(&pool, &[holder.id], false).await.unwrap();
    turn.await;
    let stats = permits.stats(&pool).await.unwrap().unwrap();
    assert_eq!((stats.in_use, stats.waiting.len()), (1, 0), "it holds the permit before it asks again");
    let AcquireResult::Granted(grant) = permits.acquire(&pool, &waiter).await.unwrap() else {
        panic!("the permit was not received");
    };
    assert_eq!(grant.fence, stats.holders[0].fence);
    permits.release(&pool, &[waiter.id], false).await.unwrap();
    assert_eq!(permits.stats(&pool).await.unwrap().unwrap().in_use, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_given_up_leave_connections_and_permits_alone() {
    let server = Server::start().await;
    let database = server.database().await;
    let store = open(&database.url, Listen::Auto).await;
    let pool = BoundedPool::builder(store.clone(), name(), 1).build();
    let held = pool.acquire().await.unwrap();
    let mut tries = JoinSet::new();
    for n in 0..50_u64 {
        let pool = pool.clone();
        tries.spawn(async move {
            let patience = Duration::from_micros(n * 200);
            assert!(tokio::time::timeout(patience, pool.acquire()).await.is_err());
        });
    }
    tries.join_all().await;
    drop(held);
    pool.flush().await;
    // Requests that were dropped in flight may still arrive, and are released right after.
    let last = pool.acquire().await.unwrap();
    drop(last);
    pool.flush().await;
    let permits: &dyn Permits = &*store;
    let stats = permits.stats(&name()).await.unwrap().unwrap();
    assert_eq!((stats.in_use, stats.waiting.len()), (0, 0));
}
