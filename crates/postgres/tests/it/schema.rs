//! The schema: a checked snapshot, versions, and constraints.

use std::sync::Arc;
use std::time::Duration;

use longshore::migration::{MigrateOnOpen, MigrationState};
use longshore::{Error, MemoryStore};
use longshore_postgres::{PostgresMigrator, PostgresOptions, PostgresStore};
use longshore_testkit::compatibility::{CONTRACTION, expansion};
use longshore_testkit::{ManualClock, StoreFixture};
use tokio::task::JoinSet;

use crate::test_server::{Database, Server};
use crate::transactions::connect;

async fn open(database: &Database) -> Result<PostgresStore, Error> {
    PostgresStore::open(&database.url, PostgresOptions::default()).await
}

fn migrator(database: &Database) -> PostgresMigrator {
    PostgresMigrator::new(&database.url, &PostgresOptions::default()).unwrap()
}

const SCHEMA: &str = include_str!("../../schema.sql");

/// Tables with their columns, constraints and storage settings; then views; indexes; functions.
const CATALOG: [&str; 4] = [
    "SELECT CASE c.relpersistence WHEN 'u' THEN 'CREATE UNLOGGED TABLE ' ELSE 'CREATE TABLE ' END || c.relname || E' (\\n' || (
       SELECT string_agg('    ' || line, E',\\n' ORDER BY kind, place, line) FROM (
         SELECT 1 AS kind, a.attnum::int AS place, a.attname || ' '
           || format_type(a.atttypid, a.atttypmod)
           || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END
           || coalesce(' DEFAULT ' || pg_get_expr(d.adbin, d.adrelid), '')
           || CASE a.attidentity WHEN 'a' THEN ' GENERATED ALWAYS AS IDENTITY' ELSE '' END AS line
         FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
         WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
         UNION ALL SELECT 2, 0, 'CONSTRAINT ' || conname || ' ' || pg_get_constraintdef(k.oid)
         FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype <> 'n') lines)
       || E'\\n)' || coalesce(' WITH (' || array_to_string(c.reloptions, ', ') || ')', '') || ';'
     FROM pg_class c WHERE c.relkind = 'r' AND c.relname LIKE 'longshore%' ORDER BY c.relname",
    "SELECT 'CREATE VIEW ' || c.relname || E' AS\\n' || pg_get_viewdef(c.oid)
     FROM pg_class c WHERE c.relkind = 'v' AND c.relname LIKE 'longshore%' ORDER BY c.relname",
    "SELECT indexdef || ';' FROM pg_indexes i WHERE tablename LIKE 'longshore%'
     AND NOT EXISTS (SELECT 1 FROM pg_constraint WHERE conname = i.indexname)
     ORDER BY tablename, indexname",
    "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname LIKE 'longshore%' ORDER BY proname",
];

