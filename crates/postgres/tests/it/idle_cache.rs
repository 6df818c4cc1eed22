//! What a listening store answers from its cache, and when it queries the server.

use std::time::Duration;

use longshore_core::schedule::{NewSchedule, SchedulePlan, UnitTemplate};
use longshore_core::store::{Enqueue, IfExists, Maintenance, Queries, ScheduleFilter, WorkerApi};
use longshore_core::worker_session::NewSession;
use longshore_core::{
    BatchId, BatchStatus, Clock, Kind, NewBatch, ScheduleName, Schedules, Scope, SessionId, SystemClock,
    TenantId,
};
use longshore_postgres::{PostgresOptions, PostgresStore};
use tokio::time::Instant;

use crate::test_server::{Database, Server};

const LEADER_TTL: Duration = Duration::from_secs(60);

/// A store that listens, and a session that leads its maintenance.
async fn leader(database: &Database) -> (PostgresStore, SessionId) {
    let store = PostgresStore::open(&database.url, PostgresOptions::default()).await.unwrap();
    let deadline = Instant::now() + LEADER_TTL;
    while !store.is_listening() {
        assert!(Instant::now() < deadline, "no notifications arrive");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let id = SessionId::new();
    let session = NewSession { ttl: LEADER_TTL, ..NewSession::new(id, "leader") };
    store.open_session(session).await.unwrap();
    assert!(store.acquire_leadership("upkeep", id, LEADER_TTL).await.unwrap());
    (store, id)
}

fn due_now() -> NewSchedule {
    let template = UnitTemplate::new(Kind::new("work").unwrap(), serde_json::json!({}));
    let plan = SchedulePlan {
        cron: "0 2 * * *".into(),
        zone: "UTC".into(),
        missed: Default::default(),
        overlap: Default::default(),
        template,
    };
    let next_fire = Some(SystemClock.now());
    let name = ScheduleName::new("nightly").unwrap();
    NewSchedule { name, tenant: TenantId::default(), plan, paused: false, next_fire }
}

/// Whether the store reports from its cache that there is no schedule: the test inserts one
/// directly.
async fn answers_from_cache(store: &PostgresStore, database: &Database) -> bool {
    database.run(
        "INSERT INTO longshore_schedule (tenant, name, plan, payload, paused, revision, next_fire,
         fired, skipped, missed, created_at) VALUES ('t', 's', '{}', '', false, 1,
         (extract(epoch FROM now()) * 1000000)::bigint + 3600000000, 0, 0, 0, 0)",
    );
    let known = store.schedules(&Scope::All, &ScheduleFilter::Due, None, 10).await.unwrap();
    database.run("DELETE FROM longshore_schedule");
    known.next_due.is_none()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_is_seen_at_once_by_a_leader_that_knew_of_none() {
    let database = Server::start().await.database().await;
    let (store, leader) = leader(&database).await;
    let deadline = Instant::now() + LEADER_TTL;
    while !answers_from_cache(&store, &database).await {
        assert!(Instant::now() < deadline, "the store queries the server each time");
        assert!(store.acquire_leadership("upkeep", leader, LEADER_TTL).await.unwrap());
    }
    store.put_schedule(&Scope::All, due_now(), IfExists::Keep).await.unwrap();
    let due = store.schedules(&Scope::All, &ScheduleFilter::Due, None, 10).await.unwrap();
    assert_eq!(due.page.items.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_sees_nothing_to_do_still_ends_batches_that_a_crash_left_behind() {
    let database = Server::start().await.database().await;
    let (store, leader) = leader(&database).await;
    let batch = BatchId::new("left").unwrap();
    store.open_batch(&Scope::All, NewBatch::new(batch.clone())).await.unwrap();
    (&store as &dyn longshore_core::Store).seal_batch(&Scope::All, &batch).await.unwrap();
    // As if the process that ended the last unit had died before the batch advanced.
    database.run("UPDATE longshore_batch SET status = 'running', completed_at = NULL");
    let deadline = Instant::now() + LEADER_TTL;
    while store.batch(&Scope::All, &batch).await.unwrap().status != BatchStatus::Complete {
        assert!(Instant::now() < deadline, "the batch never completes");
        assert!(store.acquire_leadership("upkeep", leader, LEADER_TTL).await.unwrap());
        store.promote(100).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
