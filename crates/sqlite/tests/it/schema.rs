//! The schema: a checked snapshot, versions, and files that are not ours.

use std::path::Path;
use std::sync::Arc;

use longshore::migration::MigrateOnOpen;
use longshore::{Error, MemoryStore};
use longshore_sqlite::rusqlite::Connection;
use longshore_sqlite::{SqliteMigrator, SqliteOptions, SqliteStore};
use longshore_testkit::compatibility::{CONTRACTION, expansion};
use longshore_testkit::{ManualClock, StoreFixture};

use crate::helpers::fixture_at;

/// `crates/sqlite/schema.sql` is the schema of a new database. To change it on purpose, run the
/// test with `LONGSHORE_WRITE_SCHEMA=1` and review the difference.
#[tokio::test]
async fn the_schema_is_the_one_in_the_snapshot() {
    let (_fixture, path) = fixture_at().await;
    let db = Connection::open(path).unwrap();
    let mut statement = db
        .prepare(
            "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name LIKE 'longshore%'
             ORDER BY type DESC, name",
        )
        .unwrap();
    let parts: Vec<String> = statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let now = parts.join(";\n\n") + ";\n";
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/schema.sql");
    if std::env::var_os("LONGSHORE_WRITE_SCHEMA").is_some() {
        std::fs::write(file, &now).unwrap();
    }
    assert_eq!(std::fs::read_to_string(file).unwrap(), now);
}

fn migrator(path: &Path) -> SqliteMigrator {
    SqliteMigrator::new(path, &SqliteOptions::default())
}

const SCHEMA: &str = include_str!("../../schema.sql");

#[tokio::test]
async fn a_database_of_a_newer_version_that_removed_something_is_refused() {
    let (_fixture, path) = fixture_at().await;
    migrator(&path).with_more(&[expansion(SCHEMA), CONTRACTION]).migrate().await.unwrap();
    let error = SqliteStore::open(&path, SqliteOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Schema { found: 1001, .. }), "{error}");
    assert!(migrator(&path).migrate().await.is_err());
}

#[tokio::test]
async fn looking_at_a_file_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("longshore.db");
    std::fs::write(&path, "").unwrap();
    let options = SqliteOptions { migrate: MigrateOnOpen::Never, ..SqliteOptions::default() };
    let error = SqliteStore::open(&path, options).unwrap_err();
    assert!(matches!(error, Error::Schema { found: 0, .. }), "{error}");
    let plan = migrator(&path).plan().await.unwrap();
    assert!(plan.contains("BEGIN IMMEDIATE;") && plan.contains("CREATE TABLE longshore_unit"), "{plan}");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
}

/// This version's statements work on the schema of a later version, which has another column in every table.
#[test]
fn random_histories_on_an_expanded_schema_end_as_in_the_oracle() {
    longshore_testkit::model::compare_stores(12, || async {
        let clock = Arc::new(ManualClock::default());
        let oracle = StoreFixture::new(Arc::new(MemoryStore::new(clock.clone())), clock);
        let (fixture, path) = fixture_at().await;
        migrator(&path).with_more(&[expansion(SCHEMA)]).migrate().await.unwrap();
        (oracle, fixture)
    });
}

#[tokio::test]
async fn a_database_of_a_changed_migration_is_refused() {
    let (_fixture, path) = fixture_at().await;
    let db = Connection::open(&path).unwrap();
    db.execute("UPDATE longshore_migration SET checksum = 'other'", []).unwrap();
    let error = SqliteStore::open(&path, SqliteOptions::default()).unwrap_err();
    assert!(error.to_string().contains("changed migration"), "{error}");
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("letter.txt");
    let words = "Dear Sir or Madam,\n".repeat(100);
    std::fs::write(&path, &words).unwrap();
    let error = SqliteStore::open(&path, SqliteOptions::default()).unwrap_err();
    assert!(error.to_string().contains("not a SQLite database"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), words);
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nowhere/longshore.db");
    let error = SqliteStore::open(&path, SqliteOptions::default()).unwrap_err();
    assert!(error.to_string().contains("nowhere"), "{error}");
}

#[test]
fn only_the_state_machine_can_write_a_state() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("longshore.db");
    drop(SqliteStore::open(&path, SqliteOptions::default()).unwrap());
    let db = Connection::open(&path).unwrap();
    let insert = |state: u8, session: &str, waits: u8| {
        db.execute(
            &format!(
                "INSERT INTO longshore_unit (id, stream, state, sort_key, priority, created_at,
                 bytes,
                 session, open_dependencies) VALUES (randomblob(16), 1, {state}, 0, 5, 0, 0,
                 {session}, {waits})"
            ),
            [],
        )
    };
    assert!(insert(2, "NULL", 0).is_ok());
    assert!(insert(3, "NULL", 0).is_err(), "leased without a session");
    assert!(insert(2, "1", 0).is_err(), "ready and held");
    assert!(insert(0, "NULL", 0).is_err(), "blocked by nothing");
    assert!(insert(9, "NULL", 0).is_err(), "no such state");
}
