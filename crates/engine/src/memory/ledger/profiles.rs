//! Profiles by tenant and name.

use std::ops::Bound;

use async_trait::async_trait;
use longshore_accounts::{ProfileChange, ProfileRecord, Profiles, page_cursor};
use longshore_core::store::Page;
use longshore_core::{Error, ProfileName, Result, Scope};

use crate::memory::MemoryStore;

#[async_trait]
impl Profiles for MemoryStore {
    async fn change_profile(&self, scope: &Scope, change: ProfileChange) -> Result<ProfileRecord> {
        self.write(|state, now| {
            let profiles = &mut state.ledger.profiles;
            let changed = match change {
                ProfileChange::Put(put) => {
                    if !scope.covers(&put.tenant) {
                        return Err(Error::not_found("tenant", &put.tenant));
                    }
                    let key = (put.tenant.clone(), put.name.clone());
                    let written = put.apply(profiles.get(&key).cloned(), now)?;
                    profiles.insert(key, written.clone());
                    written
                }
                ProfileChange::Remove(tenant, name) => {
                    let key = (tenant, name);
                    let found = if scope.covers(&key.0) { profiles.remove(&key) } else { None };
                    found.ok_or_else(|| Error::not_found("profile", &key.1))?
                }
            };
            state.dirty.settings.insert(("profile", changed.tenant.clone()));
            Ok(changed)
        })
    }

    async fn profiles(
        &self,
        scope: &Scope,
        name: Option<ProfileName>,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<ProfileRecord>> {
        let start = after.map(page_cursor::profile).transpose()?;
        let start = start.map_or(Bound::Unbounded, Bound::Excluded);
        Ok(self.read(|state, _| {
            let rest = state.ledger.profiles.range((start, Bound::Unbounded));
            let visible = rest.map(|(_, record)| record).filter(|record| {
                scope.covers(&record.tenant) && name.as_ref().is_none_or(|one| *one == record.name)
            });
            Page::first(visible.cloned(), limit, page_cursor::after_profile)
        }))
    }
}
