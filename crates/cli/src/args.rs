//! What can be typed. What it means is [`crate::settings`]' business and the commands'.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use longshore::TenantId;

use crate::settings::LogFormat;

pub mod about;
pub mod ai;
pub mod batch;
pub mod budget;
pub mod cron;
#[cfg(feature = "standard")]
pub mod dispatch;
pub mod doctor;
pub mod http;
pub mod key;
mod late;
pub mod limit;
#[cfg(feature = "standard")]
pub mod mail;
pub mod operate;
#[cfg(feature = "standard")]
pub mod over;
pub mod pool;
pub mod profile;
pub mod proof;
pub mod queue;
pub mod resource;
#[cfg(feature = "standard")]
pub mod script;
pub mod server;
#[cfg(feature = "standard")]
pub mod submit;
pub mod supervise;
pub mod tenant;
pub mod top;
pub mod usage;
pub mod web;
pub mod worker;

pub use late::Late;

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
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// What every command takes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Options for all commands")]
pub struct Global {
    /// The store, as sqlite:PATH or postgres://… [env: LONGSHORE_STORE] [default: sqlite:longshore.db]
    #[arg(long, global = true, value_name = "URL")]
    pub store: Option<String>,
    /// Touch only this tenant's things [env: LONGSHORE_TENANT]
    #[arg(long, global = true, value_name = "NAME")]
    pub tenant: Option<TenantId>,
    /// The configuration file [env: LONGSHORE_CONFIG] [default: ./longshore.toml]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// Print data only, no words about it
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// error, warn, info, debug, trace, or a filter [env: LONGSHORE_LOG]
    #[arg(long, global = true, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// How log lines look [env: LONGSHORE_LOG_FORMAT]
    #[arg(long, global = true, value_name = "FORMAT", hide_short_help = true)]
    pub log_format: Option<LogFormat>,
    /// Log into daily files in this directory instead of to stderr [env: LONGSHORE_LOG_DIR]
    #[arg(long, global = true, value_name = "DIR", hide_short_help = true)]
    pub log_dir: Option<PathBuf>,
}

/// The verbs.
#[cfg(feature = "standard")]
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Send a unit, or a batch of them
    Submit(Box<submit::Submit>),
    /// Run units
    Worker(Box<worker::Worker>),
    /// Look at units, retry or cancel them
    #[command(subcommand)]
    Unit(Late<operate::Unit>),
    /// Look at queues, pause, resume, bound or purge them
    #[command(subcommand)]
    Queue(Late<queue::Queue>),
    /// Look at tenants, set their shares and limits, suspend them
    #[command(subcommand)]
    Tenant(Late<tenant::Tenant>),
    /// Run batches of database rows; watch, pause, resume, cancel, retry and report them
    #[command(subcommand)]
    Batch(Late<batch::Batch>),
    /// Ask models, answer requests, serve a gateway
    #[command(subcommand)]
    Ai(Late<ai::Ai>),
    /// Run scripts on workers that Slurm, Grid Engine, PBS, LSF or this machine started
    #[command(subcommand)]
    Dispatch(Late<dispatch::Dispatch>),
    /// Look at bounded pools, size them, hold a permit while a command runs
    #[command(subcommand)]
    Pool(Late<pool::Pool>),
    /// Compile MJML, keep mail in a spool, send it
    #[command(subcommand)]
    Mail(Late<mail::Mail>),
    /// Send units or start batches at set times
    #[command(subcommand)]
    Cron(Late<cron::Cron>),
    /// Look at workers, or give them orders
    Workers(Late<operate::Workers>),
    /// Keep keys of AI providers, sealed
    #[command(subcommand)]
    Key(Late<key::Key>),
    /// Say which AI is asked, with which model and key, at what price, within which limits
    #[command(subcommand)]
    Profile(Late<profile::Profile>),
    /// See what AI calls came to: tokens and money
    Usage(Late<Box<usage::Usage>>),
    /// Serve the API and the dashboard over HTTP
    Serve(Late<web::Serve>),
    /// Keep worker processes alive: restart, replace, scale and drain them
    Supervise(Late<supervise::Supervise>),
    /// Give, list and revoke tokens for the API
    #[command(subcommand)]
    Token(Late<web::Token>),
    /// Watch queues, workers, batches and pools in the terminal
    Top(Late<top::Top>),
    /// Look for what is wrong, and say how to mend it
    Doctor(Late<doctor::Doctor>),
    /// Bring the store's schema up to date
    Migrate,
    /// Recount the store against its counters and check its invariants
    Verify,
    /// Prove it: run a batch while workers are killed, then check that nothing was lost
    Chaos(proof::Chaos),
    /// Measure this machine: sending, processing, latency
    Bench(proof::Bench),
    /// Print what a shell needs to complete commands and options
    #[command(after_help = about::COMPLETIONS)]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page of a command, or write those of all
    Man(about::Man),
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
