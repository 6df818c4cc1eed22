//! One file per command. Each takes its arguments and the settings, and returns an exit code.

use std::io::{BufRead, IsTerminal};
use std::sync::Arc;

use longshore::accounts::Ledger;
use longshore::{Client, Store};
use tokio::signal::unix::{SignalKind, signal};

use crate::error::{WithHint, usage};
use crate::settings::Settings;
use crate::store;

#[cfg(feature = "standard")]
pub mod ai;
pub mod batch;
#[cfg(feature = "standard")]
mod bench;
#[cfg(feature = "standard")]
mod chaos;
#[cfg(feature = "standard")]
mod completions;
#[cfg(feature = "standard")]
mod cron;
#[cfg(feature = "standard")]
mod dispatch;
#[cfg(feature = "standard")]
pub mod doctor;
#[cfg(feature = "standard")]
mod key;
#[cfg(feature = "standard")]
mod mail;
#[cfg(feature = "standard")]
mod man;
#[cfg(feature = "standard")]
mod migrate;
#[cfg(feature = "standard")]
mod names;
#[cfg(feature = "standard")]
mod pool;
#[cfg(feature = "standard")]
mod price;
#[cfg(feature = "standard")]
mod profile;
#[cfg(feature = "standard")]
mod queue;
#[cfg(feature = "standard")]
mod routing;
#[cfg(feature = "standard")]
mod script_directives;
#[cfg(feature = "standard")]
mod serve;
#[cfg(feature = "standard")]
mod submit;
#[cfg(feature = "standard")]
mod submit_direct;
#[cfg(feature = "standard")]
mod submit_http;
#[cfg(feature = "standard")]
mod submit_job;
#[cfg(feature = "standard")]
mod submit_lines;
#[cfg(feature = "standard")]
mod submit_script;
#[cfg(feature = "standard")]
mod supervise;
#[cfg(feature = "standard")]
mod tenant;
#[cfg(feature = "standard")]
mod token;
#[cfg(feature = "standard")]
mod top;
#[cfg(feature = "standard")]
mod unit;
#[cfg(feature = "standard")]
mod usage;
#[cfg(feature = "standard")]
mod verify;
mod wait;
mod watch;
#[cfg(feature = "standard")]
mod worker;
#[cfg(feature = "standard")]
mod worker_remote;
#[cfg(feature = "standard")]
mod workers;

#[cfg(feature = "standard")]
pub use routing::{run, run_meta};

/// Returns when the process receives SIGTERM or SIGINT.
pub async fn shutdown_signal() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// Opens the store, and a client with the settings' scope.
async fn connect(settings: &Settings) -> anyhow::Result<(Arc<dyn Store>, Client)> {
    let store = store::open(settings).await?;
    let client = Client::scoped(store.clone(), settings.scope()).with_retry_timeout(settings.patience);
    Ok((store, client))
}

/// Opens the ledger of the settings' store.
async fn ledger(settings: &Settings) -> anyhow::Result<Arc<dyn Ledger>> {
    Ok(store::open_with_ledger(settings).await?.1)
}

/// The handles of one store.
pub struct StoreHandles {
    pub store: Arc<dyn Store>,
    pub ledger: Arc<dyn Ledger>,
    pub client: Client,
}

/// Opens the store with its ledger, and a client with the settings' scope.
async fn connect_with_ledger(settings: &Settings) -> anyhow::Result<StoreHandles> {
    let (store, ledger) = store::open_with_ledger(settings).await?;
    let client = Client::scoped(store.clone(), settings.scope()).with_retry_timeout(settings.patience);
    Ok(StoreHandles { store, ledger, client })
}

/// Asks the user to confirm something that cannot be undone.
fn confirm(question: &str, settings: &Settings) -> anyhow::Result<bool> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(usage("this needs a confirmation, and stdin is no terminal")).hint("confirm with --yes");
    }
    settings.output.note(format!("{question} [y/N]"));
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Retries while the store is unavailable, for at most the settings' patience: a worker may be
/// started before its store (a machine boots, a server restarts).
async fn retry_while_unavailable<T>(
    settings: &Settings,
    connect: impl AsyncFn() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let until = tokio::time::Instant::now() + settings.patience;
    loop {
        let error = match connect().await {
            Ok(connected) => return Ok(connected),
            Err(error) => error,
        };
        let away = |cause: &longshore::Error| cause.is_retryable();
        let is_away = error.chain().filter_map(|cause| cause.downcast_ref()).any(away);
        if !is_away || tokio::time::Instant::now() >= until {
            return Err(error);
        }
        tracing::warn!("{error:#}; retrying");
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

/// The delay between two attempts to reach the store.
const RETRY_DELAY: std::time::Duration = std::time::Duration::from_secs(1);

/// The current time.
pub fn now() -> longshore::Timestamp {
    use longshore::Clock;
    longshore::SystemClock.now()
}
