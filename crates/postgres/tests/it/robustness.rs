//! Invariants under wrong clocks, held locks, large batches and hostile statements.

use std::sync::Arc;
use std::time::Duration;

use longshore::accounts::{CallRecord, Calls as _, NewCall};
use longshore::batch::BatchAction;
use longshore::outcome::Params;
use longshore::store::{BatchChunk, FinishRequest, FinishResult};
use longshore::worker_session::Lease;
use longshore::{
    Admin as _, BatchId, BatchStatus, Clock, Effect, Enqueue as _, Maintenance as _, NewBatch, NewUnit,
    Outcome, ProfileName, Queries as _, Scope, SessionId, SystemClock, TenantId, Timestamp, UnitState,
    WorkerApi as _,
};
use longshore_postgres::{Listen, PostgresOptions, PostgresStore};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::test_server::Server;
use crate::transactions::{OrderApp, connect, order_app, unit};

fn done(lease: Lease) -> FinishRequest {
    FinishRequest::new(lease, Outcome::Done(None))
}

/// A clock that is ahead of the server's.
struct ClockAhead(Duration);

impl Clock for ClockAhead {
    fn now(&self) -> Timestamp {
        SystemClock.now() + self.0
    }
}

#[tokio::test]
async fn clocks_that_are_apart_do_not_make_two_leaders() {
    let database = Server::start().await.database().await;
    let open = async |ahead: u64| {
        let clock = Arc::new(ClockAhead(Duration::from_secs(ahead)));
        let options = PostgresOptions { clock, max_clock_skew: Duration::MAX, ..PostgresOptions::default() };
        PostgresStore::open(&database.url, options).await.unwrap()
    };
    let (behind, ahead) = (open(0).await, open(3_600).await);
    let (a, b, term) = (SessionId::new(), SessionId::new(), Duration::from_secs(60));
    assert!(behind.acquire_leadership("role", a, term).await.unwrap());
    assert!(!ahead.acquire_leadership("role", b, term).await.unwrap());
    assert!(behind.acquire_leadership("role", a, term).await.unwrap());
    assert!(ahead.acquire_leadership("other", b, term).await.unwrap());
    assert!(!behind.acquire_leadership("other", a, term).await.unwrap());
}

#[tokio::test]
async fn a_deadlock_with_a_unit_that_waits_is_tried_again() {
    let mut app = order_app().await;
    let first = unit();
    let mut second = unit();
    second.dependencies.units = vec![first.id];
    let (first, waits) = (first.clone(), second.id);
    let needs = first.id;
    app.store.send(&Scope::All, vec![first, second]).await.unwrap();
    let lease = app.take().await;
    // A connection checks for a deadlock once, this long after it began to wait. The store's
    // connection must not check before the other waits, however slow this machine is.
    app.database.run(
        "DO $do$ BEGIN EXECUTE format('ALTER DATABASE %I SET deadlock_timeout = ''5s''',
         current_database()); END $do$",
    );
    let options = PostgresOptions { listen: Listen::Off, ..PostgresOptions::default() };
    let store = PostgresStore::open(&app.database.url, options).await.unwrap();
    let other = app.own.transaction().await.unwrap();
    other.batch_execute("SET LOCAL deadlock_timeout = '1h'").await.unwrap();
    let lock = |id| format!("SELECT 1 FROM longshore_unit WHERE id = '{id}' FOR UPDATE");
    other.batch_execute(&lock(waits)).await.unwrap();
    let mut ending = Box::pin(store.finish(app.session, vec![done(lease)]));
    let waiting = app.database.wait_for_activity("wait_event_type = 'Lock'");
    tokio::select! {
        answer = &mut ending => panic!("{answer:?}"),
        () = waiting => {}
    }
    // Now each waits for the other, and the server aborts the transaction that checks first: the
    // store's.
    let both = async {
        other.batch_execute(&lock(needs)).await.unwrap();
        other.rollback().await.unwrap();
    };
    let (ended, ()) = tokio::join!(ending, both);
    assert_eq!(ended.unwrap(), [FinishResult::Recorded(UnitState::Done)]);
    assert_eq!(app.take().await.unit, waits);
    app.assert_consistent().await;
}

