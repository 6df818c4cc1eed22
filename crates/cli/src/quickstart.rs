//! The quickstart build: one command, `batch run` on the embedded store.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};
use tokio::runtime::Runtime;

use crate::args::GlobalArgs;
use crate::args::batch::BatchRunArgs;
use crate::error::{hinted, report, usage};
use crate::exit::ExitCode;
use crate::settings::Settings;
use crate::telemetry::Telemetry;
use crate::{commands, logging};

const ALL_COMMANDS: &str = "for all commands: cargo build --release";

/// Run batches of database rows. This build has one command; for all: cargo build --release
#[derive(Debug, Parser)]
#[command(name = "longshore", version, max_term_width = 100)]
struct QuickstartCli {
    #[command(flatten)]
    global: GlobalArgs,
    #[command(subcommand)]
    command: QuickstartCommand,
}

#[derive(Debug, Subcommand)]
enum QuickstartCommand {
    /// Run batches of database rows
    #[command(subcommand)]
    Batch(QuickstartBatch),
}

#[derive(Debug, Subcommand)]
enum QuickstartBatch {
    /// Run a batch file to its end, all in this process
    Run(Box<BatchRunArgs>),
}

/// Parses the command line and runs the command.
pub fn main() -> std::process::ExitCode {
    // Started as the orphan reaper of another of our processes, this process does nothing else.
    if let Some(ended) = longshore_pool::child::run_if_worker(|_| None) {
        return ended;
    }
    let ended = match QuickstartCli::try_parse() {
        Ok(cli) => run(cli),
        Err(error) if error.kind() == ErrorKind::InvalidSubcommand => Err(unknown(&error)),
        Err(error) => error.exit(),
    };
    ended.unwrap_or_else(|error| report(&error)).into()
}

fn unknown(error: &clap::Error) -> anyhow::Error {
    let command = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(command)) => command.as_str(),
        _ => "that command",
    };
    hinted(usage(format!("the quickstart build has no `{command}`")), ALL_COMMANDS)
}

fn run(cli: QuickstartCli) -> anyhow::Result<ExitCode> {
    let settings = Settings::resolve(&cli.global)?;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = Runtime::new()?;
    let telemetry = Telemetry::new(settings.otlp.as_deref(), runtime.handle(), false)?;
    let _log = logging::start(&settings.log, "warn", &telemetry)?;
    let QuickstartCommand::Batch(QuickstartBatch::Run(typed)) = cli.command;
    runtime.block_on(commands::batch::run_file(*typed, &settings))
}
