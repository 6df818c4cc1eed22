//! What a server is told before it begins, and why it may not.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longshore::store::Retention;
use longshore::{Error, Store};

use crate::access::AccessError;
use crate::launch::Recipe;
use crate::launch::scale::Size;
use crate::system::System;

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// How often workers beat.
    pub heartbeat_interval: Duration,
    /// A worker that is silent for so long is lost.
    pub worker_ttl: Duration,
    /// A worker whose connection broke is lost if it has not come back within this.
    pub reconnect_grace: Duration,
    /// How long workers of an earlier life may take to come back.
    pub restart_grace: Duration,
    /// After this long without a beat the store takes the server for dead.
    pub store_ttl: Duration,
    /// How long the last words may take.
    pub shutdown_timeout: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat_interval: Duration::from_secs(2),
            worker_ttl: Duration::from_secs(15),
            reconnect_grace: Duration::from_secs(3),
            restart_grace: Duration::from_secs(20),
            store_ttl: Duration::from_secs(60),
            shutdown_timeout: Duration::from_secs(10),
        }
    }
}

impl Timing {
    /// The usual, but for when a worker that is silent is lost.
    pub fn with_ttl(ttl: Duration) -> Self {
        let default = Self::default();
        Self {
            heartbeat_interval: default.heartbeat_interval.min(ttl / 6),
            worker_ttl: ttl,
            reconnect_grace: default.reconnect_grace.min(ttl),
            restart_grace: ttl + Duration::from_secs(5),
            ..default
        }
    }
}

/// What a server has to know.
pub struct Options {
    /// Where its access file goes: a folder that its workers see.
    pub folder: PathBuf,
    /// Where it keeps what must survive it: a folder on a local disk.
    pub state: PathBuf,
    /// Where the units are.
    pub store: Arc<dyn Store>,
    /// Addresses that it listens on, and that workers try in this order.
    pub listen: Vec<IpAddr>,
    /// How its workers are started; `None` if others do that.
    pub launch: Option<Launch>,
    /// How long things may take.
    pub timing: Timing,
    /// How long ended units are kept.
    pub retention: Retention,
}

/// How a server starts its workers.
pub struct Launch {
    /// Who is asked.
    pub system: Box<dyn System>,
    /// For what.
    pub recipe: Recipe,
    /// For how many.
    pub size: Size,
}

/// Why a server does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// It cannot listen, or keep its state.
    #[error("{0}: {1}")]
    Io(String, #[source] io::Error),
    /// Its access file cannot be written.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// TLS could not be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    /// The store could not do it.
    #[error(transparent)]
    Store(#[from] Error),
    /// Another server keeps its state there.
    #[error("another server runs with its state in {0}")]
    StateLocked(PathBuf),
    /// The pool has a server, on this machine or another, with its state elsewhere.
    #[error("another server serves the pool in {0}")]
    AlreadyServed(PathBuf),
    /// The store took the server for dead while it ran.
    #[error("the store took this server for dead and gave its scripts to others")]
    SessionGone,
}
