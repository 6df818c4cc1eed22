//! What a scope may send to and change: one decision for all stores.
//!
//! Objects of other tenants do not exist for a scope, so each refusal is [`Error::NotFound`].

use crate::name::{QueueName, Scope, TenantId};
use crate::store::LaneChange;
use crate::unit::NewUnit;
use crate::{Error, Result};

impl Scope {
    /// Requires that the scope includes a tenant.
    pub fn require(&self, tenant: &TenantId) -> Result<()> {
        if self.covers(tenant) { Ok(()) } else { Err(Error::not_found("tenant", tenant)) }
    }

    /// Requires that units are valid and that the scope may send them.
    pub fn check_units(&self, units: &[NewUnit]) -> Result<()> {
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
