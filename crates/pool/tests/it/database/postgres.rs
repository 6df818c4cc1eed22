//! A real PostgreSQL, private to each test.

use std::time::Duration;

use longshore_pool::database::{Db, DbOptions, Reason, Statement, Value};
use longshore_pool::{ErrorKind, params};
use longshore_testkit::servers::{PrivatePgbouncer, PrivatePostgres};

use super::cases::{self, ParameterStyle};
use super::{db_error, reason};
use crate::helpers::eventually;

const STYLE: ParameterStyle = ParameterStyle::Dollar;
const SLOW: &str = "SELECT pg_sleep(60)";

fn server() -> PrivatePostgres {
    PrivatePostgres::start().unwrap()
}

fn one() -> DbOptions {
    DbOptions::default().workers(1, 1)
}

async fn open(server: &PrivatePostgres, options: DbOptions) -> Db {
    Db::postgres(server.url(), options).await.unwrap()
}

#[tokio::test]
async fn all_operations_work_and_limits_hold() {
    let server = server();
    let db = open(&server, one()).await;
    cases::create_lines(&db).await;
    cases::selects_give_rows_columns_and_values(&db, STYLE).await;
    cases::what_is_bound_is_never_read_as_sql(&db, STYLE).await;
    let codes = ["23505", "23502", "42703"];
    cases::errors_carry_a_code_and_leave_the_worker_in_order(&db, STYLE, codes).await;
    cases::a_transaction_is_all_or_nothing(&db, STYLE).await;
    let brief = open(&server, one().statement_timeout(cases::STATEMENT_TIMEOUT)).await;
    cases::a_slow_statement_is_stopped_and_rolled_back(&brief, STYLE, SLOW).await;
    cases::a_call_that_took_too_long_is_rolled_back(&db, STYLE, SLOW).await;
    let two = open(&server, one().row_limit(2)).await;
    cases::more_rows_than_the_limit_are_an_error(&two, STYLE).await;
    cases::a_reader_cannot_write(&open(&server, one().read_only()).await).await;
    many_rows_that_nobody_wants_are_not_waited_for(&two).await;
    an_insert_says_what_it_returns(&db).await;
    a_prepared_statement_outlives_a_change_of_its_table(&db).await;
    assert_eq!(server.run("SELECT count(*) FROM line").unwrap().trim(), "5");
}

/// A thousand million rows take minutes.
async fn many_rows_that_nobody_wants_are_not_waited_for(two: &Db) {
    let many = "SELECT generate_series(1, 1000000000)";
    assert_eq!(two.select_value(many, []).await.unwrap(), Value::Int(1));
    assert_eq!(reason(two.select_all(many, []).await), Reason::RowLimit);
    two.ping().await.unwrap();
}

async fn an_insert_says_what_it_returns(db: &Db) {
    let insert = "INSERT INTO line (id, item) VALUES ($1, $2)";
    assert_eq!(db.insert(insert, params![80, "a"]).await.unwrap(), Value::Null);
    let returning = format!("{insert} RETURNING id");
    assert_eq!(db.insert(&returning, params![81, "b"]).await.unwrap(), Value::Int(81));
    let all = db.select_all("UPDATE line SET amount = 4 WHERE id > 79 RETURNING id", []).await;
    assert_eq!(all.unwrap().len(), 2);
}

async fn a_prepared_statement_outlives_a_change_of_its_table(db: &Db) {
    db.execute("CREATE TABLE shape (a INTEGER)", []).await.unwrap();
    db.execute("INSERT INTO shape VALUES (1)", []).await.unwrap();
    let all = "SELECT * FROM shape";
    assert_eq!(db.select_all(all, []).await.unwrap()[0].columns().len(), 1);
    db.execute("ALTER TABLE shape ADD b TEXT DEFAULT 'x'", []).await.unwrap();
    assert_eq!(db.select_all(all, []).await.unwrap()[0].get("b"), Some(&"x".into()));
}

