//! Configuration of a server, and its errors.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longshore::store::Retention;
use longshore::{Error, Store};
use longshore_trusted_path::PathError;

use crate::access::AccessError;
use crate::launch::{Allocation, LaunchSetup};

/// Timeouts and intervals.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// Interval between a worker's heartbeats.
    pub heartbeat_interval: Duration,
    /// A worker that sends nothing for this long is lost.
    pub worker_ttl: Duration,
    /// A disconnected worker is lost if it does not reconnect within this time.
    pub reconnect_grace: Duration,
    /// How long workers may take to reconnect after a restart of the server.
    pub restart_grace: Duration,
    /// The store expires the server's session after this long without a heartbeat.
    pub store_ttl: Duration,
    /// How long the last messages and results may take at shutdown.
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
    /// Default timing with another `worker_ttl`.
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

/// Configuration of a server.
pub struct ServerOptions {
    /// Folder for the access file, visible to the workers.
    pub folder: PathBuf,
    /// Folder for the server's own state, on a local disk.
    pub state: PathBuf,
    /// The store with the units.
    pub store: Arc<dyn Store>,
    /// Addresses to listen on, in the order in which workers try them.
    pub listen: Vec<IpAddr>,
    /// How to launch workers; `None` if they are started by other means.
    pub launch: Option<LaunchOptions>,
    /// Timeouts and intervals.
    pub timing: Timing,
    /// How long ended units are kept.
    pub retention: Retention,
}

/// How a server launches its workers.
pub struct LaunchOptions {
    /// The allocation that the pool is started with.
    pub first: Allocation,
    /// How workers are launched.
    pub setup: LaunchSetup,
    /// The roots in the job's command, for the pool's status.
    pub roots: Vec<PathBuf>,
    /// The variables that the job's command allows, for the pool's status.
    pub allowed_env: Vec<String>,
}

/// Why a server failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// Listening or accessing the state folder failed.
    #[error("{0}: {1}")]
    Io(String, #[source] io::Error),
    /// Writing the access file failed.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// Another user could read or replace the state of the server.
    #[error("the state of the pool is not safe from other users")]
    State(#[source] PathError),
    /// Another user could replace the files in the pool's folder.
    #[error("the folder of the pool is not safe from other users")]
    Folder(#[source] PathError),
    /// TLS could not be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Error),
    /// Another server uses this state folder.
    #[error("another server uses the state folder {0}")]
    StateLocked(PathBuf),
    /// Another server serves this pool, with its state elsewhere.
    #[error("another server serves the pool in {0}")]
    AlreadyServed(PathBuf),
    /// The store expired the server's session.
    #[error("the store expired this server's session and released its scripts")]
    SessionGone,
}
