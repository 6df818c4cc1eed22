//! Sealed keys. The store never sees one open.

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
    /// It is the one to use.
    Active,
    /// A newer one has taken its place; until `retires_at` whoever still holds it may use it.
    Retiring,
    /// It may not be used.
    Revoked,
}

/// A key, sealed: a secret under a data key of its own, and that under the master key.
#[derive(Clone, PartialEq, Eq)]
pub struct NewKey {
    /// Whose it is.
    pub tenant: TenantId,
    /// Its name, unique within its tenant.
    pub name: KeyName,
    /// Its version: one more than the newest, 1 for the first.
    pub version: u32,
    /// What it opens, for people.
    pub provider: String,
    /// The secret, sealed with the data key.
    pub sealed: Vec<u8>,
    /// The data key, wrapped by the master key.
    pub wrapped: Vec<u8>,
    /// Which master key that is.
    pub master: String,
}

impl NewKey {
    /// Why a version that is not `next` is refused.
    pub fn not_the_next(&self, next: u32) -> Error {
        let Self { name, version, .. } = self;
        Error::Invalid(format!("the next version of key `{name}` is {next}, not {version}"))
    }
}

/// A version of a key as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// The key.
    pub key: NewKey,
    /// Whether it may be used.
    pub status: KeyStatus,
    /// When it was made.
    pub created_at: Timestamp,
    /// Until when a retiring one may be used.
    pub retires_at: Option<Timestamp>,
}

impl fmt::Debug for NewKey {
    /// Without its bytes: sealed or not, they are nobody's business.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tenant, name, version, provider, master, .. } = self;
        write!(f, "NewKey({tenant}/{name} v{version}, {provider}, wrapped by {master})")
    }
}

/// Sealed keys. All verbs see only what is within `scope`; the rest does not exist.
#[async_trait]
pub trait Keys: Send + Sync + 'static {
    /// Keeps a new version, which is active from now on; an active one before it retires at
    /// `retires_at`, at once without. [`crate::Error::Invalid`] if its version is not the next.
    /// Announced as [`crate::store::Topic::Setting`] `key`.
    async fn add_key(
        &self,
        scope: &Scope,
        key: NewKey,
        retires_at: Option<Timestamp>,
    ) -> Result<()>;

    /// Revokes one version, or all of a key. Announced in the same way.
    async fn revoke_key(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &KeyName,
        version: Option<u32>,
    ) -> Result<()>;

    /// All versions of one key, the newest first; none if there is none.
    async fn key(&self, scope: &Scope, tenant: &TenantId, name: &KeyName)
    -> Result<Vec<KeyRecord>>;

    /// Keys by tenant, name and version.
    async fn keys(&self, scope: &Scope, after: Option<&str>, limit: u32)
    -> Result<Page<KeyRecord>>;

    /// Puts a data key wrapped anew in the place of the one wrapped by `from`. False if it is
    /// wrapped by another: then somebody was faster. What is sealed with it stays.
    async fn rewrap_key(&self, scope: &Scope, from: &str, key: NewKey) -> Result<bool>;
}
