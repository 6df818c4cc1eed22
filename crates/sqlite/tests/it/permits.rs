//! Bounded pools in a file, used by two processes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use longshore::store::Retention;
use longshore::{BoundedPool, Maintenance as _, Permits, PoolName};
use longshore_sqlite::rusqlite::Connection;
use longshore_sqlite::{SqliteOptions, SqliteStore};
use longshore_testkit::{ManualClock, PermitsFixture};

fn open(path: &Path) -> Arc<dyn Permits> {
    Arc::new(SqliteStore::open(path, SqliteOptions::default()).unwrap())
}

async fn fixture() -> PermitsFixture {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("longshore.db");
    PermitsFixture::new(open(&path), open(&path)).keeping(folder)
}

longshore_testkit::permits_suite!(fixture);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn bounded_on_several_threads() {
    longshore_testkit::conformance::run_permits("permits_chaos::bounded", &fixture().await).await;
}

fn name() -> PoolName {
    PoolName::new("mjml").unwrap()
}

#[tokio::test]
async fn a_jump_of_the_wall_clock_takes_nobodys_permit() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::default());
    let options = SqliteOptions { clock: clock.clone(), ..SqliteOptions::default() };
    let store = Arc::new(SqliteStore::open(&folder.path().join("jump.db"), options).unwrap());
    let pool = BoundedPool::builder(store.clone(), name(), 1).build();
    let first = pool.acquire().await.unwrap();
    clock.advance(Duration::from_secs(86_400));
    assert!(pool.try_acquire().await.unwrap().is_none());
    clock.set(longshore::Timestamp::from_micros(1));
    assert!(pool.try_acquire().await.unwrap().is_none());
    let fence = first.fence();
    first.release().await.unwrap();
    assert!(pool.acquire().await.unwrap().fence() > fence, "although it went back");
}

#[tokio::test]
async fn pools_that_are_not_used_for_a_month_are_deleted_and_their_fences_do_not_go_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("longshore.db");
    let store = Arc::new(SqliteStore::open(&path, SqliteOptions::default()).unwrap());
    let pool = |name| BoundedPool::builder(store.clone(), PoolName::new(name).unwrap(), 1).build();
    let mut fences = Vec::new();
    for name in ["closed", "recent", "unused"] {
        let permit = pool(name).acquire().await.unwrap();
        fences.push(permit.fence());
        permit.release().await.unwrap();
    }
    let _permit = pool("held").acquire().await.unwrap();
    pool("closed").resize(0).await.unwrap();
    let permits: Arc<dyn Permits> = store.clone();
    permits.create(&PoolName::new("new").unwrap(), 3).await.unwrap();
    let month = 31 * 86_400 * 1_000_000_i64;
    let age = "UPDATE longshore_bounded_pool SET fence = fence - ?1 WHERE name <> 'recent' AND fence > 0";
    assert_eq!(Connection::open(&path).unwrap().execute(age, [month]).unwrap(), 3);
    store.prune(Retention::default(), 100).await.unwrap();
    let left = permits.pools(None).await.unwrap();
    let left: Vec<&str> = left.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(left, ["closed", "held", "new", "recent"]);
    assert!(pool("unused").acquire().await.unwrap().fence() > fences[2]);
}

#[tokio::test]
async fn after_the_machine_was_started_again_nobody_holds() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("longshore.db");
    let before = BoundedPool::builder(open(&path), name(), 2).build();
    let held = before.acquire().await.unwrap();
    let fence = held.fence();
    std::mem::forget(held);
    before.resize(3).await.unwrap();
    Connection::open(&path).unwrap().execute("UPDATE longshore_boot SET boot_id = 'old'", []).unwrap();
    let store = open(&path);
    let stats = store.stats(&name()).await.unwrap().unwrap();
    assert_eq!((stats.in_use, stats.max, stats.holders.len()), (0, 3, 0));
    let after = BoundedPool::builder(store, name(), 2).build();
    assert!(after.acquire().await.unwrap().fence() > fence);
    // Permits of the same boot stay.
    let held = after.acquire().await.unwrap();
    assert_eq!(open(&path).stats(&name()).await.unwrap().unwrap().in_use, 1);
    drop(held);
}

#[tokio::test]
async fn the_kept_sum_is_the_sum_of_what_is_held() {
    let fixture = fixture().await;
    longshore_testkit::conformance::run_permits("permits_chaos::bounded", &fixture).await;
    let pool = BoundedPool::builder(fixture.permits.clone(), name(), 4).build();
    let held = pool.request().weight(3).acquire().await.unwrap();
    assert!(pool.request().weight(2).try_acquire().await.unwrap().is_none());
    assert!(pool.try_acquire().await.unwrap().is_some());
    drop(held);
}
