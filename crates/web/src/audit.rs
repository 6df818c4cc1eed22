//! The audit log: no change over the network without an entry.
//!
//! The entry is written before the change is tried: one that cannot be written keeps the change from
//! being made, and a crash in between leaves an entry too many, never one too few.

use longshore::TenantId;
use longshore::ledger::NewDeed;

use crate::call::Call;
use crate::problem::Problem;

impl Call {
    /// Writes down what is about to be done to a tenant's thing, or to one of all tenants.
    pub(crate) async fn note(
        &self,
        tenant: Option<&TenantId>,
        target: impl ToString,
        detail: impl Into<String>,
    ) -> Result<(), Problem> {
        let deed = NewDeed {
            token: self.caller.token,
            by: self.caller.by.clone(),
            tenant: tenant.cloned(),
            action: self.endpoint.deed.to_owned(),
            target: target.to_string(),
            detail: detail.into(),
        };
        tracing::info!(by = deed.by, action = deed.action, target = deed.target, "asked over HTTP");
        Ok(self.house.ledger.note(deed).await?)
    }
}
