//! From what was typed to a command that runs.

use clap::Parser;
use tokio::runtime::{Builder, Runtime};

use crate::args::ai::Ai;
use crate::args::dispatch::Dispatch;
use crate::args::over::Over;
use crate::args::{Cli, Command, Late};
use crate::error::WithHint;
use crate::exit::ExitCode;
use crate::settings::Settings;
use crate::telemetry::Telemetry;
use crate::{commands, error, logging, misread, server, settings};

/// Runs the command that was typed.
pub fn main() -> std::process::ExitCode {
    // As the warden of another process of ours, this one is nothing else.
    if let Some(ended) = longshore_pool::child::run_if_worker(|_| None) {
        return ended;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(said) => return misread::ended(&said).into(),
    };
    run(cli).unwrap_or_else(|error| error::report(&error)).into()
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    if let Some(ended) = commands::about(&cli.command) {
        return ended;
    }
    let settings = match Settings::resolve(&cli.global) {
        Err(problem) if matches!(cli.command, Command::Doctor(_)) => {
            return commands::doctor::misconfigured(&problem, settings::output(&cli.global));
        }
        resolved => resolved?,
    };
    // One TLS provider for the whole program; installing it fails only if one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let by_default = match cli.command {
        Command::Worker(_)
        | Command::Serve(_)
        | Command::Supervise(_)
        | Command::Dispatch(Late(Dispatch::Serve(_))) => "info",
        _ => "warn",
    };
    let runtime = runtime(&cli.command)?;
    let stays = matches!(cli.command, Command::Ai(Late(Ai::Worker(_) | Ai::Gateway(_))));
    let sends = by_default == "warn" && !stays;
    let telemetry = Telemetry::new(settings.otlp.as_deref(), runtime.handle(), sends)?;
    let _log = logging::start(&settings.log, by_default, &telemetry)?;
    telemetry.warn_if_unavailable();
    let settings = over_a_server(settings, &cli)?;
    runtime.block_on(async {
        let ended = commands::run(cli.command, &settings).await;
        telemetry.end().await;
        ended
    })
}

/// The settings of a command that goes over a server, if it does.
fn over_a_server(settings: Settings, cli: &Cli) -> anyhow::Result<Settings> {
    match cli.command.over() {
        None => Ok(settings),
        Some(Over { typed, why_not: Some(why_not) }) if typed.server.is_some() => {
            Err(error::usage(why_not)).hint("leave out --server")
        }
        Some(Over { why_not: Some(_), .. }) => Ok(settings),
        Some(Over { typed, why_not: None }) => {
            let server = server::resolve(typed, cli.global.store.is_some())?;
            Ok(Settings { server, ..settings })
        }
    }
}

/// Many threads for what has much to do at once. Everything else mostly waits for one thing after the
/// other: there, handing it from thread to thread costs more than it brings.
fn runtime(command: &Command) -> std::io::Result<Runtime> {
    let mut builder = match command {
        Command::Worker(worker) if worker.remote.server.is_none() => Builder::new_multi_thread(),
        Command::Batch(_)
        | Command::Ai(_)
        | Command::Bench(_)
        | Command::Chaos(_)
        | Command::Serve(_) => Builder::new_multi_thread(),
        _ => Builder::new_current_thread(),
    };
    builder.enable_all().build()
}
