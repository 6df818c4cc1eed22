//! Pools of script workers.

use longshore::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::app_state::AppState;
use crate::dispatch_port::ScriptPool;
use crate::endpoints::ApiResult;
use crate::lenient_int::lenient_int;
use crate::problem::Problem;
use crate::request_context::{RequestContext, json};

/// Lists the pools; empty if dispatch is not configured.
pub(crate) async fn script_pools(app: &AppState) -> Vec<ScriptPool> {
    match &app.scripts {
        Some(scripts) => scripts.list().await,
        None => Vec::new(),
    }
}

pub(super) async fn list(ctx: RequestContext) -> ApiResult {
    ctx.page(script_pools(&ctx.app).await, |pool| pool.pool.clone())
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScaleRequest {
    #[serde(deserialize_with = "lenient_int")]
    min: u32,
    #[serde(default, deserialize_with = "lenient_int")]
    max: Option<u32>,
}

pub(super) async fn scale(mut ctx: RequestContext) -> ApiResult {
    let pool: String = ctx.path("pool")?;
    let ScaleRequest { min, max } = ctx.json().await?;
    let max = max.unwrap_or(min).max(min);
    let exists = script_pools(&ctx.app).await.into_iter().any(|one| one.pool == pool);
    let scripts = ctx.app.scripts.as_ref().filter(|_| exists);
    let scripts = scripts.ok_or_else(|| Error::not_found("dispatch pool", &pool))?;
    ctx.audit(None, &pool, format!("{min} to {max} workers")).await?;
    scripts.scale(&pool, min, max).await.map_err(Problem::conflict)?;
    json(&ScaleRequest { min, max: Some(max) })
}
