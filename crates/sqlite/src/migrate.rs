//! Applies the migrations of the schema.

use std::path::{Path, PathBuf};

use longshore_core::migration::{
    APPLIED, AppliedMigration, MigrateOnOpen, Migration, MigrationStatus, Migrations, too_old,
};
use longshore_core::{Error, Result};
use rusqlite::{Connection, OptionalExtension};

use crate::error::Translate;
use crate::store::{Access, SqliteOptions, connect};

const MIGRATIONS: Migrations = Migrations(&[
    Migration {
        version: 1,
        name: "tables",
        sql: include_str!("../migrations/001_tables.sql"),
        min_compatible: 1,
    },
    Migration {
        version: 2,
        name: "batch progress",
        sql: include_str!("../migrations/002_batch_progress.sql"),
        min_compatible: 1,
    },
]);

/// Begins a migration's transaction: only one process migrates at a time.
const BEGIN: &str = "BEGIN IMMEDIATE";

/// Reads and migrates the schema of a file.
#[derive(Debug, Clone)]
pub struct SqliteMigrator {
    path: PathBuf,
    options: SqliteOptions,
    migrations: Migrations,
}

impl SqliteMigrator {
    /// A migrator for a file, which is opened when it is used.
    pub fn new(path: &Path, options: &SqliteOptions) -> Self {
        Self { path: path.to_owned(), options: options.clone(), migrations: MIGRATIONS }
    }

    /// Appends migrations to those of this version, for tests that act as a newer version.
    #[must_use]
    pub fn with_more(self, more: &[Migration]) -> Self {
        let all: Vec<Migration> = self.migrations.0.iter().chain(more).copied().collect();
        Self { migrations: Migrations(all.leak()), ..self }
    }

    /// All migrations, and which are applied.
    pub async fn status(&self) -> Result<Vec<MigrationStatus>> {
        self.run(|this| Ok(this.migrations.status(&this.applied()?))).await
    }

    /// The SQL that [`Self::migrate`] would run.
    pub async fn plan(&self) -> Result<String> {
        self.run(|this| this.migrations.plan(&this.applied()?, BEGIN)).await
    }

    /// Applies the missing migrations, and returns the schema's version. It waits for the write lock as long as
    /// [`SqliteOptions::busy_timeout`] permits.
    pub async fn migrate(&self) -> Result<u32> {
        self.run(|this| migrate(&connect(&this.path, &this.options, Access::Write)?, this.migrations)).await
    }

    async fn run<T: Send + 'static>(
        &self,
        task: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let this = self.clone();
        let done = tokio::task::spawn_blocking(move || task(&this)).await;
        done.map_err(|_| Error::unavailable("the thread of a migration panicked"))?
    }

    fn applied(&self) -> Result<Vec<AppliedMigration>> {
        match self.path.exists() {
            true => applied(&connect(&self.path, &self.options, Access::Read)?),
            false => Ok(Vec::new()),
        }
    }
}

/// Prepares the schema for a store that opens.
pub(crate) fn open(db: &Connection, policy: MigrateOnOpen) -> Result<()> {
    let applied = applied(db)?;
    let has_sessions = !applied.is_empty() && has_sessions(db)?;
    match MIGRATIONS.to_apply_on_open(&applied, policy, has_sessions)? {
        [] => Ok(()),
        _ => migrate(db, MIGRATIONS).map(drop),
    }
}

/// Whether workers may be running on the file.
fn has_sessions(db: &Connection) -> Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM longshore_session)";
    db.query_row(sql, [], |row| row.get(0)).or_translate()
}

fn migrate(db: &Connection, migrations: Migrations) -> Result<u32> {
    if !migrations.missing(&applied(db)?)?.is_empty() {
        db.execute_batch(BEGIN).or_translate()?;
        let done = apply_missing(db, migrations);
        db.execute_batch(if done.is_ok() { "COMMIT" } else { "ROLLBACK" }).or_translate()?;
        done?;
    }
    Ok(applied(db)?.last().map_or(0, |newest| newest.version))
}

/// The applied migrations. Not `user_version`, which the application may use.
fn applied(db: &Connection) -> Result<Vec<AppliedMigration>> {
    let table = "SELECT sql LIKE '%min_compatible%' FROM sqlite_schema WHERE name = 'longshore_migration'";
    match db.query_row(table, [], |row| row.get::<_, bool>(0)).optional().or_translate()? {
        None => return Ok(Vec::new()),
        Some(false) => return Err(too_old()),
        Some(true) => {}
    }
    let read = |row: &rusqlite::Row<'_>| {
        let (version, name) = (row.get(0)?, row.get(1)?);
        Ok(AppliedMigration { version, name, checksum: row.get(2)?, min_compatible: row.get(3)? })
    };
    let mut statement = db.prepare(APPLIED).or_translate()?;
    statement.query_map([], read).or_translate()?.collect::<rusqlite::Result<_>>().or_translate()
}

fn apply_missing(db: &Connection, migrations: Migrations) -> Result<()> {
    // Read again under the write lock: another process may have migrated.
    for migration in migrations.missing(&applied(db)?)? {
        db.execute_batch(&migration.script()).or_translate()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first migration, as a program knew it that had no other.
    const FIRST: Migrations = Migrations(&[MIGRATIONS.0[0]]);

    fn with_second(name: &'static str, sql: &'static str) -> Migrations {
        let second = Migration { version: 2, name, sql, min_compatible: 2 };
        Migrations(vec![MIGRATIONS.0[0], second].leak())
    }

    #[test]
    fn released_migrations_never_change() {
        longshore_testkit::compatibility::assert_released_migrations("sqlite", MIGRATIONS);
    }

    #[test]
    fn a_later_version_adds_its_migrations_to_a_store_that_has_the_first() {
        let db = Connection::open_in_memory().unwrap();
        assert_eq!(migrate(&db, FIRST).unwrap(), 1);
        db.execute("INSERT INTO longshore_queue (name) VALUES ('kept')", []).unwrap();
        let both =
            with_second("added", "ALTER TABLE longshore_queue ADD COLUMN added INTEGER NOT NULL DEFAULT 7;");
        for _ in 0..2 {
            assert_eq!(migrate(&db, both).unwrap(), 2);
        }
        let kept = "SELECT name, added FROM longshore_queue";
        let kept: (String, i64) = db.query_row(kept, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert_eq!(kept, ("kept".to_owned(), 7));
        assert!(migrate(&db, FIRST).is_err(), "the former version is not compatible");
    }

    #[test]
    fn a_migration_that_fails_leaves_the_schema_as_it_was() {
        let db = Connection::open_in_memory().unwrap();
        migrate(&db, FIRST).unwrap();
        let both = with_second("bad", "CREATE TABLE longshore_half (a); CREATE TABLE longshore_queue (a);");
        assert!(migrate(&db, both).is_err());
        assert!(db.execute("INSERT INTO longshore_half VALUES (1)", []).is_err());
        assert_eq!(migrate(&db, FIRST).unwrap(), 1);
    }
}
