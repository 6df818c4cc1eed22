//! AI profiles: provider, model, limits. Never keys, nor fields that may contain one.

use longshore::accounts::ProfileRecord;
use longshore::store::Page;
use longshore::{ProfileName, Result, Scope, TenantId, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::app_state::AppState;
use crate::endpoints::ApiResult;
use crate::request_context::{RequestContext, json};

/// A profile for the API. Fields are copied one by one, so that a new field is not exposed by accident.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ProfileView {
    pub(crate) tenant: TenantId,
    pub(crate) name: ProfileName,
    pub(crate) suspended: bool,
    pub(crate) provider: String,
    pub(crate) model: String,
    extends: Option<String>,
    pub(crate) limits: Value,
    retry: Value,
    prices: Value,
    fallback: Value,
    pool: Option<String>,
    max_tokens: Option<u64>,
    revision: u64,
    updated_at: Timestamp,
}

impl From<ProfileRecord> for ProfileView {
    fn from(record: ProfileRecord) -> Self {
        let ProfileRecord { tenant, name, body, suspended, revision, updated_at, .. } = record;
        let text = |part: &str| body[part].as_str().map(str::to_owned);
        Self {
            tenant,
            name,
            suspended,
            provider: text("provider").unwrap_or_default(),
            model: text("model").unwrap_or_default(),
            extends: text("extends"),
            limits: body["limits"].clone(),
            retry: body["retry"].clone(),
            prices: body["prices"].clone(),
            fallback: body["fallback"].clone(),
            pool: text("pool"),
            max_tokens: body["max_tokens"].as_u64(),
            revision,
            updated_at,
        }
    }
}

/// The profiles of a scope. A tenant's own settings are stored like a profile, and are left out.
pub(crate) async fn page(
    app: &AppState,
    scope: &Scope,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<ProfileView>> {
    let page = app.ledger.profiles(scope, None, after, limit).await?;
    let own = page.items.into_iter().filter(|record| !record.name.as_str().starts_with('.'));
    Ok(Page { items: own.map(ProfileView::from).collect(), next: page.next })
}

pub(super) async fn list(ctx: RequestContext) -> ApiResult {
    let (scope, limit) = (ctx.scope()?, ctx.limit()?);
    json(&page(&ctx.app, &scope, ctx.after(), limit).await?)
}
