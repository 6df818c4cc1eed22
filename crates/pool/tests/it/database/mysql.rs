//! A real MariaDB, private to each test.

use std::time::Duration;

use longshore_pool::database::{Db, DbOptions, Reason, Statement, Value};
use longshore_pool::{ErrorKind, params};
use longshore_testkit::servers::PrivateMariaDb;

use super::cases::{self, ParameterStyle};
use super::{db_error, reason};
use crate::helpers::eventually;

const STYLE: ParameterStyle = ParameterStyle::QuestionMark;
const SLOW: &str = "SELECT SLEEP(60)";

fn one() -> DbOptions {
    DbOptions::default().workers(1, 1)
}

async fn open(server: &PrivateMariaDb, options: DbOptions) -> Db {
    Db::mysql(server.url(), options).await.unwrap()
}

#[tokio::test]
async fn all_operations_work_and_limits_hold() {
    let server = PrivateMariaDb::start().unwrap();
    let db = open(&server, one()).await;
    cases::create_lines(&db).await;
    cases::selects_give_rows_columns_and_values(&db, STYLE).await;
    cases::what_is_bound_is_never_read_as_sql(&db, STYLE).await;
    let codes = ["23000", "23000", "42S22"];
    cases::errors_carry_a_code_and_leave_the_worker_in_order(&db, STYLE, codes).await;
    cases::a_transaction_is_all_or_nothing(&db, STYLE).await;
    let brief = open(&server, one().statement_timeout(cases::STATEMENT_TIMEOUT)).await;
    cases::a_slow_statement_is_stopped_and_rolled_back(&brief, STYLE, SLOW).await;
    cases::a_call_that_took_too_long_is_rolled_back(&db, STYLE, SLOW).await;
    let two = open(&server, one().row_limit(2)).await;
    cases::more_rows_than_the_limit_are_an_error(&two, STYLE).await;
    cases::a_reader_cannot_write(&open(&server, one().read_only()).await).await;
    many_rows_that_nobody_wants_are_not_waited_for(&two).await;
    an_insert_says_the_new_id(&db).await;
    what_would_commit_is_refused_in_a_transaction(&db).await;
    assert_eq!(server.run("SELECT count(*) FROM line").unwrap().trim(), "3");
}

async fn many_rows_that_nobody_wants_are_not_waited_for(two: &Db) {
    let many = "SELECT seq FROM seq_1_to_1000000000";
    assert_eq!(two.select_value(many, []).await.unwrap(), Value::Int(1));
    assert_eq!(reason(two.select_all(many, []).await), Reason::RowLimit);
    two.ping().await.unwrap();
}

async fn an_insert_says_the_new_id(db: &Db) {
    db.execute("CREATE TABLE berth (id INT AUTO_INCREMENT PRIMARY KEY, a INT UNIQUE)", []).await.unwrap();
    let insert = "INSERT INTO berth (a) VALUES (?)";
    assert_eq!(db.insert(insert, params![7]).await.unwrap(), Value::Int(1));
    let ignored = "INSERT IGNORE INTO berth (a) VALUES (?)";
    assert_eq!(db.insert(ignored, params![7]).await.unwrap(), Value::Null);
    let returning = format!("{insert} RETURNING a");
    assert_eq!(db.insert(&returning, params![8]).await.unwrap(), Value::Int(8));
    assert_eq!(db.execute("UPDATE berth SET a = 8 WHERE a = 8", []).await.unwrap(), 1, "found");
}

async fn what_would_commit_is_refused_in_a_transaction(db: &Db) {
    let statements =
        [Statement::new("DELETE FROM line", []), Statement::new("CREATE TABLE other (a INT)", [])];
    let error = db_error(db.transaction(statements).await);
    assert_eq!((error.reason, error.statement), (Reason::Refused, Some(1)));
}