/// A trigger raises the errors: the server itself cannot be made to.
#[tokio::test]
async fn only_errors_that_are_known_to_be_caused_by_the_data_are_final() {
    let database = Server::start().await.database().await;
    let store = PostgresStore::open(&database.url, PostgresOptions::default()).await.unwrap();
    let (tenant, profile) = (TenantId::new("acme").unwrap(), ProfileName::new("main").unwrap());
    let call = || NewCall::new(tenant.clone(), profile.clone(), "echo", "small");
    let record = || CallRecord { call: call(), end: None };
    store.record_calls(vec![record()]).await.unwrap();
    for (code, is_final, is_retryable) in [
        ("58030", false, true),
        ("XX000", false, true),
        ("55000", false, true),
        ("0A000", false, true),
        ("F0000", false, true),
        ("28P01", false, false),
        ("42703", false, false),
        ("23505", false, false),
        ("P0001", false, false),
        ("22003", true, false),
        ("22021", true, false),
        ("23514", true, false),
        ("54000", true, false),
    ] {
        database.run(&format!(
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN RAISE EXCEPTION ''no'' USING ERRCODE = ''{code}''; END';
             CREATE OR REPLACE TRIGGER no BEFORE INSERT ON longshore_call
             FOR EACH ROW EXECUTE FUNCTION refuse()"
        ));
        let error = store.record_calls(vec![record()]).await.unwrap_err();
        assert_eq!((error.is_final(), error.is_retryable()), (is_final, is_retryable), "{code}: {error:?}");
    }
}

const CONNECTIONS: &str = "SELECT string_agg(pid::text, ' ' ORDER BY pid) FROM pg_stat_activity
    WHERE application_name = 'longshore' AND datname = current_database()";

/// The trigger refuses the last statement of a send, and a statement that releases dependants.
#[tokio::test]
async fn a_connection_outlives_a_statement_that_is_refused_at_the_end() {
    let app = order_app().await;
    let options = PostgresOptions { connections: 1, listen: Listen::Off, ..PostgresOptions::default() };
    let store = PostgresStore::open(&app.database.url, options).await.unwrap();
    let first = unit();
    let mut second = unit();
    second.dependencies.units = vec![first.id];
    store.send(&Scope::All, vec![first, second]).await.unwrap();
    let lease = app.take().await;
    drop(app.store);
    store.totals(&Scope::All, &longshore::store::Queues::All).await.unwrap();
    app.database.run(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
         'BEGIN RAISE EXCEPTION ''no''; END';
         CREATE TRIGGER no BEFORE DELETE ON longshore_dependency
         FOR EACH ROW EXECUTE FUNCTION refuse();
         CREATE TRIGGER no BEFORE INSERT ON longshore_stream_delta
         FOR EACH ROW WHEN (NEW.ready > 0) EXECUTE FUNCTION refuse()",
    );
    // Wait until the dropped store's connections are closed.
    app.database
        .wait_for_activity(
            "1 = (SELECT count(*) FROM pg_stat_activity a WHERE \
        a.application_name = 'longshore' AND a.datname = current_database())",
        )
        .await;
    let before = app.database.run(CONNECTIONS);
    assert!(store.send(&Scope::All, vec![unit()]).await.is_err());
    assert!(store.finish(app.session, vec![done(lease)]).await.is_err());
    assert_eq!(app.database.run(CONNECTIONS), before);
    app.database.run("DROP FUNCTION refuse CASCADE");
    let ended = store.finish(app.session, vec![done(lease)]).await.unwrap();
    assert_eq!(ended, [FinishResult::Recorded(UnitState::Done)]);
}

/// Another transaction holds the lock of the change feed.
#[tokio::test]
async fn a_feed_that_cannot_be_written_does_not_keep_anybody_from_reading() {
    let mut app = order_app().await;
    let feed: i64 = 0x6c73_0000_0000_0000 | (1 << 40);
    let held = app.own.transaction().await.unwrap();
    held.batch_execute(&format!("SELECT pg_advisory_xact_lock({feed})")).await.unwrap();
    app.store.send(&Scope::All, vec![unit()]).await.unwrap();
    let reading = app.store.changes(&Scope::All, 0, Duration::ZERO);
    let read = timeout(Duration::from_secs(20), reading).await;
    assert!(read.is_ok_and(|read| read.is_ok()));
}

fn effect(sql: &str) -> Effect {
    Effect { sql: sql.into(), params: Params::Ordered(vec![]), expected_rows: Some(1) }
}

