//! Arguments of `longshore tenant …`.

use std::str::FromStr;

use clap::{Args, Subcommand};
use longshore::{Kind, TenantId};

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
  longshore tenant set acme --allow-kind exec --allow-kind script
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
    /// Kind with the operator's rights (exec, script, batch.*, mail.*) that the tenant's tokens may
    /// send (may be repeated); the list replaces the previous one, none empties it
    #[arg(long, value_name = "KIND|none")]
    pub allow_kind: Vec<KindArg>,
    #[command(flatten)]
    pub bounds: CapacityArgs,
    #[command(flatten)]
    pub budget: BudgetArgs,
}

/// A kind, or `none`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindArg(pub Option<Kind>);

impl FromStr for KindArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self(None)),
            _ => Kind::new(text).map(|kind| Self(Some(kind))).map_err(|error| error.to_string()),
        }
    }
}
