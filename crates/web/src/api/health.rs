//! Whether we live, whether we can work, and what there is.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use longshore::Scope;
use longshore::store::Queues;

use crate::call::{Call, json};
use crate::house::House;
use crate::openapi;
use crate::table::Answer;

/// The process answers.
pub(super) async fn alive() -> &'static str {
    "ok\n"
}

/// The store answers.
pub(super) async fn ready(house: Arc<House>) -> Response {
    let nothing = Queues::Named(Vec::new());
    let asking = house.store.totals(&Scope::All, &nothing);
    match tokio::time::timeout(house.limits.time, asking).await {
        Ok(Ok(_)) => "ready\n".into_response(),
        Ok(Err(error)) => {
            tracing::warn!(%error, "not ready");
            (StatusCode::SERVICE_UNAVAILABLE, "the store is unavailable\n").into_response()
        }
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "the store is slow\n").into_response(),
    }
}

/// The OpenAPI document.
pub(super) async fn document(_: Call) -> Answer {
    json(&openapi::document())
}
