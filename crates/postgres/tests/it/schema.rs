//! The schema: a checked snapshot, versions, and constraints.

use std::sync::Arc;

use longshore::Error;
use longshore_postgres::{PostgresOptions, PostgresStore};
use tokio::task::JoinSet;

use crate::test_server::{Database, Server};

async fn open(database: &Database) -> Result<PostgresStore, Error> {
    PostgresStore::open(&database.url, PostgresOptions::default()).await
}

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
        all.spawn(async move { open(&database).await.unwrap().migrate().await.unwrap() });
    }
    let versions = all.join_all().await;
    assert!(versions.iter().all(|version| *version == versions[0]), "{versions:?}");
    let applied = database.run("SELECT count(*), max(version) FROM longshore_migration");
    assert_eq!(applied.trim(), format!("{0}\t{0}", versions[0]));
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_refused() {
    let database = Server::start().await.database().await;
    let store = open(&database).await.unwrap();
    database.run("INSERT INTO longshore_migration VALUES (999, 'future', '')");
    let error = open(&database).await.unwrap_err();
    assert!(matches!(error, Error::Schema { found: 999, .. }), "{error}");
    assert!(store.migrate().await.is_err());
}

#[tokio::test]
async fn a_database_of_a_changed_migration_is_refused() {
    let database = Server::start().await.database().await;
    database.run("UPDATE longshore_migration SET checksum = 'other'");
    let error = open(&database).await.unwrap_err();
    assert!(error.to_string().contains("changed migration"), "{error}");
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
