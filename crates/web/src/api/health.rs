//! Liveness, readiness, and the OpenAPI document.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use longshore::Scope;
use longshore::store::Queues;

use crate::app_state::AppState;
use crate::endpoints::ApiResult;
use crate::openapi;
use crate::request_context::{RequestContext, json};

/// Liveness: the process responds.
pub(super) async fn liveness() -> &'static str {
    "ok\n"
}

/// Readiness: the store responds.
pub(super) async fn readiness(app: Arc<AppState>) -> Response {
    let nothing = Queues::Named(Vec::new());
    let query = app.store.totals(&Scope::All, &nothing);
    match tokio::time::timeout(app.limits.time, query).await {
        Ok(Ok(_)) => "ready\n".into_response(),
        Ok(Err(error)) => {
            tracing::warn!(%error, "not ready");
            (StatusCode::SERVICE_UNAVAILABLE, "the store is unavailable\n").into_response()
        }
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "the store is slow\n").into_response(),
    }
}

/// The OpenAPI document.
pub(super) async fn document(_: RequestContext) -> ApiResult {
    json(&openapi::document())
}
