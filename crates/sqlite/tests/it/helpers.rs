//! A store in a temporary folder.

use std::path::PathBuf;
use std::sync::Arc;

use longshore_sqlite::{SqliteOptions, SqliteStore};
use longshore_testkit::{ManualClock, StoreFixture};

/// A new store with a clock that tests move.
pub(crate) async fn fixture() -> StoreFixture {
    let (fixture, _) = fixture_at().await;
    fixture
}

/// A new store, and the path of its file.
pub(crate) async fn fixture_at() -> (StoreFixture, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("longshore.db");
    let clock = Arc::new(ManualClock::default());
    let options = SqliteOptions { clock: clock.clone(), ..SqliteOptions::default() };
    let store = Arc::new(SqliteStore::open(&path, options).unwrap());
    (StoreFixture::new(store, clock).with_guard(folder), path)
}
