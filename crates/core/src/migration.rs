//! Schema migrations of the SQL stores: which ones a database lacks, and whether this program can
//! use its schema. A store only executes: it reads [`APPLIED`], and runs [`Migration::script`] of each
//! missing one under a lock.
//!
//! Programs of two versions may use one database. A migration *expands* the schema, by what older programs do not
//! notice, or *contracts* it, by what no program needs that is still permitted. [`Migration::min_compatible`] is
//! stored with the migration, so that an older program knows whether it may use the newer schema.

use serde::Serialize;

use crate::error::{Error, Result};

/// Creates the table of applied migrations.
pub const CREATE_TABLE: &str = "CREATE TABLE longshore_migration
    (version INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, min_compatible INTEGER NOT NULL);\n";

/// Selects what [`AppliedMigration`] has, in order.
pub const APPLIED: &str =
    "SELECT version, name, checksum, min_compatible FROM longshore_migration ORDER BY version";

/// One step of a schema. Its SQL must never change once a version of Longshore with it is released
/// (`compatibility/baseline.toml`).
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    /// 1 for the first, then rising.
    pub version: u32,
    /// Its name, for people. Without quotes.
    pub name: &'static str,
    /// The statements.
    pub sql: &'static str,
    /// The lowest schema version of which programs still work after this migration: for an expansion that of
    /// the migration before, for a contraction the first version that does not use what is removed.
    pub min_compatible: u32,
}

impl Migration {
    /// The checksum to store with it: FNV-1a, which detects accidental changes, not forgery.
    pub fn checksum(&self) -> String {
        let hash = self.sql.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        format!("{hash:016x}")
    }

    /// The SQL that applies and records it. The first migration also creates the table of migrations.
    pub fn script(&self) -> String {
        let Self { version, name, sql, min_compatible } = self;
        let table = if *version == 1 { CREATE_TABLE } else { "" };
        format!(
            "{table}{sql}\nINSERT INTO longshore_migration (version, name, checksum, min_compatible)
    VALUES ({version}, '{name}', '{}', {min_compatible});\n",
            self.checksum()
        )
    }
}

/// A row of the table of applied migrations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedMigration {
    /// Its version.
    pub version: u32,
    /// Its name.
    pub name: String,
    /// Its checksum when it was applied.
    pub checksum: String,
    /// The lowest schema version of which programs may use the database.
    pub min_compatible: u32,
}

/// What opening a store may change in its schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrateOnOpen {
    /// Nothing: a database without the current schema is refused.
    Never,
    /// The schema is created in an empty database. An older schema is refused.
    Fresh,
    /// An older schema is migrated as well. One that would stop programs which are running now is refused.
    Always,
}

/// Where a migration stands in a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MigrationState {
    /// It was applied.
    Applied,
    /// It was not applied yet.
    Pending,
    /// It was applied with other SQL than this program has.
    Changed,
    /// A newer program applied it, and programs of this version may still use the database.
    Newer,
    /// A newer program applied it, and programs of this version may not use the database any more.
    Incompatible,
}

/// A migration, and where it stands in a database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MigrationStatus {
    /// Its version.
    pub version: u32,
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub state: MigrationState,
    /// The lowest schema version of which programs may use the database once it is applied.
    pub min_compatible: u32,
}

