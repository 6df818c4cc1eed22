//! Handlers that block every thread of their runtime.

use std::sync::Arc;

use longshore_postgres::{PostgresOptions, PostgresStore};
use longshore_testkit::blocked_runtime::heartbeats_and_renewals_are_answered;
use longshore_testkit::servers::PrivatePostgres;

#[test]
fn heartbeats_and_permit_renewals_are_answered_while_every_thread_is_blocked() {
    let server = PrivatePostgres::start().unwrap();
    heartbeats_and_renewals_are_answered(async {
        let store = Arc::new(PostgresStore::open(&server.url(), PostgresOptions::default()).await.unwrap());
        (Some(Arc::clone(&store) as _), store as _)
    });
}
