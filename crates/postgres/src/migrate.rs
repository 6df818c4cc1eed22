//! Applies the migrations of the schema.

use longshore_core::Result;
use longshore_core::migration::{APPLIED, AppliedMigration, CREATE_TABLE, Migration, Migrations};

use crate::advisory_lock::{self, AdvisoryLock};
use crate::row::{small, value};
use crate::tx::Tx;

const MIGRATIONS: Migrations = Migrations(&[Migration {
    version: 1,
    name: "tables and functions",
    sql: concat!(
        include_str!("../migrations/001_tables.sql"),
        include_str!("../migrations/001_settle_functions.sql"),
        include_str!("../migrations/001_unit_functions.sql"),
        include_str!("../migrations/001_call_functions.sql"),
        include_str!("../migrations/001_permit_functions.sql"),
    ),
}]);

/// Brings the schema up to date; returns its version.
pub(crate) async fn migrate(tx: &mut Tx<'_>) -> Result<u32> {
    if !MIGRATIONS.missing(&applied(tx).await?)?.is_empty() {
        // Migrations, and waiting for another process's migration, have no time limit.
        tx.batch("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0").await?;
        advisory_lock::acquire(tx, &[AdvisoryLock::Schema]).await?;
        apply_missing(tx).await?;
    }
    Ok(MIGRATIONS.latest())
}

async fn applied(tx: &mut Tx<'_>) -> Result<Vec<AppliedMigration>> {
    // Not `to_regclass`: once it has not found a table, it does not find it until the transaction
    // ends.
    let exists = "SELECT EXISTS (SELECT 1 FROM pg_class
        WHERE relname = 'longshore_migration' AND pg_table_is_visible(oid))";
    if !value::<bool>(&tx.query_one(exists, &[]).await?, 0)? {
        return Ok(Vec::new());
    }
    let rows = tx.query(APPLIED, &[]).await?;
    rows.iter()
        .map(|row| Ok(AppliedMigration { version: small(row, 0)?, checksum: value(row, 1)? }))
        .collect()
}

async fn apply_missing(tx: &mut Tx<'_>) -> Result<()> {
    // Read again under the lock: another process may have migrated.
    let applied = applied(tx).await?;
    if applied.is_empty() {
        tx.batch(CREATE_TABLE).await?;
    }
    for migration in MIGRATIONS.missing(&applied)? {
        tx.batch(migration.sql).await?;
        let version = i32::try_from(migration.version).unwrap_or(i32::MAX);
        tx.execute(
            "INSERT INTO longshore_migration VALUES ($1, $2, $3)",
            &[&version, &migration.name, &migration.checksum()],
        )
        .await?;
    }
    Ok(())
}
