//! The worker server inside `serve`.
//!
//! It is the server that `dispatch start` runs as a process of its own, on the host's store and
//! with the same access file. It launches no workers: they are started by hand (`worker --server
//! DIR`).

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use longshore::Store;
use longshore_dispatch::server::{Server, ServerError, ServerOptions, Timing, prepare_folder};
use tokio::signal::unix::{SignalKind, signal};

use super::serve::{state_folder, stop_on_signal};
use crate::error::WithHint;
use crate::settings::Settings;

/// Delay before a server that failed is started again.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// A worker server that is bound and not yet running.
pub struct EmbeddedServer {
    folder: PathBuf,
    listen: Vec<IpAddr>,
    store: Arc<dyn Store>,
    retention: longshore::store::Retention,
    /// How long scripts may run on after a signal.
    drain: Duration,
    server: Server,
}

impl EmbeddedServer {
    /// Binds the server for the workers of the configured folder; it does not serve yet.
    pub async fn bind(
        listen: Vec<IpAddr>,
        store: Arc<dyn Store>,
        settings: &Settings,
    ) -> anyhow::Result<Self> {
        let folder = settings.dispatch.folder(None);
        prepare_folder(&folder).context("cannot use the pool's folder")?;
        let folder = folder.canonicalize()?;
        let listen = match listen.is_empty() {
            true => vec![IpAddr::from(Ipv4Addr::LOCALHOST)],
            false => listen,
        };
        let retention = settings.retention;
        let server = match bind(&folder, &listen, &store, retention).await {
            Err(error @ (ServerError::StateLocked(_) | ServerError::AlreadyServed(_))) => {
                Err(error).hint("`longshore dispatch stop` stops it, `[dispatch] dir` names another folder")
            }
            server => server.map_err(anyhow::Error::from),
        }?;
        tracing::info!(addresses = ?server.addresses(), folder = %folder.display(), "listening for workers");
        Ok(Self { folder, listen, store, retention, drain: settings.worker.drain_timeout, server })
    }

    /// Serves until a signal arrives and running scripts have ended, or until a client stops it. If
    /// its session was reaped by the store, it starts again.
    pub async fn run(self) -> anyhow::Result<()> {
        let Self { folder, listen, store, retention, drain, mut server } = self;
        // Created before the loop, so that a signal is not lost while no server runs.
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        loop {
            let control = server.control();
            let ended = tokio::select! {
                ended = server.run() => ended,
                never = stop_on_signal(control, None, drain) => never?,
            };
            match ended {
                Ok(report) => {
                    tracing::info!(done = report.done, failed = report.failed, "the pool has ended");
                    return Ok(());
                }
                Err(error) => {
                    tracing::error!(%error, "the worker server failed; starting it again");
                }
            }
            server = loop {
                let restarting = async {
                    tokio::time::sleep(RESTART_DELAY).await;
                    bind(&folder, &listen, &store, retention).await
                };
                let restarted = tokio::select! {
                    biased;
                    _ = terminate.recv() => return Ok(()),
                    _ = interrupt.recv() => return Ok(()),
                    restarted = restarting => restarted,
                };
                match restarted {
                    Ok(server) => break server,
                    Err(error) => {
                        tracing::warn!(%error, "cannot start the worker server yet");
                    }
                }
            };
        }
    }
}

async fn bind(
    folder: &std::path::Path,
    listen: &[IpAddr],
    store: &Arc<dyn Store>,
    retention: longshore::store::Retention,
) -> Result<Server, ServerError> {
    Server::bind(ServerOptions {
        folder: folder.to_path_buf(),
        state: state_folder(None, folder),
        store: Arc::clone(store),
        listen: listen.to_vec(),
        launch: None,
        timing: Timing::default(),
        retention,
    })
    .await
}
