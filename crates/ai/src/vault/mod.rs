//! The key vault: secrets that are decrypted only while they are used.
//!
//! A secret is sealed with its own data key, which is wrapped by the master key ([`envelope`]). The
//! store holds both, encrypted. A key has versions: the newest is used, an older one can be used
//! until it retires.
//!
//! To change the master key, load the new one beside the old one in all processes, run
//! [`Vault::rewrap`] in one, then remove the old one.

mod cache;
mod envelope;
mod error;
mod external_secrets;
mod master;
mod open;
mod private_file;
mod reference;
mod rewrap;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use longshore::accounts::{KeyChange, KeyRecord, KeyStatus, Keys};
use longshore::store::Page;
use longshore::{Clock, KeyName, Scope, SystemClock, TenantId, Timestamp};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;

pub use error::{KeyLabel, VaultError};
pub use external_secrets::read_secret_file;
pub use master::{MasterKey, MasterSource};
pub use reference::KeyRef;
pub use rewrap::RewrapReport;

use cache::Cache;
use envelope::KeyVersion;
use external_secrets::Variables;

/// Seals and opens keys. Cheap to share; opened keys are cached for a minute.
pub struct Vault {
    keys: Arc<dyn Keys>,
    /// The first one seals; all of them open.
    masters: Vec<MasterKey>,
    clock: Arc<dyn Clock>,
    variables: Variables,
    cache: Cache,
}

/// A version of a key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyEntry {
    /// The owner.
    pub tenant: TenantId,
    /// Its name.
    pub name: KeyName,
    /// Its version.
    pub version: u32,
    /// The provider that it is for.
    pub provider: String,
    /// Whether it may be used.
    pub status: KeyStatus,
    /// When it was created.
    pub created_at: Timestamp,
    /// Until when a retiring version may be used.
    pub retires_at: Option<Timestamp>,
    /// The id of the master key that wrapped it.
    pub master: String,
}

impl Vault {
    /// A vault on a store. Without a master key, only variables and files can be opened.
    pub fn new(keys: Arc<dyn Keys>, master: Option<MasterKey>) -> Self {
        Self {
            keys,
            masters: master.into_iter().collect(),
            clock: Arc::new(SystemClock),
            variables: Variables::default(),
            cache: Cache::default(),
        }
    }

    /// Also opens keys that an older master key wrapped.
    #[must_use]
    pub fn with_older(mut self, master: MasterKey) -> Self {
        self.masters.push(master);
        self
    }

    /// Uses another clock than the system's.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Uses another lookup of environment variables than the process's own.
    #[must_use]
    pub fn with_variables(mut self, find: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        self.variables = Variables::new(find);
        self
    }

    /// Adds the first version of a key, or the next one if all earlier ones were revoked. Returns
    /// its version.
    pub async fn add(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &KeyName,
        provider: &str,
        secret: &SecretString,
    ) -> Result<u32, VaultError> {
        let versions = self.versions(scope, tenant, name).await?;
        let now = self.clock.now();
        if versions.iter().any(|version| left(version, now).is_some()) {
            return Err(VaultError::Exists(label(tenant, name, None)));
        }
        let version = KeyVersion { tenant, name, version: next(&versions) };
        self.put(scope, version, provider, secret, None).await
    }

    /// Adds a new version of a key, which is used from now on. The previous one may be used for
    /// `grace`, by processes that still have it. Returns the new version.
    pub async fn rotate(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &KeyName,
        secret: &SecretString,
        grace: Duration,
    ) -> Result<u32, VaultError> {
        let versions = self.versions(scope, tenant, name).await?;
        let newest = versions.first().ok_or_else(|| not_found(tenant, name))?;
        let retires_at = (!grace.is_zero()).then(|| self.clock.now() + grace);
        let version = KeyVersion { tenant, name, version: next(&versions) };
        self.put(scope, version, &newest.key.provider, secret, retires_at).await
    }

    /// Seals a version and stores it. Returns the version.
    async fn put(
        &self,
        scope: &Scope,
        version: KeyVersion<'_>,
        provider: &str,
        secret: &SecretString,
        retires_at: Option<Timestamp>,
    ) -> Result<u32, VaultError> {
        let secret = external_secrets::validate(secret.expose_secret())?;
        let key = envelope::seal(self.master()?, version, provider, secret.as_bytes())?;
        self.keys.change_key(scope, KeyChange::Add { key, retires_at }).await?;
        self.clear();
        Ok(version.version)
    }

    /// Revokes one version of a key, or all: they may not be used any more.
    pub async fn revoke(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &KeyName,
        version: Option<u32>,
    ) -> Result<(), VaultError> {
        let (tenant, name) = (tenant.clone(), name.clone());
        self.keys.change_key(scope, KeyChange::Revoke { tenant, name, version }).await?;
        self.clear();
        Ok(())
    }

    /// Lists keys by tenant, name and version, without their secrets.
    pub async fn list(
        &self,
        scope: &Scope,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<KeyEntry>, VaultError> {
        let page = self.keys.keys(scope, None, after, limit).await?;
        Ok(Page { items: page.items.iter().map(KeyEntry::of).collect(), next: page.next })
    }

    /// Evicts cached keys, after a notification that a key changed.
    pub fn clear(&self) {
        self.cache.clear();
    }

    /// All versions, newest first; empty if the key does not exist.
    async fn versions(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &KeyName,
    ) -> Result<Vec<KeyRecord>, VaultError> {
        match self.keys.versions(scope, tenant, name).await {
            Err(longshore::Error::NotFound { .. }) => Ok(Vec::new()),
            versions => Ok(versions?),
        }
    }

    /// The master key that seals.
    fn master(&self) -> Result<&MasterKey, VaultError> {
        self.masters.first().ok_or(VaultError::NoMaster)
    }

    /// The master key with this id.
    fn master_of(&self, version: KeyVersion<'_>, id: &str) -> Result<&MasterKey, VaultError> {
        self.master()?;
        let found = self.masters.iter().find(|master| master.id() == id);
        found.ok_or_else(|| VaultError::OtherMaster { key: version.label(), master: id.to_owned() })
    }
}

impl KeyEntry {
    fn of(record: &KeyRecord) -> Self {
        let key = &record.key;
        Self {
            tenant: key.tenant.clone(),
            name: key.name.clone(),
            version: key.version,
            provider: key.provider.clone(),
            status: record.status,
            created_at: record.created_at,
            retires_at: record.retires_at,
            master: key.master.clone(),
        }
    }
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vault").field("masters", &self.masters).finish_non_exhaustive()
    }
}

/// The number of the next version; the newest version is the first of `versions`.
fn next(versions: &[KeyRecord]) -> u32 {
    versions.first().map_or(1, |newest| newest.key.version.saturating_add(1))
}

/// How long a version may be used; `None` if it may not.
fn left(record: &KeyRecord, now: Timestamp) -> Option<Duration> {
    match record.status {
        KeyStatus::Active => Some(Duration::MAX),
        KeyStatus::Retiring => record.retires_at.map(|end| end.since(now)).filter(|left| !left.is_zero()),
        KeyStatus::Revoked => None,
    }
}

fn label(tenant: &TenantId, name: &KeyName, version: Option<u32>) -> KeyLabel {
    KeyLabel { tenant: tenant.clone(), name: name.clone(), version }
}

fn not_found(tenant: &TenantId, name: &KeyName) -> VaultError {
    VaultError::NotFound { tenant: tenant.clone(), name: name.clone() }
}
