//! Tenants: what all lanes of one customer share, whichever queues they are in.
//!
//! A tenant needs no record: without one it has weight 1, no bounds, and works. A record is made to
//! give it another share, to bound it, or to suspend it.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::counts::Counts;
use crate::name::{Scope, TenantId};
use crate::store::Capacity;
use crate::time::Timestamp;
use crate::{Error, Result};

/// A tenant's record, and what it has in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// Its name.
    #[serde(rename = "tenant")]
    pub id: TenantId,
    /// Its share against other tenants. A lane's share is its own weight times this.
    pub weight: u32,
    /// How many of its units may be leased at once, over all queues; `None` is unbounded.
    pub cap: Option<u32>,
    /// How much it may have live at once, over all queues.
    pub capacity: Capacity,
    /// Claims pass its lanes by, and its sends are refused.
    pub suspended: bool,
    /// When its record was made.
    pub created_at: Timestamp,
    /// Its units by state, over all queues.
    pub counts: Counts,
    /// Bytes of payload of its live units.
    pub bytes: u64,
}

/// A change of a tenant's record; `None` leaves a setting as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TenantChange {
    /// Its share against other tenants; at least 1.
    pub weight: Option<u32>,
    /// How many of its units may be leased at once, at least 1; `Some(None)` lifts the cap.
    pub cap: Option<Option<u32>>,
    /// Its bound.
    pub capacity: Option<Capacity>,
    /// Whether it is suspended.
    pub suspended: Option<bool>,
}

impl Tenant {
    /// A tenant as it works without a record.
    pub fn new(id: TenantId, created_at: Timestamp) -> Self {
        Self {
            id,
            weight: 1,
            cap: None,
            capacity: Capacity::default(),
            suspended: false,
            created_at,
            counts: Counts::default(),
            bytes: 0,
        }
    }

    /// Says no to its removal while something of it is left that would run.
    pub fn check_removable(&self, schedules: u64) -> Result<()> {
        let id = &self.id;
        match (self.counts.live(), schedules) {
            (0, 0) => Ok(()),
            (0, n) => {
                let words = format!("tenant `{id}` has {n} schedule(s): remove them first");
                Err(Error::Invalid(words))
            }
            (n, _) => {
                Err(Error::Invalid(format!("tenant `{id}` has {n} live units: cancel them first")))
            }
        }
    }

    /// Sets what `change` names. Check it first.
    pub fn apply(&mut self, change: TenantChange) {
        self.weight = change.weight.unwrap_or(self.weight);
        self.cap = change.cap.unwrap_or(self.cap);
        self.capacity = change.capacity.unwrap_or(self.capacity);
        self.suspended = change.suspended.unwrap_or(self.suspended);
    }
}

impl TenantChange {
    /// Refuses what could never work: to let nothing run for ever is what suspending is for.
    pub fn check(&self) -> Result<()> {
        if self.weight == Some(0) {
            return Err(Error::Invalid("a tenant's weight is at least 1".to_owned()));
        }
        if self.cap == Some(Some(0)) {
            let words = "a tenant's cap is at least 1: suspend it to let nothing run";
            return Err(Error::Invalid(words.to_owned()));
        }
        Ok(())
    }
}

/// Says no to whoever is not in charge of all tenants: for others this tenant does not exist.
pub fn in_charge_of_tenants(scope: &Scope, id: &TenantId) -> Result<()> {
    match scope {
        Scope::All => Ok(()),
        Scope::Tenant(_) => Err(Error::not_found("tenant", id)),
    }
}

/// Steering tenants.
#[async_trait]
pub trait Tenants: Send + Sync + 'static {
    /// Changes a tenant's record, which is made if there is none. Needs [`Scope::All`]. Announced as
    /// [`super::Topic::Setting`] `tenant`; workers and waiting senders look again.
    ///
    /// A suspended tenant's sends are refused ([`super::Refusal::Suspended`]), its lanes are passed
    /// by, and what was claimed ahead of it is unwanted; what runs may end, and callbacks, retries
    /// and operators are not hindered.
    async fn put_tenant(
        &self,
        scope: &Scope,
        id: &TenantId,
        change: TenantChange,
    ) -> Result<Tenant>;

    /// Removes a tenant's record and sets its lanes back to weight 1, no cap, no bound, not paused.
    /// Needs [`Scope::All`]; [`Error::Invalid`] while it has live units or schedules.
    async fn remove_tenant(&self, scope: &Scope, id: &TenantId) -> Result<()>;

    /// The tenants that have a record, by name. A tenant sees its own only.
    async fn tenants(&self, scope: &Scope) -> Result<Vec<Tenant>>;
}
