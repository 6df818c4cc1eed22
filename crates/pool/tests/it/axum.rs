//! Pools in axum apps. Requests go straight to the router, except in tests of the network.

#[cfg(feature = "sqlite")]
mod database;
mod errors;
mod extractors;
mod progress;
mod routes;
mod shutdown;
#[cfg(feature = "ws")]
mod websockets;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

/// Sends a GET request.
async fn ask(app: &Router, path: &str) -> Response<Body> {
    let request = Request::get(path).body(Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap()
}

/// Sends a GET request, and reads the whole response.
async fn page(app: &Router, path: &str) -> (StatusCode, String) {
    let response = ask(app, path).await;
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

/// Sends a GET request, and parses the response as JSON.
async fn json(app: &Router, path: &str) -> (StatusCode, Value) {
    let (status, text) = page(app, path).await;
    (status, serde_json::from_str(&text).unwrap())
}
