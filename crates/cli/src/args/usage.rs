//! Arguments of `longshore usage …`.

use clap::{Args, Subcommand, ValueEnum};
use longshore::accounts::{UsageBy, UsageFilter};
use longshore::{BatchId, ProfileName, TenantId, Timestamp};

use super::server::ServerArgs;
use super::unit_worker::PageArgs;
use crate::time_arg::TimeArg;

/// Tokens and cost of AI calls.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(
    after_help = "Prints sums by default, one line per day. Costs are exact to a millionth of a millionth of a dollar.

Examples:
  longshore usage                                   by day
  longshore usage --by tenant --since 30d
  longshore usage --by model --since 2026-11-01 --until 2026-12-01 --csv > november.csv
  longshore usage --request 0193f2a0-7b1c           tokens and cost of one request
  longshore usage --batch nightly --calls           one row per call
  longshore usage recost --since 7d --dry-run       what it would cost at the current prices"
)]
pub struct UsageArgs {
    #[command(subcommand)]
    pub command: Option<UsageCommand>,
    /// Grouping of the calls
    #[arg(long, value_name = "GROUP", default_value = "day")]
    pub by: UsageGrouping,
    #[command(flatten)]
    pub which: CallFilterArgs,
    /// Print one row per call instead of sums, newest first
    #[arg(long)]
    pub calls: bool,
    /// Print comma-separated values
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    #[command(flatten)]
    pub page: PageArgs,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Further commands.
#[derive(Debug, Subcommand)]
pub enum UsageCommand {
    /// Recompute the cost of calls at their profiles' current prices for the time of the call
    Recost(RecostArgs),
}

/// Recomputes costs.
#[derive(Debug, Args)]
#[command(
    after_help = "For prices that were missing or wrong. Calls under way, calls that were maybe billed, and those whose
profile is gone stay as they are. Months and their budgets are corrected with the calls.

Examples:
  longshore usage recost --dry-run
  longshore usage recost --since 2026-11-01 --profile fast"
)]
pub struct RecostArgs {
    #[command(flatten)]
    pub which: CallFilterArgs,
    /// Print what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Selects calls.
#[derive(Debug, Clone, Args)]
pub struct CallFilterArgs {
    /// Only calls of this request
    #[arg(long, value_name = "ID")]
    pub request: Option<String>,
    /// Only calls that began then or later: 7d (ago), a day (UTC), or a time
    #[arg(long, value_name = "7d|DATE")]
    pub since: Option<TimeArg>,
    /// Only calls that began before then
    #[arg(long, value_name = "1d|DATE")]
    pub until: Option<TimeArg>,
    /// Only calls of this batch
    #[arg(long, value_name = "NAME")]
    pub batch: Option<BatchId>,
    /// Only calls by this profile
    #[arg(long, value_name = "NAME")]
    pub profile: Option<ProfileName>,
}

/// Grouping of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum UsageGrouping {
    /// By tenant.
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

impl UsageGrouping {
    /// The store's grouping.
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

impl CallFilterArgs {
    /// The filter for these calls, of `tenant` only if there is one.
    pub fn filter(&self, tenant: Option<TenantId>, now: Timestamp) -> UsageFilter {
        let full_id = |id: &BatchId| tenant.as_ref().map_or_else(|| id.clone(), |own| id.of_tenant(own));
        UsageFilter {
            batch: self.batch.as_ref().map(full_id),
            tenant,
            request_id: self.request.clone(),
            profile: self.profile.clone(),
            since: self.since.map(|time| time.before(now)),
            until: self.until.map(|time| time.before(now)),
        }
    }
}
