//! Where the database is, and the connections to it.

use std::sync::Arc;
use std::time::Duration;

use deadpool::Runtime;
use deadpool::managed::{QueueMode, Timeouts};
use longshore_core::{Clock, Error, Result, SystemClock, Timestamp};
use longshore_postgres_address::{Address, AddressError, ConnectionManager, Pool, read};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::{Client, Connection, Socket};

use crate::error::Translate;

/// How others' commits are heard of.
#[derive(Clone, PartialEq, Eq, Default)]
pub enum Listen {
    /// On a connection of its own to the store's URL, if a trial shows that notices arrive there
    /// (behind a transaction pooler they do not); else by polling.
    #[default]
    Auto,
    /// On a connection to this URL, which must lead to the server itself.
    At(String),
    /// Only by polling.
    Off,
}

impl std::fmt::Debug for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the URL: it may hold a password.
        f.write_str(match self {
            Self::Auto => "Auto",
            Self::At(_) => "At(…)",
            Self::Off => "Off",
        })
    }
}

/// Whose clock ends a leader's term and says which schedules are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClockSource {
    /// The server's, which all processes share: their own may be set wrongly.
    #[default]
    Server,
    /// The store's own, where a test moves it.
    Local,
}

/// How a store is opened.
#[derive(Clone)]
pub struct PostgresOptions {
    /// Connections at most, not counting the one that listens.
    pub connections: usize,
    /// How others' commits are heard of.
    pub listen: Listen,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// What is decided by the server's clock all the same.
    pub clock_source: ClockSource,
    /// How long a verb may take, waits for a connection and for locks included.
    pub timeout: Duration,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            connections: 8,
            listen: Listen::Auto,
            clock: Arc::new(SystemClock),
            clock_source: ClockSource::default(),
            timeout: Duration::from_secs(30),
        }
    }
}

impl std::fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { connections, timeout, .. } = self;
        // Not the URL that is listened at: it may hold a password.
        write!(f, "PostgresOptions({connections} connections, {timeout:?})")
    }
}

/// Reads a URL. The text itself is never part of an error: it may hold a password.
pub(crate) fn address(url: &str) -> Result<Address> {
    read(url).map_err(invalid)
}

fn invalid(error: AddressError) -> Error {
    Error::Invalid(error.0)
}

/// A connection, and what must be run for it to live.
pub(crate) async fn connect(
    address: &Address,
) -> Result<(Client, Connection<Socket, impl AsyncRead + AsyncWrite + Unpin + use<>>)> {
    let tls = address.connector().map_err(invalid)?;
    address.config.connect(tls).await.or_translate()
}

/// Runs one statement on a connection of its own, outside a transaction: `CREATE DATABASE` takes
/// none.
pub async fn run_statement(url: &str, sql: &str) -> Result<()> {
    let (client, connection) = connect(&address(url)?).await?;
    tokio::select! {
        answer = client.batch_execute(sql) => answer.or_translate(),
        _ = connection => Err(Error::unavailable("the connection to PostgreSQL was lost")),
    }
}

/// What time the server says it is.
pub async fn server_time(url: &str) -> Result<Timestamp> {
    let (client, connection) = connect(&address(url)?).await?;
    let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    tokio::select! {
        row = client.query_one(sql, &[]) => {
            let micros: i64 = row.or_translate()?.try_get(0).or_translate()?;
            Ok(Timestamp::from_micros(micros))
        }
        _ = connection => Err(Error::unavailable("the connection to PostgreSQL was lost")),
    }
}

/// A pool of connections.
pub(crate) fn pool(address: &Address, options: &PostgresOptions) -> Result<Pool> {
    let manager = ConnectionManager::new(address).map_err(invalid)?;
    let wait = Some(options.timeout);
    Pool::builder(manager)
        .max_size(options.connections.max(1))
        // The one that was last used: the server has its plans made there, and its pages at hand.
        .queue_mode(QueueMode::Lifo)
        .timeouts(Timeouts { wait, create: wait, recycle: wait })
        .runtime(Runtime::Tokio1)
        .build()
        .map_err(|error| Error::unavailable(format!("no pool of connections: {error}")))
}
