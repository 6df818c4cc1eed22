//! `longshore usage …` as typed.

use clap::{Args, Subcommand, ValueEnum};
use longshore::ledger::{UsageBy, UsageFilter};
use longshore::{BatchId, ProfileName, TenantId, Timestamp};

use super::operate::PageArgs;
use super::server::Server;
use crate::moment::Moment;

/// What AI calls came to.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(
    after_help = "Sums by default, one line per day. Costs are exact: to a millionth of a millionth of a dollar.

Examples:
  longshore usage                                   by day
  longshore usage --by tenant --since 30d
  longshore usage --by model --since 2026-11-01 --until 2026-12-01 --csv > november.csv
  longshore usage --request 0193f2a0-7b1c           what one request came to
  longshore usage --batch nightly --calls           one row per call
  longshore usage recost --since 7d --dry-run       what it would cost at the prices as they are now"
)]
pub struct Usage {
    #[command(subcommand)]
    pub verb: Option<Verb>,
    /// How calls are put together
    #[arg(long, value_name = "GROUP", default_value = "day")]
    pub by: By,
    #[command(flatten)]
    pub which: Which,
    /// One row per call instead of sums, the newest first
    #[arg(long)]
    pub calls: bool,
    /// Print comma-separated values
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    #[command(flatten)]
    pub page: PageArgs,
    #[command(flatten)]
    pub server: Server,
}

/// What else can be done with usage.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Compute anew what calls cost, at the prices that their profiles have now for their time
    Recost(Recost),
}

/// Compute costs anew.
#[derive(Debug, Args)]
#[command(
    after_help = "For prices that were missing or wrong. Calls under way, calls that were maybe billed, and those whose
profile is gone stay as they are. Months and their budgets are corrected with the calls.

Examples:
  longshore usage recost --dry-run
  longshore usage recost --since 2026-11-01 --profile fast"
)]
pub struct Recost {
    #[command(flatten)]
    pub which: Which,
    /// Say what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Which calls.
#[derive(Debug, Clone, Args)]
pub struct Which {
    /// Of this request
    #[arg(long, value_name = "ID")]
    pub request: Option<String>,
    /// Begun then or later: 7d (ago), a day (UTC), or a time
    #[arg(long, value_name = "7d|DATE")]
    pub since: Option<Moment>,
    /// Begun before then
    #[arg(long, value_name = "1d|DATE")]
    pub until: Option<Moment>,
    /// Of this batch
    #[arg(long, value_name = "NAME")]
    pub batch: Option<BatchId>,
    /// By this profile
    #[arg(long, value_name = "NAME")]
    pub profile: Option<ProfileName>,
}

/// How calls are put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// By who pays.
    Tenant,
    /// By the model that answered.
    Model,
    /// By day (UTC).
    Day,
    /// By batch.
    Batch,
    /// By profile, as tenant/profile.
    Profile,
}

impl By {
    /// What the store calls it.
    pub fn group(self) -> UsageBy {
        match self {
            Self::Tenant => UsageBy::Tenant,
            Self::Model => UsageBy::Model,
            Self::Day => UsageBy::Day,
            Self::Batch => UsageBy::Batch,
            Self::Profile => UsageBy::Profile,
        }
    }

    /// The heading of its column.
    pub fn heading(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Model => "model",
            Self::Day => "day",
            Self::Batch => "batch",
            Self::Profile => "profile",
        }
    }
}

impl Which {
    /// The calls that are meant, of `tenant` only if there is one.
    pub fn filter(&self, tenant: Option<TenantId>, now: Timestamp) -> UsageFilter {
        UsageFilter {
            tenant,
            request_id: self.request.clone(),
            batch: self.batch.clone(),
            profile: self.profile.clone(),
            since: self.since.map(|moment| moment.time(now)),
            until: self.until.map(|moment| moment.time(now)),
        }
    }
}
