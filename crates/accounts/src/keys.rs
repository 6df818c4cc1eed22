//! Encrypted keys. The store never sees the plain text.

use std::fmt;

use async_trait::async_trait;
use longshore_core::store::Page;
use longshore_core::{Error, KeyName, Result, Scope, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

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
    pub fn version_conflict(&self, next: u32) -> Error {
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

/// A change of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyChange {
    /// Adds a new version, which is active from now on. [`Error::Invalid`] if the version is not
    /// the next.
    Add {
        /// The version.
        key: NewKey,
        /// When the version that was active retires; at once without.
        retires_at: Option<Timestamp>,
    },
    /// Revokes versions.
    Revoke {
        /// The key's tenant.
        tenant: TenantId,
        /// The key.
        name: KeyName,
        /// The version; all without.
        version: Option<u32>,
    },
    /// Replaces the data key of a version. The secret stays as it is.
    Rewrap {
        /// The master key that encrypts the data key now.
        from: String,
        /// The version, with its new data key.
        key: NewKey,
    },
}

/// Encrypted keys. Every operation sees only keys within `scope`.
#[async_trait]
pub trait Keys: Send + Sync + 'static {
    /// Adds, revokes or rewraps a key. Announced as [`longshore_core::store::Topic::Setting`]
    /// `key`. False if a key to rewrap is encrypted by another master key: a concurrent call was
    /// faster.
    async fn change_key(&self, scope: &Scope, change: KeyChange) -> Result<bool>;

    /// Keys by tenant, name and version: all, or the ones with this name.
    async fn keys(
        &self,
        scope: &Scope,
        name: Option<KeyName>,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<KeyRecord>>;
}
