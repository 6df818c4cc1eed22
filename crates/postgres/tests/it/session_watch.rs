//! What heartbeats and the watch for dead workers read.

use std::collections::BTreeMap;
use std::time::Duration;

use longshore::store::{ClaimRequest, Heartbeat};
use longshore::worker_session::NewSession;
use longshore::{
    Enqueue as _, Kind, Maintenance as _, NewUnit, Policy, Scope, SessionId, Timestamp, WorkerApi as _,
};
use longshore_postgres::{PostgresOptions, PostgresStore};
use tokio::time::Instant;

use crate::test_server::Server;

/// Under a long-running reader the index of leases keeps everything that a session ever held.
#[tokio::test]
async fn heartbeats_and_the_watch_do_not_read_the_index_of_leases() {
    let database = Server::start().await.database().await;
    let store = PostgresStore::open(&database.url, PostgresOptions::default()).await.unwrap();
    let kind = Kind::new("work").unwrap();
    // One of them is leased by its row, the others as a group.
    let mut units: Vec<_> = (0..10).map(|_| NewUnit::new(kind.clone(), serde_json::json!({}))).collect();
    units[0].deadline = Some(Timestamp::from_micros(i64::MAX / 2));
    store.send(&Scope::All, units).await.unwrap();
    let session = SessionId::new();
    let kinds = BTreeMap::from([(kind.clone(), Policy::default())]);
    store.open_session(NewSession { kinds, ..NewSession::new(session, "test") }).await.unwrap();
    let held = store.claim(ClaimRequest::new(session, vec![kind], 10)).await.unwrap().units;
    let leases: Vec<_> = held.iter().map(|held| held.lease).collect();
    assert_eq!(leases.len(), 10);

    let count = |sql: &str| database.run(sql).trim().parse::<u64>().unwrap();
    let scans =
        || count("SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'longshore_unit_session'");
    let beats = || count("SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'longshore_session'");
    let (scans_before, deadline) = (scans(), Instant::now() + Duration::from_secs(30));
    // The server counts with a delay.
    while beats() < 5 {
        assert!(Instant::now() < deadline, "no heartbeat is counted");
        let beat = Heartbeat { leases: Some(leases.clone()), ..Heartbeat::default() };
        assert_eq!(store.heartbeat(session, beat).await.unwrap().held, 10);
        assert_eq!(store.session_beats().await.unwrap().len(), 1);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(scans(), scans_before);
    assert_eq!(store.heartbeat(session, Heartbeat::default()).await.unwrap().held, 10);
}
