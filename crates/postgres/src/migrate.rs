//! Applies the migrations of the schema.

use std::time::Duration;

use longshore_core::migration::{
    APPLIED, AppliedMigration, MigrateOnOpen, Migration, MigrationStatus, Migrations, too_old,
};
use longshore_core::{Error, Result};
use longshore_postgres_url::Pool;
use tokio::time::Instant;
use tokio_postgres::Client;

use crate::advisory_lock::AdvisoryLock;
use crate::connect::{self, PostgresOptions};
use crate::error::{Translate, is_conflict, is_lock_timeout};
use crate::row::{small, value};
use crate::single_statement::ConnGuard;
use crate::timeline::NewestTimeline;

const MIGRATIONS: Migrations = Migrations(&[
    Migration {
        version: 1,
        name: "tables and functions",
        sql: concat!(
            include_str!("../migrations/001_tables.sql"),
            include_str!("../migrations/001_settle_functions.sql"),
            include_str!("../migrations/001_unit_functions.sql"),
            include_str!("../migrations/001_call_functions.sql"),
            include_str!("../migrations/001_permit_functions.sql"),
        ),
        min_compatible: 1,
    },
    Migration {
        version: 2,
        name: "batch progress",
        sql: include_str!("../migrations/002_batch_progress.sql"),
        min_compatible: 1,
    },
]);

/// How long one attempt waits for a lock. Statements of workers wait behind it for as long, so it is short.
const LOCK_TIMEOUT: &str = "2s";

/// The pause between two attempts, in which the workers' statements run.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// How long a migration is attempted while other transactions hold locks that it needs.
const MAX_LOCK_WAIT: Duration = Duration::from_secs(300);

/// Begins a migration's transaction: it waits for locks in short attempts, and only one process migrates at a time.
fn begin() -> String {
    format!(
        "BEGIN;\nSET LOCAL statement_timeout = 0;\nSET LOCAL lock_timeout = '{LOCK_TIMEOUT}';\n\
         SET LOCAL idle_in_transaction_session_timeout = '15s';\nSELECT pg_advisory_xact_lock({})",
        AdvisoryLock::Schema.key()
    )
}

/// Reads and migrates the schema of a database.
pub struct PostgresMigrator {
    pool: Pool,
    migrations: Migrations,
    max_lock_wait: Duration,
}

impl std::fmt::Debug for PostgresMigrator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PostgresMigrator(version {})", self.migrations.latest())
    }
}

impl PostgresMigrator {
    /// A migrator for the database of a URL. It connects when it is used.
    pub fn new(url: &str, options: &PostgresOptions) -> Result<Self> {
        Ok(Self::on(connect::pool(&connect::address(url)?, options, &NewestTimeline::default())?))
    }

    pub(crate) fn on(pool: Pool) -> Self {
        Self { pool, migrations: MIGRATIONS, max_lock_wait: MAX_LOCK_WAIT }
    }

    /// Appends migrations to those of this version, for tests that act as a newer version.
    #[must_use]
    pub fn with_more(self, more: &[Migration]) -> Self {
        let all: Vec<Migration> = self.migrations.0.iter().chain(more).copied().collect();
        Self { migrations: Migrations(all.leak()), ..self }
    }

    /// How long a migration is attempted while other transactions hold locks that it needs; five minutes unless set.
    #[must_use]
    pub fn with_max_lock_wait(self, max_lock_wait: Duration) -> Self {
        Self { max_lock_wait, ..self }
    }

    /// All migrations, and which are applied.
    pub async fn status(&self) -> Result<Vec<MigrationStatus>> {
        Ok(self.migrations.status(&self.applied().await?))
    }

    /// The SQL that [`Self::migrate`] would run.
    pub async fn plan(&self) -> Result<String> {
        self.migrations.plan(&self.applied().await?, &begin())
    }

    /// Applies the missing migrations, each in its own transaction, and returns the schema's version. A migration
    /// itself has no time limit; waits for locks have one.
    pub async fn migrate(&self) -> Result<u32> {
        let started = Instant::now();
        while !self.migrations.missing(&self.applied().await?)?.is_empty() {
            match self.apply_next().await {
                Err(error) if is_lock_conflict(&error) && started.elapsed() < self.max_lock_wait => {
                    tracing::info!("other transactions hold locks that a migration needs; retrying");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                applied => applied?,
            }
        }
        Ok(self.applied().await?.last().map_or(0, |newest| newest.version))
    }

    /// Prepares the schema as a store does that opens with this policy.
    pub async fn prepare(&self, policy: MigrateOnOpen) -> Result<()> {
        let applied = self.applied().await?;
        let ask = policy == MigrateOnOpen::Always && !self.migrations.missing(&applied)?.is_empty();
        let has_sessions = ask && !applied.is_empty() && self.has_sessions().await?;
        match self.migrations.to_apply_on_open(&applied, policy, has_sessions)? {
            [] => Ok(()),
            _ => self.migrate().await.map(drop),
        }
    }

    async fn applied(&self) -> Result<Vec<AppliedMigration>> {
        let guard = ConnGuard::acquire(&self.pool).await?;
        let rows = applied(guard.client()?).await;
        guard.release();
        rows
    }

    /// Whether workers may be running on the database.
    async fn has_sessions(&self) -> Result<bool> {
        let guard = ConnGuard::acquire(&self.pool).await?;
        let rows = guard.client()?.query_typed("SELECT 1 FROM longshore_session LIMIT 1", &[]).await;
        guard.release();
        Ok(!rows.or_translate()?.is_empty())
    }

    /// Applies the next missing migration. If the future is dropped, the connection closes and the server rolls back.
    async fn apply_next(&self) -> Result<()> {
        let guard = ConnGuard::acquire(&self.pool).await?;
        let client = guard.client()?;
        let apply = async {
            client.batch_execute(&begin()).await.or_translate()?;
            // Read again under the lock: another process may have migrated.
            match self.migrations.missing(&applied(client).await?)?.first() {
                Some(next) => client.batch_execute(&next.script()).await.or_translate(),
                None => Ok(()),
            }
        };
        let done = apply.await;
        let end = client.batch_execute(if done.is_ok() { "COMMIT" } else { "ROLLBACK" }).await;
        guard.release();
        done.and(end.or_translate())
    }
}

/// Whether other transactions' locks were in the way: nothing was changed.
fn is_lock_conflict(error: &Error) -> bool {
    is_lock_timeout(error) || is_conflict(error)
}

async fn applied(client: &Client) -> Result<Vec<AppliedMigration>> {
    let table =
        "SELECT EXISTS (SELECT 1 FROM pg_attribute WHERE attrelid = c.oid AND attname = 'min_compatible')
        FROM pg_class c WHERE c.relname = 'longshore_migration' AND pg_table_is_visible(c.oid)";
    match client.query_typed(table, &[]).await.or_translate()?.first() {
        None => return Ok(Vec::new()),
        Some(row) if !value::<bool>(row, 0)? => return Err(too_old()),
        Some(_) => {}
    }
    let read = |row| {
        let (version, name) = (small(row, 0)?, value(row, 1)?);
        Ok(AppliedMigration { version, name, checksum: value(row, 2)?, min_compatible: small(row, 3)? })
    };
    client.query_typed(APPLIED, &[]).await.or_translate()?.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_migrations_never_change() {
        longshore_testkit::compatibility::assert_released_migrations("postgres", MIGRATIONS);
    }
}
