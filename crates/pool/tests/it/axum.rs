//! Pools in axum apps. Requests go to the router without a network, unless the network is the point.

#[cfg(feature = "sqlite")]
mod database;
mod end;
mod errors;
mod extractors;
mod progress;
mod routes;
#[cfg(feature = "ws")]
mod sockets;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

/// Asks for a page.
async fn ask(app: &Router, path: &str) -> Response<Body> {
    let request = Request::get(path).body(Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap()
}

/// A whole page.
async fn page(app: &Router, path: &str) -> (StatusCode, String) {
    let response = ask(app, path).await;
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

/// A whole page of JSON.
async fn json(app: &Router, path: &str) -> (StatusCode, Value) {
    let (status, text) = page(app, path).await;
    (status, serde_json::from_str(&text).unwrap())
}
