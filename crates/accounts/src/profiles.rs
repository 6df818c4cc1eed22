//! Profiles: documents that belong to a tenant. The store does not interpret them.

use async_trait::async_trait;
use longshore_core::store::Page;
use longshore_core::unit::check_text;
use longshore_core::{Error, ProfileName, Result, Scope, TenantId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A profile as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProfileRecord {
    /// Its tenant.
    pub tenant: TenantId,
    /// Its name, unique within its tenant.
    pub name: ProfileName,
    /// The document.
    pub body: Value,
    /// Whether it must not be used now.
    pub suspended: bool,
    /// Incremented with every change.
    pub revision: u64,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

/// A profile to write.
#[derive(Debug, Clone, PartialEq)]
pub struct PutProfile {
    /// Its tenant.
    pub tenant: TenantId,
    /// Its name.
    pub name: ProfileName,
    /// The document; `None` leaves it unchanged.
    pub body: Option<Value>,
    /// Whether it is suspended; `None` leaves that unchanged.
    pub suspended: Option<bool>,
    /// Write only if this is its revision; 0 only if it does not exist. `None` writes in any case,
    /// but never a profile without a document.
    pub expected: Option<u64>,
}

/// Most bytes of a profile's document, as JSON.
pub const MAX_PROFILE: usize = 64 * 1024;

impl PutProfile {
    /// The profile to store, given the existing one.
    pub fn apply(self, found: Option<ProfileRecord>, now: Timestamp) -> Result<ProfileRecord> {
        let Self { tenant, name, body, suspended, expected } = self;
        if let Some(body) = &body {
            check_text("profile", &body.to_string(), MAX_PROFILE)?;
        }
        let revision = found.as_ref().map_or(0, |found| found.revision);
        if let Some(expected) = expected.filter(|expected| *expected != revision) {
            let message = match (expected, revision) {
                (0, _) => format!("profile `{name}` already exists"),
                (_, 0) => format!("there is no profile `{name}`"),
                _ => format!("profile `{name}` has revision {revision}, not {expected}"),
            };
            return Err(Error::Invalid(message));
        }
        let (old_body, was_suspended, created_at) = match found {
            Some(found) => (Some(found.body), found.suspended, found.created_at),
            None => (None, false, now),
        };
        let body = body.or(old_body);
        let body = body.ok_or_else(|| Error::Invalid(format!("profile `{name}` has no document")))?;
        let suspended = suspended.unwrap_or(was_suspended);
        let revision = revision + 1;
        Ok(ProfileRecord { tenant, name, body, suspended, revision, created_at, updated_at: now })
    }
}

/// A change of a profile.
#[derive(Debug, Clone, PartialEq)]
pub enum ProfileChange {
    /// Writes it. [`Error::Invalid`] if its revision is not as expected.
    Put(PutProfile),
    /// Removes it.
    Remove(TenantId, ProfileName),
}

/// Profiles. Every operation sees only profiles within `scope`.
#[async_trait]
pub trait Profiles: Send + Sync + 'static {
    /// Writes or removes a profile, and returns it. Announced as
    /// [`longshore_core::store::Topic::Setting`] `profile`.
    async fn change_profile(&self, scope: &Scope, change: ProfileChange) -> Result<ProfileRecord>;

    /// Profiles by tenant and name: all, or the ones with this name.
    async fn profiles(
        &self,
        scope: &Scope,
        name: Option<ProfileName>,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<ProfileRecord>>;
}
