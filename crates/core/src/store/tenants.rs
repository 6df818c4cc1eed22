//! Tenants: settings that apply to all lanes of a customer, over all queues.
//!
//! A tenant needs no record: without one it has weight 1, no cap or capacity, and no kind that needs
//! the operator's rights. A record changes its weight, limits it, suspends it, or opens such kinds.

use std::collections::BTreeSet;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::counts::Counts;
use crate::name::{Kind, Scope, TenantId};
use crate::store::Capacity;
use crate::time::Timestamp;
use crate::{Error, Result};

/// A tenant's record, and the counters of its units.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tenant {
    /// Its name.
    #[serde(rename = "tenant")]
    pub id: TenantId,
    /// Its weight relative to other tenants. A lane's effective weight is its own times this.
    pub weight: u32,
    /// How many of its units may be leased at once, over all queues; `None` is unbounded.
    pub cap: Option<u32>,
    /// How much it may have live at once, over all queues.
    pub capacity: Capacity,
    /// Whether claims skip its lanes and its sends are rejected.
    pub suspended: bool,
    /// The kinds that need the operator's rights ([`Kind::needs_operator`]) and that its tokens may
    /// send all the same.
    #[serde(default)]
    pub allowed_kinds: BTreeSet<Kind>,
    /// When its record was created.
    pub created_at: Timestamp,
    /// Its units by state, over all queues.
    pub counts: Counts,
    /// Stored bytes of its live units.
    pub bytes: u64,
}

/// A change of a tenant's record; `None` leaves a setting unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TenantChange {
    /// Its weight relative to other tenants; at least 1.
    pub weight: Option<u32>,
    /// How many of its units may be leased at once, at least 1; `Some(None)` removes the cap.
    pub cap: Option<Option<u32>>,
    /// Its capacity.
    pub capacity: Option<Capacity>,
    /// Whether it is suspended.
    pub suspended: Option<bool>,
    /// All kinds that are opened to it, in place of the previous ones.
    pub allowed_kinds: Option<BTreeSet<Kind>>,
}

impl Tenant {
    /// A tenant without a record.
    pub fn new(id: TenantId, created_at: Timestamp) -> Self {
        Self {
            id,
            weight: 1,
            cap: None,
            capacity: Capacity::default(),
            suspended: false,
            allowed_kinds: BTreeSet::new(),
            created_at,
            counts: Counts::default(),
            bytes: 0,
        }
    }

    /// Rejects its removal while it has live units or schedules.
    pub fn check_removable(&self, schedules: u64) -> Result<()> {
        let id = &self.id;
        match (self.counts.live(), schedules) {
            (0, 0) => Ok(()),
            (0, n) => {
                let words = format!("tenant `{id}` has {n} schedule(s): remove them first");
                Err(Error::Invalid(words))
            }
            (n, _) => Err(Error::Invalid(format!("tenant `{id}` has {n} live units: cancel them first"))),
        }
    }

    /// Applies `change`. Check it first.
    pub fn apply(&mut self, change: &TenantChange) {
        self.weight = change.weight.unwrap_or(self.weight);
        self.cap = change.cap.unwrap_or(self.cap);
        self.capacity = change.capacity.unwrap_or(self.capacity);
        self.suspended = change.suspended.unwrap_or(self.suspended);
        if let Some(kinds) = &change.allowed_kinds {
            self.allowed_kinds.clone_from(kinds);
        }
    }
}

impl TenantChange {
    /// Rejects a weight or cap of 0 (to let nothing run, suspend the tenant), and kinds that are open
    /// to every tenant.
    pub fn check(&self) -> Result<()> {
        if self.weight == Some(0) {
            return Err(Error::Invalid("a tenant's weight must be at least 1".to_owned()));
        }
        if self.cap == Some(Some(0)) {
            let words = "a tenant's cap must be at least 1: to let nothing run, suspend the tenant";
            return Err(Error::Invalid(words.to_owned()));
        }
        match self.allowed_kinds.iter().flatten().find(|kind| !kind.needs_operator()) {
            Some(open) => Err(Error::Invalid(format!("kind `{open}` is open to every tenant"))),
            None => Ok(()),
        }
    }
}

/// Requires a scope over all tenants. For other scopes the tenant does not exist.
pub fn require_admin_scope(scope: &Scope, id: &TenantId) -> Result<()> {
    match scope {
        Scope::All => Ok(()),
        Scope::Tenant(_) => Err(Error::not_found("tenant", id)),
    }
}

/// Administration of tenants.
#[async_trait]
pub trait Tenants: Send + Sync + 'static {
    /// Changes a tenant's record, or creates it. Needs [`Scope::All`]. Announced as
    /// [`super::Topic::Setting`] `tenant`; workers and waiting senders check again.
    ///
    /// The sends of a suspended tenant are rejected ([`super::SendRejection::Suspended`]), claims skip
    /// its lanes, and workers release its units that were claimed ahead. Running units may finish;
    /// callbacks, retries and operators are not affected.
    async fn put_tenant(&self, scope: &Scope, id: &TenantId, change: TenantChange) -> Result<Tenant>;

    /// Removes a tenant's record, resets its lanes to weight 1, no cap, no capacity, not paused, revokes its
    /// tokens and deletes its profiles, keys and budget; not the accounts of the default tenant.
    /// Needs [`Scope::All`]; [`Error::Invalid`] while it has live units or schedules.
    async fn remove_tenant(&self, scope: &Scope, id: &TenantId) -> Result<()>;

    /// The tenants that have a record, by name. A tenant sees only itself.
    async fn tenants(&self, scope: &Scope) -> Result<Vec<Tenant>>;
}
