//! Audit log entries of changes that the command line makes in the store: tokens, keys, profiles and tenants.
//!
//! As over HTTP, the entry is written before the change: a crash can leave a superfluous entry, never a missing
//! one.

use longshore::accounts::NewAuditEntry;
use longshore::{Ledger, TenantId};

use crate::host_identity;

/// Records a change of a tenant's object, as `token.add`.
pub async fn record(
    ledger: &dyn Ledger,
    action: &str,
    tenant: Option<&TenantId>,
    target: impl ToString,
) -> longshore::Result<()> {
    let entry = NewAuditEntry {
        token: None,
        by: host_identity::initiator(),
        tenant: tenant.cloned(),
        action: action.to_owned(),
        target: target.to_string(),
        detail: String::new(),
    };
    ledger.append(entry).await
}
