//! Tenants: their records and the sums over their lanes.

use async_trait::async_trait;
use longshore_core::store::{Tenant, TenantChange, Tenants, require_admin_scope};
use longshore_core::{Counts, Error, Result, Scope, TenantId};

use super::MemoryStore;
use super::record::LaneKey;
use super::state::{LaneState, State};

#[async_trait]
impl Tenants for MemoryStore {
    async fn put_tenant(&self, scope: &Scope, id: &TenantId, change: TenantChange) -> Result<Tenant> {
        require_admin_scope(scope, id)?;
        change.check()?;
        Ok(self.write(|state, now| {
            let new = || Tenant::new(id.clone(), now);
            let tenant = state.tenants.entry(id.clone()).or_insert_with(new);
            tenant.apply(&change);
            let tenant = tenant.clone();
            state.mark_tenant_changed(id);
            state.with_counts(&tenant)
        }))
    }

    async fn remove_tenant(&self, scope: &Scope, id: &TenantId) -> Result<()> {
        require_admin_scope(scope, id)?;
        self.write(|state, now| {
            let found = state.tenants.get(id).ok_or_else(|| Error::not_found("tenant", id))?;
            let schedules = state.schedules.keys().filter(|(tenant, _)| tenant == id).count();
            state.with_counts(found).check_removable(schedules as u64)?;
            state.tenants.remove(id);
            state.lanes_of_mut(id).for_each(LaneState::reset_settings);
            if *id != TenantId::default() {
                state.ledger.remove_tenant(id, now);
            }
            state.mark_tenant_changed(id);
            Ok(())
        })
    }

    async fn tenants(&self, scope: &Scope) -> Result<Vec<Tenant>> {
        Ok(self.read(|state, _| {
            let visible = state.tenants.values().filter(|tenant| scope.covers(&tenant.id));
            visible.map(|tenant| state.with_counts(tenant)).collect()
        }))
    }
}

impl LaneState {
    fn reset_settings(&mut self) {
        let Self { paused, weight, cap, capacity, .. } = Self::default();
        (self.paused, self.weight, self.cap, self.capacity) = (paused, weight, cap, capacity);
    }
}

impl State {
    fn mark_tenant_changed(&mut self, id: &TenantId) {
        self.dirty.settings.insert(("tenant", id.clone()));
        self.dirty.claimable = true;
    }

    /// The record with the sums over its lanes.
    fn with_counts(&self, tenant: &Tenant) -> Tenant {
        let (counts, bytes) = self.tenant_counts(&tenant.id);
        Tenant { counts, bytes, ..tenant.clone() }
    }

    /// A tenant's unit counts and live bytes, over all queues.
    pub(super) fn tenant_counts(&self, id: &TenantId) -> (Counts, u64) {
        let counts = self.lanes_of(id).map(|(_, lane)| lane.counts).sum();
        (counts, self.lanes_of(id).map(|(_, lane)| lane.bytes).sum())
    }

    pub(super) fn lanes_of(&self, id: &TenantId) -> impl Iterator<Item = (&LaneKey, &LaneState)> {
        self.lanes.iter().filter(move |(key, _)| key.1 == *id)
    }

    fn lanes_of_mut(&mut self, id: &TenantId) -> impl Iterator<Item = &mut LaneState> {
        self.lanes.iter_mut().filter(move |(key, _)| key.1 == *id).map(|(_, lane)| lane)
    }

    pub(super) fn is_suspended(&self, id: &TenantId) -> bool {
        self.tenants.get(id).is_some_and(|tenant| tenant.suspended)
    }

    /// How many more units of this tenant may be leased; `None` without a cap.
    pub(super) fn tenant_room(&self, id: &TenantId) -> Option<u64> {
        let cap = self.tenants.get(id)?.cap?;
        Some(u64::from(cap).saturating_sub(self.tenant_counts(id).0.leased))
    }
}
