//! A private server for one test, and requests to send to it.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use longshore_core::permits::{AcquireRequest, AcquireResult, IfFull, PermitGrant, Permits};
use longshore_core::{PermitId, PoolName, Priority, Result};
use longshore_redis::{RedisOptions, RedisPermits};
use longshore_testkit::servers::{PrivateRedis, RedisPersistence};
use tokio::time::Instant;

/// Longer than any test should take.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// A TTL that does not expire during a test.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// Starts a server; takes a moment.
pub(crate) async fn server(remembers: RedisPersistence) -> PrivateRedis {
    let start = move || PrivateRedis::start(remembers).unwrap();
    tokio::task::spawn_blocking(start).await.unwrap()
}

pub(crate) fn open(url: &str) -> Arc<dyn Permits> {
    Arc::new(open_redis(url))
}

pub(crate) fn open_redis(url: &str) -> RedisPermits {
    RedisPermits::open(url, &RedisOptions::default()).unwrap()
}

/// The pool of all tests here.
pub(crate) fn pool() -> &'static PoolName {
    static NAME: LazyLock<PoolName> = LazyLock::new(|| PoolName::new("render").unwrap());
    &NAME
}

/// A request for a permit of a pool of one, without waiting.
pub(crate) fn ask(ttl: Duration) -> AcquireRequest {
    AcquireRequest {
        id: PermitId::new(),
        max: 1,
        weight: 1,
        priority: Priority::NORMAL,
        owner: "host: a test".into(),
        ttl,
        if_full: IfFull::Fail,
    }
}

/// A request with a place in the queue that stays valid for a long time.
pub(crate) fn wait(ttl: Duration) -> AcquireRequest {
    AcquireRequest { if_full: IfFull::Wait(LONG), ..ask(ttl) }
}

pub(crate) async fn granted(permits: &dyn Permits, ask: &AcquireRequest) -> PermitGrant {
    match permits.acquire(pool(), ask).await.unwrap() {
        AcquireResult::Granted(grant) => grant,
        other => panic!("{other:?}"),
    }
}

/// Asks until the permit is granted, as the engine does; returns when that was.
pub(crate) async fn until_granted(permits: &dyn Permits, ask: &AcquireRequest) -> Instant {
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        assert!(Instant::now() < until, "no permit comes");
        match retry_until_ok(|| permits.acquire(pool(), ask)).await {
            AcquireResult::Granted(_) => return Instant::now(),
            AcquireResult::Waiting { retry_after, .. } => {
                let turn = permits.wait_for_wakeup(pool(), ask.id);
                let _ = tokio::time::timeout(retry_after, turn).await;
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Retries until the server replies, as every caller does.
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
