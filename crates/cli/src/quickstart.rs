//! The quickstart build: one command, `batch run` on the embedded store.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};
use tokio::runtime::Runtime;

use crate::args::Global;
use crate::args::batch::Run;
use crate::error::{hinted, report, usage};
use crate::exit::ExitCode;
use crate::settings::Settings;
use crate::telemetry::Telemetry;
use crate::{commands, logging};

const ALL_COMMANDS: &str = "for all commands: cargo build --release";

/// Run batches of database rows. This build has one command; for all: cargo build --release
#[derive(Debug, Parser)]
#[command(name = "longshore", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run batches of database rows
    #[command(subcommand)]
    Batch(Batch),
}

#[derive(Debug, Subcommand)]
enum Batch {
    /// Run a batch file to its end, all in this process
    Run(Box<Run>),
}

/// Runs the command that was typed.
pub fn main() -> std::process::ExitCode {
    // A worker process that runs the reaper of orphans does nothing else.
    if let Some(ended) = longshore_pool::child::run_if_worker(|_| None) {
        return ended;
    }
    let ended = match Cli::try_parse() {
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

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let settings = Settings::resolve(&cli.global)?;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = Runtime::new()?;
    let telemetry = Telemetry::new(settings.otlp.as_deref(), runtime.handle(), false)?;
    let _log = logging::start(&settings.log, "warn", &telemetry)?;
    let Command::Batch(Batch::Run(typed)) = cli.command;
    runtime.block_on(commands::batch::run_file(*typed, &settings))
}
