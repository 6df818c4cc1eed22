//! Profiles: documents with an owner. What is in them is not the store's business.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::name::{ProfileName, Scope, TenantId};
use crate::store::Page;
use crate::time::Timestamp;
use crate::{Error, Result};

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

impl PutProfile {
    /// The profile as it is to be kept, given the one that is there.
    pub fn apply(self, found: Option<ProfileRecord>, now: Timestamp) -> Result<ProfileRecord> {
        let Self { tenant, name, body, suspended, expected } = self;
        let revision = found.as_ref().map_or(0, |found| found.revision);
        if let Some(expected) = expected.filter(|expected| *expected != revision) {
            let words = match (expected, revision) {
                (0, _) => format!("there is a profile `{name}` already"),
                (_, 0) => format!("there is no profile `{name}`"),
                _ => format!("profile `{name}` has revision {revision}, not {expected}"),
            };
            return Err(Error::Invalid(words));
        }
        let (kept, was_suspended, created_at) = match found {
            Some(found) => (Some(found.body), found.suspended, found.created_at),
            None => (None, false, now),
        };
        let body = body.or(kept);
        let body = body.ok_or_else(|| Error::Invalid(format!("profile `{name}` says nothing")))?;
        let suspended = suspended.unwrap_or(was_suspended);
        let revision = revision + 1;
        Ok(ProfileRecord { tenant, name, body, suspended, revision, created_at, updated_at: now })
    }
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

    /// Whether a tenant is suspended ([`crate::store::Tenants::put_tenant`]), and so none of its
    /// profiles may be used.
    async fn is_suspended(&self, scope: &Scope, tenant: &TenantId) -> Result<bool>;
}
