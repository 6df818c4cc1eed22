//! The audit log of changes requested over the network. Entries are only appended; pruning removes
//! old ones ([`longshore_core::store::Retention::audit_log`]).

use async_trait::async_trait;
use longshore_core::store::Page;
use longshore_core::{Result, Scope, TenantId, Timestamp, TokenId};
use serde::{Deserialize, Serialize};

/// A change that was requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NewAuditEntry {
    /// The token that was used; `None` where no authentication is required.
    pub token: Option<TokenId>,
    /// The caller, for people: the token's label, or the client's address.
    pub by: String,
    /// The tenant of the changed object; `None` if it concerns all tenants.
    pub tenant: Option<TenantId>,
    /// The action, as `batch.pause`.
    pub action: String,
    /// The changed object.
    pub target: String,
    /// Further details. Never a payload.
    pub detail: String,
}

/// An entry of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditEntry {
    /// Its position in the log.
    pub seq: u64,
    /// When it was appended.
    pub at: Timestamp,
    /// The change.
    #[serde(flatten)]
    pub entry: NewAuditEntry,
}

/// The audit log.
#[async_trait]
pub trait AuditLog: Send + Sync + 'static {
    /// Appends an entry.
    async fn append(&self, entry: NewAuditEntry) -> Result<()>;

    /// Entries, newest first. A tenant sees only entries about its own objects.
    async fn audit_entries(&self, scope: &Scope, after: Option<&str>, limit: u32)
    -> Result<Page<AuditEntry>>;
}
