//! The rows' database returns a row too late: the row is put off, a bounded number of times.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longshore::store::{UnitAction, UnitSelection};
use longshore::{BatchId, Scope, UnitState};
use longshore_ai::Provider;
use longshore_batch::RowHandler;
use longshore_batch::definition::{Definition, Pre, RowStepSpec, StepAction};
use longshore_batch::rows::{DatabaseRows, OpenMode, SourceError, Sources};
use longshore_sqlite::rusqlite::Connection;
use longshore_testkit::servers::PrivatePostgres;
use serde_json::json;

use super::fixture::{FakeProvider, Fixture, TestRoute, definition, on_each_route, rows_database};
use crate::support::{self, Orders};

const FINE: &str = r#"{"verdict": "fine"}"#;

async fn a_row_that_is_read_too_late_uses_no_attempt(route: TestRoute) {
    let fixture = Fixture::by(route, FakeProvider::always(FINE)).await;
    fixture.rows.slow_reads.store(3, Ordering::SeqCst);
    let id = fixture.start(&fixture.definition(), &[json!(1)]).await;
    fixture.work(fixture.handler()).await;
    let unit = fixture.only_unit(&id).await;
    assert_eq!((unit.state, unit.attempt, fixture.provider.count()), (UnitState::Done, 1, 1));
    assert_eq!(fixture.store.failures(&Scope::All, unit.id).await.unwrap(), vec![]);
}

on_each_route! { a_row_that_is_read_too_late_uses_no_attempt, }

