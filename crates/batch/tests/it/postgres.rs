//! Rows in a real PostgreSQL, directly and behind a pooler that assigns another session to every
//! transaction.

mod column_cache;
mod fingerprint;
mod keys;
mod outages;
mod tls;
mod types;

use std::sync::Arc;

use longshore_batch::check::check;
use longshore_batch::definition::{Database, Definition};
use longshore_batch::file::SourceMap;
use longshore_batch::rows::{RowSource, SourceError, Sources, open};
use longshore_testkit::servers::{PrivatePgbouncer, PrivatePostgres};

use crate::remote::{self, TestDatabase, effect};
use crate::support;

/// A server and the URL of its rows.
struct PostgresAccess {
    // Dropped before the server, to which it is connected.
    _pooler: Option<PrivatePgbouncer>,
    server: PrivatePostgres,
    url: String,
}

impl TestDatabase for PostgresAccess {
    fn rows(&self) -> Arc<dyn RowSource> {
        open(&self.url).unwrap()
    }

    fn run(&self, sql: &str) -> String {
        self.server.run(sql).unwrap()
    }
}

fn directly() -> PostgresAccess {
    let server = PrivatePostgres::start().unwrap();
    PostgresAccess { _pooler: None, url: server.url(), server }
}

fn through_a_pooler() -> PostgresAccess {
    let server = PrivatePostgres::start().unwrap();
    let pooler = PrivatePgbouncer::start(&server).unwrap();
    PostgresAccess { url: pooler.url(), _pooler: Some(pooler), server }
}

#[tokio::test]
async fn statements_are_described_and_candidates_paged() {
    statements_and_pages(&directly()).await;
}

#[tokio::test]
async fn statements_are_described_and_candidates_paged_through_a_pooler() {
    statements_and_pages(&through_a_pooler()).await;
}

async fn statements_and_pages(database: &PostgresAccess) {
    database.lines(5);
    remote::statements_are_described(database).await;
    let missing = ["relation \"elsewhere\" does not exist", "column \"absent\" does not exist"];
    remote::mistakes_are_told_with_their_place(database, missing).await;
    remote::candidates_come_in_key_order(database).await;
    remote::candidates_come_by_priority(database).await;
    remote::a_read_changes_nothing(database).await;
    database
        .run("CREATE COLLATION unaware (provider = icu, locale = 'und-u-ks-level1', deterministic = false)");
    let word = "CREATE TABLE word (id TEXT COLLATE unaware)";
    remote::text_keys_keep_their_order(database, word).await;
    a_function_that_writes_is_refused_in_a_read(database).await;
    mistakes_have_a_place_and_a_name(&*database.rows()).await;
}

async fn a_function_that_writes_is_refused_in_a_read(database: &PostgresAccess) {
    let body = "DELETE FROM line; SELECT 1";
    database.run(&format!("CREATE FUNCTION sly() RETURNS INT LANGUAGE sql AS '{body}'"));
    let rows = database.rows();
    let error = rows.fetch("SELECT sly() AS n", &[]).await.unwrap_err();
    assert!(error.to_string().contains("read-only transaction"), "{error}");
    let within = "WITH gone AS (DELETE FROM line RETURNING id) SELECT * FROM gone";
    let error = rows.fetch(within, &[]).await.unwrap_err();
    assert!(error.to_string().contains("only a SELECT"), "{error}");
    assert!(!rows.describe(within).await.unwrap().read_only);
    assert_eq!(database.run("SELECT count(*) FROM line").trim(), "5");
}

async fn mistakes_have_a_place_and_a_name(rows: &dyn RowSource) {
    for (sql, words, database) in [
        ("SELECT 'ü🦀', :a FRM line", "syntax error at or near \"line\"", Some(24)),
        ("SELECT $1", "write `:name`, not `$1`", Some(7)),
        ("SELECT id FROM line WHERE :gone IS NULL", "parameter :gone; write its type", None),
        (
            "SELECT id FROM line WHERE note = :key AND id = :key",
            "operator does not exist: bigint = text",
            Some(45),
        ),
        ("INSERT INTO line (id, priority) VALUES (:a, :a)", "parameter :a: ", None),
        ("UPDATE line SET nope = 1", "column \"nope\" of relation \"line\"", Some(16)),
    ] {
        let error = rows.describe(sql).await.unwrap_err();
        let SourceError::Statement { message, offset } = error else { panic!("{sql}: {error:?}") };
        assert!(message.contains(words), "{sql}: {message}");
        assert!(database.is_none() || offset == database, "{sql}: {offset:?}");
    }
}

#[tokio::test]
async fn a_check_says_what_was_probably_meant() {
    let database = through_a_pooler();
    database.lines(1);
    for (sql, message, hint) in [
        ("SELECT id, priority FROM lin", "relation \"lin\" does not exist", "`line`?"),
        ("SELECT id, priorty AS priority FROM line", "column \"priorty\"", "`priority`?"),
    ] {
        let candidates = support::candidates(sql);
        let definition = Definition { candidates, ..support::definition() };
        let error = check(&definition, &SourceMap::default(), &*database.rows()).await.unwrap_err();
        assert!(error.message.contains(message), "{error}");
        assert!(error.hint.as_deref().is_some_and(|text| text.contains(hint)), "{:?}", error.hint);
    }
}

#[tokio::test]
async fn rows_in_the_stores_own_database_are_found_there() {
    let database = directly();
    database.lines(3);
    let sources = Sources::new(Some(database.url.clone()), |_| None);
    let rows = sources.resolve(&Database::Store).unwrap();
    assert_eq!(rows.count(&remote::by_id("SELECT id FROM line")).await.unwrap(), 3);
}

#[tokio::test]
async fn effects_are_applied_all_or_none() {
    let database = through_a_pooler();
    database.lines(5);
    remote::effects_are_applied_all_or_none(&database, "duplicate key value", "does not exist").await;
    let rows = database.rows();
    let returning = "DELETE FROM line WHERE id > 3 RETURNING id";
    rows.apply(&[effect(returning, &[], Some(2))]).await.unwrap();
    assert_eq!(database.run("SELECT count(*) FROM line").trim(), "3");
    a_broken_promise_is_found_at_the_commit(&database).await;
}

async fn a_broken_promise_is_found_at_the_commit(database: &PostgresAccess) {
    database.run("CREATE TABLE note (line BIGINT REFERENCES line DEFERRABLE INITIALLY DEFERRED)");
    let rows = database.rows();
    let note = |line: i64| effect(&format!("INSERT INTO note VALUES ({line})"), &[], Some(1));
    let error = rows.apply(&[note(1), note(99)]).await.unwrap_err();
    assert!(error.to_string().contains("violates foreign key"), "{error}");
    assert!(!error.is_retryable());
    assert_eq!(database.run("SELECT count(*) FROM note").trim(), "0");
    rows.apply(&[note(1)]).await.unwrap();
}

#[tokio::test]
async fn a_batch_of_rows_runs_to_its_end() {
    remote::a_batch_runs_to_its_end(&directly(), "BOOLEAN").await;
}

#[tokio::test]
async fn a_batch_of_rows_runs_to_its_end_through_a_pooler() {
    remote::a_batch_runs_to_its_end(&through_a_pooler(), "BOOLEAN").await;
}
