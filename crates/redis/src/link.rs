//! The connection that verbs share. It is made when it is first needed and made anew when it broke: each
//! time it is asked whom it leads to, so the server's life that a verb names is the one that hears it.

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
use crate::server::Server;

/// A server that vanished sends no farewell: a silent connection is probed after this time, this often,
/// so many times.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(5), Duration::from_secs(2), 3);
/// How long what we sent may stay without an answer of the other machine's.
const UNHEARD: Duration = Duration::from_secs(10);

/// The way to a server.
#[derive(Debug)]
pub(crate) struct Link {
    client: Client,
    patience: Duration,
    current: Mutex<Option<Arc<Live>>>,
    /// One connects, the others wait for it.
    connecting: tokio::sync::Mutex<()>,
}

/// A connection, and where it leads.
#[derive(Debug)]
pub(crate) struct Live {
    connection: MultiplexedConnection,
    pub(crate) server: Server,
}

impl Link {
    /// Reads a URL; connects to nothing yet.
    pub(crate) fn new(url: &str, patience: Duration) -> Result<Self> {
        let client = client(url)?;
        let connecting = tokio::sync::Mutex::default();
        Ok(Self { client, patience, current: Mutex::default(), connecting })
    }

    /// What further connections are made with.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// How long an answer may take.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// A connection that works, as far as is known.
    pub(crate) async fn live(&self) -> Result<Arc<Live>> {
        if let Some(live) = self.current() {
            return Ok(live);
        }
        let _one = self.connecting.lock().await;
        if let Some(live) = self.current() {
            return Ok(live);
        }
        let late = || Error::unavailable("Redis did not answer in time");
        let live = tokio::time::timeout(self.patience, self.connect()).await;
        let live = Arc::new(live.map_err(|_| late())??);
        self.set(Some(Arc::clone(&live)));
        Ok(live)
    }

    /// Runs a command, once more if the connection turns out to be gone: what we send may be repeated.
    /// `make` is told which life of the server hears it.
    pub(crate) async fn run<T: FromRedisValue>(&self, make: impl Fn(&Server) -> Cmd) -> Result<T> {
        let live = self.live().await?;
        match live.run(&make(&live.server)).await {
            Err(error) if is_gone(&error) => {
                self.forget(&live);
                let live = self.live().await?;
                let again = live.run(&make(&live.server)).await;
                again.inspect_err(|error| self.judge(&live, error)).or_translate()
            }
            answer => answer.inspect_err(|error| self.judge(&live, error)).or_translate(),
        }
    }

    /// Runs a script; sends all of it if the server does not know it (any more).
    pub(crate) async fn script<T: FromRedisValue>(
        &self,
        script: &Script,
        keys: &[String],
        args: impl Fn(&Server, &mut Cmd),
    ) -> Result<T> {
        let make = |verb: &str, name: &str, server: &Server| {
            let mut command = cmd(verb);
            command.arg(name).arg(keys.len()).arg(keys);
            args(server, &mut command);
            command
        };
        let known = self.run(|server| make("EVALSHA", script.hash(), server)).await;
        match known {
            Err(error) if is_unknown(&error) => {
                self.run(|server| make("EVAL", script.text(), server)).await
            }
            answer => answer,
        }
    }

    async fn connect(&self) -> Result<Live> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.patience))
            // Its own is half a second: a busy server would seem to be away.
            .set_response_timeout(Some(self.patience));
        let connect = self.client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = connect.await.or_translate()?;
        let info: String = cmd("INFO").query_async(&mut connection).await.or_translate()?;
        let (seconds, micros): (u64, u64) =
            cmd("TIME").query_async(&mut connection).await.or_translate()?;
        let now = Duration::from_secs(seconds) + Duration::from_micros(micros);
        Ok(Live { connection, server: Server::read(&info, now)? })
    }

    fn current(&self) -> Option<Arc<Live>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, live: Option<Arc<Live>>) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = live;
    }

    /// Whether the connection is of further use after an error.
    fn judge(&self, live: &Arc<Live>, error: &RedisError) {
        // A replica stays one on this connection; elsewhere there may be a master by now.
        let replica = error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly);
        if is_gone(error) || error.is_timeout() || error.is_unrecoverable_error() || replica {
            self.forget(live);
        }
    }

    /// Another may have made a new one meanwhile: that stays.
    fn forget(&self, live: &Arc<Live>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, live)) {
            *current = None;
        }
    }
}

impl Live {
    async fn run<T: FromRedisValue>(&self, command: &Cmd) -> redis::RedisResult<T> {
        command.query_async(&mut self.connection.clone()).await
    }
}

/// The text itself is never part of an error: it may hold a password.
fn client(url: &str) -> Result<Client> {
    let refused = |why: String| {
        let form = "the address is not redis://USER:PASSWORD@HOST:PORT/NUMBER, nor rediss://";
        Error::Invalid(format!("{form}: {why}"))
    };
    let info = url.into_connection_info().map_err(|error| refused(error.to_string()))?;
    if url.starts_with("rediss:") && rustls::crypto::CryptoProvider::get_default().is_none() {
        // Somebody else may have been faster.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(KEEPALIVE.0)
        .with_interval(KEEPALIVE.1)
        .with_retries(KEEPALIVE.2);
    let tcp =
        TcpSettings::default().set_nodelay(true).set_keepalive(keepalive).set_user_timeout(UNHEARD);
    Client::open(info.set_tcp_settings(tcp)).map_err(|error| refused(error.to_string()))
}

/// Whether nobody heard it, or the answer was lost.
fn is_gone(error: &RedisError) -> bool {
    error.is_io_error() && !error.is_timeout()
}

/// Whether the server does not know a script: it was restarted, or somebody flushed them.
fn is_unknown(error: &Error) -> bool {
    let Error::Broken { source: Some(source), .. } = error else { return false };
    let error = source.downcast_ref::<RedisError>();
    error.is_some_and(|error| error.kind() == ErrorKind::Server(ServerErrorKind::NoScript))
}

/// Adds several arguments.
pub(crate) fn add(command: &mut Cmd, args: impl IntoIterator<Item = impl ToRedisArgs>) {
    for arg in args {
        command.arg(arg);
    }
}
