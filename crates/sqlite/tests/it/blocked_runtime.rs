//! Handlers that block every thread of their runtime.

use std::sync::Arc;

use longshore_sqlite::{SqliteOptions, SqliteStore};
use longshore_testkit::blocked_runtime::heartbeats_and_renewals_are_answered;

#[test]
fn heartbeats_and_permit_renewals_are_answered_while_every_thread_is_blocked() {
    let folder = tempfile::tempdir().unwrap();
    heartbeats_and_renewals_are_answered(async {
        let path = folder.path().join("longshore.db");
        let store = Arc::new(SqliteStore::open(&path, SqliteOptions::default()).unwrap());
        (Some(Arc::clone(&store) as _), store as _)
    });
}
