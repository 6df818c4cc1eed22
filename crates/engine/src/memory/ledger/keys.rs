//! Encrypted keys by tenant, name and version.

use std::ops::Bound;

use async_trait::async_trait;
use longshore_accounts::{KeyChange, KeyRecord, KeyStatus, Keys, NewKey, page_cursor};
use longshore_core::store::Page;
use longshore_core::{Error, KeyName, Result, Scope, TenantId, Timestamp};

use super::LedgerState;
use crate::memory::MemoryStore;

#[async_trait]
impl Keys for MemoryStore {
    async fn change_key(&self, scope: &Scope, change: KeyChange) -> Result<bool> {
        self.write(|state, now| {
            let (tenant, changed) = match change {
                KeyChange::Add { key, retires_at } => {
                    if !scope.covers(&key.tenant) {
                        return Err(Error::not_found("tenant", &key.tenant));
                    }
                    let tenant = key.tenant.clone();
                    state.ledger.add_key(key, retires_at.unwrap_or(now), now)?;
                    (tenant, true)
                }
                KeyChange::Revoke { tenant, name, version } => {
                    state.ledger.revoke_key(scope, &tenant, &name, version)?;
                    (tenant, true)
                }
                KeyChange::Rewrap { from, key } => {
                    (key.tenant.clone(), state.ledger.rewrap_key(scope, &from, key)?)
                }
            };
            if changed {
                state.dirty.settings.insert(("key", tenant));
            }
            Ok(changed)
        })
    }

    async fn keys(
        &self,
        scope: &Scope,
        name: Option<KeyName>,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<KeyRecord>> {
        let start = after.map(page_cursor::key).transpose()?;
        let start = start.map_or(Bound::Unbounded, Bound::Excluded);
        Ok(self.read(|state, _| {
            let rest = state.ledger.keys.range((start, Bound::Unbounded));
            let visible = rest.map(|(_, record)| record).filter(|KeyRecord { key, .. }| {
                scope.covers(&key.tenant) && name.as_ref().is_none_or(|one| *one == key.name)
            });
            Page::first(visible.cloned(), limit, page_cursor::after_key)
        }))
    }
}

impl LedgerState {
    fn revoke_key(
        &mut self,
        scope: &Scope,
        tenant: &TenantId,
        name: &KeyName,
        version: Option<u32>,
    ) -> Result<()> {
        let mut found = false;
        for record in self.versions_mut(tenant, name) {
            if scope.covers(tenant) && version.is_none_or(|one| one == record.key.version) {
                (record.status, record.retires_at, found) = (KeyStatus::Revoked, None, true);
            }
        }
        found.then_some(()).ok_or_else(|| Error::not_found("key", name))
    }

    fn rewrap_key(&mut self, scope: &Scope, from: &str, key: NewKey) -> Result<bool> {
        let id = (key.tenant.clone(), key.name.clone(), key.version);
        let found = self.keys.get_mut(&id).filter(|_| scope.covers(&key.tenant));
        let found = found.ok_or_else(|| Error::not_found("key", &key.name))?;
        let holds = found.key.master == from;
        if holds {
            (found.key.wrapped, found.key.master) = (key.wrapped, key.master);
        }
        Ok(holds)
    }

    fn versions_mut(&mut self, tenant: &TenantId, name: &KeyName) -> impl Iterator<Item = &mut KeyRecord> {
        let bounds = (tenant.clone(), name.clone(), 0)..=(tenant.clone(), name.clone(), u32::MAX);
        self.keys.range_mut(bounds).map(|(_, record)| record)
    }

    fn add_key(&mut self, key: NewKey, retires_at: Timestamp, now: Timestamp) -> Result<()> {
        let newest = self.versions_mut(&key.tenant, &key.name).map(|record| record.key.version).max();
        let next = newest.unwrap_or(0) + 1;
        if key.version != next {
            return Err(key.version_conflict(next));
        }
        for record in self.versions_mut(&key.tenant, &key.name) {
            if record.status == KeyStatus::Active {
                (record.status, record.retires_at) = (KeyStatus::Retiring, Some(retires_at));
            }
        }
        let id = (key.tenant.clone(), key.name.clone(), key.version);
        let status = KeyStatus::Active;
        self.keys.insert(id, KeyRecord { key, status, created_at: now, retires_at: None });
        Ok(())
    }
}
