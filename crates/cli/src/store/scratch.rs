//! A temporary database on the settings' server, dropped at the end of the command: no existing
//! store is touched.

use anyhow::Context;
use longshore::SessionId;
use longshore_postgres::run_statement;

use super::{PostgresStoreUrl, StoreUrl};
use crate::config::PostgresConfig;
use crate::error::WithHint;
use crate::settings::Settings;

/// A temporary database.
#[derive(Debug)]
pub struct ScratchDatabase {
    server: PostgresStoreUrl,
    name: String,
}

impl ScratchDatabase {
    /// Creates one on the same server.
    pub async fn make(server: &PostgresStoreUrl) -> anyhow::Result<Self> {
        let name = format!("longshore_{}", SessionId::new().to_string().replace('-', ""));
        run_statement(server.with_password(), &format!("CREATE DATABASE {name}"))
            .await
            .hint("the user of the URL must be allowed to create databases: ALTER ROLE … CREATEDB")
            .with_context(|| format!("cannot create a database beside {server}"))?;
        Ok(Self { server: server.clone(), name })
    }

    /// The settings with this database as the store.
    pub fn settings(&self, settings: &Settings) -> Settings {
        let listen = settings.postgres.listen_url.as_ref();
        Settings {
            store: StoreUrl::Postgres(self.server.with_database(&self.name)),
            postgres: PostgresConfig {
                listen_url: listen.map(|url| url.with_database(&self.name)),
                ..settings.postgres.clone()
            },
            ..settings.clone()
        }
    }

    /// Drops it, and disconnects its clients.
    pub async fn drop(self) -> anyhow::Result<()> {
        let sql = format!("DROP DATABASE {} WITH (FORCE)", self.name);
        run_statement(self.server.with_password(), &sql)
            .await
            .with_context(|| format!("cannot drop the database {}", self.name))
    }
}
