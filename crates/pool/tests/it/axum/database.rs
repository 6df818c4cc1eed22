//! Responses to database errors.

use std::path::Path as File;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::routing::get;
use longshore_pool::CallError;
use longshore_pool::axum::Pools;
use longshore_pool::database::{Db, DbOptions, Statement};
use serde_json::Value;

use super::{ask, page};

/// Runs for minutes.
const SLOW: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) \
                    SELECT count(*) FROM n WHERE i < 0";

async fn add(db: Db) -> Result<(), CallError> {
    db.execute("INSERT INTO member (name) VALUES ('hunter2')", []).await.map(drop)
}

async fn rename(db: Db) -> Result<(), CallError> {
    let rename = Statement::new("UPDATE member SET name = 'x' WHERE name = 'absent'", []);
    db.transaction([rename.expect_rows(1)]).await.map(drop)
}

async fn count(db: Db) -> Result<Bytes, CallError> {
    db.select_value(SLOW, []).await.map(|_| Bytes::new())
}

async fn mistake(db: Db) -> Result<(), CallError> {
    db.execute("SELECT hunter2", []).await.map(drop)
}

/// The app, with its database in this file.
async fn app(file: &File, options: DbOptions) -> Router {
    let db = Db::sqlite(file, options.workers(1, 1)).await.unwrap();
    let router = Router::new().route("/add", get(add)).route("/count", get(count));
    let router = router.route("/rename", get(rename)).route("/mistake", get(mistake));
    router.with_state(Pools::new().add(db))
}

/// A problem response: status, kind, and the seconds of `Retry-After`.
async fn problem(app: &Router, path: &str) -> (u16, String, Option<u64>) {
    let retry_after = ask(app, path).await.headers().get("retry-after").cloned();
    let (status, text) = page(app, path).await;
    assert!(!text.contains("hunter2") && !text.contains("member"), "{text}");
    let problem: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(problem["status"], status.as_u16(), "{text}");
    let seconds = problem["retry_after"].as_u64();
    assert_eq!(
        retry_after.map(|retry_after| retry_after.to_str().unwrap().parse().unwrap()),
        seconds,
        "{text}"
    );
    (status.as_u16(), problem["kind"].as_str().unwrap().to_owned(), seconds)
}

#[tokio::test]
async fn a_status_says_whether_it_was_the_request_the_database_or_the_time() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("test.db");
    let other = rusqlite::Connection::open(&file).unwrap();
    other.execute_batch("CREATE TABLE member (name TEXT UNIQUE)").unwrap();
    let brief = Duration::from_millis(50);
    let app = app(&file, DbOptions::default().busy_timeout(brief).statement_timeout(brief)).await;
    let expect = |status: u16, kind: &str, seconds| (status, kind.to_owned(), seconds);

    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(problem(&app, "/add").await, expect(503, "busy", Some(1)));
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(page(&app, "/add").await.0.as_u16(), 200);
    assert_eq!(problem(&app, "/add").await, expect(409, "constraint", None));
    assert_eq!(problem(&app, "/rename").await, expect(409, "expected_rows", None));
    assert_eq!(problem(&app, "/count").await, expect(504, "time_limit", None));
    assert_eq!(problem(&app, "/mistake").await, expect(500, "handler", None));
}

#[tokio::test]
async fn a_database_that_is_not_there_is_a_503_that_says_when_to_come_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("test.db");
    let options = DbOptions::default().lazy().reconnect_within(Duration::from_millis(50));
    let app = app(&file, options).await;
    assert_eq!(problem(&app, "/add").await, (503, "unreachable".to_owned(), Some(5)));
    let made = rusqlite::Connection::open(&file).unwrap();
    made.execute_batch("CREATE TABLE member (name TEXT UNIQUE)").unwrap();
    assert_eq!(page(&app, "/add").await.0.as_u16(), 200, "it is there now");
}
