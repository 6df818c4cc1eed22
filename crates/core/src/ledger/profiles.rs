//! Profiles: documents with an owner. What is in them is not the store's business.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Result;
use crate::name::{ProfileName, Scope, TenantId};
use crate::store::Page;
use crate::time::Timestamp;

/// A profile as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProfileRecord {
    /// Whose it is.
    pub tenant: TenantId,
    /// Its name, unique within its tenant.
    pub name: ProfileName,
    /// What it says.
    pub body: Value,
    /// It may not be used now.
    pub suspended: bool,
    /// Moves with every change.
    pub revision: u64,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

/// A profile to be written.
#[derive(Debug, Clone, PartialEq)]
pub struct PutProfile {
    /// Whose it is.
    pub tenant: TenantId,
    /// Its name.
    pub name: ProfileName,
    /// What it says; `None` leaves that as it is.
    pub body: Option<Value>,
    /// Whether it is suspended; `None` leaves that as it is.
    pub suspended: Option<bool>,
    /// Only if this is its revision; 0 means only if there is none. `None` is whatever there is,
    /// but not a profile without a body.
    pub expected: Option<u64>,
}

/// Profiles. All verbs see only what is within `scope`; the rest does not exist.
#[async_trait]
pub trait Profiles: Send + Sync + 'static {
    /// Writes a profile. [`crate::Error::Invalid`] if it is not as expected. Announced as
    /// [`crate::store::Topic::Setting`] `profile`.
    async fn put_profile(&self, scope: &Scope, put: PutProfile) -> Result<ProfileRecord>;

    /// Removes a profile. Announced in the same way.
    async fn remove_profile(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &ProfileName,
    ) -> Result<()>;

    /// One profile.
    async fn profile(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &ProfileName,
    ) -> Result<ProfileRecord>;

    /// Profiles by tenant and name.
    async fn profiles(
        &self,
        scope: &Scope,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<ProfileRecord>>;
}
