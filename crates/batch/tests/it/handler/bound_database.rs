//! Rows for which `database` names another database than the one that their batch was started with.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longshore::store::{UnitAction, UnitSelection};
use longshore::{Client, Payload, Scope, Timestamp, UnitState};
use longshore_ai::Provider;
use longshore_batch::RowHandler;
use longshore_batch::definition::{Database, Definition, Post, SqlPost};
use longshore_batch::handler::RowHandlerBuilder;
use longshore_batch::row_enqueuer::{RowEnqueuer, StartOptions};
use longshore_batch::rows::{Sources, open};
use longshore_testkit::servers::PrivatePostgres;

use super::fixture::{FakeProvider, FakeReply, Fixture, answer, definition, statement};
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

/// A database that another one can replace at the same address.
enum Replaceable {
    Sqlite { orders: Orders, other: Orders },
    Postgres(PrivatePostgres),
}

/// Rows as in [`Orders`].
const LINE: &str = "CREATE TABLE line (id INT PRIMARY KEY, status TEXT DEFAULT 'open', note TEXT);
    INSERT INTO line (id) VALUES (1)";

impl Replaceable {
    fn sqlite() -> Self {
        let (orders, other) = (Orders::new(1), Orders::new(1));
        // Each is one file then: a log beside the first would be taken for the second's.
        for file in [&orders, &other] {
            file.run("PRAGMA journal_mode = DELETE");
        }
        Self::Sqlite { orders, other }
    }

    fn postgres() -> Self {
        let server = PrivatePostgres::start().unwrap();
        server.run("CREATE DATABASE orders").unwrap();
        server.run_in("orders", LINE).unwrap();
        Self::Postgres(server)
    }

    fn url(&self) -> String {
        match self {
            Self::Sqlite { orders, .. } => format!("sqlite:{}", orders.path().display()),
            Self::Postgres(server) => server.url_at(IpAddr::V4(Ipv4Addr::LOCALHOST), "orders"),
        }
    }

    fn replace(&self) {
        match self {
            Self::Sqlite { orders, other } => {
                std::fs::rename(other.path(), orders.path()).unwrap();
            }
            Self::Postgres(server) => {
                server.run("DROP DATABASE orders WITH (FORCE)").unwrap();
                server.run("CREATE DATABASE orders").unwrap();
                server.run_in("orders", LINE).unwrap();
            }
        }
    }

    fn done(&self) -> String {
        let sql = "SELECT count(*) FROM line WHERE status = 'done'";
        match self {
            Self::Sqlite { orders, .. } => orders.read::<u32>(sql).to_string(),
            Self::Postgres(server) => server.run_in("orders", sql).unwrap().trim().to_owned(),
        }
    }
}

/// The database is replaced while the row's question is answered: its answer is not written to the other database, until an
/// operator binds the batch to that. The worker goes on by itself.
async fn a_running_worker_refuses_a_database_that_replaces_another(database: Replaceable) {
    let (database, once) = (Arc::new(database), AtomicBool::new(true));
    let url = database.url();
    let replacing = Arc::clone(&database);
    let provider = FakeProvider::new(move |_, _| {
        if once.swap(false, Ordering::SeqCst) {
            replacing.replace();
        }
        FakeReply::Answer(answer(FINE))
    });
    let fixture = Fixture::in_memory(provider);
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
    let initiator = RowEnqueuer::new(Client::new(Arc::clone(&fixture.store)), open(&url).unwrap());
    let options = StartOptions { now: Timestamp::ZERO, ..StartOptions::default() };
    let mut filling = initiator.start(definition, options).await.unwrap();
    initiator.fill(&mut filling, std::future::pending(), |_| ()).await.unwrap();
    let id = filling.batch().id.clone();

    let rows_url = url.clone();
    let sources = Sources::new(None, move |name| (name == "ROWS").then(|| rows_url.clone()));
    let provider = Arc::clone(&fixture.provider) as Arc<dyn Provider>;
    let handler = RowHandler::builder(Arc::new(sources)).provider("fake", provider);
    let rebound = async {
        while fixture.only_unit(&id).await.state != UnitState::Scheduled {
            let unit = fixture.only_unit(&id).await;
            assert!(!unit.state.is_final(), "{:?}: {:?}", unit.state, unit.failure);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(database.done(), "0");
        let old = fixture.store.definition(&Scope::All, &id).await.unwrap().unwrap();
        let fingerprint = open(&url).unwrap().fingerprint().await.unwrap();
        let new = Definition { fingerprint, ..old.parse::<Definition>().unwrap() };
        let new = Payload::json(&new).unwrap();
        fixture.store.change_definition(&Scope::All, &id, old, new).await.unwrap();
        while fixture.only_unit(&id).await.state != UnitState::Done {
            let unit = fixture.only_unit(&id).await;
            assert!(!unit.state.is_final(), "{:?}: {:?}", unit.state, unit.failure);
            let wake = UnitSelection::Ids(vec![unit.id]);
            let _ = fixture.store.apply_unit_action(&Scope::All, wake, UnitAction::Wake).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    Box::pin(fixture.work_until(handler, rebound)).await;
    let unit = fixture.only_unit(&id).await;
    assert_eq!((unit.attempt, fixture.provider.count(), database.done().as_str()), (1, 1, "1"));
    assert_eq!(fixture.store.failures(&Scope::All, unit.id).await.unwrap(), vec![]);
}

#[tokio::test]
async fn a_running_worker_refuses_a_sqlite_file_that_replaces_another() {
    Box::pin(a_running_worker_refuses_a_database_that_replaces_another(Replaceable::sqlite())).await;
}

#[tokio::test]
async fn a_running_worker_refuses_a_postgres_database_that_replaces_another() {
    Box::pin(a_running_worker_refuses_a_database_that_replaces_another(Replaceable::postgres())).await;
}