#[tokio::test]
async fn every_type_comes_as_a_value_or_as_text_and_goes_back_exactly() {
    let server = server();
    let db = open(&server, one()).await;
    db.execute("CREATE TYPE mood AS ENUM ('calm', 'rough')", []).await.unwrap();
    db.execute("CREATE DOMAIN small AS smallint CHECK (VALUE < 10)", []).await.unwrap();
    let text = |text: &str| Value::from(text);
    for (kind, value) in [
        ("bool", Value::Bool(true)),
        ("smallint", Value::Int(-7)),
        ("int", Value::Int(7)),
        ("bigint", Value::Int(i64::MAX)),
        ("oid", Value::Int(4_000_000_000)),
        ("small", Value::Int(9)),
        ("real", Value::Real(0.1)),
        ("double precision", Value::Real(0.1)),
        ("text", text("ü😀")),
        ("char(3)", text("a  ")),
        ("bytea", Value::Bytes(vec![0, 255])),
        ("numeric", text("12345678901234567890.0123456789")),
        ("date", text("2026-02-28")),
        ("timestamp", text("2026-02-28 12:00:00.5")),
        ("uuid", text("0190a0b0-0000-7000-8000-000000000001")),
        ("json", text("{\"a\": 1}")),
        ("jsonb", text("{\"a\": 1}")),
        ("int[]", text("{1,NULL,3}")),
        ("int4range", text("[1,5)")),
        ("inet", text("10.0.0.1/8")),
        ("interval", text("1 day 02:00:00")),
        ("mood", text("rough")),
    ] {
        let cast = format!("SELECT $1::{kind} AS v, 1 AS n");
        let row = db.select_row(&cast, [value.clone()]).await.unwrap().unwrap();
        assert_eq!(row.get("v"), Some(&value), "{kind}");
        let null = db.select_value(&cast, [Value::Null]).await.unwrap();
        assert_eq!(null, Value::Null, "{kind}");
    }
    let twice = db.select_all("SELECT 1.5 AS a, 2 AS a -- both\n;", []).await.unwrap();
    let values: Vec<Value> = twice[0].clone().into_values().collect();
    assert_eq!(values, [text("1.5"), Value::Int(2)]);
    let hidden = "WITH x AS (INSERT INTO nowhere VALUES (1.5) RETURNING a) SELECT a FROM x";
    db.execute("CREATE TABLE nowhere (a numeric)", []).await.unwrap();
    let error = db_error(db.select_all(hidden, []).await);
    assert!(error.message.contains("a::text"), "{error}");
    let count = db.select_value("SELECT count(*) FROM nowhere", []).await.unwrap();
    assert_eq!(count, Value::Int(0), "it was not run");
}

