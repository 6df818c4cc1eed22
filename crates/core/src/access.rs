//! What a scope may send to and change, and which kinds are open to tenants: one decision for all
//! stores, servers and workers.
//!
//! Objects of other tenants do not exist for a scope, so each refusal is [`Error::NotFound`].

use serde::{Deserialize, Serialize};

use crate::name::{Kind, QueueName, Scope, TenantId};
use crate::store::LaneChange;
use crate::unit::{MAX_SEND_DEPENDENCIES, NewUnit, check_count};
use crate::{Error, Result};

/// The rights that a unit was sent with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Rights {
    /// The operator's: by a client of the store itself, or with an admin token.
    #[default]
    Operator,
    /// A tenant's: with a token below admin.
    Tenant,
}

impl Rights {
    /// Whether these are the operator's rights.
    pub fn is_operator(&self) -> bool {
        *self == Self::Operator
    }
}

impl Kind {
    /// Whether units of this kind act with the operator's rights: they run commands, or read files
    /// and databases, as the worker's user. Such a kind is closed to tenants, unless the operator
    /// opened it to one ([`crate::store::Tenant::allowed_kinds`]).
    pub fn needs_operator(&self) -> bool {
        let kind = self.as_str();
        matches!(kind, "exec" | "script") || kind.starts_with("batch.") || kind.starts_with("mail.")
    }
}

impl Scope {
    /// Requires that the scope includes a tenant.
    pub fn require(&self, tenant: &TenantId) -> Result<()> {
        if self.covers(tenant) { Ok(()) } else { Err(Error::not_found("tenant", tenant)) }
    }

    /// Requires that units are valid and that the scope may send them.
    pub fn check_units(&self, units: &[NewUnit]) -> Result<()> {
        let dependencies = units.iter().map(|unit| unit.dependencies.units.len()).sum();
        check_count("the units of one request", dependencies, MAX_SEND_DEPENDENCIES)?;
        units.iter().try_for_each(|unit| {
            unit.check()?;
            self.require(&unit.tenant)
        })
    }

    /// Requires that the scope may change a queue: a tenant may change its own queues; a shared
    /// queue needs the scope of all tenants. Returns the tenant with the queue's first lane, which
    /// is created with the queue so that it is listed before its first unit.
    pub fn check_queue_change(&self, queue: &QueueName) -> Result<TenantId> {
        let owner = queue.owner().map(TenantId::new).transpose();
        let owner = owner.map_err(|error| Error::Invalid(error.to_string()))?;
        if self.tenant().is_some_and(|own| owner.as_ref() != Some(own)) {
            return Err(Error::not_found("queue", queue));
        }
        Ok(owner.unwrap_or_default())
    }

    /// Requires that the scope may change a tenant's lane. In a shared queue a tenant may pause its
    /// own lane, but not set its own weight, cap or capacity.
    pub fn check_lane_change(&self, queue: &QueueName, tenant: &TenantId, change: &LaneChange) -> Result<()> {
        let only_pauses = LaneChange { paused: change.paused, ..LaneChange::default() } == *change;
        let may_set = *self == Self::All || queue.owner().is_some() || only_pauses;
        if !self.covers(tenant) || !queue.admits(tenant) || !may_set {
            return Err(Error::not_found("queue", queue));
        }
        if change.weight == Some(0) {
            return Err(Error::Invalid("a lane's weight must be at least 1".to_owned()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_act_for_the_operator_are_told_from_all_others() {
        let needs_operator = |name: &str| Kind::new(name).unwrap().needs_operator();
        for name in ["exec", "script", "batch.start", "batch.row", "batch.end", "mail.send"] {
            assert!(needs_operator(name), "{name}");
        }
        for name in ["http", "ai", "ai-reply", "resize", "exec.mine", "batch", "mailing", "my.batch.start"] {
            assert!(!needs_operator(name), "{name}");
        }
    }

    #[test]
    fn a_tenant_changes_its_own_queues_and_pauses_its_own_lanes() {
        let queue = |name: &str| QueueName::new(name).unwrap();
        let tenant = |name: &str| TenantId::new(name).unwrap();
        let acme = Scope::Tenant(tenant("acme"));
        assert_eq!(acme.check_queue_change(&queue("acme/mail")).unwrap(), tenant("acme"));
        assert!(acme.check_queue_change(&queue("other/mail")).is_err());
        assert!(acme.check_queue_change(&queue("shared")).is_err());
        assert_eq!(Scope::All.check_queue_change(&queue("shared")).unwrap(), TenantId::default());
        let pause = LaneChange { paused: Some(true), ..LaneChange::default() };
        let weigh = |weight| LaneChange { weight: Some(weight), ..pause };
        for (scope, name, whose, change, allowed) in [
            (&acme, "shared", "acme", pause, true),
            (&acme, "shared", "acme", weigh(2), false),
            (&acme, "shared", "other", pause, false),
            (&acme, "acme/mail", "acme", weigh(2), true),
            (&acme, "acme/mail", "acme", weigh(0), false),
            (&Scope::All, "shared", "acme", weigh(2), true),
            (&Scope::All, "other/mail", "acme", pause, false),
        ] {
            let answer = scope.check_lane_change(&queue(name), &tenant(whose), &change);
            assert_eq!(answer.is_ok(), allowed, "{scope:?} {name} {whose} {change:?}");
        }
    }
}
