//! Opening keys: which version, from where, and for how long it is kept open.

use std::time::Duration;

use longshore::ledger::{KeyRecord, KeyStatus};
use longshore::{KeyName, Scope, TenantId, Timestamp};
use secrecy::SecretString;

use super::error::VaultError;
use super::reference::KeyRef;
use super::seal::{self, Place};
use super::{Vault, cache, label, left, not_found, outside};

impl Vault {
    /// A key, open. Kept for a minute; [`Self::clear`] forgets it at once.
    pub async fn open(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        key: &KeyRef,
    ) -> Result<SecretString, VaultError> {
        if !scope.covers(tenant) {
            return Err(foreign(tenant, key));
        }
        let place = (tenant.clone(), key.clone());
        if let Some(secret) = self.cache.find(&place) {
            return Ok(secret);
        }
        let epoch = self.cache.epoch();
        let (secret, most) = match key {
            KeyRef::Vault { name, version } => {
                self.open_kept(scope, tenant, name, *version).await?
            }
            KeyRef::Variable(name) => (self.variables.read(name)?, cache::KEEP),
            KeyRef::File(path) => (outside::read_secret_file(path.clone()).await?, cache::KEEP),
        };
        self.cache.keep(epoch, place, &secret, most);
        Ok(secret)
    }

    /// A key of the store, and how long it may be used.
    async fn open_kept(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &KeyName,
        version: Option<u32>,
    ) -> Result<(SecretString, Duration), VaultError> {
        let versions = self.versions(scope, tenant, name).await?;
        if versions.is_empty() {
            return Err(not_found(tenant, name));
        }
        let wanted = versions.iter().filter(|v| version.is_none_or(|only| only == v.key.version));
        let (record, most) = usable(wanted, self.clock.now())
            .ok_or_else(|| VaultError::Unusable(label(tenant, name, version)))?;
        let place = Place { tenant, name, version: record.key.version };
        let bytes = seal::open(self.master_of(place, &record.key.master)?, place, &record.key)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| VaultError::Changed(place.label()))?;
        Ok((text.into(), most))
    }
}

/// The version to use: the newest that is active, else the newest whose time is not over.
fn usable<'a>(
    versions: impl Iterator<Item = &'a KeyRecord>,
    now: Timestamp,
) -> Option<(&'a KeyRecord, Duration)> {
    let usable = versions.filter_map(|record| Some((record, left(record, now)?)));
    usable.max_by_key(|(record, _)| (record.status == KeyStatus::Active, record.key.version))
}

/// What a tenant is told of another's key: no more than of one that does not exist.
fn foreign(tenant: &TenantId, key: &KeyRef) -> VaultError {
    match key {
        KeyRef::Vault { name, .. } => not_found(tenant, name),
        KeyRef::Variable(_) | KeyRef::File(_) => VaultError::BadReference("is another tenant's"),
    }
}