#[tokio::test]
async fn every_type_comes_as_a_value_or_as_text_and_goes_back_exactly() {
    let server = PrivateMariaDb::start().unwrap();
    let db = open(&server, one()).await;
    let text = |text: &str| Value::from(text);
    for (kind, value) in [
        ("TINYINT", Value::Int(-7)),
        ("BIGINT", Value::Int(i64::MIN)),
        ("BIGINT UNSIGNED", text("18446744073709551615")),
        ("FLOAT", Value::Real(0.1)),
        ("DOUBLE", Value::Real(0.1)),
        ("DECIMAL(40, 10)", text("12345678901234567890.0123456789")),
        ("DATE", text("2026-02-28")),
        ("DATETIME(3)", text("2026-02-28 12:00:00.500")),
        ("TIME", text("-101:02:03")),
        ("VARCHAR(20) CHARACTER SET utf8mb4", text("ü😀")),
        ("JSON", text("{\"a\": 1}")),
        ("BLOB", Value::Bytes(vec![0, 255])),
        ("BIT(1)", Value::Bool(true)),
        ("BIT(9)", Value::Int(257)),
    ] {
        db.execute("DROP TABLE IF EXISTS one", []).await.unwrap();
        db.execute(&format!("CREATE TABLE one (a {kind}, b {kind})"), []).await.unwrap();
        db.execute("INSERT INTO one (a) VALUES (?)", [value.clone()]).await.unwrap();
        let row = db.select_row("SELECT a, b FROM one", []).await.unwrap().unwrap();
        assert_eq!((row.get("a"), row.get("b")), (Some(&value), Some(&Value::Null)), "{kind}");
    }
}

#[tokio::test]
async fn a_lost_connection_is_made_again_and_only_what_is_safe_is_repeated() {
    let mut server = PrivateMariaDb::start().unwrap();
    let db = open(&server, one().check_after(Duration::ZERO).reconnect_within(Duration::from_secs(1))).await;
    cases::create_lines(&db).await;
    server.restart().unwrap();
    let update = "UPDATE line SET amount = 1 WHERE id = 1";
    assert_eq!(db.execute(update, []).await.unwrap(), 1, "found dead before it was sent");

    let end = || {
        let sleeping = "SELECT id FROM information_schema.processlist WHERE info LIKE '%sleep(%' \
                        AND id <> connection_id()";
        let found = server.run(sleeping).unwrap();
        found.lines().map(|id| server.run(&format!("KILL {id}")).unwrap()).count() > 0
    };
    let (answer, ()) =
        tokio::join!(db.select_value("SELECT 7 + 0 * sleep(2)", []), eventually("it is ended", end));
    assert_eq!(answer.unwrap(), Value::Int(7), "a read is asked for again");
    let write = "UPDATE line SET amount = 9 WHERE id = 1 AND sleep(30) = 0";
    let (answer, ()) = tokio::join!(db.execute(write, []), eventually("it is ended", end));
    let error = db_error(answer);
    assert_eq!((error.reason, error.outcome_unknown), (Reason::Lost, true));
    let statements = [Statement::new("DELETE FROM line", []), Statement::new("SELECT sleep(30)", [])];
    let (answer, ()) = tokio::join!(db.transaction(statements), eventually("it is ended", end));
    let error = db_error(answer);
    assert_eq!((error.reason, error.outcome_unknown), (Reason::Lost, false), "rolled back");
    assert_eq!(db.select_col("SELECT id FROM line", []).await.unwrap().len(), 3);

    server.stop();
    let error = db_error(db.ping().await);
    assert!(matches!(error.reason, Reason::Lost | Reason::Unreachable), "{error:?}");
    server.restart().unwrap();
    db.ping().await.unwrap();
}

#[tokio::test]
async fn who_is_not_let_in_hears_so_without_the_password() {
    let server = PrivateMariaDb::start().unwrap();
    let error = Db::mysql(server.url_with("s3cret"), one()).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::StartFailed { .. }), "{error:?}");
    assert!(error.to_string().contains("Access denied"), "{error}");
    assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
    let error = Db::mysql("mysql://me:s3cret@db:port/x", one()).await.unwrap_err();
    assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
}
