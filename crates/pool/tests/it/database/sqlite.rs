//! SQLite, on threads.

use std::time::Duration;

use longshore_pool::database::{Db, DbOptions, Reason, Statement, Value};
use longshore_pool::{CallOptions, ErrorKind, params};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::cases::{self, ParameterStyle};
use super::{db_error, reason};
use crate::helpers::eventually;

const STYLE: ParameterStyle = ParameterStyle::QuestionMark;
/// Runs for minutes.
pub(super) const SLOW: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) \
                               SELECT count(*) FROM n WHERE i < 0";

struct File(TempDir);

impl File {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    async fn open(&self, options: DbOptions) -> Db {
        Db::sqlite(self.0.path().join("test.db"), options).await.unwrap()
    }

    /// A database with the table of three rows.
    async fn filled() -> (Self, Db) {
        let file = Self::new();
        let db = file.open(one()).await;
        cases::create_lines(&db).await;
        (file, db)
    }
}

fn one() -> DbOptions {
    DbOptions::default().workers(1, 1).create_if_missing()
}

#[tokio::test]
async fn all_operations_work() {
    let (_file, db) = File::filled().await;
    cases::selects_give_rows_columns_and_values(&db, STYLE).await;
    cases::what_is_bound_is_never_read_as_sql(&db, STYLE).await;
    let codes = ["23505", "23502", "42000"];
    cases::errors_carry_a_code_and_leave_the_worker_in_order(&db, STYLE, codes).await;
    cases::a_transaction_is_all_or_nothing(&db, STYLE).await;
    db.close(Duration::from_secs(10)).await;
    let error = db.ping().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::ShuttingDown);
}

#[tokio::test]
async fn limits_hold() {
    let (file, db) = File::filled().await;
    let brief = file.open(one().statement_timeout(cases::STATEMENT_TIMEOUT)).await;
    cases::a_slow_statement_is_stopped_and_rolled_back(&brief, STYLE, SLOW).await;
    cases::a_call_that_took_too_long_is_rolled_back(&db, STYLE, SLOW).await;
    let two = file.open(one().row_limit(2)).await;
    cases::more_rows_than_the_limit_are_an_error(&two, STYLE).await;
    let returning = "UPDATE line SET amount = 99 RETURNING id";
    assert_eq!(reason(two.select_all(returning, []).await), Reason::RowLimit);
    let changed = db.select_value("SELECT count(*) FROM line WHERE amount = 99", []).await;
    assert_eq!(changed.unwrap(), Value::Int(0), "rolled back");
    cases::a_reader_cannot_write(&file.open(one().read_only()).await).await;
    let small = file.open(one().byte_limit(1000)).await;
    assert_eq!(reason(small.select_value("SELECT hex(zeroblob(1000))", []).await), Reason::SizeLimit);
}

#[tokio::test]
async fn values_come_back_as_they_were_bound() {
    let (_file, db) = File::filled().await;
    db.execute("CREATE TABLE value (a, b TEXT)", []).await.unwrap();
    for value in params![
        None::<i64>,
        i64::MIN,
        i64::MAX,
        0.1,
        1e300,
        f64::INFINITY,
        "",
        "ü😀",
        &[0_u8, 255, 34][..],
        Vec::new()
    ] {
        let read = db.select_value("SELECT ?", [value.clone()]).await.unwrap();
        let expected = match value {
            Value::Real(value) if value.is_infinite() => "Infinity".into(),
            value => value,
        };
        assert_eq!(read, expected);
    }
    assert_eq!(db.select_value("SELECT ?", params![true]).await.unwrap(), Value::Int(1));
    let error = db_error(db.select_value("SELECT CAST(x'ff' AS TEXT)", []).await);
    assert!(error.message.contains("UTF-8"), "{error}");
}

#[tokio::test]
async fn an_insert_says_the_new_id_and_only_if_there_is_one() {
    let (_file, db) = File::filled().await;
    let insert = "INSERT INTO line (item) VALUES (?)";
    assert_eq!(db.insert(insert, params!["oakum"]).await.unwrap(), Value::Int(4));
    let ignored = "INSERT OR IGNORE INTO line (id, item) VALUES (1, 'again')";
    assert_eq!(db.insert(ignored, []).await.unwrap(), Value::Null);
    let returning = "INSERT INTO line (item) VALUES ('a'), ('b'), ('c') RETURNING item, id";
    assert_eq!(db.insert(returning, []).await.unwrap(), Value::from("a"));
    let count = db.select_value("SELECT count(*) FROM line", []).await.unwrap();
    assert_eq!(count, Value::Int(7), "all three, though only one was asked for");
    let done = db.transaction([Statement::new(insert, params!["pitch"])]).await.unwrap();
    assert_eq!((done[0].last_id.clone(), done[0].rows_affected), (Some(Value::Int(8)), 1));
    assert_eq!(db.execute("CREATE TABLE other (a)", []).await.unwrap(), 0, "changes no row");
}

#[tokio::test]
async fn a_statement_that_rolls_back_by_itself_takes_the_whole_transaction_with_it() {
    let (_file, db) = File::filled().await;
    let statements = [
        Statement::new("INSERT INTO line (id, item) VALUES (20, 'x')", []),
        Statement::new("INSERT OR ROLLBACK INTO line (id, item) VALUES (1, 'y')", []),
        Statement::new("INSERT INTO line (id, item) VALUES (21, 'z')", []),
    ];
    let error = db_error(db.transaction(statements).await);
    assert!(error.message.contains("rolled back the transaction"), "{error}");
    let count = db.select_value("SELECT count(*) FROM line", []).await.unwrap();
    assert_eq!(count, Value::Int(3));
}

