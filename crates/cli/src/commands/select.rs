//! Which file runs which verb, and which of them handle signals themselves.

use super::{
    ai, batch, bench, chaos, completions, cron, dispatch, doctor, interrupted, key, mail, man,
    migrate, pool, profile, queue, serve, submit, supervise, tenant, token, top, unit, usage,
    verify, worker, workers,
};
use crate::args::{Command, Late};
use crate::exit::ExitCode;
use crate::settings::Settings;

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
