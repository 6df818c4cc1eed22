//! Permits do not wait for the disk: after a crash or a promotion nothing is granted while lost leases may still be
//! valid; a clean restart loses nothing.

use std::sync::Arc;
use std::time::Duration;

use longshore::permits::{AcquireRequest, AcquireResult, IfFull, PermitGrant};
use longshore::{PermitId, Permits, PoolName, Priority};
use longshore_postgres::{PostgresOptions, PostgresStore};
use longshore_testkit::servers::PrivatePostgres;
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep, timeout};

/// Long enough to restart a server within it.
const LEASE: Duration = Duration::from_secs(6);
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

async fn open(url: &str) -> Arc<dyn Permits> {
    Arc::new(PostgresStore::open(url, PostgresOptions::default()).await.unwrap())
}

fn pool() -> PoolName {
    PoolName::new("mjml").unwrap()
}

fn ask(if_full: IfFull) -> AcquireRequest {
    AcquireRequest {
        id: PermitId::new(),
        max: 9,
        weight: 1,
        priority: Priority::NORMAL,
        owner: "test".into(),
        ttl: LEASE,
        if_full,
    }
}

fn wait() -> AcquireRequest {
    ask(IfFull::Wait(TEST_TIMEOUT))
}

/// Repeats a call until the server answers: its connections were closed.
async fn until_ok<T>(call: impl AsyncFn() -> longshore::Result<T>) -> T {
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(error) => assert!(error.is_retryable() && Instant::now() < until, "{error}"),
        }
        sleep(Duration::from_millis(20)).await;
    }
}

async fn granted(permits: &dyn Permits, ask: &AcquireRequest) -> PermitGrant {
    match until_ok(async || permits.acquire(&pool(), ask).await).await {
        AcquireResult::Granted(grant) => grant,
        other => unreachable!("not granted but {other:?}"),
    }
}

/// Asks as a waiter does, and returns the grant and the time of the request that was granted.
async fn until_granted(permits: &dyn Permits, ask: &AcquireRequest) -> (PermitGrant, Instant) {
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        let sent = Instant::now();
        match until_ok(async || permits.acquire(&pool(), ask).await).await {
            AcquireResult::Granted(grant) => return (grant, sent),
            AcquireResult::Waiting { retry_after, .. } => {
                assert!(Instant::now() < until, "no permit is granted again");
                let _ = timeout(retry_after, permits.wait_for_wakeup(&pool(), ask.id)).await;
            }
            other => unreachable!("not queued but {other:?}"),
        }
    }
}

/// Two permits of three were held at `held_since` when the data was lost.
async fn check_data_loss(permits: &dyn Permits, held: &[AcquireRequest], last: u64, held_since: Instant) {
    let next = wait();
    let answer = until_ok(async || permits.acquire(&pool(), &next).await).await;
    assert!(matches!(answer, AcquireResult::Waiting { .. }), "{answer:?}");
    let refused = until_ok(async || permits.acquire(&pool(), &ask(IfFull::Fail)).await).await;
    assert_eq!(refused, AcquireResult::Full);
    let stats = permits.stats(&pool()).await.unwrap().unwrap();
    assert_eq!((stats.max, stats.in_use), (3, 0), "the maximum is kept");
    assert!(stats.quarantine.is_some_and(|left| left <= LEASE + Duration::from_secs(1)), "{stats:?}");
    let ids: Vec<PermitId> = held.iter().map(|ask| ask.id).collect();
    assert_eq!(permits.renew(&pool(), &ids, LEASE).await.unwrap(), ids, "holders learn of the loss");
    let (grant, sent) = until_granted(permits, &next).await;
    assert!(sent.elapsed() + (sent - held_since) >= LEASE, "granted while an earlier lease was valid");
    assert!(grant.fence > last, "{} after {last}", grant.fence);
    for _ in 0..2 {
        assert!(granted(permits, &ask(IfFull::Fail)).await.fence > grant.fence);
    }
    assert_eq!(permits.acquire(&pool(), &ask(IfFull::Fail)).await.unwrap(), AcquireResult::Full);
    assert_eq!(permits.stats(&pool()).await.unwrap().unwrap().quarantine, None);
}

