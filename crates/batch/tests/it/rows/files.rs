//! Files, URL schemes and sources.

use std::path::Path;
use std::sync::Arc;

use longshore_batch::definition::Database;
use longshore_batch::rows::{DatabaseRows, OpenMode, RowSource, SourceError, Sources, open};

use crate::support::Orders;

fn refusal(url: &str) -> String {
    open(url).err().unwrap().to_string()
}

fn url(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

#[test]
fn a_file_that_is_missing_is_not_created() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("orders.db");
    let error = DatabaseRows::sqlite(&path, OpenMode::Write).unwrap_err();
    assert!(
        matches!(&error, SourceError::Unavailable(words) if words.contains("there is no file")),
        "{error}"
    );
    assert!(!path.exists());
    let error = DatabaseRows::sqlite(dir.path(), OpenMode::Write).unwrap_err().to_string();
    assert!(error.contains("is not a file"), "{error}");
}

#[test]
fn a_file_that_is_no_database_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("orders.csv");
    std::fs::write(&path, "id,priority\n".repeat(100)).unwrap();
    let error = DatabaseRows::sqlite(&path, OpenMode::Read).unwrap_err();
    assert!(error.to_string().contains("orders.csv is not a SQLite database"), "{error}");
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn a_source_for_reading_applies_nothing() {
    let orders = Orders::new(1);
    let rows = DatabaseRows::sqlite(&orders.path(), OpenMode::Read).unwrap();
    assert_eq!(rows.fetch("SELECT * FROM line", &[]).await.unwrap().len(), 1);
    let error = rows.apply(&[]).await.unwrap_err().to_string();
    assert!(error.contains("for reading only"), "{error}");
}

#[test]
fn a_url_that_cannot_be_opened_says_what_could_be() {
    let orders = Orders::new(0);
    assert!(open(&url(&orders.path())).is_ok());
    assert!(open(&format!("sqlite://{}", orders.path().display())).is_ok());
    #[cfg(feature = "postgres")]
    assert!(open("postgres://acme:secret@db/orders").is_ok(), "connected to when first needed");
    #[cfg(not(feature = "postgres"))]
    assert!(refusal("postgres://acme:secret@db/orders").contains("`postgres:`"));
    #[cfg(not(feature = "odbc"))]
    assert!(refusal("odbc:DSN=i").contains("`odbc:`"));
    for odd in ["orders.db", "redis://acme:secret@db"] {
        let words = refusal(odd);
        assert!(words.contains("known are sqlite:"), "{words}");
        assert!(!words.contains("secret"), "{words}");
    }
}

#[test]
fn a_database_is_opened_once_and_shared() {
    let orders = Orders::new(0);
    let own = url(&orders.path());
    let in_env = own.clone();
    let sources = Sources::new(Some(own.clone()), move |name| (name == "ORDERS").then(|| in_env.clone()));
    let store = sources.resolve(&Database::Store).unwrap();
    for same in [own, "env:ORDERS".to_owned()] {
        assert!(Arc::ptr_eq(&store, &sources.resolve(&Database::Url(same)).unwrap()));
    }
    let missing = sources.resolve(&Database::Url("env:NOTHING".to_owned())).err().unwrap();
    assert!(missing.to_string().contains("`NOTHING` is not set"), "{missing}");
}

#[tokio::test]
async fn a_store_in_memory_has_no_rows_unless_they_are_given() {
    let orders = Orders::new(7);
    let sources = Sources::new(None, |_| None);
    let error = sources.resolve(&Database::Store).err().unwrap().to_string();
    assert!(error.contains("the store is in memory"), "{error}");
    let given: Arc<dyn RowSource> = orders.rows();
    let source = sources.with(Database::Store, given).resolve(&Database::Store).unwrap();
    let lines = source.fetch("SELECT * FROM line", &[]).await.unwrap();
    assert_eq!(lines.len(), 7);
}

#[tokio::test]
async fn a_file_that_replaces_an_open_one_is_neither_read_nor_written() {
    let (orders, other) = (Orders::new(3), Orders::new(5));
    // Each is one file then: a log beside the first would be taken for the second's.
    for file in [&orders, &other] {
        file.run("PRAGMA journal_mode = DELETE");
    }
    let rows = orders.rows();
    let change = longshore::Effect {
        sql: "UPDATE line SET note = 'x' WHERE id = 1".to_owned(),
        params: longshore::outcome::Params::Named(Vec::new()),
        expected_rows: Some(1),
    };
    rows.apply(std::slice::from_ref(&change)).await.unwrap();
    assert_eq!(rows.fetch("SELECT * FROM line", &[]).await.unwrap().len(), 3);
    std::fs::rename(other.path(), orders.path()).unwrap();
    for error in [
        rows.fetch("SELECT * FROM line", &[]).await.unwrap_err(),
        rows.apply(&[change]).await.unwrap_err(),
        rows.fingerprint().await.unwrap_err(),
    ] {
        assert!(matches!(error, SourceError::WrongDatabase { .. }), "{error:?}");
        assert!(error.puts_rows_off() && !error.is_retryable());
    }
    assert_eq!(orders.rows().fetch("SELECT * FROM line", &[]).await.unwrap().len(), 5, "opened anew");
    std::fs::remove_file(orders.path()).unwrap();
    let error = rows.fetch("SELECT * FROM line", &[]).await.unwrap_err();
    assert!(
        matches!(&error, SourceError::Unavailable(words) if words.contains("there is no file")),
        "{error:?}"
    );
}

/// SQLite would apply the log to the new file.
#[tokio::test]
async fn a_log_of_another_file_is_not_applied() {
    let dir = tempfile::tempdir().unwrap();
    let (path, new) = (dir.path().join("rows.db"), dir.path().join("new.db"));
    let make = |path: &Path, rows: u32| {
        let file = rusqlite::Connection::open(path).unwrap();
        file.pragma_update(None, "journal_mode", "wal").unwrap();
        file.execute_batch("CREATE TABLE line (id INTEGER)").unwrap();
        (0..rows).for_each(|id| _ = file.execute("INSERT INTO line VALUES (?1)", [id]).unwrap());
        file
    };
    // Its log stays, as after a crash.
    let _open = make(&path, 1_000);
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    make(&new, 7).close().unwrap();
    std::fs::rename(&new, &path).unwrap();
    let error = DatabaseRows::sqlite(&path, OpenMode::Write).unwrap_err();
    assert!(error.puts_rows_off(), "{error:?}");
    assert!(error.to_string().contains("rows.db-wal belongs to a file that was there before"), "{error}");
    std::fs::remove_file(dir.path().join("rows.db-wal")).unwrap();
    let rows = DatabaseRows::sqlite(&path, OpenMode::Write).unwrap();
    assert_eq!(rows.fetch("SELECT id FROM line", &[]).await.unwrap().len(), 7);
}
