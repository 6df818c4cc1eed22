//! A store in a temporary folder.

use std::path::PathBuf;
use std::sync::Arc;

use longshore_sqlite::{SqliteOptions, SqliteStore};
use longshore_testkit::{ManualClock, World};

/// A new store with a clock that tests move.
pub(crate) async fn world() -> World {
    let (world, _) = world_at().await;
    world
}

/// A new store, and the path of its file.
pub(crate) async fn world_at() -> (World, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("longshore.db");
    let clock = Arc::new(ManualClock::default());
    let options = SqliteOptions { clock: clock.clone(), ..SqliteOptions::default() };
    let store = Arc::new(SqliteStore::open(&path, options).unwrap());
    (World::new(store, clock).keeping(folder), path)
}
