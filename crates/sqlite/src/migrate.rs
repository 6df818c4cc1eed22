//! The schema and its migrations.
//!
//! Migrations are embedded, applied one by one under the write lock, and recorded with a checksum:
//! a database that was migrated by a changed file is rejected.

use longshore_core::{Error, Result};
use rusqlite::Connection;

use crate::error::{Translate, damaged};

struct Migration {
    version: u32,
    name: &'static str,
    sql: &'static str,
}

const MIGRATIONS: &[Migration] =
    &[Migration { version: 1, name: "tables", sql: include_str!("../migrations/001_tables.sql") }];

/// The newest version that this program supports.
pub(crate) const LATEST_VERSION: u32 = MIGRATIONS[MIGRATIONS.len() - 1].version;

/// Brings the schema up to date; returns its version.
pub(crate) fn migrate(db: &Connection) -> Result<u32> {
    if version(db)? != LATEST_VERSION {
        db.execute_batch("BEGIN IMMEDIATE").or_translate()?;
        let done = apply_missing(db);
        db.execute_batch(if done.is_ok() { "COMMIT" } else { "ROLLBACK" }).or_translate()?;
        done?;
    }
    check(db)?;
    Ok(LATEST_VERSION)
}

/// Rejects a schema that this program does not support.
fn check(db: &Connection) -> Result<()> {
    let found = version(db)?;
    if found != LATEST_VERSION {
        return Err(Error::Schema { found, known: LATEST_VERSION });
    }
    for migration in MIGRATIONS {
        let sum: String = db
            .query_row(
                "SELECT checksum FROM longshore_migration WHERE version = ?1",
                [migration.version],
                |row| row.get(0),
            )
            .or_translate()?;
        if sum != checksum(migration.sql) {
            return Err(damaged(format!("a changed migration {}", migration.name)));
        }
    }
    Ok(())
}

/// Zero if there is no schema yet. Not `user_version`, which the application may use.
fn version(db: &Connection) -> Result<u32> {
    let known: u32 = db
        .query_row(
            "SELECT count(*) FROM sqlite_schema WHERE name = 'longshore_migration'",
            [],
            |row| row.get(0),
        )
        .or_translate()?;
    if known == 0 {
        return Ok(0);
    }
    db.query_row("SELECT coalesce(max(version), 0) FROM longshore_migration", [], |row| row.get(0))
        .or_translate()
}

fn apply_missing(db: &Connection) -> Result<()> {
    let found = version(db)?;
    if found > LATEST_VERSION {
        return Err(Error::Schema { found, known: LATEST_VERSION });
    }
    if found == 0 {
        db.execute_batch(
            "CREATE TABLE longshore_migration (version INTEGER PRIMARY KEY, name TEXT, checksum
             TEXT)",
        )
        .or_translate()?;
    }
    for migration in MIGRATIONS.iter().filter(|migration| migration.version > found) {
        db.execute_batch(migration.sql).or_translate()?;
        db.execute(
            "INSERT INTO longshore_migration VALUES (?1, ?2, ?3)",
            (migration.version, migration.name, checksum(migration.sql)),
        )
        .or_translate()?;
    }
    Ok(())
}

/// FNV-1a: detects accidental changes, not forgery.
fn checksum(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}
