//! One file per verb. Each gets what was typed and the settings, and returns an exit code.

use std::io::{BufRead, IsTerminal};
use std::sync::Arc;

use longshore::ledger::Ledger;
use longshore::{Client, Store};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{Command, Late};
use crate::error::{WithHint, usage};
use crate::exit::ExitCode;
use crate::settings::Settings;
use crate::store;

pub mod ai;
pub mod batch;
mod bench;
mod chaos;
mod completions;
mod cron;
mod dispatch;
pub mod doctor;
mod key;
mod mail;
mod man;
mod migrate;
mod pool;
mod profile;
mod queue;
mod serve;
mod submit;
mod submit_direct;
mod submit_http;
mod submit_job;
mod submit_lines;
mod submit_script;
mod supervise;
mod tenant;
mod token;
mod top;
mod unit;
mod usage;
mod verify;
mod wait;
mod watch;
mod worker;
mod worker_remote;
mod workers;

/// Runs a command that is about the binary itself: it needs no settings, and a shell that starts
/// must not stumble over the configuration of the directory it starts in.
pub fn about(command: &Command) -> Option<anyhow::Result<ExitCode>> {
    match command {
        Command::Completions { shell } => Some(completions::run(*shell)),
        Command::Man(typed) => Some(man::run(typed)),
        _ => None,
    }
}

/// Runs a command; SIGINT and SIGTERM end all but those that know better ways.
pub async fn run(command: Command, settings: &Settings) -> anyhow::Result<ExitCode> {
    if let Command::Worker(typed) = command {
        return Box::pin(worker::run(*typed, settings)).await;
    }
    if let Command::Batch(typed) = &command
        && batch::obeys_signals(typed)
    {
        return Box::pin(run_one(command, settings)).await;
    }
    if let Command::Ai(typed) = &command
        && ai::obeys_signals(typed)
    {
        return Box::pin(run_one(command, settings)).await;
    }
    if let Command::Pool(typed) = &command
        && pool::obeys_signals(typed)
    {
        return Box::pin(run_one(command, settings)).await;
    }
    if let Command::Mail(typed) = &command
        && mail::obeys_signals(typed)
    {
        return Box::pin(run_one(command, settings)).await;
    }
    if let Command::Serve(_) | Command::Supervise(_) = &command {
        return Box::pin(run_one(command, settings)).await;
    }
    if let Command::Dispatch(typed) = &command
        && dispatch::obeys_signals(typed)
    {
        return Box::pin(run_one(command, settings)).await;
    }
    tokio::select! {
        ended = Box::pin(run_one(command, settings)) => ended,
        interrupted = interrupted() => interrupted.map(|()| ExitCode::Interrupted),
    }
}

async fn run_one(command: Command, settings: &Settings) -> anyhow::Result<ExitCode> {
    match command {
        Command::Submit(typed) => submit::run(*typed, settings).await,
        Command::Unit(Late(typed)) => unit::run(typed, settings).await,
        Command::Queue(Late(typed)) => queue::run(typed, settings).await,
        Command::Tenant(Late(typed)) => tenant::run(typed, settings).await,
        Command::Ai(Late(typed)) => ai::run(typed, settings).await,
        Command::Batch(Late(typed)) => batch::run(typed, settings).await,
        Command::Cron(Late(typed)) => cron::run(typed, settings).await,
        Command::Dispatch(Late(typed)) => dispatch::run(typed, settings).await,
        Command::Pool(Late(typed)) => pool::run(typed, settings).await,
        Command::Mail(Late(typed)) => mail::run(typed, settings).await,
        Command::Workers(Late(typed)) => workers::run(typed, settings).await,
        Command::Key(Late(typed)) => key::run(typed, settings).await,
        Command::Profile(Late(typed)) => profile::run(typed, settings).await,
        Command::Usage(Late(typed)) => usage::run(*typed, settings).await,
        Command::Serve(Late(typed)) => serve::run(typed, settings).await,
        Command::Supervise(_) => supervise::run(settings).await,
        Command::Token(Late(typed)) => token::run(typed, settings).await,
        Command::Top(Late(typed)) => top::run(&typed, settings).await,
        Command::Doctor(Late(typed)) => doctor::run(&typed, settings).await,
        Command::Migrate => migrate::run(settings).await,
        Command::Verify => verify::run(settings).await,
        Command::Chaos(typed) => chaos::run(typed, settings).await,
        Command::Bench(typed) => bench::run(typed, settings).await,
        // These never come here: see `run` and `about` above, and `main`.
        Command::Worker(_) | Command::Completions { .. } | Command::Man(_) => Ok(ExitCode::Usage),
    }
}

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