#[tokio::test]
async fn a_lock_is_waited_for_only_so_long() {
    let (file, db) = File::filled().await;
    let patience = Duration::from_millis(100);
    let other = file.open(one().busy_timeout(patience)).await;
    let holder = rusqlite::Connection::open(file.0.path().join("test.db")).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = db_error(other.execute("DELETE FROM line", []).await);
    assert_eq!((error.code.as_deref(), error.retryable), (Some("55P03"), true));
    let error = db_error(other.transaction([Statement::new("DELETE FROM line", [])]).await);
    assert_eq!((error.code.as_deref(), error.retryable), (Some("55P03"), true));
    holder.execute_batch("ROLLBACK").unwrap();
    assert_eq!(other.execute("DELETE FROM line", []).await.unwrap(), 3);
    drop(db);
}

#[tokio::test]
async fn a_statement_that_nobody_wants_any_more_is_stopped() {
    let (_file, db) = File::filled().await;
    let token = CancellationToken::new();
    let fickle = db.with(CallOptions::default().cancelled_by(token.clone()));
    let statements = [Statement::new("DELETE FROM line", []), Statement::new(SLOW, [])];
    let cancel = async {
        eventually("it has begun", || db.pool().stats().busy == 1).await;
        token.cancel();
    };
    let (answer, ()) = tokio::join!(fickle.transaction(statements), cancel);
    let error = answer.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Cancelled { .. }), "{error:?}");
    let count = db.select_value("SELECT count(*) FROM line", []).await.unwrap();
    assert_eq!(count, Value::Int(3), "rolled back");
    eventually("its thread is free", || {
        let stats = db.pool().stats();
        (stats.workers, stats.busy, stats.abandoned) == (1, 0, 0)
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_opened_is_said_at_once() {
    let file = File::new();
    let path = file.0.path().join("test.db");
    for (path, options, words) in [
        (path.clone(), DbOptions::default(), "does not exist"),
        (":memory:".into(), DbOptions::default(), "name a file"),
        (path.clone(), one().init("PRAGMA nonsense("), "PRAGMA nonsense("),
    ] {
        let error = Db::sqlite(path, options).await.unwrap_err();
        assert!(matches!(error.kind, ErrorKind::StartFailed { .. }), "{error:?}");
        assert!(error.to_string().contains(words), "{error}");
    }
    std::fs::write(&path, "no database at all, but long enough to be looked at").unwrap();
    let error = Db::sqlite(path, DbOptions::default()).await.unwrap_err();
    assert!(error.to_string().contains("is not a SQLite database"), "{error}");
}

#[tokio::test]
async fn a_lazy_one_starts_before_its_database() {
    let file = File::new();
    let path = file.0.path().join("test.db");
    let options = DbOptions::default().lazy().reconnect_within(Duration::from_millis(200));
    let db = Db::sqlite(&path, options).await.unwrap();
    assert_eq!(reason(db.ping().await), Reason::Unreachable);
    rusqlite::Connection::open(&path).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
    assert_eq!(db.execute("INSERT INTO t VALUES (1)", []).await.unwrap(), 1);
}

#[tokio::test]
async fn foreign_keys_are_checked() {
    let (_file, db) = File::filled().await;
    let part = "CREATE TABLE part (line INTEGER REFERENCES line (id) DEFERRABLE INITIALLY DEFERRED)";
    db.execute(part, []).await.unwrap();
    let orphan = "INSERT INTO part VALUES (99)";
    assert_eq!(db_error(db.execute(orphan, []).await).code.as_deref(), Some("23503"));
    let error = db_error(db.transaction([Statement::new(orphan, [])]).await);
    assert_eq!(error.code.as_deref(), Some("23503"), "found at the commit");
    let mended = "INSERT INTO line (id, item) VALUES (99, 'late')";
    let both = [Statement::new(orphan, []), Statement::new(mended, [])];
    assert_eq!(db.transaction(both).await.unwrap().len(), 2);
}

#[tokio::test]
async fn init_statements_hold_for_every_connection() {
    let file = File::new();
    let options = DbOptions::default().workers(3, 3).create_if_missing();
    let db = file.open(options.init("PRAGMA cache_size = 77").init("PRAGMA foreign_keys = 1")).await;
    // The calls run concurrently, so each worker gets one.
    let asked = (0..30).map(|_| db.select_value("PRAGMA cache_size", []));
    for answer in futures_util::future::join_all(asked).await {
        assert_eq!(answer.unwrap(), Value::Int(77));
    }
}

#[tokio::test]
async fn calls_on_several_connections_do_not_disturb_each_other() {
    let file = File::new();
    let db = file.open(DbOptions::default().create_if_missing().init("PRAGMA journal_mode = wal")).await;
    db.execute("CREATE TABLE t (a INTEGER)", []).await.unwrap();
    let inserts = (0..100).map(|n| db.insert("INSERT INTO t VALUES (?)", params![n]));
    let mut ids: Vec<Value> =
        futures_util::future::join_all(inserts).await.into_iter().map(Result::unwrap).collect();
    ids.sort_by_key(Value::as_i64);
    ids.dedup();
    assert_eq!(ids.len(), 100, "every insert has an id of its own");
    let sum = db.select_value("SELECT sum(a) FROM t", []).await.unwrap();
    assert_eq!(sum, Value::Int(4950));
}