/// Runs the batch's only row to its end, without the delays.
async fn work_without_delays(fixture: &Fixture, id: &BatchId) {
    let wake = async {
        loop {
            let unit = fixture.only_unit(id).await;
            let this = UnitSelection::Ids(vec![unit.id]);
            if unit.state == UnitState::Scheduled {
                fixture.store.apply_unit_action(&Scope::All, this, UnitAction::Wake).await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        _ = fixture.work(fixture.handler()) => {}
        () = wake => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_row_that_is_always_read_too_late_fails_after_twenty_times() {
    let fixture = Fixture::in_memory(FakeProvider::always(FINE));
    fixture.rows.slow_reads.store(1_000, Ordering::SeqCst);
    let mut definition = definition();
    support::ai(&mut definition).timeout = Duration::from_secs(1);
    let id = fixture.start(&definition, &[json!(1)]).await;
    work_without_delays(&fixture, &id).await;
    let (code, words) = fixture.failure(&id).await;
    assert_eq!(code, "pre-error");
    assert!(words.contains("could not be read in time, 20 times in a row"), "{words}");
    let unit = fixture.only_unit(&id).await;
    assert_eq!((unit.attempt, fixture.provider.count()), (1, 0));
    assert_eq!(fixture.rows.reads.load(Ordering::SeqCst), 21);
    assert_eq!(fixture.rows.statements().len(), 1, "POST is told of it");
}

#[tokio::test(start_paused = true)]
async fn a_statement_that_always_takes_too_long_does_not_put_its_row_off_for_ever() {
    for (times, fails) in [(20, false), (1_000, true)] {
        let fixture = Fixture::in_memory(FakeProvider::always(FINE));
        fixture.rows.fail_reads(times, SourceError::TimedOut);
        let id = fixture.start(&definition(), &[json!(1)]).await;
        work_without_delays(&fixture, &id).await;
        let unit = fixture.only_unit(&id).await;
        assert_eq!(unit.attempt, 1, "{:?}", unit.failure);
        if fails {
            let (code, words) = fixture.failure(&id).await;
            assert_eq!(code, "pre-error");
            let expected = "20 times in a row: the row: the statement took too long: no route";
            assert!(words.contains(expected), "{words}");
        } else {
            assert_eq!(unit.state, UnitState::Done, "{:?}", unit.failure);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_query_of_a_step_that_returns_too_late_uses_no_attempt() {
    let fixture = Fixture::in_memory(FakeProvider::always(FINE));
    let action = StepAction::Query("SELECT note FROM line WHERE id = :key".to_owned());
    let steps = vec![RowStepSpec { name: "look".to_owned(), when: None, retry: None, action }];
    let id = fixture.start(&Definition { steps, ..definition() }, &[json!(1)]).await;
    fixture.rows.slow_reads.store(2, Ordering::SeqCst);
    fixture.work(fixture.handler()).await;
    let unit = fixture.only_unit(&id).await;
    assert_eq!((unit.state, unit.attempt), (UnitState::Done, 1), "{:?}", unit.failure);
    assert_eq!(fixture.store.failures(&Scope::All, unit.id).await.unwrap(), vec![]);
}

/// Runs a row with this timeout. Its table `line` is locked until the row was put off.
async fn waits_for_a_locked_table(
    fixture: Fixture,
    timeout: Duration,
    sources: Sources,
    unlock: impl FnOnce(),
) {
    let mut definition = Definition { database: rows_database(), ..definition() };
    support::ai(&mut definition).timeout = timeout;
    if let Pre::Sql(pre) = &mut definition.pre {
        "SELECT id FROM line WHERE id = :key".clone_into(&mut pre.sql);
    }
    definition.post = longshore_batch::definition::Post::Sql(longshore_batch::definition::SqlPost::default());
    let id = fixture.start(&definition, &[json!(1)]).await;
    let provider = Arc::clone(&fixture.provider) as Arc<dyn Provider>;
    let handler = RowHandler::builder(Arc::new(sources)).provider("fake", provider);
    let release = async {
        while fixture.only_unit(&id).await.state != UnitState::Scheduled {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        unlock();
    };
    tokio::join!(fixture.work(handler), release);
    let unit = fixture.only_unit(&id).await;
    assert_eq!((unit.state, unit.attempt), (UnitState::Done, 1), "{:?}", unit.failure);
    assert_eq!(fixture.store.failures(&Scope::All, unit.id).await.unwrap(), vec![]);
}

#[tokio::test]
async fn a_row_waits_for_a_sqlite_file_that_is_locked_longer_than_its_timeout() {
    let orders = Orders::new(1);
    orders.run("PRAGMA journal_mode = DELETE");
    let rows = DatabaseRows::sqlite(&orders.path(), OpenMode::Write).unwrap();
    let sources = Sources::new(None, |_| None).with(rows_database(), Arc::new(rows));
    let other = Connection::open(orders.path()).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let unlock = || other.execute_batch("COMMIT").unwrap();
    let fixture = Fixture::in_memory(FakeProvider::always(FINE));
    waits_for_a_locked_table(fixture, Duration::from_secs(1), sources, unlock).await;
}

#[tokio::test]
async fn a_row_waits_for_a_postgres_table_that_is_locked_longer_than_its_statement_may_take() {
    let server = PrivatePostgres::start().unwrap();
    server.run("CREATE TABLE line (id INT PRIMARY KEY); INSERT INTO line VALUES (1)").unwrap();
    for (timeout, options) in
        [(Duration::from_secs(60), "?options=-cstatement_timeout%3D200ms"), (Duration::from_secs(1), "")]
    {
        let url = server.url() + options;
        let rows = longshore_batch::rows::open(&url).unwrap();
        // Its columns are known before the table is locked.
        rows.describe("SELECT id FROM line WHERE id = :key").await.unwrap();
        let sources = Sources::new(None, |_| None).with(rows_database(), rows);
        let (other, connection) =
            tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(connection);
        other.batch_execute("BEGIN; LOCK TABLE line IN ACCESS EXCLUSIVE MODE").await.unwrap();
        let fixture = Fixture::in_memory(FakeProvider::always(FINE));
        // Its transaction ends with its connection.
        waits_for_a_locked_table(fixture, timeout, sources, move || drop((other, tasks))).await;
    }
}
