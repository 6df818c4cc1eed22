//! The schema and its versions.
//!
//! Migrations are embedded, applied one by one in one transaction under a lock, and recorded with a
//! checksum. A database that was migrated by a changed file is refused.

use longshore_core::{Error, Result};

use crate::advisory_lock::{self, AdvisoryLock};
use crate::error::damaged;
use crate::row::value;
use crate::tx::Tx;

struct Migration {
    version: i32,
    name: &'static str,
    sql: &'static str,
}

const MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "tables and functions",
    sql: concat!(
        include_str!("../migrations/001_tables.sql"),
        include_str!("../migrations/001_unit_functions.sql"),
        include_str!("../migrations/001_call_functions.sql"),
        include_str!("../migrations/001_permit_functions.sql"),
    ),
}];

/// The newest version that this program knows.
pub(crate) const NEWEST_VERSION: u32 = MIGRATIONS[MIGRATIONS.len() - 1].version.unsigned_abs();

/// Migrates the schema to the newest version, if it is older.
pub(crate) async fn migrate(tx: &mut Tx<'_>) -> Result<u32> {
    if version(tx).await? != NEWEST_VERSION {
        // Migrations, and waiting for another process's migration, have no time limit.
        tx.batch("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0").await?;
        advisory_lock::acquire(tx, &[AdvisoryLock::Schema]).await?;
        apply_missing(tx).await?;
    }
    check(tx).await?;
    Ok(NEWEST_VERSION)
}

async fn check(tx: &mut Tx<'_>) -> Result<()> {
    let found = version(tx).await?;
    if found != NEWEST_VERSION {
        return Err(Error::Schema { found, known: NEWEST_VERSION });
    }
    let sql = "SELECT checksum FROM longshore_migration ORDER BY version";
    let sums = tx.query(sql, &[]).await?;
    for (migration, row) in MIGRATIONS.iter().zip(sums) {
        if value::<&str>(&row, 0)? != checksum(migration.sql) {
            return Err(damaged(format!("a changed migration {}", migration.name)));
        }
    }
    Ok(())
}

async fn version(tx: &mut Tx<'_>) -> Result<u32> {
    // Not `to_regclass`: once it has not found a table, it does not find it until the transaction
    // ends.
    let known = "SELECT EXISTS (SELECT 1 FROM pg_class
        WHERE relname = 'longshore_migration' AND pg_table_is_visible(oid))";
    if !value::<bool>(&tx.query_one(known, &[]).await?, 0)? {
        return Ok(0);
    }
    let newest = "SELECT coalesce(max(version), 0) FROM longshore_migration";
    let found: i32 = value(&tx.query_one(newest, &[]).await?, 0)?;
    u32::try_from(found).map_err(damaged)
}

async fn apply_missing(tx: &mut Tx<'_>) -> Result<()> {
    // Read again under the lock: another process may have migrated.
    let found = version(tx).await?;
    if found > NEWEST_VERSION {
        return Err(Error::Schema { found, known: NEWEST_VERSION });
    }
    if found == 0 {
        tx.batch(
            "CREATE TABLE longshore_migration
             (version integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL)",
        )
        .await?;
    }
    for migration in MIGRATIONS.iter().filter(|one| one.version.unsigned_abs() > found) {
        tx.batch(migration.sql).await?;
        tx.execute(
            "INSERT INTO longshore_migration VALUES ($1, $2, $3)",
            &[&migration.version, &migration.name, &checksum(migration.sql)],
        )
        .await?;
    }
    Ok(())
}

/// FNV-1a: enough to detect an edited file.
fn checksum(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}
