//! Arguments of `longshore tenant …`.

use clap::{Args, Subcommand};
use longshore::TenantId;

use super::budget::BudgetArgs;
use super::limit::{AtLeastOne, CapacityArgs, LimitArg};

/// Show and suspend tenants, set their weights and limits.
#[derive(Debug, Subcommand)]
pub enum TenantCommand {
    /// Add a tenant with settings of its own
    Add(TenantSettingsArgs),
    /// List tenants that have settings
    List,
    /// Show one tenant: its settings and its units in all queues
    Show {
        /// Name of the tenant
        #[arg(value_name = "NAME")]
        id: TenantId,
    },
    /// Change settings; settings that are not named stay
    Set(TenantSettingsArgs),
    /// Suspend a tenant: none of its units is claimed or accepted; running ones may finish
    Suspend {
        /// Name of the tenant
        #[arg(value_name = "NAME")]
        id: TenantId,
    },
    /// Resume a tenant
    Resume {
        /// Name of the tenant
        #[arg(value_name = "NAME")]
        id: TenantId,
    },
    /// Remove its settings and those of its lanes; only without live units
    Remove {
        /// Name of the tenant
        #[arg(value_name = "NAME")]
        id: TenantId,
    },
}

/// A tenant and its settings.
#[derive(Debug, Args)]
#[command(after_help = "Without settings a tenant has weight 1 and no limits.

Examples:
  longshore tenant add acme --weight 3 --cap 20
  longshore tenant set acme --max-units 10000 --max-bytes 500MB
  longshore tenant set acme --cap none
  longshore tenant set acme --budget-usd 50 --budget-tokens 2M --warn-at 80%")]
pub struct TenantSettingsArgs {
    /// Name of the tenant
    #[arg(value_name = "NAME")]
    pub id: TenantId,
    /// Weight against other tenants; a lane's share is its own weight times this
    #[arg(long, value_name = "N")]
    pub weight: Option<AtLeastOne>,
    /// Maximum running (leased) units over all queues, or none
    #[arg(long, value_name = "N|none")]
    pub cap: Option<LimitArg<AtLeastOne>>,
    #[command(flatten)]
    pub bounds: CapacityArgs,
    #[command(flatten)]
    pub budget: BudgetArgs,
}