/// All migrations of a store, by version.
#[derive(Debug, Clone, Copy)]
pub struct Migrations(pub &'static [Migration]);

impl Migrations {
    /// The version of a schema to which all migrations were applied.
    pub fn latest(&self) -> u32 {
        self.0.last().map_or(0, |migration| migration.version)
    }

    /// The migrations that are not `applied` yet. An error if a newer program migrated the database so that this
    /// one may not use it any more, or if a migration has changed since it was applied.
    pub fn missing(&self, applied: &[AppliedMigration]) -> Result<&'static [Migration]> {
        for (index, row) in applied.iter().enumerate() {
            match self.0.get(index).filter(|known| known.version == row.version) {
                Some(known) if known.checksum() != row.checksum => {
                    return Err(broken(format!("changed migration {} ({})", row.version, row.name)));
                }
                Some(_) => {}
                None if row.version <= self.latest() => {
                    return Err(broken(format!("unknown migration {}", row.version)));
                }
                None if row.min_compatible > self.latest() => {
                    return Err(Error::Schema { found: row.version, supported: self.latest() });
                }
                None => {}
            }
        }
        Ok(self.0.get(applied.len()..).unwrap_or_default())
    }

    /// The migrations to apply when a store is opened. An error if some are missing that `policy` does not permit.
    /// `has_sessions`: workers may be running on the database.
    pub fn to_apply_on_open(
        &self,
        applied: &[AppliedMigration],
        policy: MigrateOnOpen,
        has_sessions: bool,
    ) -> Result<&'static [Migration]> {
        let missing = self.missing(applied)?;
        let found = applied.last().map_or(0, |last| last.version);
        let permitted = match policy {
            MigrateOnOpen::Never => false,
            MigrateOnOpen::Fresh => applied.is_empty(),
            MigrateOnOpen::Always => {
                let expands = missing.iter().all(|migration| migration.min_compatible <= found);
                applied.is_empty() || expands || !has_sessions
            }
        };
        if missing.is_empty() || permitted {
            return Ok(missing);
        }
        Err(Error::Schema { found, supported: self.latest() })
    }

    /// All migrations, those of newer programs included.
    pub fn status(&self, applied: &[AppliedMigration]) -> Vec<MigrationStatus> {
        let of_row = |row: &AppliedMigration| {
            let state = match self.0.iter().find(|known| known.version == row.version) {
                Some(known) if known.checksum() == row.checksum => MigrationState::Applied,
                Some(_) => MigrationState::Changed,
                None if row.min_compatible <= self.latest() => MigrationState::Newer,
                None => MigrationState::Incompatible,
            };
            let AppliedMigration { version, name, min_compatible, .. } = row.clone();
            MigrationStatus { version, name, state, min_compatible }
        };
        let is_pending = |known: &&Migration| applied.iter().all(|row| row.version != known.version);
        let pending = self.0.iter().filter(is_pending).map(|known| MigrationStatus {
            version: known.version,
            name: known.name.to_owned(),
            state: MigrationState::Pending,
            min_compatible: known.min_compatible,
        });
        let mut all: Vec<MigrationStatus> = applied.iter().map(of_row).chain(pending).collect();
        all.sort_by_key(|one| one.version);
        all
    }

    /// The SQL of the missing migrations, each in a transaction of its own that starts with `begin`, as `migrate` runs it.
    pub fn plan(&self, applied: &[AppliedMigration], begin: &str) -> Result<String> {
        let one = |migration: &Migration| {
            let Migration { version, name, .. } = migration;
            format!("-- {version}: {name}\n{begin};\n{}COMMIT;\n", migration.script())
        };
        Ok(self.missing(applied)?.iter().map(one).collect())
    }
}

