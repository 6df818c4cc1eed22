//! The migrator of the settings' store.

use longshore::migration::MigrationStatus;

use super::{StoreUrl, require_persistent, sqlite_options};
use crate::settings::Settings;

/// The migrator of a store.
#[derive(Debug)]
pub enum SchemaMigrator {
    Sqlite(longshore_sqlite::SqliteMigrator),
    Postgres(longshore_postgres::PostgresMigrator),
}

impl SchemaMigrator {
    /// The migrator of the settings' store.
    pub fn of(settings: &Settings) -> anyhow::Result<Self> {
        require_persistent(&settings.store)?;
        match &settings.store {
            StoreUrl::Postgres(url) => Ok(Self::Postgres(url.migrator(settings)?)),
            StoreUrl::Sqlite(path) => {
                super::check_file(path, settings)?;
                Ok(Self::Sqlite(longshore_sqlite::SqliteMigrator::new(path, &sqlite_options(settings))))
            }
            StoreUrl::Memory => anyhow::bail!("a `memory:` store has no schema"),
        }
    }

    /// All migrations, and which are applied.
    pub async fn status(&self) -> anyhow::Result<Vec<MigrationStatus>> {
        Ok(match self {
            Self::Sqlite(migrator) => migrator.status().await?,
            Self::Postgres(migrator) => migrator.status().await?,
        })
    }

    /// The SQL of the missing migrations.
    pub async fn plan(&self) -> anyhow::Result<String> {
        Ok(match self {
            Self::Sqlite(migrator) => migrator.plan().await?,
            Self::Postgres(migrator) => migrator.plan().await?,
        })
    }

    /// Applies the missing migrations, and returns the schema's version.
    pub async fn migrate(&self) -> anyhow::Result<u32> {
        Ok(match self {
            Self::Sqlite(migrator) => migrator.migrate().await?,
            Self::Postgres(migrator) => migrator.migrate().await?,
        })
    }
}
