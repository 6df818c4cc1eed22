//! Real ODBC drivers: PostgreSQL's and SQLite's.

use longshore_pool::database::{Db, DbOptions, Value};
use longshore_pool::{ErrorKind, params};
use longshore_testkit::servers::PrivatePostgres;
use tempfile::TempDir;

use super::cases::{self, ParameterStyle};

const STYLE: ParameterStyle = ParameterStyle::QuestionMark;

fn one() -> DbOptions {
    DbOptions::default().workers(1, 1)
}

/// The connection string for PostgreSQL's driver.
pub(super) fn string(server: &PrivatePostgres) -> String {
    let (port, name, password) = (server.port(), server.name(), server.password());
    format!(
        "DRIVER={{PostgreSQL Unicode}};SERVER=127.0.0.1;PORT={port};DATABASE={name};UID={name};PWD={{{password}}}"
    )
}

#[tokio::test]
async fn postgres_works_by_its_driver() {
    let server = PrivatePostgres::start().unwrap();
    let string = string(&server);
    let db = Db::odbc(&string, one()).await.unwrap();
    cases::create_lines(&db).await;
    cases::selects_give_rows_columns_and_values(&db, STYLE).await;
    cases::what_is_bound_is_never_read_as_sql(&db, STYLE).await;
    let codes = ["23505", "23502", "42703"];
    cases::errors_carry_a_code_and_leave_the_worker_in_order(&db, STYLE, codes).await;
    cases::a_transaction_is_all_or_nothing(&db, STYLE).await;
    let slow = "SELECT pg_sleep(60)";
    let brief = Db::odbc(&string, one().statement_timeout(cases::STATEMENT_TIMEOUT)).await.unwrap();
    cases::a_slow_statement_is_stopped_and_rolled_back(&brief, STYLE, slow).await;
    let two = Db::odbc(&string, one().row_limit(2)).await.unwrap();
    cases::more_rows_than_the_limit_are_an_error(&two, STYLE).await;
    cases::a_reader_cannot_write(&Db::odbc(&string, one().read_only()).await.unwrap()).await;
    let bytes = db.select_value("SELECT CAST(? AS bytea)", params![vec![0_u8, 255]]).await.unwrap();
    assert_eq!(bytes, Value::Bytes(vec![0, 255]));
}

#[tokio::test]
async fn sqlite_works_by_its_driver() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("test.db").display().to_string();
    let string = format!("DRIVER={{SQLite3}};Database={path};Timeout=5000");
    let db = Db::odbc(&string, one()).await.unwrap();
    cases::create_lines(&db).await;
    cases::selects_give_rows_columns_and_values(&db, STYLE).await;
    cases::what_is_bound_is_never_read_as_sql(&db, STYLE).await;
    cases::a_transaction_is_all_or_nothing(&db, STYLE).await;
    let id = db.insert("INSERT INTO line (item) VALUES (?)", params!["oakum"]).await.unwrap();
    assert_eq!(id, Value::Int(4));
}

#[tokio::test]
async fn a_driver_that_is_not_installed_is_named() {
    let error = Db::odbc("DRIVER={No Such Driver};SERVER=db;PWD=s3cret", one()).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::StartFailed { .. }), "{error:?}");
    assert!(error.to_string().contains("Can't open lib 'No Such Driver'"), "{error}");
    assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
}
