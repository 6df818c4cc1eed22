//! Rows for which `database` names another database than the one that their batch was started with.

use std::sync::Arc;
use std::time::Duration;

use longshore::store::{UnitAction, UnitSelection};
use longshore::{Client, Scope, Timestamp, UnitState};
use longshore_ai::Provider;
use longshore_batch::RowHandler;
use longshore_batch::definition::{Database, Definition, Post, SqlPost};
use longshore_batch::handler::RowHandlerBuilder;
use longshore_batch::row_enqueuer::{RowEnqueuer, StartOptions};
use longshore_batch::rows::Sources;

use super::fixture::{FakeProvider, Fixture, definition, statement};
use crate::support::{Orders, candidates};

const FINE: &str = r#"{"verdict": "fine"}"#;

/// A handler with this database as `ROWS` in its environment.
fn handler(fixture: &Fixture, orders: &Orders) -> RowHandlerBuilder {
    let url = format!("sqlite:{}", orders.path().display());
    let sources = Sources::new(None, move |name| (name == "ROWS").then(|| url.clone()));
    let provider = Arc::clone(&fixture.provider) as Arc<dyn Provider>;
    RowHandler::builder(Arc::new(sources)).provider("fake", provider)
}

#[tokio::test]
async fn rows_of_another_database_wait_and_use_no_attempt() {
    let fixture = Fixture::in_memory(FakeProvider::always(FINE));
    let (mine, other) = (Orders::new(1), Orders::new(1));
    let sql = "UPDATE line SET status = 'done', note = :verdict WHERE id = :key";
    let mut definition = Definition {
        database: Database::Url("env:ROWS".to_owned()),
        candidates: candidates("SELECT id FROM line WHERE status = 'open'"),
        post: Post::Sql(SqlPost { success: vec![statement(sql)], ..SqlPost::default() }),
        ..definition()
    };
    definition.candidates.priority = None;
    if let longshore_batch::definition::Pre::Sql(pre) = &mut definition.pre {
        "SELECT id FROM line WHERE id = :key".clone_into(&mut pre.sql);
    }
    let initiator = RowEnqueuer::new(Client::new(Arc::clone(&fixture.store)), mine.rows());
    let options = StartOptions { now: Timestamp::ZERO, ..StartOptions::default() };
    let mut filling = initiator.start(definition, options).await.unwrap();
    initiator.fill(&mut filling, std::future::pending(), |_| ()).await.unwrap();
    let id = filling.batch().id.clone();

    let reaches = async |state| {
        while fixture.only_unit(&id).await.state != state {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    fixture.work_until(handler(&fixture, &other), reaches(UnitState::Scheduled)).await;
    let unit = fixture.only_unit(&id).await;
    assert_eq!((unit.attempt, &unit.failure, fixture.provider.count()), (0, &None, 0));
    let wake = UnitSelection::Ids(vec![unit.id]);
    fixture.store.apply_unit_action(&Scope::All, wake, UnitAction::Wake).await.unwrap();
    fixture.work_until(handler(&fixture, &mine), reaches(UnitState::Done)).await;
    let unit = fixture.only_unit(&id).await;
    assert_eq!((unit.state, unit.attempt), (UnitState::Done, 1));
    let done = |orders: &Orders| orders.read::<u32>("SELECT count(*) FROM line WHERE status = 'done'");
    assert_eq!((done(&mine), done(&other)), (1, 0));
}

#[tokio::test]
async fn a_definition_with_a_password_is_not_stored() {
    let fixture = Fixture::in_memory(FakeProvider::always(FINE));
    let initiator = RowEnqueuer::new(Client::new(Arc::clone(&fixture.store)), Orders::new(1).rows());
    for url in ["postgres://me:s3cret@db/x", "mysql://me@db/x?password=s3cret", "odbc:DSN=x;Pwd=s3cret"] {
        let definition = Definition { database: Database::Url(url.to_owned()), ..definition() };
        let error = initiator.start(definition, StartOptions::default()).await.unwrap_err().to_string();
        assert!(error.contains("contains a password") && !error.contains("s3cret"), "{error}");
    }
}