/// The error for a database of a version before 0.2.0: its table of migrations has fewer columns.
pub fn too_old() -> Error {
    broken("the table of migrations has no column min_compatible")
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

    const FIRST: Migration =
        Migration { version: 1, name: "tables", sql: "CREATE TABLE a (b);", min_compatible: 1 };
    const EXPAND: Migration =
        Migration { version: 2, name: "more", sql: "CREATE TABLE c (d);", min_compatible: 1 };
    const CONTRACT: Migration =
        Migration { version: 3, name: "less", sql: "DROP TABLE a;", min_compatible: 2 };
    const ALL: Migrations = Migrations(&[FIRST, EXPAND, CONTRACT]);

    fn applied(migrations: &[Migration]) -> Vec<AppliedMigration> {
        let row = |one: &Migration| AppliedMigration {
            version: one.version,
            name: one.name.to_owned(),
            checksum: one.checksum(),
            min_compatible: one.min_compatible,
        };
        migrations.iter().map(row).collect()
    }

    fn missing(applied: &[AppliedMigration]) -> Vec<u32> {
        ALL.missing(applied).unwrap().iter().map(|migration| migration.version).collect()
    }

    #[test]
    fn an_empty_database_lacks_all_migrations() {
        assert_eq!(missing(&[]), [1, 2, 3]);
    }

    #[test]
    fn a_database_of_the_first_version_lacks_the_later_ones() {
        assert_eq!(missing(&applied(&[FIRST])), [2, 3]);
        assert!(missing(&applied(ALL.0)).is_empty());
    }

    #[test]
    fn an_older_program_uses_a_schema_that_was_expanded() {
        let older = Migrations(&[FIRST]);
        assert!(older.missing(&applied(&[FIRST, EXPAND])).unwrap().is_empty());
        assert_eq!(older.status(&applied(&[FIRST, EXPAND]))[1].state, MigrationState::Newer);
    }

    #[test]
    fn an_older_program_rejects_a_schema_from_which_something_it_uses_was_removed() {
        let older = Migrations(&[FIRST]);
        let error = older.missing(&applied(ALL.0)).unwrap_err();
        assert!(matches!(error, Error::Schema { found: 3, supported: 1 }), "{error}");
        assert_eq!(older.status(&applied(ALL.0))[2].state, MigrationState::Incompatible);
        assert!(Migrations(&[FIRST, EXPAND]).missing(&applied(ALL.0)).unwrap().is_empty());
    }

    #[test]
    fn a_database_of_a_changed_migration_is_rejected() {
        let changed = Migration { sql: "CREATE TABLE a (b, c);", ..FIRST };
        let error = ALL.missing(&applied(&[changed])).unwrap_err();
        assert!(error.to_string().contains("changed migration 1 (tables)"), "{error}");
        assert_eq!(ALL.status(&applied(&[changed]))[0].state, MigrationState::Changed);
    }

    #[test]
    fn a_database_without_an_earlier_migration_is_rejected() {
        let error = ALL.missing(&applied(&[EXPAND])).unwrap_err();
        assert!(error.to_string().contains("unknown migration 2"), "{error}");
    }

    #[test]
    fn opening_a_store_applies_what_its_policy_permits() {
        let count = |applied: &[AppliedMigration], policy, has_sessions| {
            ALL.to_apply_on_open(applied, policy, has_sessions).ok().map(<[Migration]>::len)
        };
        use MigrateOnOpen::{Always, Fresh, Never};
        let (none, first, both, all) =
            (applied(&[]), applied(&[FIRST]), applied(&[FIRST, EXPAND]), applied(ALL.0));
        assert_eq!(
            [Never, Fresh, Always].map(|policy| count(&none, policy, false)),
            [None, Some(3), Some(3)]
        );
        assert_eq!([Never, Fresh, Always].map(|policy| count(&both, policy, true)), [None, None, Some(1)]);
        assert_eq!([Never, Fresh, Always].map(|policy| count(&all, policy, true)), [Some(0); 3]);
        assert_eq!(count(&first, Always, true), None, "workers of version 1 may be running");
        assert_eq!(count(&first, Always, false), Some(2));
    }

    #[test]
    fn the_plan_is_the_sql_of_what_is_missing() {
        let plan = ALL.plan(&applied(&[FIRST, EXPAND]), "BEGIN").unwrap();
        assert!(
            plan.starts_with("-- 3: less\nBEGIN;\nDROP TABLE a;\nINSERT INTO longshore_migration"),
            "{plan}"
        );
        assert!(!plan.contains("CREATE TABLE"), "{plan}");
        let fresh = ALL.plan(&[], "BEGIN").unwrap();
        assert!(
            fresh.contains("CREATE TABLE longshore_migration") && fresh.contains("-- 3: less"),
            "{fresh}"
        );
        assert_eq!(ALL.plan(&applied(ALL.0), "BEGIN").unwrap(), "");
    }
}
