//! Encrypted keys. The store never sees the plain text.

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::name::{KeyName, Scope, TenantId};
use crate::store::Page;
use crate::time::Timestamp;
use crate::{Error, Result};

/// Whether a version of a key may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyStatus {
    /// The version to use.
    Active,
    /// Replaced by a newer version; clients that hold it may use it until `retires_at`.
    Retiring,
    /// Must not be used.
    Revoked,
}

/// An encrypted key: the secret under a data key of its own, and the data key under the master key.
#[derive(Clone, PartialEq, Eq)]
pub struct NewKey {
    /// Its tenant.
    pub tenant: TenantId,
    /// Its name, unique within its tenant.
    pub name: KeyName,
    /// Its version: the newest plus one, 1 for the first.
    pub version: u32,
    /// The provider it is for, for people.
    pub provider: String,
    /// The secret, encrypted with the data key.
    pub sealed: Vec<u8>,
    /// The data key, encrypted with the master key.
    pub wrapped: Vec<u8>,
    /// The id of that master key.
    pub master: String,
}

impl NewKey {
    /// The error for a version that is not `next`.
    pub fn not_the_next(&self, next: u32) -> Error {
        let Self { name, version, .. } = self;
        Error::Invalid(format!("the next version of key `{name}` is {next}, not {version}"))
    }
}

/// A version of a key as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// The key.
    pub key: NewKey,
    /// Whether it may be used.
    pub status: KeyStatus,
    /// When it was added.
    pub created_at: Timestamp,
    /// Until when a retiring version may be used.
    pub retires_at: Option<Timestamp>,
}

impl fmt::Debug for NewKey {
    /// Omits the bytes: even encrypted they do not belong in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tenant, name, version, provider, master, .. } = self;
        write!(f, "NewKey({tenant}/{name} v{version}, {provider}, wrapped by {master})")
    }
}

/// Encrypted keys. Every operation sees only keys within `scope`.
#[async_trait]
pub trait Keys: Send + Sync + 'static {
    /// Adds a new version, which is active from now on. The version that was active retires at
    /// `retires_at`, or at once without. [`crate::Error::Invalid`] if the version is not the next.
    /// Announced as [`crate::store::Topic::Setting`] `key`.
    async fn add_key(
        &self,
        scope: &Scope,
        key: NewKey,
        retires_at: Option<Timestamp>,
    ) -> Result<()>;

    /// Revokes one version, or all versions of a key. Announced as [`crate::store::Topic::Setting`]
    /// `key`.
    async fn revoke_key(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &KeyName,
        version: Option<u32>,
    ) -> Result<()>;

    /// All versions of one key, newest first; empty if the key does not exist.
    async fn key(&self, scope: &Scope, tenant: &TenantId, name: &KeyName)
    -> Result<Vec<KeyRecord>>;

    /// Keys by tenant, name and version.
    async fn keys(&self, scope: &Scope, after: Option<&str>, limit: u32)
    -> Result<Page<KeyRecord>>;

    /// Replaces a data key that `from` had encrypted. False if another master key encrypts it: a
    /// concurrent call was faster. The secret stays as it is.
    async fn rewrap_key(&self, scope: &Scope, from: &str, key: NewKey) -> Result<bool>;
}
