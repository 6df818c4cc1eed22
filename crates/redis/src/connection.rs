//! The connection that all requests share. Opened on first use, and again after it broke; each time
//! the server is identified, so that the run id a request names is the one of the server that
//! receives it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longshore_core::{Error, Result};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, IntoConnectionInfo, RedisError,
    ServerErrorKind, ToRedisArgs, cmd,
};

use crate::error::Translate;
use crate::script::Script;
use crate::server_info::ServerInfo;

/// TCP keepalive, because a server that vanished sends no FIN: idle time before the first probe,
/// interval, number of probes.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(5), Duration::from_secs(2), 3);
/// How long sent data may stay unacknowledged.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);

/// A server, and the current connection to it.
#[derive(Debug)]
pub(crate) struct ServerConnection {
    client: Client,
    timeout: Duration,
    current: Mutex<Option<Arc<LiveConnection>>>,
    /// Held while connecting, so that concurrent requests wait for one connection.
    connecting: tokio::sync::Mutex<()>,
}

/// A connection, and the server it leads to.
#[derive(Debug)]
pub(crate) struct LiveConnection {
    connection: MultiplexedConnection,
    pub(crate) server: ServerInfo,
}

impl ServerConnection {
    /// Parses a URL; does not connect.
    pub(crate) fn new(url: &str, timeout: Duration) -> Result<Self> {
        let client = client(url)?;
        let connecting = tokio::sync::Mutex::default();
        Ok(Self { client, timeout, current: Mutex::default(), connecting })
    }

    /// Opens further connections.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// How long a reply may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The current connection, or a new one.
    pub(crate) async fn get(&self) -> Result<Arc<LiveConnection>> {
        if let Some(live) = self.current() {
            return Ok(live);
        }
        let _guard = self.connecting.lock().await;
        if let Some(live) = self.current() {
            return Ok(live);
        }
        let late = || Error::unavailable("Redis did not answer in time");
        let live = tokio::time::timeout(self.timeout, self.connect()).await;
        let live = Arc::new(live.map_err(|_| late())??);
        self.set(Some(Arc::clone(&live)));
        Ok(live)
    }

    /// Runs a command, and once more if the connection turns out to be broken: our commands may be
    /// repeated. `make` gets the server that the command is sent to.
    pub(crate) async fn run<T: FromRedisValue>(&self, make: impl Fn(&ServerInfo) -> Cmd) -> Result<T> {
        let live = self.get().await?;
        match live.run(&make(&live.server)).await {
            Err(error) if is_disconnected(&error) => {
                self.discard(&live);
                let live = self.get().await?;
                let again = live.run(&make(&live.server)).await;
                again.inspect_err(|error| self.discard_if_broken(&live, error)).or_translate()
            }
            answer => answer.inspect_err(|error| self.discard_if_broken(&live, error)).or_translate(),
        }
    }

    /// Runs a script by its hash; sends its text if the server does not have it (any more).
    pub(crate) async fn script<T: FromRedisValue>(
        &self,
        script: &Script,
        keys: &[String],
        args: impl Fn(&ServerInfo, &mut Cmd),
    ) -> Result<T> {
        let make = |eval: &str, script: &str, server: &ServerInfo| {
            let mut command = cmd(eval);
            command.arg(script).arg(keys.len()).arg(keys);
            args(server, &mut command);
            command
        };
        let reply = self.run(|server| make("EVALSHA", script.hash(), server)).await;
        match reply {
            Err(error) if is_missing_script(&error) => {
                self.run(|server| make("EVAL", script.text(), server)).await
            }
            reply => reply,
        }
    }

    async fn connect(&self) -> Result<LiveConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            // The driver's default is half a second, which would report a busy server as
            // unavailable.
            .set_response_timeout(Some(self.timeout));
        let connect = self.client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = connect.await.or_translate()?;
        let info: String = cmd("INFO").query_async(&mut connection).await.or_translate()?;
        let (seconds, micros): (u64, u64) = cmd("TIME").query_async(&mut connection).await.or_translate()?;
        let now = Duration::from_secs(seconds) + Duration::from_micros(micros);
        let server = ServerInfo::parse(&info, now)?;
        if server.may_have_lost_leases(now) {
            tracing::warn!(
                "Redis has started less than a minute ago without an append-only file: permits that it may have \
                 lost can still be held, so pools grant none until one lease after its start (see docs/redis.md)"
            );
        }
        Ok(LiveConnection { connection, server })
    }

    fn current(&self) -> Option<Arc<LiveConnection>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, live: Option<Arc<LiveConnection>>) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = live;
    }

    /// Discards the connection if an error shows that it is of no further use.
    fn discard_if_broken(&self, live: &Arc<LiveConnection>, error: &RedisError) {
        // A replica stays one on this connection; a new one may reach a master.
        let replica = error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly);
        if is_disconnected(error) || error.is_timeout() || error.is_unrecoverable_error() || replica {
            self.discard(live);
        }
    }

    /// Discards a connection, unless it was replaced meanwhile.
    fn discard(&self, live: &Arc<LiveConnection>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, live)) {
            *current = None;
        }
    }
}

impl LiveConnection {
    async fn run<T: FromRedisValue>(&self, command: &Cmd) -> redis::RedisResult<T> {
        command.query_async(&mut self.connection.clone()).await
    }
}

/// Errors never repeat the URL: it may hold a password.
fn client(url: &str) -> Result<Client> {
    let refused = |why: String| {
        let form = "the URL is not redis://USER:PASSWORD@HOST:PORT/NUMBER, nor rediss://";
        Error::Invalid(format!("{form}: {why}"))
    };
    let info = url.into_connection_info().map_err(|error| refused(error.to_string()))?;
    if url.starts_with("rediss:") && rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another thread may have installed one meanwhile.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(KEEPALIVE.0)
        .with_interval(KEEPALIVE.1)
        .with_retries(KEEPALIVE.2);
    let tcp =
        TcpSettings::default().set_nodelay(true).set_keepalive(keepalive).set_user_timeout(TCP_USER_TIMEOUT);
    Client::open(info.set_tcp_settings(tcp)).map_err(|error| refused(error.to_string()))
}

/// Whether the command was not received, or its reply was lost.
fn is_disconnected(error: &RedisError) -> bool {
    error.is_io_error() && !error.is_timeout()
}

/// Whether the server does not have a script: it restarted, or its scripts were flushed.
fn is_missing_script(error: &Error) -> bool {
    let Error::Broken { source: Some(source), .. } = error else { return false };
    let error = source.downcast_ref::<RedisError>();
    error.is_some_and(|error| error.kind() == ErrorKind::Server(ServerErrorKind::NoScript))
}

/// Adds several arguments.
pub(crate) fn push_args(command: &mut Cmd, args: impl IntoIterator<Item = impl ToRedisArgs>) {
    for arg in args {
        command.arg(arg);
    }
}
