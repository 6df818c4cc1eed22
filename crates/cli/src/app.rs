//! Parses the command line and runs the command.

use anyhow::Context;
use clap::Parser;
use longshore_process::{forbid_inspection, forbid_new_privileges};
use tokio::runtime::{Builder, Runtime};

use crate::args::ai::AiCommand;
use crate::args::dispatch::DispatchCommand;
use crate::args::remote_support::RemoteSupport;
use crate::args::worker::WorkerArgs;
use crate::args::{Cli, CliCommand, DeferredArgs};
use crate::error::WithHint;
use crate::exit::ExitCode;
use crate::settings::Settings;
use crate::telemetry::Telemetry;
use crate::{commands, error, logging, remote_target, settings, usage_error};

/// Runs the command that was typed.
pub fn main() -> std::process::ExitCode {
    // First of all, because a process of a unit could read the environment until then. A program that
    // this one starts is not affected.
    if let Err(error) = forbid_inspection().context("cannot hide this process's memory from others") {
        return error::report(&error).into();
    }
    // Started as the orphan reaper of another of our processes, this process does nothing else.
    if let Some(ended) = longshore_pool::child::run_if_worker(|_| None) {
        return ended;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(clap_error) => return usage_error::ended(&clap_error).into(),
    };
    run(cli).unwrap_or_else(|error| error::report(&error)).into()
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    if let Some(ended) = commands::run_meta(&cli.command) {
        return ended;
    }
    let settings = match Settings::resolve(&cli.global) {
        Err(problem) if matches!(cli.command, CliCommand::Doctor(_)) => {
            return commands::doctor::misconfigured(&problem, settings::output(&cli.global));
        }
        resolved => resolved?,
    };
    // One TLS provider for the whole program; installing it fails only if one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let default_level = match cli.command {
        CliCommand::Worker(_)
        | CliCommand::Serve(_)
        | CliCommand::Supervise(_)
        | CliCommand::Dispatch(DeferredArgs(DispatchCommand::Serve(_))) => "info",
        _ => "warn",
    };
    harden(&cli.command, &settings)?;
    let runtime = runtime(&cli.command)?;
    let is_service =
        matches!(cli.command, CliCommand::Ai(DeferredArgs(AiCommand::Worker(_) | AiCommand::Gateway(_))));
    let only_submits = default_level == "warn" && !is_service;
    let telemetry = Telemetry::new(settings.otlp.as_deref(), runtime.handle(), only_submits)?;
    let _log = logging::start(&settings.log, default_level, &telemetry)?;
    telemetry.warn_if_unavailable();
    let settings = with_remote_target(settings, &cli)?;
    runtime.block_on(async {
        let ended = commands::run(cli.command, &settings).await;
        telemetry.end().await;
        ended
    })
}

/// Forbids the processes of units to gain privileges. Called before the first thread starts: threads
/// and processes inherit it.
fn harden(command: &CliCommand, settings: &Settings) -> anyhow::Result<()> {
    // A worker of a pool without roots runs the operator's own scripts.
    let runs_others = |worker: &WorkerArgs| worker.remote.server.is_none() || !worker.remote.root.is_empty();
    if matches!(command, CliCommand::Worker(worker) if runs_others(worker)) && settings.worker.no_new_privs {
        forbid_new_privileges().context("cannot forbid new privileges (worker.no_new_privs)")?;
    }
    Ok(())
}

/// Adds the server to the settings of a command that runs through one.
fn with_remote_target(settings: Settings, cli: &Cli) -> anyhow::Result<Settings> {
    match cli.command.remote_support() {
        None => Ok(settings),
        Some(RemoteSupport { typed, refusal: Some(refusal) }) if typed.server.is_some() => {
            Err(error::usage(refusal)).hint("leave out --server")
        }
        Some(RemoteSupport { refusal: Some(_), .. }) => Ok(settings),
        Some(RemoteSupport { typed, refusal: None }) => {
            let server = remote_target::resolve(typed, cli.global.store.is_some())?;
            Ok(Settings { server, ..settings })
        }
    }
}

/// A multi-threaded runtime for commands with much concurrent work. The others mostly wait for one
/// thing after the other: there, moving tasks between threads costs more than it gains.
fn runtime(command: &CliCommand) -> std::io::Result<Runtime> {
    let mut builder = match command {
        CliCommand::Worker(worker) if worker.remote.server.is_none() => Builder::new_multi_thread(),
        CliCommand::Batch(_)
        | CliCommand::Ai(_)
        | CliCommand::Bench(_)
        | CliCommand::Chaos(_)
        | CliCommand::Serve(_) => Builder::new_multi_thread(),
        _ => Builder::new_current_thread(),
    };
    builder.enable_all().build()
}