#[tokio::test]
async fn a_lost_connection_is_made_again_and_only_what_is_safe_is_repeated() {
    let mut server = server();
    let db = open(&server, one().reconnect_within(Duration::from_secs(1))).await;
    cases::create_lines(&db).await;
    // Closed while idle: writes succeed too, since nothing of them was sent.
    let write = "UPDATE line SET amount = 1 WHERE id = 1";
    for _ in 0..3 {
        assert_eq!(db.execute(write, []).await.unwrap(), 1);
        server.restart().unwrap();
    }
    assert_eq!(db.select_col("SELECT id FROM line", []).await.unwrap().len(), 3);

    // Closed during a read: it is retried.
    let me = "SELECT pid FROM pg_stat_activity WHERE query LIKE '%pg_sleep%' AND pid <> pg_backend_pid()";
    let end = || {
        let ended = format!("SELECT pg_terminate_backend(pid) FROM ({me}) AS it");
        server.run(&ended).unwrap().contains('t')
    };
    let read = "SELECT 7 FROM pg_sleep(1)";
    let (answer, ()) = tokio::join!(db.select_value(read, []), eventually("it is ended", end));
    assert_eq!(answer.unwrap(), Value::Int(7));

    // Closed during a write: its outcome is unknown, and it is not retried.
    let write = "UPDATE line SET amount = amount + 1 WHERE id = 1 AND pg_sleep(30) IS NOT NULL";
    let (answer, ()) = tokio::join!(db.execute(write, []), eventually("it is ended", end));
    let error = db_error(answer);
    assert_eq!((error.reason, error.outcome_unknown), (Reason::Lost, true));
    let statements = [Statement::new("DELETE FROM line", []), Statement::new(SLOW, [])];
    let (answer, ()) = tokio::join!(db.transaction(statements), eventually("it is ended", end));
    let error = db_error(answer);
    assert_eq!((error.reason, error.outcome_unknown), (Reason::Lost, false), "rolled back");
    assert_eq!(db.select_col("SELECT id FROM line", []).await.unwrap().len(), 3);

    // Server stopped: an error in time; then it is back.
    server.stop();
    let error = db_error(db.ping().await);
    assert!(matches!(error.reason, Reason::Lost | Reason::Unreachable), "{error:?}");
    server.restart().unwrap();
    db.ping().await.unwrap();
    assert_eq!(db.pool().stats().workers, 1);
}

/// The server delivers a cancel request as signals, and one of them may arrive late.
#[tokio::test]
async fn stopping_a_statement_does_not_stop_the_next() {
    let server = server();
    let db = open(&server, one()).await;
    cases::create_lines(&db).await;
    let brief = db.with(longshore_pool::CallOptions::default().timeout(Duration::from_millis(100)));
    for _ in 0..50 {
        brief.select_all(SLOW, []).await.unwrap_err();
        let statements = [
            Statement::new("UPDATE line SET amount = 1", []),
            Statement::new("SELECT count(*) FROM generate_series(1, 100000)", []),
        ];
        db.transaction(statements).await.unwrap();
    }
}

#[tokio::test]
async fn nothing_is_kept_in_a_session_behind_a_transaction_pooler() {
    let server = server();
    let pooler = PrivatePgbouncer::start(&server).unwrap();
    let db = Db::postgres(pooler.url(), one().statement_cache(0)).await.unwrap();
    cases::create_lines(&db).await;
    for _ in 0..3 {
        cases::selects_give_rows_columns_and_values(&db, STYLE).await;
    }
    cases::a_transaction_is_all_or_nothing(&db, STYLE).await;
    let text = db.select_value("SELECT 1.50::numeric", []).await.unwrap();
    assert_eq!(text, Value::from("1.50"));
}

#[tokio::test]
async fn who_is_not_let_in_hears_so_without_the_password() {
    let server = server();
    let url = server.url().replace("quay-side", "s3cret");
    let error = Db::postgres(url, one()).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::StartFailed { .. }), "{error:?}");
    assert!(error.to_string().contains("password authentication failed"), "{error}");
    assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
    let error = Db::postgres("postgres://me:s3cret@db:port/x", one()).await.unwrap_err();
    assert!(error.to_string().contains("not postgres://USER"), "{error}");
    assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
    let error = Db::postgres("postgres://me@127.0.0.1:1/x", one()).await.unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn tls_is_spoken_where_the_url_says_so() {
    let server = PrivatePostgres::start_with_tls().unwrap();
    let authority = server.ca_certificate().display().to_string();
    let url = server.url().replace("127.0.0.1", "localhost");
    let url = format!("{url}?sslmode=verify-full&sslrootcert={authority}");
    let db = Db::postgres(url, one().statement_timeout(cases::STATEMENT_TIMEOUT)).await.unwrap();
    let ssl = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    assert_eq!(db.select_value(ssl, []).await.unwrap(), Value::Bool(true));
    assert_eq!(reason(db.select_all(SLOW, []).await), Reason::TimeLimit, "cancelled over TLS, too");
}
