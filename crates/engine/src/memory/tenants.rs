//! Tenants: their records, and what their lanes add up to.

use async_trait::async_trait;
use longshore_core::store::{Tenant, TenantChange, Tenants, in_charge_of_tenants};
use longshore_core::{Counts, Error, Result, Scope, TenantId};

use super::MemoryStore;
use super::record::LaneKey;
use super::state::{Lane, State};

#[async_trait]
impl Tenants for MemoryStore {
    async fn put_tenant(
        &self,
        scope: &Scope,
        id: &TenantId,
        change: TenantChange,
    ) -> Result<Tenant> {
        in_charge_of_tenants(scope, id)?;
        change.check()?;
        Ok(self.write(|state, now| {
            let new = || Tenant::new(id.clone(), now);
            let tenant = state.tenants.entry(id.clone()).or_insert_with(new);
            let resumed = tenant.suspended && change.suspended == Some(false);
            tenant.apply(change);
            let tenant = tenant.clone();
            if resumed {
                state.lanes_of_mut(id).for_each(|lane| lane.rejoins = true);
            }
            state.tenant_steered(id);
            state.tally(&tenant)
        }))
    }

    async fn remove_tenant(&self, scope: &Scope, id: &TenantId) -> Result<()> {
        in_charge_of_tenants(scope, id)?;
        self.write(|state, _| {
            let found = state.tenants.get(id).ok_or_else(|| Error::not_found("tenant", id))?;
            let schedules = state.schedules.keys().filter(|(tenant, _)| tenant == id).count();
            state.tally(found).check_removable(schedules as u64)?;
            state.tenants.remove(id);
            state.lanes_of_mut(id).for_each(Lane::forget_settings);
            state.tenant_steered(id);
            Ok(())
        })
    }

    async fn tenants(&self, scope: &Scope) -> Result<Vec<Tenant>> {
        Ok(self.read(|state, _| {
            let seen = state.tenants.values().filter(|tenant| scope.covers(&tenant.id));
            seen.map(|tenant| state.tally(tenant)).collect()
        }))
    }
}

impl Lane {
    fn forget_settings(&mut self) {
        let Self { paused, weight, cap, capacity, .. } = Self::default();
        self.rejoins |= self.paused;
        (self.paused, self.weight, self.cap, self.capacity) = (paused, weight, cap, capacity);
    }
}

impl State {
    fn tenant_steered(&mut self, id: &TenantId) {
        self.touched.settings.insert(("tenant", id.clone()));
        self.touched.claimable = true;
    }

    /// A record with what its lanes add up to.
    fn tally(&self, tenant: &Tenant) -> Tenant {
        let (counts, bytes) = self.counted(&tenant.id);
        Tenant { counts, bytes, ..tenant.clone() }
    }

    /// A tenant's units and their live bytes, over all queues.
    pub(super) fn counted(&self, id: &TenantId) -> (Counts, u64) {
        let counts = self.lanes_of(id).map(|(_, lane)| lane.counts).sum();
        (counts, self.lanes_of(id).map(|(_, lane)| lane.bytes).sum())
    }

    fn lanes_of(&self, id: &TenantId) -> impl Iterator<Item = (&LaneKey, &Lane)> {
        self.lanes.iter().filter(move |(key, _)| key.1 == *id)
    }

    fn lanes_of_mut(&mut self, id: &TenantId) -> impl Iterator<Item = &mut Lane> {
        self.lanes.iter_mut().filter(move |(key, _)| key.1 == *id).map(|(_, lane)| lane)
    }

    pub(super) fn is_suspended(&self, id: &TenantId) -> bool {
        self.tenants.get(id).is_some_and(|tenant| tenant.suspended)
    }

    /// How many more units of this tenant may be leased; `None` if it has no cap.
    pub(super) fn tenant_room(&self, id: &TenantId) -> Option<u64> {
        let cap = self.tenants.get(id)?.cap?;
        Some(u64::from(cap).saturating_sub(self.counted(id).0.leased))
    }
}
