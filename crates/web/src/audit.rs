//! The audit log: what an operator would ask about has an entry, such as cancels, retries, pauses, resizes and
//! new batches. Units and permits have none: they are counted, and are rows of their own tables.
//!
//! The entry is written before the mutation. If it cannot be written, the mutation is not made; a crash in
//! between leaves a superfluous entry, never a missing one. Entries are kept for long, so a tenant's token may
//! cause only a few per minute.

use longshore::accounts::NewAuditEntry;
use longshore::{Rights, TenantId};

use crate::problem::Problem;
use crate::request_context::RequestContext;

impl RequestContext {
    /// Records a mutation of one tenant's resource, or of all tenants'.
    pub(crate) async fn audit(
        &self,
        tenant: Option<&TenantId>,
        target: impl ToString,
        detail: impl Into<String>,
    ) -> Result<(), Problem> {
        if self.caller.rights() == Rights::Tenant {
            self.slot.count_audited()?;
        }
        let entry = NewAuditEntry {
            token: self.caller.token,
            by: self.caller.label.clone(),
            tenant: tenant.cloned(),
            action: self.endpoint.audit_action.to_owned(),
            target: target.to_string(),
            detail: detail.into(),
        };
        tracing::info!(by = entry.by, action = entry.action, target = entry.target, "mutation over HTTP");
        Ok(self.app.ledger.append(entry).await?)
    }
}
