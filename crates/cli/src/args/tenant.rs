//! `longshore tenant …` as typed.

use clap::{Args, Subcommand};
use longshore::TenantId;

use super::budget::BudgetArgs;
use super::limit::{AtLeastOne, Bounds, Limit};

/// Look at tenants, and set their shares and bounds.
#[derive(Debug, Subcommand)]
pub enum Tenant {
    /// Give a tenant settings of its own
    Add(Named),
    /// Tenants that have settings
    List,
    /// One tenant: its settings and its units in all queues
    Show {
        /// The tenant
        #[arg(value_name = "NAME")]
        id: TenantId,
    },
    /// Change settings; what is not named stays
    Set(Named),
    /// Let nothing of it run and take nothing more in; what runs now may end
    Suspend {
        /// The tenant
        #[arg(value_name = "NAME")]
        id: TenantId,
    },
    /// Let it go on
    Resume {
        /// The tenant
        #[arg(value_name = "NAME")]
        id: TenantId,
    },
    /// Forget its settings and those of its lanes; only without live units
    Remove {
        /// The tenant
        #[arg(value_name = "NAME")]
        id: TenantId,
    },
}

/// A tenant and what is set for it.
#[derive(Debug, Args)]
#[command(after_help = "Without settings a tenant has weight 1 and no limits.

Examples:
  longshore tenant add acme --weight 3 --cap 20
  longshore tenant set acme --max-units 10000 --max-bytes 500MB
  longshore tenant set acme --cap none
  longshore tenant set acme --budget-usd 50 --budget-tokens 2M --warn-at 80%")]
pub struct Named {
    /// The tenant
    #[arg(value_name = "NAME")]
    pub id: TenantId,
    /// Its share against other tenants; a lane's share is its own weight times this
    #[arg(long, value_name = "N")]
    pub weight: Option<AtLeastOne>,
    /// Most units running (leased) at once, over all queues, or none
    #[arg(long, value_name = "N|none")]
    pub cap: Option<Limit<AtLeastOne>>,
    #[command(flatten)]
    pub bounds: Bounds,
    #[command(flatten)]
    pub budget: BudgetArgs,
}