#[tokio::test]
async fn what_an_effect_sets_does_not_outlive_it() {
    let app = order_app().await;
    app.store.send(&Scope::All, vec![unit(), unit()]).await.unwrap();
    let held = app.claim(2).await;
    let sly = "UPDATE orders SET state = coalesce(
        set_config('search_path', 'nowhere', false), set_config('role', 'pg_monitor', false), 'x')
        WHERE id = 1";
    let end = |nth: usize, sql: &str| FinishRequest { effects: vec![effect(sql)], ..done(held[nth]) };
    let ends = vec![end(0, sly), end(1, "UPDATE orders SET state = 'packed' WHERE id = 2")];
    let ended = app.store.finish(app.session, ends).await.unwrap();
    assert_eq!(ended, vec![FinishResult::Recorded(UnitState::Done); 2]);
    assert_eq!(app.database.run("SELECT state FROM orders WHERE id = 2").trim(), "packed");
    app.assert_consistent().await;
}

/// Creates a batch of failed units by SQL: running so many units would take long.
async fn failed_batch(app: &OrderApp, units: usize) -> BatchId {
    let id = BatchId::new("b").unwrap();
    app.store.open_batch(&Scope::All, NewBatch::new(id.clone())).await.unwrap();
    let units: Vec<NewUnit> = (0..units).map(|_| unit()).collect();
    let chunk = BatchChunk { expected: String::new(), next: "1".into(), units };
    app.store.add_to_batch(&Scope::All, &id, chunk).await.unwrap();
    app.database.run(
        "INSERT INTO longshore_stream_delta (stream, ready, failed, bytes)
         SELECT stream, -count(*), count(*), -sum(bytes) FROM longshore_unit GROUP BY stream;
         UPDATE longshore_unit SET state = 5, sort_key = sort_key - 1000000000000;
         DELETE FROM longshore_ready",
    );
    (&*app.store as &dyn longshore::Store).seal_batch(&Scope::All, &id).await.unwrap();
    id
}

#[tokio::test]
async fn failed_units_are_retried_in_portions() {
    let app = order_app().await;
    let id = failed_batch(&app, 12_000).await;
    let before = app.store.batch(&Scope::All, &id).await.unwrap();
    assert_eq!((before.status, before.counts.failed), (BatchStatus::Complete, 12_000));
    let action = BatchAction::RetryFailed;
    let batch = app.store.apply_batch_action(&Scope::All, &id, action).await.unwrap();
    assert_eq!((batch.status, batch.generation), (BatchStatus::Running, 2));
    assert_eq!((batch.counts.ready, batch.counts.failed), (12_000, 0));
    let portions = "SELECT max(n), count(*) FROM
        (SELECT count(*) AS n FROM longshore_unit GROUP BY xmin::text) t";
    assert_eq!(app.database.run(portions).trim(), "5000\t3");
    app.assert_consistent().await;
}

/// Another transaction locks a table for longer than the store's timeout.
#[tokio::test]
async fn checking_everything_takes_as_long_as_it_takes() {
    let mut app = order_app().await;
    let patience = Duration::from_millis(500);
    let options = PostgresOptions { timeout: patience, ..PostgresOptions::default() };
    let store = PostgresStore::open(&app.database.url, options).await.unwrap();
    let held = app.own.transaction().await.unwrap();
    held.batch_execute("LOCK TABLE longshore_dependency").await.unwrap();
    let mut checking = Box::pin(store.verify());
    let early = timeout(patience * 3, &mut checking).await;
    assert!(early.is_err(), "{early:?}");
    held.rollback().await.unwrap();
    assert_eq!(checking.await.unwrap(), []);
}

#[tokio::test]
async fn migrating_takes_as_long_as_another_is_at_it() {
    let database = Server::start().await.empty_database().await;
    let mut tasks = JoinSet::new();
    let mut own = connect(&database, &mut tasks).await;
    let held = own.transaction().await.unwrap();
    let schema: i64 = 0x6c73_0000_0000_0000;
    held.batch_execute(&format!("SELECT pg_advisory_xact_lock({schema})")).await.unwrap();
    let patience = Duration::from_millis(500);
    let options = PostgresOptions { timeout: patience, ..PostgresOptions::default() };
    let mut opening = Box::pin(PostgresStore::open(&database.url, options));
    let early = timeout(patience * 3, &mut opening).await;
    assert!(early.is_err(), "{early:?}");
    held.rollback().await.unwrap();
    opening.await.unwrap();
}
