//! A private server for one test, and words to ask of it.

use std::sync::LazyLock;
use std::time::Duration;

use longshore_core::permits::{Answer, Ask, Grant, Otherwise, Permits};
use longshore_core::{PermitId, PoolName, Priority, Result};
use longshore_redis::{RedisOptions, RedisPermits};
use longshore_testkit::servers::{PrivateRedis, Remembers};
use tokio::time::Instant;

/// Longer than anything here should take.
pub(crate) const FOREVER: Duration = Duration::from_secs(60);
/// A lease that does not run out while a test runs.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// Starts a server; takes a moment.
pub(crate) async fn server(remembers: Remembers) -> PrivateRedis {
    let start = move || PrivateRedis::start(remembers).unwrap();
    tokio::task::spawn_blocking(start).await.unwrap()
}

pub(crate) fn open(url: &str) -> RedisPermits {
    RedisPermits::open(url, &RedisOptions::default()).unwrap()
}

/// The pool of all tests here.
pub(crate) fn pool() -> &'static PoolName {
    static NAME: LazyLock<PoolName> = LazyLock::new(|| PoolName::new("render").unwrap());
    &NAME
}

/// Asks a pool of one for a permit, without waiting.
pub(crate) fn ask(ttl: Duration) -> Ask {
    Ask {
        id: PermitId::new(),
        max: 1,
        weight: 1,
        priority: Priority::NORMAL,
        owner: "host: a test".into(),
        ttl,
        otherwise: Otherwise::GoAway,
    }
}

/// The same, with a place in the line that is good for a long time.
pub(crate) fn wait(ttl: Duration) -> Ask {
    Ask { otherwise: Otherwise::Wait(LONG), ..ask(ttl) }
}

pub(crate) async fn granted(permits: &RedisPermits, ask: &Ask) -> Grant {
    match permits.ask(pool(), ask).await.unwrap() {
        Answer::Granted(grant) => grant,
        other => panic!("{other:?}"),
    }
}

/// Asks until it is granted, as the engine does, and says when that was.
pub(crate) async fn until_granted(permits: &RedisPermits, ask: &Ask) -> Instant {
    let until = Instant::now() + FOREVER;
    loop {
        assert!(Instant::now() < until, "no permit comes");
        match patiently(|| permits.ask(pool(), ask)).await {
            Answer::Granted(_) => return Instant::now(),
            Answer::Waiting { look_again, .. } => {
                let turn = permits.turn(pool(), ask.id);
                let _ = tokio::time::timeout(look_again, turn).await;
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Does it again until the server answers, as every caller does.
pub(crate) async fn patiently<T, F: Future<Output = Result<T>>>(mut call: impl FnMut() -> F) -> T {
    let until = Instant::now() + FOREVER;
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(error) => assert!(error.is_retryable() && Instant::now() < until, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
