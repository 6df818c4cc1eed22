//! Liveness, readiness, and the OpenAPI document.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use longshore::{Error, Scope, UnitId};
use tokio::sync::Mutex;

use crate::app_state::AppState;
use crate::endpoints::ApiResult;
use crate::openapi;
use crate::request_context::{RequestContext, json};

/// Liveness: the process responds.
pub(super) async fn liveness() -> &'static str {
    "ok\n"
}

/// How long an answer about the store is given again.
const READINESS_AGE: Duration = Duration::from_secs(1);

/// The last answer about the store, and when it was given. Requests that arrive during a check wait for
/// its answer.
pub(crate) type Readiness = Mutex<Option<(Instant, Result<(), &'static str>)>>;

/// Readiness: the store responds.
pub(super) async fn readiness(app: Arc<AppState>) -> Response {
    let mut last = app.readiness.lock().await;
    let recent = last.as_ref().filter(|(at, _)| at.elapsed() < READINESS_AGE).map(|(_, answer)| *answer);
    let answer = match recent {
        Some(answer) => answer,
        None => check_store(&app).await,
    };
    if recent.is_none() {
        *last = Some((Instant::now(), answer));
    }
    match answer {
        Ok(()) => "ready\n".into_response(),
        Err(problem) => (StatusCode::SERVICE_UNAVAILABLE, problem).into_response(),
    }
}

/// Looks up a unit that does not exist: this takes as long in a store of any size.
async fn check_store(app: &AppState) -> Result<(), &'static str> {
    let query = app.store.unit(&Scope::All, UnitId::from_bytes([0; 16]));
    match tokio::time::timeout(app.limits.time, query).await {
        Ok(Ok(_) | Err(Error::NotFound { .. })) => Ok(()),
        Ok(Err(error)) => {
            tracing::warn!(%error, "not ready");
            Err("the store is unavailable\n")
        }
        Err(_) => Err("the store is slow\n"),
    }
}

/// The OpenAPI document.
pub(super) async fn document(_: RequestContext) -> ApiResult {
    json(&openapi::document())
}