/// Holds two permits of a pool that was resized to three. Returns them with the last fence.
async fn hold_two(permits: &dyn Permits) -> (Vec<AcquireRequest>, u64) {
    permits.create(&pool(), 5).await.unwrap();
    permits.resize(&pool(), 3).await.unwrap();
    let held = vec![wait(), wait()];
    granted(permits, &held[0]).await;
    let fence = granted(permits, &held[1]).await.fence;
    (held, fence)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_is_followed_by_one_lease_of_quarantine() {
    let mut server = block_in_place(|| PrivatePostgres::start().unwrap());
    let permits = open(&server.url()).await;
    let (held, fence) = hold_two(&*permits).await;
    let held_since = Instant::now();
    block_in_place(|| server.restart_immediate().unwrap());
    check_data_loss(&*permits, &held, fence, held_since).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_standby_begins_with_one_lease_of_quarantine() {
    let mut server = block_in_place(|| PrivatePostgres::start().unwrap());
    let permits = open(&server.url()).await;
    permits.create(&pool(), 5).await.unwrap();
    let standby = block_in_place(|| server.start_standby().unwrap());
    let (held, fence) = hold_two(&*permits).await;
    let held_since = Instant::now();
    let replicated =
        "SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), replay_lsn) <= 0 FROM pg_stat_replication";
    while block_in_place(|| server.run(replicated).unwrap()).trim() != "t" {
        assert!(held_since.elapsed() < LEASE, "the standby does not follow");
    }
    block_in_place(|| {
        server.stop();
        standby.promote().unwrap();
    });
    let permits = open(&standby.url()).await;
    check_data_loss(&*permits, &held, fence, held_since).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_restart_keeps_holders_and_waiters() {
    let mut server = block_in_place(|| PrivatePostgres::start().unwrap());
    let permits = open(&server.url()).await;
    let (held, fence) = hold_two(&*permits).await;
    let all = AcquireRequest { weight: 3, ..wait() };
    assert!(matches!(permits.acquire(&pool(), &all).await.unwrap(), AcquireResult::Waiting { .. }));
    block_in_place(|| server.restart().unwrap());
    let ids: Vec<PermitId> = held.iter().map(|ask| ask.id).collect();
    assert_eq!(until_ok(async || permits.renew(&pool(), &ids, LEASE).await).await, []);
    let stats = permits.stats(&pool()).await.unwrap().unwrap();
    assert_eq!((stats.in_use, stats.waiting.len(), stats.quarantine), (2, 1, None));
    permits.release(&pool(), &ids, false).await.unwrap();
    assert!(granted(&*permits, &all).await.fence > fence);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_ends_the_quarantine() {
    let mut server = block_in_place(|| PrivatePostgres::start().unwrap());
    let permits = open(&server.url()).await;
    let (_, fence) = hold_two(&*permits).await;
    block_in_place(|| server.restart_immediate().unwrap());
    let refused = until_ok(async || permits.acquire(&pool(), &ask(IfFull::Fail)).await).await;
    assert_eq!(refused, AcquireResult::Full);
    permits.reset(&pool()).await.unwrap();
    assert!(granted(&*permits, &ask(IfFull::Fail)).await.fence > fence);
    assert_eq!(permits.stats(&pool()).await.unwrap().unwrap().quarantine, None);
}

/// A pool that was created after the crash may have been known before: its creation may not have been replicated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_is_new_right_after_a_crash_grants_nothing_for_one_lease() {
    let mut server = block_in_place(|| PrivatePostgres::start().unwrap());
    let permits = open(&server.url()).await;
    block_in_place(|| server.restart_immediate().unwrap());
    let began = Instant::now();
    let first = wait();
    let (_, sent) = until_granted(&*permits, &first).await;
    assert!(sent.elapsed() + (sent - began) >= LEASE, "a lease from before the crash may be valid");
}
