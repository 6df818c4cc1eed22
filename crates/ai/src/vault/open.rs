//! Opens keys: chooses the version and the source, and caches the result.

use std::time::Duration;

use longshore::accounts::{KeyRecord, KeyStatus};
use longshore::{KeyName, Scope, TenantId, Timestamp};
use secrecy::SecretString;

use super::envelope::{self, KeyVersion};
use super::error::VaultError;
use super::reference::KeyRef;
use super::{Vault, cache, external_secrets, label, left, not_found};

impl Vault {
    /// Opens a key. It is cached for a minute; [`Self::clear`] evicts it at once.
    pub async fn open(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        key: &KeyRef,
    ) -> Result<SecretString, VaultError> {
        if !scope.covers(tenant) {
            return Err(foreign_key_error(tenant, key));
        }
        let cache_key = (tenant.clone(), key.clone());
        if let Some(secret) = self.cache.find(&cache_key) {
            return Ok(secret);
        }
        let epoch = self.cache.epoch();
        let (secret, ttl) = match key {
            KeyRef::Vault { name, version } => self.open_stored(scope, tenant, name, *version).await?,
            KeyRef::Variable(name) => (self.variables.read(name)?, cache::CACHE_TTL),
            KeyRef::File(path) => (external_secrets::read_secret_file(path.clone()).await?, cache::CACHE_TTL),
        };
        self.cache.insert(epoch, cache_key, &secret, ttl);
        Ok(secret)
    }

    /// Opens a key of the store; also returns how long it may be used.
    async fn open_stored(
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
        let (record, ttl) = usable(wanted, self.clock.now())
            .ok_or_else(|| VaultError::Unusable(label(tenant, name, version)))?;
        let version = KeyVersion { tenant, name, version: record.key.version };
        let bytes = envelope::open(self.master_of(version, &record.key.master)?, version, &record.key)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| VaultError::Changed(version.label()))?;
        Ok((text.into(), ttl))
    }
}

/// The version to use: the newest active one, else the newest retiring one that has not expired.
fn usable<'a>(
    versions: impl Iterator<Item = &'a KeyRecord>,
    now: Timestamp,
) -> Option<(&'a KeyRecord, Duration)> {
    let usable = versions.filter_map(|record| Some((record, left(record, now)?)));
    usable.max_by_key(|(record, _)| (record.status == KeyStatus::Active, record.key.version))
}

/// The error for another tenant's key: the same as for a key that does not exist.
fn foreign_key_error(tenant: &TenantId, key: &KeyRef) -> VaultError {
    match key {
        KeyRef::Vault { name, .. } => not_found(tenant, name),
        KeyRef::Variable(_) | KeyRef::File(_) => VaultError::BadReference("is another tenant's"),
    }
}
