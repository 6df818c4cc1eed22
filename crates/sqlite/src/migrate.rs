//! Applies the migrations of the schema.

use longshore_core::Result;
use longshore_core::migration::{APPLIED, AppliedMigration, CREATE_TABLE, Migration, Migrations};
use rusqlite::Connection;

use crate::error::Translate;

const MIGRATIONS: Migrations = Migrations(&[Migration {
    version: 1,
    name: "tables",
    sql: include_str!("../migrations/001_tables.sql"),
}]);

/// Brings the schema up to date; returns its version.
pub(crate) fn migrate(db: &Connection) -> Result<u32> {
    migrate_to(db, MIGRATIONS)
}

fn migrate_to(db: &Connection, migrations: Migrations) -> Result<u32> {
    if !migrations.missing(&applied(db)?)?.is_empty() {
        db.execute_batch("BEGIN IMMEDIATE").or_translate()?;
        let done = apply_missing(db, migrations);
        db.execute_batch(if done.is_ok() { "COMMIT" } else { "ROLLBACK" }).or_translate()?;
        done?;
    }
    Ok(migrations.latest())
}

/// The applied migrations. Not `user_version`, which the application may use.
fn applied(db: &Connection) -> Result<Vec<AppliedMigration>> {
    let exists = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'longshore_migration')";
    if !db.query_row(exists, [], |row| row.get::<_, bool>(0)).or_translate()? {
        return Ok(Vec::new());
    }
    db.prepare(APPLIED)
        .or_translate()?
        .query_map([], |row| Ok(AppliedMigration { version: row.get(0)?, checksum: row.get(1)? }))
        .or_translate()?
        .collect::<rusqlite::Result<_>>()
        .or_translate()
}

fn apply_missing(db: &Connection, migrations: Migrations) -> Result<()> {
    // Read again under the write lock: another process may have migrated.
    let applied = applied(db)?;
    if applied.is_empty() {
        db.execute_batch(CREATE_TABLE).or_translate()?;
    }
    for migration in migrations.missing(&applied)? {
        db.execute_batch(migration.sql).or_translate()?;
        db.execute(
            "INSERT INTO longshore_migration VALUES (?1, ?2, ?3)",
            (migration.version, migration.name, migration.checksum()),
        )
        .or_translate()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_version_adds_its_migrations_to_a_store_that_has_the_first() {
        let db = Connection::open_in_memory().unwrap();
        assert_eq!(migrate(&db).unwrap(), 1);
        db.execute("INSERT INTO longshore_queue (name) VALUES ('kept')", []).unwrap();
        let added = "ALTER TABLE longshore_queue ADD COLUMN added INTEGER NOT NULL DEFAULT 7";
        let second = Migration { version: 2, name: "added", sql: added };
        let both: &'static [Migration] = vec![MIGRATIONS.0[0], second].leak();
        for _ in 0..2 {
            assert_eq!(migrate_to(&db, Migrations(both)).unwrap(), 2);
        }
        let kept = "SELECT name, added FROM longshore_queue";
        let kept: (String, i64) = db.query_row(kept, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert_eq!(kept, ("kept".to_owned(), 7));
        assert!(migrate(&db).is_err(), "the former version rejects it");
    }

    #[test]
    fn a_migration_that_fails_leaves_the_schema_as_it_was() {
        let db = Connection::open_in_memory().unwrap();
        migrate(&db).unwrap();
        let bad = "CREATE TABLE longshore_half (a); CREATE TABLE longshore_queue (a)";
        let second = Migration { version: 2, name: "bad", sql: bad };
        let both: &'static [Migration] = vec![MIGRATIONS.0[0], second].leak();
        assert!(migrate_to(&db, Migrations(both)).is_err());
        assert!(db.execute("INSERT INTO longshore_half VALUES (1)", []).is_err());
        assert_eq!(migrate(&db).unwrap(), 1);
    }
}
