//! A private PostgreSQL with Debian's defaults, fsync on.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use longshore::Store;
use longshore_postgres::{Listen, PostgresOptions, PostgresStore};
use longshore_testkit::servers::PrivatePostgres;

/// Returns the bytes of WAL that the server has written.
pub const WAL: &str = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')";

/// A server with Debian's settings: durable, with the default memory.
pub struct Server {
    server: PrivatePostgres,
    template: String,
}

impl Server {
    /// Starts a server, with a template database that has the store's tables.
    pub async fn start() -> Result<Self> {
        Self::start_with("on").await
    }

    /// Starts a server that does not wait for the disk: for runs that only check a benchmark.
    pub async fn start_without_fsync() -> Result<Self> {
        Self::start_with("off").await
    }

    async fn start_with(fsync: &str) -> Result<Self> {
        let settings = [("fsync", fsync), ("shared_buffers", "128MB"), ("max_wal_size", "1GB")];
        let server = PrivatePostgres::start_with(&settings)?;
        let url = server.fresh_database(None)?;
        drop(open(&url, Listen::Off).await?);
        let template = url.rsplit('/').next().context("a URL without a database")?.to_owned();
        Ok(Self { server, template })
    }

    /// Creates a database with the store's tables and returns its URL.
    pub fn fresh(&self) -> Result<String> {
        Ok(self.server.fresh_database(Some(&self.template))?)
    }

    /// Runs a query that returns one number in a database.
    pub fn ask(&self, url: &str, sql: &str) -> Result<f64> {
        let database = url.rsplit('/').next().context("a URL without a database")?;
        Ok(self.server.run_in(database, sql)?.trim().parse()?)
    }

    /// Writes all changes to the tables, so that what follows starts without a backlog.
    pub fn checkpoint(&self) -> Result<()> {
        self.server.run_in("postgres", "CHECKPOINT")?;
        Ok(())
    }

    /// Drops a database and closes its connections.
    pub fn drop_database(&self, url: &str) -> Result<()> {
        let database = url.rsplit('/').next().context("a URL without a database")?;
        self.server.run_in("postgres", &format!("DROP DATABASE {database} WITH (FORCE)"))?;
        Ok(())
    }
}

/// Opens a store with default options, as users do.
pub async fn open(url: &str, listen: Listen) -> Result<Arc<dyn Store>> {
    let options = PostgresOptions { listen, ..PostgresOptions::default() };
    Ok(Arc::new(PostgresStore::open(url, options).await?))
}
