//! The worker server inside another process of ours: `serve` hosts it.
//!
//! It is the server that `dispatch start` runs alone, on the host's store and with the same access file,
//! but nobody launches its workers: they come by themselves (`worker --server DIR`).

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use longshore::Store;
use longshore_dispatch::server::{Options, Server, ServerError, Timing};
use tokio::signal::unix::{SignalKind, signal};

use super::serve::{state_folder, until_told};
use crate::error::WithHint;
use crate::settings::Settings;

/// Until a server is tried again that could not go on.
const AGAIN: Duration = Duration::from_secs(1);

/// A worker server to be.
pub struct Hosted {
    folder: PathBuf,
    listen: Vec<IpAddr>,
    store: Arc<dyn Store>,
    retention: longshore::store::Retention,
    server: Server,
}

impl Hosted {
    /// Listens for the workers of the configured folder; nobody is served yet.
    pub async fn bind(
        listen: Vec<IpAddr>,
        store: Arc<dyn Store>,
        settings: &Settings,
    ) -> anyhow::Result<Self> {
        let folder = settings.dispatch.folder(None);
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make the pool's folder {}", folder.display()))?;
        let folder = folder.canonicalize()?;
        let listen = match listen.is_empty() {
            true => vec![IpAddr::from(Ipv4Addr::LOCALHOST)],
            false => listen,
        };
        let retention = settings.retention;
        let server = bind(&folder, &listen, &store, retention).await;
        let server =
            server.hint("`longshore dispatch stop` ends it, `[dispatch] dir` names another")?;
        tracing::info!(addresses = ?server.addresses(), folder = %folder.display(), "listening for workers");
        Ok(Self { folder, listen, store, retention, server })
    }

    /// Serves until a signal says that it is enough, and scripts that run have ended; or until somebody
    /// stops it. Taken for dead by its store, it takes up its work anew.
    pub async fn run(self) -> anyhow::Result<()> {
        let Self { folder, listen, store, retention, mut server } = self;
        // They remember what comes while a server runs, and while there is none.
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        loop {
            let control = server.control();
            let ended = tokio::select! {
                ended = server.run() => ended,
                never = until_told(control, None) => never?,
            };
            match ended {
                Ok(report) => {
                    tracing::info!(
                        done = report.done,
                        failed = report.failed,
                        "the pool has ended"
                    );
                    return Ok(());
                }
                Err(error) => tracing::error!(%error, "the worker server ended; it begins again"),
            }
            server = loop {
                let beginning = async {
                    tokio::time::sleep(AGAIN).await;
                    bind(&folder, &listen, &store, retention).await
                };
                let begun = tokio::select! {
                    biased;
                    _ = terminate.recv() => return Ok(()),
                    _ = interrupt.recv() => return Ok(()),
                    begun = beginning => begun,
                };
                match begun {
                    Ok(server) => break server,
                    Err(error) => {
                        tracing::warn!(%error, "the worker server cannot begin again yet");
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
    Server::bind(Options {
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
