//! The audit log: who asked for which change over the network. It is only ever added
//! to; what was kept long enough is pruned ([`crate::store::Retention::deeds`]).

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::name::{Scope, TenantId, TokenId};
use crate::store::Page;
use crate::time::Timestamp;

/// A change that somebody asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewDeed {
    /// By which token; none where the door is open.
    pub token: Option<TokenId>,
    /// Who it is, in words: the token's label, or where they came from.
    pub by: String,
    /// Whose things it is about; none where it is about all tenants'.
    pub tenant: Option<TenantId>,
    /// What was asked, as `batch.pause`.
    pub action: String,
    /// Of which thing.
    pub target: String,
    /// What else is worth knowing. Never a payload.
    pub detail: String,
}

/// An entry of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deed {
    /// Its place in the log.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
    /// What.
    #[serde(flatten)]
    pub deed: NewDeed,
}

/// The audit log.
#[async_trait]
pub trait Audit: Send + Sync + 'static {
    /// Adds an entry.
    async fn note(&self, deed: NewDeed) -> Result<()>;

    /// Entries, newest first. A tenant sees those about its own things only.
    async fn deeds(&self, scope: &Scope, after: Option<&str>, limit: u32) -> Result<Page<Deed>>;
}