/// `crates/postgres/schema.sql` is the schema of a fresh database. To change it on purpose, run the
/// test with `LONGSHORE_WRITE_SCHEMA=1` and read the difference.
#[tokio::test]
async fn the_schema_is_the_one_in_the_snapshot() {
    let database = Server::start().await.database().await;
    let parts: Vec<String> = CATALOG.iter().map(|sql| database.run(sql)).collect();
    let now = parts.join("\n");
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/schema.sql");
    if std::env::var_os("LONGSHORE_WRITE_SCHEMA").is_some() {
        std::fs::write(file, &now).unwrap();
    }
    assert_eq!(std::fs::read_to_string(file).unwrap(), now);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_that_migrate_at_once_one_does() {
    let database = Server::start().await.empty_database().await;
    let mut all = JoinSet::new();
    for _ in 0..8 {
        let database = Arc::clone(&database);
        all.spawn(async move { open(&database).await.map(drop).unwrap() });
    }
    all.join_all().await;
    let applied = database.run("SELECT count(*), max(version) FROM longshore_migration");
    let latest = migrator(&database).status().await.unwrap().len();
    assert_eq!(applied.trim(), format!("{latest}\t{latest}"));
}

#[tokio::test]
async fn a_database_of_a_newer_version_that_removed_something_is_refused() {
    let database = Server::start().await.database().await;
    let newer = [expansion(SCHEMA), CONTRACTION];
    migrator(&database).with_more(&newer).migrate().await.unwrap();
    let error = open(&database).await.unwrap_err();
    assert!(matches!(error, Error::Schema { found: 1001, .. }), "{error}");
    assert!(migrator(&database).migrate().await.is_err());
}

#[tokio::test]
async fn a_database_of_a_changed_migration_is_refused() {
    let database = Server::start().await.database().await;
    database.run("UPDATE longshore_migration SET checksum = 'other'");
    let error = open(&database).await.unwrap_err();
    assert!(error.to_string().contains("changed migration"), "{error}");
}

#[tokio::test]
async fn a_database_from_before_the_first_compatible_version_is_refused() {
    let database = Server::start().await.database().await;
    database.run("ALTER TABLE longshore_migration DROP COLUMN min_compatible");
    let error = open(&database).await.unwrap_err();
    assert!(error.to_string().contains("another build of longshore"), "{error}");
}

#[tokio::test]
async fn an_older_schema_is_migrated_when_the_operator_says_so() {
    let database = Server::start().await.database().await;
    let newer = migrator(&database).with_more(&[expansion(SCHEMA)]);
    for policy in [MigrateOnOpen::Never, MigrateOnOpen::Fresh] {
        let error = newer.prepare(policy).await.unwrap_err();
        assert!(matches!(error, Error::Schema { supported: 1000, .. }), "{error}");
    }
    let state = async || newer.status().await.unwrap().last().unwrap().state;
    assert_eq!(state().await, MigrationState::Pending);
    assert!(newer.plan().await.unwrap().contains("ALTER TABLE longshore_unit ADD COLUMN added"));
    assert_eq!(state().await, MigrationState::Pending, "a plan changes nothing");
    newer.prepare(MigrateOnOpen::Always).await.unwrap();
    assert_eq!(state().await, MigrationState::Applied);
}

#[tokio::test]
async fn looking_at_an_empty_database_creates_nothing() {
    let database = Server::start().await.empty_database().await;
    let options = PostgresOptions { migrate: MigrateOnOpen::Never, ..PostgresOptions::default() };
    let error = PostgresStore::open(&database.url, options).await.unwrap_err();
    assert!(matches!(error, Error::Schema { found: 0, .. }), "{error}");
    let plan = migrator(&database).plan().await.unwrap();
    let expected =
        ["CREATE TABLE longshore_unit", "SET LOCAL lock_timeout = '2s';", "pg_advisory_xact_lock("];
    assert!(expected.iter().all(|part| plan.contains(part)), "{plan}");
    assert_eq!(database.run("SELECT count(*) FROM pg_class WHERE relname LIKE 'longshore%'").trim(), "0");
}

/// A transaction that reads units keeps a migration from changing their table. The migration gives up its place
/// in the server's queue of lock requests after two seconds, so that workers are not held up behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_waits_for_locks_in_short_attempts() {
    let database = Server::start().await.database().await;
    let mut tasks = JoinSet::new();
    let reader = connect(&database, &mut tasks).await;
    reader.batch_execute("BEGIN; SELECT FROM longshore_unit").await.unwrap();
    let impatient = migrator(&database).with_more(&[expansion(SCHEMA)]).with_max_lock_wait(Duration::ZERO);
    let error = impatient.migrate().await.unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("lock"), "{error}");
    let patient = migrator(&database).with_more(&[expansion(SCHEMA)]);
    let mut migration = JoinSet::new();
    migration.spawn(async move { patient.migrate().await });
    let waiting = "wait_event_type = 'Lock' AND query LIKE 'ALTER TABLE%'";
    database.wait_for_activity(waiting).await;
    database.wait_for_activity(&format!("NOT EXISTS (SELECT FROM pg_stat_activity WHERE {waiting})")).await;
    reader.batch_execute("COMMIT").await.unwrap();
    assert_eq!(migration.join_next().await.unwrap().unwrap().unwrap(), 1000);
}

/// This version's statements work on the schema of a later version, which has another column in every table.
#[test]
fn random_histories_on_an_expanded_schema_end_as_in_the_oracle() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(Server::start());
    longshore_testkit::model::compare_stores(6, || async {
        let clock = Arc::new(ManualClock::default());
        let oracle = StoreFixture::new(Arc::new(MemoryStore::new(clock.clone())), clock);
        let database = server.database().await;
        migrator(&database).with_more(&[expansion(SCHEMA)]).migrate().await.unwrap();
        (oracle, database.fixture().await)
    });
}

#[tokio::test]
async fn only_the_state_machine_can_write_a_state() {
    let database = Server::start().await.database().await;
    let insert = |state: u8, session: &str, waits: u8| {
        format!(
            "INSERT INTO longshore_unit (id, stream, state, sort_key, priority, created_at, bytes,
             payload, session, open_dependencies)
             VALUES (gen_random_uuid(), 1, {state}, 0, 5, 0, 0, '', {session}, {waits})"
        )
    };
    database.run(&insert(2, "NULL", 0));
    let refused = [
        (insert(3, "NULL", 0), "leased without a session"),
        (insert(2, "1", 0), "ready and held"),
        (insert(0, "NULL", 0), "blocked by nothing"),
        (insert(10, "NULL", 0), "no such state"),
    ];
    for (sql, why) in refused {
        assert!(database.try_run(&sql).is_err(), "{why}");
    }
}
