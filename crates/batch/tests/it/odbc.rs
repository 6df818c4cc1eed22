//! Rows behind real ODBC drivers: PostgreSQL's and SQLite's.

mod postgres;
mod sqlite;

use longshore_batch::rows::{DatabaseRows, SourceError, open};
use longshore_databases::DatabaseTarget;

#[tokio::test]
async fn a_driver_that_is_not_installed_is_named() {
    let rows = open("odbc:DRIVER={No Such Driver};SERVER=db;PWD=s3cret").unwrap();
    let error = rows.describe("SELECT 1").await.unwrap_err();
    assert!(
        matches!(&error, SourceError::Unavailable(words) if words.contains("Can't open lib 'No Such Driver'")),
        "{error}"
    );
    assert!(!error.to_string().contains("s3cret"));
    let shown = format!(
        "{:?}",
        DatabaseRows::server(DatabaseTarget::Odbc("DSN=orders;UID=me;PWD=s3cret".to_owned())).unwrap()
    );
    assert_eq!(shown, "DatabaseRows(DSN=orders, Write)");
    let error = open("odbc:DSN=no-such-source").unwrap().describe("SELECT 1").await.unwrap_err();
    assert!(error.to_string().contains("Data source name not found"), "{error}");
}
