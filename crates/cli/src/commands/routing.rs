//! Routes commands to their modules, and signals to commands that handle them.

use super::{
    ai, batch, bench, chaos, completions, cron, dispatch, doctor, key, mail, man, migrate, pool, price,
    profile, queue, serve, shutdown_signal, submit, supervise, tenant, token, top, unit, usage, verify,
    worker, workers,
};
use crate::args::{CliCommand, DeferredArgs};
use crate::error::WithHint;
use crate::exit::ExitCode;
use crate::settings::Settings;

/// Runs a command about the binary itself. It needs no settings: a shell that starts must not fail
/// on the configuration of its working directory.
pub fn run_meta(command: &CliCommand) -> Option<anyhow::Result<ExitCode>> {
    match command {
        CliCommand::Completions { shell } => Some(completions::run(*shell)),
        CliCommand::Man(typed) => Some(man::run(typed)),
        _ => None,
    }
}

/// Runs a command. SIGINT and SIGTERM cancel it unless it handles them itself.
pub async fn run(command: CliCommand, settings: &Settings) -> anyhow::Result<ExitCode> {
    require_all_tenants(&command, settings)?;
    if let CliCommand::Worker(typed) = command {
        return Box::pin(worker::run(*typed, settings)).await;
    }
    if let CliCommand::Batch(typed) = &command
        && batch::handles_signals(typed)
    {
        return Box::pin(run_one(command, settings)).await;
    }
    if let CliCommand::Ai(typed) = &command
        && ai::handles_signals(typed)
    {
        return Box::pin(run_one(command, settings)).await;
    }
    if let CliCommand::Pool(typed) = &command
        && pool::handles_signals(typed)
    {
        return Box::pin(run_one(command, settings)).await;
    }
    if let CliCommand::Mail(typed) = &command
        && mail::handles_signals(typed)
    {
        return Box::pin(run_one(command, settings)).await;
    }
    if let CliCommand::Serve(_) | CliCommand::Supervise(_) = &command {
        return Box::pin(run_one(command, settings)).await;
    }
    if let CliCommand::Dispatch(typed) = &command
        && dispatch::handles_signals(typed)
    {
        return Box::pin(run_one(command, settings)).await;
    }
    tokio::select! {
        ended = Box::pin(run_one(command, settings)) => ended,
        shutdown_signal = shutdown_signal() => shutdown_signal.map(|()| ExitCode::Interrupted),
    }
}

/// Rejects a tenant for commands that concern all tenants: they would show and change what is not the tenant's.
fn require_all_tenants(command: &CliCommand, settings: &Settings) -> anyhow::Result<()> {
    let name = match command {
        CliCommand::Serve(_) => "serve",
        CliCommand::Pool(_) => "pool",
        CliCommand::Price(_) => "price",
        CliCommand::Workers(_) => "workers",
        _ => return Ok(()),
    };
    match &settings.tenant {
        Some(tenant) => {
            Err(crate::error::usage(format!("`{name}` is for all tenants, not for tenant `{tenant}` alone")))
                .hint("leave out --tenant (LONGSHORE_TENANT); over `--server`, a tenant's token narrows it")
        }
        None => Ok(()),
    }
}

async fn run_one(command: CliCommand, settings: &Settings) -> anyhow::Result<ExitCode> {
    match command {
        CliCommand::Submit(typed) => submit::run(*typed, settings).await,
        CliCommand::Unit(DeferredArgs(typed)) => unit::run(typed, settings).await,
        CliCommand::Queue(DeferredArgs(typed)) => queue::run(typed, settings).await,
        CliCommand::Tenant(DeferredArgs(typed)) => tenant::run(typed, settings).await,
        CliCommand::Ai(DeferredArgs(typed)) => ai::run(typed, settings).await,
        CliCommand::Batch(DeferredArgs(typed)) => batch::run(typed, settings).await,
        CliCommand::Cron(DeferredArgs(typed)) => cron::run(typed, settings).await,
        CliCommand::Dispatch(DeferredArgs(typed)) => dispatch::run(typed, settings).await,
        CliCommand::Pool(DeferredArgs(typed)) => pool::run(typed, settings).await,
        CliCommand::Mail(DeferredArgs(typed)) => mail::run(typed, settings).await,
        CliCommand::Workers(DeferredArgs(typed)) => workers::run(typed, settings).await,
        CliCommand::Key(DeferredArgs(typed)) => key::run(typed, settings).await,
        CliCommand::Profile(DeferredArgs(typed)) => profile::run(typed, settings).await,
        CliCommand::Price(DeferredArgs(typed)) => price::run(typed, settings).await,
        CliCommand::Usage(DeferredArgs(typed)) => usage::run(*typed, settings).await,
        CliCommand::Serve(DeferredArgs(typed)) => Box::pin(serve::run(typed, settings)).await,
        CliCommand::Supervise(_) => supervise::run(settings).await,
        CliCommand::Token(DeferredArgs(typed)) => token::run(typed, settings).await,
        CliCommand::Top(DeferredArgs(typed)) => top::run(&typed, settings).await,
        CliCommand::Doctor(DeferredArgs(typed)) => doctor::run(&typed, settings).await,
        CliCommand::Migrate(DeferredArgs(typed)) => migrate::run(&typed, settings).await,
        CliCommand::Verify => verify::run(settings).await,
        CliCommand::Chaos(typed) => chaos::run(typed, settings).await,
        CliCommand::Bench(typed) => bench::run(typed, settings).await,
        // Not reached: `run` and `run_meta` above handle them.
        CliCommand::Worker(_) | CliCommand::Completions { .. } | CliCommand::Man(_) => Ok(ExitCode::Usage),
    }
}
