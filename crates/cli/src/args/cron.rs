//! `longshore cron …` as typed.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use longshore::schedule::{Missed, Overlap};
use longshore::{Kind, Priority, QueueName, ScheduleName};

use super::operate::PageArgs;
use super::server::Server;
use crate::span::Span;

/// Send units or start batches at set times.
#[derive(Debug, Subcommand)]
pub enum Cron {
    /// Add a schedule
    #[command(after_help = "Examples:
  longshore cron add tidy --cron '0 2 * * *' --tz Europe/Berlin --kind exec --payload '{\"argv\":[\"./tidy\"]}'
  longshore cron add nightly --cron '30 1 * * mon-fri' --batch nightly.toml --missed once --overlap skip
  longshore cron add beat --cron '*/10 * * * * *' --kind exec --payload @beat.json

Five fields: minute hour day month weekday. With six, the first is the second. Also @hourly, @daily,
@weekly, @monthly and @yearly. Whichever `longshore worker` leads fires; each time fires once.")]
    Add(Box<Add>),
    /// Schedules, by name
    List {
        #[command(flatten)]
        page: PageArgs,
        #[command(flatten)]
        server: Server,
    },
    /// Everything about one schedule
    Show(Named),
    /// When a schedule fires next, in its time zone
    Next(Next),
    /// Do not fire until resumed
    Pause(Named),
    /// Fire again, from now on: what passed meanwhile was not missed
    Resume(Named),
    /// Remove a schedule; what it has started goes on
    Remove(Named),
    /// Fire now, beside the schedule's own times and whatever still runs
    Fire(Named),
}

/// A schedule by its name.
#[derive(Debug, Args)]
pub struct Named {
    /// The schedule
    #[arg(value_name = "NAME")]
    pub name: ScheduleName,
}

/// `cron add`
#[derive(Debug, Args)]
pub struct Add {
    /// Its name, unique for the tenant
    #[arg(value_name = "NAME")]
    pub name: ScheduleName,
    #[command(flatten)]
    pub times: Times,
    /// Send a unit of this kind
    #[arg(long, value_name = "KIND", required_unless_present = "batch", conflicts_with = "batch")]
    pub kind: Option<Kind>,
    /// With --kind: JSON, `@FILE`, or `-` for stdin
    #[arg(long, value_name = "JSON", requires = "kind", required_unless_present = "batch")]
    pub payload: Option<String>,
    /// Start this batch file, as `batch start` does; read anew each time
    #[arg(long, value_name = "FILE")]
    pub batch: Option<PathBuf>,
    /// With --batch: a parameter of the candidates' SQL (may be repeated)
    #[arg(long, value_name = "NAME=VALUE", requires = "batch", value_parser = super::batch::param)]
    pub param: Vec<(String, String)>,
    /// What becomes of times that were missed: skip, once, all (the newest 100) or all:LIMIT
    #[arg(long, value_name = "POLICY", default_value_t)]
    pub missed: Missed,
    /// At a time while what the previous one started is live: allow, skip or wait
    #[arg(long, value_name = "POLICY", default_value_t)]
    pub overlap: Overlap,
    /// Where the units wait [env: LONGSHORE_QUEUE] [default: default]
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<QueueName>,
    /// high, normal, low, or 1 (first) to 9 (last)
    #[arg(long, default_value = "normal", value_name = "PRIORITY")]
    pub priority: Priority,
    /// Fail a unit that is not done this long after it was sent
    #[arg(long, value_name = "TIME")]
    pub deadline: Option<Span>,
    /// Longest run
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<Span>,
    /// How often a unit is tried in all
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_attempts: Option<u32>,
    /// Add it paused
    #[arg(long)]
    pub paused: bool,
    /// Replace the schedule of this name, if there is one; its counters stay
    #[arg(long)]
    pub replace: bool,
}

/// An expression and its zone.
#[derive(Debug, Args)]
pub struct Times {
    /// When: minute hour day month weekday, as '0 2 * * *'
    #[arg(long, value_name = "EXPRESSION")]
    pub cron: String,
    /// The time zone that this is meant in, as Europe/Berlin
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    pub tz: String,
}

/// `cron next`
#[derive(Debug, Args)]
pub struct Next {
    /// The schedule
    #[arg(value_name = "NAME", required_unless_present = "cron", conflicts_with = "cron")]
    pub name: Option<ScheduleName>,
    /// Try an expression instead
    #[arg(long, value_name = "EXPRESSION")]
    pub cron: Option<String>,
    /// The time zone of --cron
    #[arg(long, value_name = "ZONE", default_value = "UTC", requires = "cron")]
    pub tz: String,
    /// How many times
    #[arg(short = 'n', long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub count: u32,
}
