//! Schema migrations of the SQL stores: which ones a database lacks, and whether this program can
//! use its schema. A store only executes: it reads [`APPLIED`], and applies [`Migrations::missing`]
//! one by one under a lock.

use crate::error::{Error, Result};

/// Creates the table of applied migrations.
pub const CREATE_TABLE: &str = "CREATE TABLE longshore_migration
    (version INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL)";

/// Selects what [`AppliedMigration`] has, in order.
pub const APPLIED: &str = "SELECT version, checksum FROM longshore_migration ORDER BY version";

/// One step of a schema. Its SQL must never change once a version of Longshore with it is released.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    /// 1 for the first, then rising.
    pub version: u32,
    /// Its name, for people.
    pub name: &'static str,
    /// The statements.
    pub sql: &'static str,
}

impl Migration {
    /// The checksum to store with it: FNV-1a, which detects accidental changes, not forgery.
    pub fn checksum(&self) -> String {
        let hash = self.sql.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        format!("{hash:016x}")
    }
}

/// A row of the table of applied migrations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedMigration {
    /// Its version.
    pub version: u32,
    /// Its checksum when it was applied.
    pub checksum: String,
}

/// All migrations of a store, by version.
#[derive(Debug, Clone, Copy)]
pub struct Migrations(pub &'static [Migration]);

impl Migrations {
    /// The version of a schema to which all migrations were applied.
    pub fn latest(&self) -> u32 {
        self.0.last().map_or(0, |migration| migration.version)
    }

    /// The migrations that are not `applied` yet. An error if the database was migrated by a newer
    /// program, or by a file that has changed since.
    pub fn missing(&self, applied: &[AppliedMigration]) -> Result<&'static [Migration]> {
        let found = applied.last().map_or(0, |last| last.version);
        if found > self.latest() {
            return Err(Error::Schema { found, supported: self.latest() });
        }
        for (index, row) in applied.iter().enumerate() {
            let expected = self.0.get(index).filter(|known| known.version == row.version);
            let Some(expected) = expected else {
                return Err(broken(format!("unknown migration {}", row.version)));
            };
            if expected.checksum() != row.checksum {
                let Migration { version, name, .. } = expected;
                return Err(broken(format!("changed migration {version} ({name})")));
            }
        }
        Ok(&self.0[applied.len()..])
    }
}

fn broken(what: impl std::fmt::Display) -> Error {
    let message = format!(
        "{what}: another build of longshore migrated this database; use that build or a new database"
    );
    Error::Broken { message, source: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Migration = Migration { version: 1, name: "tables", sql: "CREATE TABLE a (b)" };
    const SECOND: Migration = Migration { version: 2, name: "more", sql: "CREATE TABLE c (d)" };
    const BOTH: Migrations = Migrations(&[FIRST, SECOND]);

    fn applied(migrations: &[Migration]) -> Vec<AppliedMigration> {
        let row = |one: &Migration| AppliedMigration { version: one.version, checksum: one.checksum() };
        migrations.iter().map(row).collect()
    }

    fn missing(applied: &[AppliedMigration]) -> Vec<u32> {
        BOTH.missing(applied).unwrap().iter().map(|migration| migration.version).collect()
    }

    #[test]
    fn an_empty_database_lacks_all_migrations() {
        assert_eq!(missing(&[]), [1, 2]);
    }

    #[test]
    fn a_database_of_the_first_version_lacks_the_second() {
        assert_eq!(missing(&applied(&[FIRST])), [2]);
        assert!(missing(&applied(&[FIRST, SECOND])).is_empty());
    }

    #[test]
    fn a_database_of_a_newer_program_is_rejected() {
        let newer = Migrations(&[FIRST]).missing(&applied(&[FIRST, SECOND])).unwrap_err();
        assert!(matches!(newer, Error::Schema { found: 2, supported: 1 }), "{newer}");
    }

    #[test]
    fn a_database_of_a_changed_migration_is_rejected() {
        let changed = Migration { sql: "CREATE TABLE a (b, c)", ..FIRST };
        let error = BOTH.missing(&applied(&[changed])).unwrap_err();
        assert!(error.to_string().contains("changed migration 1 (tables)"), "{error}");
    }

    #[test]
    fn a_database_without_an_earlier_migration_is_rejected() {
        let error = BOTH.missing(&applied(&[SECOND])).unwrap_err();
        assert!(error.to_string().contains("unknown migration 2"), "{error}");
    }
}
