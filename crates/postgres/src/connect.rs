//! Connection options, and connections to the database.

use std::sync::Arc;
use std::time::Duration;

use deadpool::Runtime;
use deadpool::managed::{QueueMode, Timeouts};
use longshore_core::migration::MigrateOnOpen;
use longshore_core::{Clock, Error, Result, SystemClock};
use longshore_postgres_url::{ConnectionManager, Pool, PostgresUrl, UrlError, parse};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::{Client, Connection, Socket};

use crate::error::Translate;
use crate::timeline::NewestTimeline;

/// Time limit for opening a heartbeat's connection, per host of the URL.
const HEARTBEAT_OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// How the store learns of other processes' commits.
#[derive(Clone, PartialEq, Eq, Default)]
pub enum Listen {
    /// By notifications on a separate connection to the store's URL, if a probe shows that they
    /// arrive there (behind a transaction pooler they do not); else by polling.
    #[default]
    Auto,
    /// By notifications on a connection to this URL, which must lead to the server itself.
    Url(String),
    /// Only by polling.
    Off,
}

impl std::fmt::Debug for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the URL: it may hold a password.
        f.write_str(match self {
            Self::Auto => "Auto",
            Self::Url(_) => "At(…)",
            Self::Off => "Off",
        })
    }
}

/// The clock by which the store sends, expires, prunes and fires schedules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClockSource {
    /// The server's clock, which all processes share. Clocks of other machines may be wrong.
    #[default]
    Server,
    /// The store's own clock, for tests that set the time.
    Local,
}

/// Options for opening a store.
#[derive(Clone)]
pub struct PostgresOptions {
    /// Maximum number of connections, not counting one that listens, one for heartbeats and one that
    /// renews permits.
    pub connections: usize,
    /// How the store learns of other processes' commits.
    pub listen: Listen,
    /// The clock of this process. It is only compared with the server's, unless `clock_source` names it.
    pub clock: Arc<dyn Clock>,
    /// The clock that the store uses.
    pub clock_source: ClockSource,
    /// With a larger skew between `clock` and the server's clock the store does not open. The default is that of
    /// Kerberos, five minutes: times that this machine's programs compute themselves, as deadlines, are wrong by as much.
    pub max_clock_skew: Duration,
    /// What opening the store may change in the schema. By default it is only created, in an empty database: other
    /// versions may be running on the database, so [`PostgresMigrator`](crate::PostgresMigrator) migrates it when the operator decides.
    pub migrate: MigrateOnOpen,
    /// Time limit of an operation, including waits for a connection and for locks.
    pub timeout: Duration,
    /// Time limit of the effects of one unit.
    pub effect_timeout: Duration,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            connections: 8,
            listen: Listen::Auto,
            clock: Arc::new(SystemClock),
            clock_source: ClockSource::default(),
            max_clock_skew: Duration::from_secs(300),
            migrate: MigrateOnOpen::Fresh,
            timeout: Duration::from_secs(30),
            effect_timeout: Duration::from_secs(10),
        }
    }
}

impl std::fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { connections, timeout, .. } = self;
        // Not the URL of `listen`: it may hold a password.
        write!(f, "PostgresOptions({connections} connections, {timeout:?})")
    }
}

/// Parses a URL. Errors never contain its text, which may hold a password.
pub(crate) fn address(url: &str) -> Result<PostgresUrl> {
    parse(url).map_err(invalid)
}

fn invalid(error: UrlError) -> Error {
    Error::Invalid(error.0)
}

/// Connects. The returned connection must be polled.
pub(crate) async fn connect(
    address: &PostgresUrl,
) -> Result<(Client, Connection<Socket, impl AsyncRead + AsyncWrite + Unpin + use<>>)> {
    let tls = address.connector().map_err(invalid)?;
    address.connect(&tls).await.or_translate()
}

/// Runs one statement on a separate connection, outside a transaction, as `CREATE DATABASE`
/// requires.
pub async fn run_statement(url: &str, sql: &str) -> Result<()> {
    let (client, connection) = connect(&address(url)?).await?;
    tokio::select! {
        answer = client.batch_execute(sql) => answer.or_translate(),
        _ = connection => Err(Error::unavailable("the connection to PostgreSQL was lost")),
    }
}

/// Creates the connection pool.
pub(crate) fn pool(
    address: &PostgresUrl,
    options: &PostgresOptions,
    newest: &NewestTimeline,
) -> Result<Pool> {
    build_pool(address, options.connections.max(1), options.timeout, newest)
}

/// Creates the pool of heartbeats: while one connection is being opened and does not answer, the next heartbeat opens
/// another.
pub(crate) fn heartbeat_pool(address: &PostgresUrl, newest: &NewestTimeline) -> Result<Pool> {
    let hosts = address.config.get_hosts().len().max(1);
    let limit = HEARTBEAT_OPEN_TIMEOUT * u32::try_from(hosts).unwrap_or(u32::MAX);
    build_pool(address, 2, limit, newest)
}

fn build_pool(address: &PostgresUrl, size: usize, wait: Duration, newest: &NewestTimeline) -> Result<Pool> {
    let manager = ConnectionManager::new(address).map_err(invalid)?;
    let wait = Some(wait);
    Pool::builder(manager)
        .max_size(size)
        // The connection that was used last: the server has its plans and pages cached there.
        .queue_mode(QueueMode::Lifo)
        .timeouts(Timeouts { wait, create: wait, recycle: wait })
        .runtime(Runtime::Tokio1)
        .post_create(newest.on_open())
        .pre_recycle(newest.on_reuse())
        .build()
        .map_err(|error| Error::unavailable(format!("cannot create the connection pool: {error}")))
}
