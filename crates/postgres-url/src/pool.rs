//! A pool of connections: `deadpool` with a manager for tokio-postgres.

use std::ops::{Deref, DerefMut};

use deadpool::managed::{self, Metrics, RecycleError, RecycleResult};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config, Error};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{PostgresUrl, UrlError, connect};

/// A pool of connections to one server.
pub type Pool = managed::Pool<ConnectionManager>;
/// A pooled connection; dropped, it goes back to the pool.
pub type PooledConnection = managed::Object<ConnectionManager>;
/// Why the pool gave no connection.
pub type PoolError = managed::PoolError<Error>;

/// Opens connections for a pool, and discards connections that were closed meanwhile.
#[derive(Clone)]
pub struct ConnectionManager {
    config: Config,
    tls: MakeRustlsConnect,
}

impl ConnectionManager {
    /// A manager for the server at `address`; fails if its certificates cannot be read.
    pub fn new(address: &PostgresUrl) -> Result<Self, UrlError> {
        Ok(Self { config: address.config.clone(), tls: address.connector()? })
    }
}

impl std::fmt::Debug for ConnectionManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the configuration: it may hold a password.
        f.write_str("ConnectionManager")
    }
}

impl managed::Manager for ConnectionManager {
    type Type = OpenConnection;
    type Error = Error;

    async fn create(&self) -> Result<OpenConnection, Error> {
        // Boxed: most acquisitions find an open connection, and every store method holds this future.
        let (client, connection) = Box::pin(connect::connect(&self.config, &self.tls)).await?;
        #[expect(
            clippy::disallowed_methods,
            reason = "ends with the connection, which aborts it when dropped"
        )]
        let driver = tokio::spawn(async move {
            // The client learns of a failure from its next statement.
            let _ = connection.await;
        });
        Ok(OpenConnection { client, driver, is_discarded: false, timeline: None })
    }

    async fn recycle(&self, connection: &mut OpenConnection, _: &Metrics) -> RecycleResult<Error> {
        if connection.is_closed() || connection.is_discarded {
            Err(RecycleError::message("connection closed"))
        } else {
            Ok(())
        }
    }
}

/// A client and the task that drives its socket.
#[derive(Debug)]
pub struct OpenConnection {
    client: Client,
    driver: JoinHandle<()>,
    is_discarded: bool,
    /// The server's timeline when the connection was opened, if a hook of the pool has read it.
    pub timeline: Option<Timeline>,
}

/// A database cluster and its timeline. A promotion of a standby begins a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeline {
    /// The cluster's `system_identifier`.
    pub system: i64,
    /// The timeline's number.
    pub number: i32,
}

impl Timeline {
    /// Whether a promotion of the same cluster has begun a later timeline. Another cluster, as after an upgrade, counts
    /// its own timelines.
    pub fn is_before(self, other: Self) -> bool {
        self.system == other.system && self.number < other.number
    }
}

impl OpenConnection {
    /// Closes the connection, so that the pool discards it: a statement may still run on it.
    pub fn close(&mut self) {
        self.is_discarded = true;
        self.driver.abort();
    }
}

impl Deref for OpenConnection {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl DerefMut for OpenConnection {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.client
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
