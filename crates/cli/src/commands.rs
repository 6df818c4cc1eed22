//! One file per verb. Each gets what was typed and the settings, and returns an exit code.

use std::io::{BufRead, IsTerminal};
use std::sync::Arc;

use longshore::ledger::Ledger;
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
mod pool;
#[cfg(feature = "standard")]
mod profile;
#[cfg(feature = "standard")]
mod queue;
#[cfg(feature = "standard")]
mod select;
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
pub use select::{about, run};

/// Returns once somebody wants the command to end.
pub async fn interrupted() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// The store, and a client that sees what the settings allow.
async fn connect(settings: &Settings) -> anyhow::Result<(Arc<dyn Store>, Client)> {
    let store = store::open(settings).await?;
    let client = Client::scoped(store.clone(), settings.scope()).with_patience(settings.patience);
    Ok((store, client))
}

/// The ledger of the store that the settings name.
async fn ledger(settings: &Settings) -> anyhow::Result<Arc<dyn Ledger>> {
    Ok(store::open_both(settings).await?.1)
}

/// A store from all its sides.
pub struct Connected {
    pub store: Arc<dyn Store>,
    pub ledger: Arc<dyn Ledger>,
    pub client: Client,
}

/// The store with its ledger, and a client that sees what the settings allow.
async fn connect_both(settings: &Settings) -> anyhow::Result<Connected> {
    let (store, ledger) = store::open_both(settings).await?;
    let client = Client::scoped(store.clone(), settings.scope()).with_patience(settings.patience);
    Ok(Connected { store, ledger, client })
}

/// Asks a person whether something is meant that cannot be undone.
fn agreed(question: &str, settings: &Settings) -> anyhow::Result<bool> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(usage("this asks first, and nobody is there to answer"))
            .hint("say --yes if you mean it");
    }
    settings.output.note(format!("{question} [y/N]"));
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Tries again while the store is away, as long as the settings' patience lasts: a worker may be
/// started before its store is (a machine boots, a server restarts).
async fn patiently<T>(
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
        tracing::warn!("{error:#}; waiting for it");
        tokio::time::sleep(AGAIN).await;
    }
}

/// Until a store that was away is tried again.
const AGAIN: std::time::Duration = std::time::Duration::from_secs(1);

/// The time now, for people.
pub fn now() -> longshore::Timestamp {
    use longshore::Clock;
    longshore::SystemClock.now()
}
