//! Tenants, the audit log, and the caller's identity.

use longshore::accounts::Role;
use longshore::{Scope, TenantId, TokenId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::endpoints::ApiResult;
use crate::request_context::{RequestContext, json};

pub(super) async fn list(ctx: RequestContext) -> ApiResult {
    ctx.page(ctx.app.store.tenants(&ctx.caller.scope).await?, |tenant| tenant.id.to_string())
}

pub(super) async fn audit_log(ctx: RequestContext) -> ApiResult {
    let (scope, limit) = (ctx.scope()?, ctx.limit()?);
    json(&ctx.app.ledger.audit_entries(&scope, ctx.after(), limit).await?)
}

/// The caller's identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Identity {
    /// The token; none if no token is required.
    pub token: Option<TokenId>,
    /// The token's label.
    pub label: String,
    /// The token's role.
    pub role: Role,
    /// Only payloads of this tenant may be read; all if none.
    pub tenant: Option<TenantId>,
    /// Whether it sees all tenants.
    pub all_tenants: bool,
}

pub(super) async fn whoami(ctx: RequestContext) -> ApiResult {
    let caller = &ctx.caller;
    json(&Identity {
        token: caller.token,
        label: caller.label.clone(),
        role: caller.role,
        tenant: caller.tenant.clone(),
        all_tenants: caller.scope == Scope::All,
    })
}
