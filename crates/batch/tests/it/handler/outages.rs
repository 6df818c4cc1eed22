//! The rows' database is away for a while: rows wait for it and use no attempt.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use longshore::{AlertSink, PoolAlert, Scope, ServiceAlert, UnitState};
use longshore_batch::RowHandler;
use longshore_batch::definition::{Definition, Post, Pre, RowStepSpec, SqlPost, StepAction};
use longshore_batch::rows::{DatabaseRows, OpenMode, RowSource, SourceError, Sources};
use longshore_sqlite::rusqlite::Connection;
use serde_json::json;

use super::fixture::{FakeProvider, Fixture, TestRoute, definition, on_each_route, rows_database, statement};
use crate::support::Orders;

const FINE: &str = r#"{"verdict": "fine"}"#;

async fn a_database_that_is_away_for_pre_costs_no_attempt(route: TestRoute) {
    let fixture = Fixture::by(route, FakeProvider::always(FINE)).await;
    fixture.rows.fail_reads(2, SourceError::Unavailable);
    finishes_at_the_first_attempt(&fixture).await;
}

async fn a_lock_that_pre_waits_for_costs_no_attempt(route: TestRoute) {
    let fixture = Fixture::by(route, FakeProvider::always(FINE)).await;
    fixture.rows.fail_reads(2, SourceError::Busy);
    finishes_at_the_first_attempt(&fixture).await;
}

async fn a_database_that_is_away_for_post_costs_no_attempt_and_no_question(route: TestRoute) {
    let fixture = Fixture::by(route, FakeProvider::always(FINE)).await;
    fixture.rows.fail_writes(2, SourceError::Unavailable);
    finishes_at_the_first_attempt(&fixture).await;
}

async fn a_lock_that_post_waits_for_costs_no_attempt_and_no_question(route: TestRoute) {
    let fixture = Fixture::by(route, FakeProvider::always(FINE)).await;
    fixture.rows.fail_writes(2, SourceError::Busy);
    finishes_at_the_first_attempt(&fixture).await;
}

async fn finishes_at_the_first_attempt(fixture: &Fixture) {
    let id = fixture.start(&fixture.definition(), &[json!(1)]).await;
    fixture.work(fixture.handler()).await;
    let unit = fixture.only_unit(&id).await;
    assert_eq!((unit.state, unit.attempt), (UnitState::Done, 1));
    assert_eq!(fixture.store.failures(&Scope::All, unit.id).await.unwrap(), vec![]);
    assert_eq!((fixture.provider.count(), fixture.rows.statements().len()), (1, 1));
}

on_each_route! {
    a_database_that_is_away_for_pre_costs_no_attempt,
    a_lock_that_pre_waits_for_costs_no_attempt,
    a_database_that_is_away_for_post_costs_no_attempt_and_no_question,
    a_lock_that_post_waits_for_costs_no_attempt_and_no_question,
}

#[tokio::test(start_paused = true)]
async fn a_database_that_is_away_for_steps_costs_no_attempt() {
    let fixture = Fixture::in_memory(FakeProvider::always(FINE));
    let step = |name: &str, action| RowStepSpec { name: name.to_owned(), when: None, retry: None, action };
    let steps = vec![
        step("look", StepAction::Query("SELECT note FROM line WHERE id = :key".to_owned())),
        step("note", StepAction::Sql(vec![statement("INSERT INTO seen VALUES (:key)")])),
    ];
    let id = fixture.start(&Definition { steps, ..definition() }, &[json!(1)]).await;
    fixture.rows.fail_reads(2, SourceError::Unavailable);
    fixture.rows.fail_writes(2, SourceError::Busy);
    fixture.work(fixture.handler()).await;
    let unit = fixture.only_unit(&id).await;
    assert_eq!((unit.state, unit.attempt), (UnitState::Done, 1));
    assert_eq!(fixture.store.failures(&Scope::All, unit.id).await.unwrap(), vec![]);
    assert_eq!((fixture.provider.count(), fixture.rows.statements().len()), (1, 2));
}

/// Counts alerts.
#[derive(Default)]
struct CountedAlerts(AtomicUsize);

#[async_trait]
impl AlertSink for CountedAlerts {
    async fn send(&self, _: &PoolAlert) {}

    async fn send_service_alert(&self, alert: &ServiceAlert) {
        assert!(alert.message.contains("the rows' database is unavailable: no route"), "{}", alert.message);
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_one_alert_and_few_tries_however_many_rows_it_meets() {
    let fixture = Fixture::in_memory(FakeProvider::always(FINE));
    let keys: Vec<_> = (0..40).map(|key| json!(key)).collect();
    let id = fixture.start(&definition(), &keys).await;
    fixture.rows.fail_reads(4, SourceError::Unavailable);
    let alerts = Arc::new(CountedAlerts::default());
    let rows = Arc::clone(&fixture.rows) as Arc<dyn RowSource>;
    let sources = Sources::new(None, |_| None).with_alert_sink(alerts.clone()).with(rows_database(), rows);
    let handler = RowHandler::builder(Arc::new(sources)).provider("fake", fixture.provider.clone());
    fixture.work(handler).await;
    let counts = fixture.batch(&id).await.counts;
    assert_eq!((counts.done, counts.failed), (40, 0));
    assert_eq!(alerts.0.load(Ordering::SeqCst), 1);
    assert!(fixture.rows.reads.load(Ordering::SeqCst) <= 40 + 8, "{:?}", fixture.rows.reads);
}

#[tokio::test]
async fn a_sqlite_file_that_another_program_locks_costs_no_attempt() {
    let (fixture, orders) = (Fixture::in_memory(FakeProvider::always(FINE)), Orders::new(1));
    let sql = "UPDATE line SET status = 'done', note = :verdict WHERE id = :key";
    let mut definition = Definition {
        post: Post::Sql(SqlPost { success: vec![statement(sql)], ..SqlPost::default() }),
        ..definition()
    };
    if let Pre::Sql(pre) = &mut definition.pre {
        "SELECT id FROM line WHERE id = :key".clone_into(&mut pre.sql);
    }
    let id = fixture.start(&definition, &[json!(1)]).await;
    let other = Connection::open(orders.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let timeout = Duration::from_millis(20);
    let rows = DatabaseRows::sqlite_with_busy_timeout(&orders.path(), OpenMode::Write, timeout).unwrap();
    let sources = Sources::new(None, |_| None).with(rows_database(), Arc::new(rows));
    let handler = RowHandler::builder(Arc::new(sources)).provider("fake", fixture.provider.clone());
    let release = async {
        while fixture.only_unit(&id).await.state != UnitState::Scheduled {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        other.execute_batch("COMMIT").unwrap();
    };
    tokio::join!(fixture.work(handler), release);
    let unit = fixture.only_unit(&id).await;
    assert_eq!((unit.state, unit.attempt, fixture.provider.count()), (UnitState::Done, 1, 1));
    assert_eq!(orders.read::<u32>("SELECT count(*) FROM line WHERE status = 'done'"), 1);
}
