//! Profiles by tenant and name.

use std::ops::Bound;

use async_trait::async_trait;
use longshore_core::ledger::{ProfileRecord, Profiles, PutProfile, cursor};
use longshore_core::store::Page;
use longshore_core::{Error, ProfileName, Result, Scope, TenantId};

use crate::memory::MemoryStore;

#[async_trait]
impl Profiles for MemoryStore {
    async fn put_profile(&self, scope: &Scope, put: PutProfile) -> Result<ProfileRecord> {
        if !scope.covers(&put.tenant) {
            return Err(Error::not_found("tenant", &put.tenant));
        }
        self.write(|state, now| {
            let key = (put.tenant.clone(), put.name.clone());
            let written = put.apply(state.ledger.profiles.get(&key).cloned(), now)?;
            state.dirty.settings.insert(("profile", key.0.clone()));
            state.ledger.profiles.insert(key, written.clone());
            Ok(written)
        })
    }

    async fn remove_profile(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &ProfileName,
    ) -> Result<()> {
        self.profile(scope, tenant, name).await?;
        self.write(|state, _| {
            state.ledger.profiles.remove(&(tenant.clone(), name.clone()));
            state.dirty.settings.insert(("profile", tenant.clone()));
        });
        Ok(())
    }

    async fn profile(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &ProfileName,
    ) -> Result<ProfileRecord> {
        self.read(|state, _| {
            let found = state.ledger.profiles.get(&(tenant.clone(), name.clone()));
            let found = found.filter(|_| scope.covers(tenant)).cloned();
            found.ok_or_else(|| Error::not_found("profile", name))
        })
    }

    async fn profiles(
        &self,
        scope: &Scope,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<ProfileRecord>> {
        let start = after.map(cursor::profile).transpose()?;
        let start = start.map_or(Bound::Unbounded, Bound::Excluded);
        Ok(self.read(|state, _| {
            let rest = state.ledger.profiles.range((start, Bound::Unbounded));
            let visible =
                rest.map(|(_, record)| record).filter(|record| scope.covers(&record.tenant));
            Page::first(visible.cloned(), limit, cursor::after_profile)
        }))
    }

    async fn is_suspended(&self, scope: &Scope, tenant: &TenantId) -> Result<bool> {
        if !scope.covers(tenant) {
            return Err(Error::not_found("tenant", tenant));
        }
        Ok(self.read(|state, _| state.is_suspended(tenant)))
    }
}
