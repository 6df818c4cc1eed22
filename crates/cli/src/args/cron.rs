//! Arguments of `longshore cron …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use longshore::schedule::{MissedPolicy, OverlapPolicy};
use longshore::{HumanDuration, Kind, Priority, QueueName, ScheduleName};

use super::server::ServerArgs;
use super::unit_worker::PageArgs;

/// Submit units or start batches on a schedule.
#[derive(Debug, Subcommand)]
pub enum CronCommand {
    /// Add a schedule
    #[command(after_help = "Examples:
  longshore cron add tidy --cron '0 2 * * *' --tz Europe/Berlin --kind exec --payload '{\"argv\":[\"./tidy\"]}'
  longshore cron add nightly --cron '30 1 * * mon-fri' --batch nightly.toml --missed once --overlap skip
  longshore cron add beat --cron '*/10 * * * * *' --kind exec --payload @beat.json

Five fields: minute hour day month weekday. With six, the first is the second. Also @hourly, @daily,
@weekly, @monthly and @yearly. Whichever `longshore worker` leads fires; each time fires once.")]
    Add(Box<CronAddArgs>),
    /// List schedules by name
    List {
        #[command(flatten)]
        page: PageArgs,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Show one schedule
    Show(ScheduleArg),
    /// Print the next times of a schedule, in its time zone
    Next(CronNextArgs),
    /// Pause a schedule
    Pause(ScheduleArg),
    /// Resume a schedule from now on; times that passed while it was paused do not count as missed
    Resume(ScheduleArg),
    /// Remove a schedule; units that it submitted are kept
    Remove(ScheduleArg),
    /// Fire now, in addition to the schedule's own times and whatever still runs
    Fire(ScheduleArg),
}

/// A schedule by its name.
#[derive(Debug, Args)]
pub struct ScheduleArg {
    /// Name of the schedule
    #[arg(value_name = "NAME")]
    pub name: ScheduleName,
}

/// `cron add`
#[derive(Debug, Args)]
pub struct CronAddArgs {
    /// Name, unique for the tenant
    #[arg(value_name = "NAME")]
    pub name: ScheduleName,
    #[command(flatten)]
    pub times: CronExpressionArgs,
    /// Submit a unit of this kind
    #[arg(long, value_name = "KIND", required_unless_present = "batch", conflicts_with = "batch")]
    pub kind: Option<Kind>,
    /// With --kind: payload as JSON, `@FILE`, or `-` for stdin
    #[arg(long, value_name = "JSON", requires = "kind", required_unless_present = "batch")]
    pub payload: Option<String>,
    /// Start this batch file, as `batch start` does; it is read at each firing
    #[arg(long, value_name = "FILE")]
    pub batch: Option<PathBuf>,
    /// With --batch: parameter of the candidates' SQL (may be repeated)
    #[arg(long, value_name = "NAME=VALUE", requires = "batch", value_parser = super::batch::param)]
    pub param: Vec<(String, String)>,
    /// Policy for missed times: skip, once, all (the newest 100) or all:LIMIT
    #[arg(long, value_name = "POLICY", default_value_t)]
    pub missed: MissedPolicy,
    /// Policy while the previous firing's work is live: allow, skip or wait
    #[arg(long, value_name = "POLICY", default_value_t)]
    pub overlap: OverlapPolicy,
    /// Queue of the units [env: LONGSHORE_QUEUE] [default: default]
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<QueueName>,
    /// Priority: high, normal, low, or 1 (first) to 9 (last)
    #[arg(long, default_value = "normal", value_name = "PRIORITY")]
    pub priority: Priority,
    /// Fail a unit that is not done this long after it was submitted
    #[arg(long, value_name = "TIME")]
    pub deadline: Option<HumanDuration>,
    /// Maximum time of one run
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<HumanDuration>,
    /// Maximum number of attempts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_attempts: Option<u32>,
    /// Add it paused
    #[arg(long)]
    pub paused: bool,
    /// Replace the schedule of this name, if there is one; its counters stay
    #[arg(long)]
    pub replace: bool,
}

/// A cron expression and its time zone.
#[derive(Debug, Args)]
pub struct CronExpressionArgs {
    /// Expression: minute hour day month weekday, as '0 2 * * *'
    #[arg(long, value_name = "EXPRESSION")]
    pub cron: String,
    /// Time zone of the expression, as Europe/Berlin
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    pub tz: String,
}

/// `cron next`
#[derive(Debug, Args)]
pub struct CronNextArgs {
    /// Name of the schedule
    #[arg(value_name = "NAME", required_unless_present = "cron", conflicts_with = "cron")]
    pub name: Option<ScheduleName>,
    /// Expression to try instead
    #[arg(long, value_name = "EXPRESSION")]
    pub cron: Option<String>,
    /// Time zone of --cron
    #[arg(long, value_name = "ZONE", default_value = "UTC", requires = "cron")]
    pub tz: String,
    /// Number of times to print
    #[arg(short = 'n', long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub count: u32,
}
