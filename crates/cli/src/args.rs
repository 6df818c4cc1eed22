//! The command line's syntax. [`crate::settings`] and the commands interpret it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use longshore::TenantId;

use crate::config::LogFormat;

pub mod ai;
pub mod batch;
pub mod budget;
pub mod chaos_bench;
pub mod cron;
#[cfg(feature = "standard")]
pub mod dispatch;
pub mod dispatch_pool;
pub mod doctor;
pub mod http;
pub mod key;
mod lazy_args;
pub mod limit;
#[cfg(feature = "standard")]
pub mod mail;
pub mod meta;
pub mod migrate;
pub mod pool;
pub mod price;
pub mod profile;
pub mod queue;
#[cfg(feature = "standard")]
pub mod remote_support;
pub mod replies;
pub mod resource;
#[cfg(feature = "standard")]
pub mod script;
pub mod server;
#[cfg(feature = "standard")]
pub mod submit;
pub mod supervise;
pub mod tenant;
pub mod top;
pub mod unit_worker;
pub mod usage;
pub mod web;
pub mod worker;

pub use lazy_args::DeferredArgs;

/// Durable queues, exact batches and workers, in one binary.
#[cfg(feature = "standard")]
#[derive(Debug, Parser)]
#[command(name = "longshore", version, max_term_width = 100, infer_subcommands = false)]
#[command(after_help = "Try it:
  longshore batch run examples/purchase-orders      a batch of database rows, each asked about
  longshore chaos                                   2,000 units under kill -9, then the proof
  longshore submit exec '{\"argv\":[\"date\"]}' --wait  one command, run by any worker
  longshore worker --until-idle                     work until nothing is left

Exit codes: 0 good, 1 error, 2 usage, 3 finished with failures, 4 cancelled or paused,
5 refused (no room, or suspended), 130 interrupted.")]
pub struct Cli {
    #[command(flatten)]
    pub global: GlobalArgs,
    #[command(subcommand)]
    pub command: CliCommand,
}

/// Options of every command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Options for all commands")]
pub struct GlobalArgs {
    /// Store to use, as sqlite:PATH or postgres://… [env: LONGSHORE_STORE] [default:
    /// sqlite:longshore.db]
    #[arg(long, global = true, value_name = "URL")]
    pub store: Option<String>,
    /// Restrict the command to this tenant [env: LONGSHORE_TENANT]
    #[arg(long, global = true, value_name = "NAME")]
    pub tenant: Option<TenantId>,
    /// Configuration file [env: LONGSHORE_CONFIG] [default: ./longshore.toml]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// Print data only, no messages
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// Log level (error, warn, info, debug, trace) or filter [env: LONGSHORE_LOG]
    #[arg(long, global = true, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// Log format [env: LONGSHORE_LOG_FORMAT]
    #[arg(long, global = true, value_name = "FORMAT", hide_short_help = true)]
    pub log_format: Option<LogFormat>,
    /// Log into daily files in this directory instead of to stderr [env: LONGSHORE_LOG_DIR]
    #[arg(long, global = true, value_name = "DIR", hide_short_help = true)]
    pub log_dir: Option<PathBuf>,
}

/// The commands.
#[cfg(feature = "standard")]
#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Submit a unit, or a batch of units
    Submit(Box<submit::SubmitArgs>),
    /// Run units
    Worker(Box<worker::WorkerArgs>),
    /// Show, retry or cancel units
    #[command(subcommand)]
    Unit(DeferredArgs<unit_worker::UnitCommand>),
    /// Show, pause, resume, bound or purge queues
    #[command(subcommand)]
    Queue(DeferredArgs<queue::QueueCommand>),
    /// Show and suspend tenants, set their weights and limits
    #[command(subcommand)]
    Tenant(DeferredArgs<tenant::TenantCommand>),
    /// Run batches of database rows; watch, pause, resume, cancel, retry and report them
    #[command(subcommand)]
    Batch(DeferredArgs<batch::BatchCommand>),
    /// Ask models, answer requests, serve a gateway
    #[command(subcommand)]
    Ai(DeferredArgs<ai::AiCommand>),
    /// Run scripts on workers of Slurm, Grid Engine, PBS, LSF, Kubernetes or this machine
    #[command(subcommand)]
    Dispatch(DeferredArgs<dispatch::DispatchCommand>),
    /// Show and resize bounded pools, hold a permit while a command runs
    #[command(subcommand)]
    Pool(DeferredArgs<pool::PoolCommand>),
    /// Compile MJML, spool mail and send it
    #[command(subcommand)]
    Mail(DeferredArgs<mail::MailCommand>),
    /// Submit units or start batches on a schedule
    #[command(subcommand)]
    Cron(DeferredArgs<cron::CronCommand>),
    /// List workers, or send them commands
    Workers(DeferredArgs<unit_worker::WorkersArgs>),
    /// Store encrypted keys of AI providers
    #[command(subcommand)]
    Key(DeferredArgs<key::KeyCommand>),
    /// Configure providers, models, keys, prices and limits of AI calls
    #[command(subcommand)]
    Profile(DeferredArgs<profile::ProfileCommand>),
    /// Show and replace the prices of models that profiles need not state
    #[command(subcommand)]
    Price(DeferredArgs<price::PriceCommand>),
    /// Report tokens and cost of AI calls
    Usage(DeferredArgs<Box<usage::UsageArgs>>),
    /// Serve the API and the dashboard over HTTP
    Serve(DeferredArgs<web::ServeArgs>),
    /// Keep worker processes alive: restart, replace, scale and drain them
    Supervise(DeferredArgs<supervise::SuperviseArgs>),
    /// Create, list and revoke API tokens
    #[command(subcommand)]
    Token(DeferredArgs<web::TokenCommand>),
    /// Watch queues, workers, batches and pools in the terminal
    Top(DeferredArgs<top::TopArgs>),
    /// Find problems in the installation, with a hint for each
    Doctor(DeferredArgs<doctor::DoctorArgs>),
    /// Migrate the store's schema to the current version
    Migrate(DeferredArgs<migrate::MigrateArgs>),
    /// Recount the store against its counters and check its invariants
    Verify,
    /// Run a batch while workers are killed, then check that nothing was lost
    Chaos(chaos_bench::ChaosArgs),
    /// Measure throughput and latency on this machine
    Bench(chaos_bench::BenchArgs),
    /// Print a shell's completion script
    #[command(after_help = meta::COMPLETIONS)]
    Completions {
        /// Shell to complete for
        shell: clap_complete::Shell,
    },
    /// Print the manual page of a command, or write all pages
    Man(meta::ManArgs),
}

#[cfg(all(test, feature = "standard"))]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
