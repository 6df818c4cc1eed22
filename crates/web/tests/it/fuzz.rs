//! Mutations of HTTP requests: the API answers each, and no answer is an internal error.

use axum::body::Body;
use axum::http::{Method, Request};
use longshore::accounts::Role;
use longshore_testkit::fuzz;
use longshore_web::AuthMode;

use crate::fixture::TestSite;

/// The first line is method and path, the rest the body.
#[test]
fn fuzz_http_requests() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (site, token) = runtime.block_on(async {
        let site = TestSite::in_memory(AuthMode::TokenRequired);
        site.populate("acme").await;
        let token = site.token("acme", Role::Operate).await;
        (site, token)
    });
    fuzz(env!("CARGO_MANIFEST_DIR"), "http", |bytes| {
        let split = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
        let (line, body) = bytes.split_at(split);
        let line = String::from_utf8_lossy(line);
        let (method, path) = line.trim().split_once(' ').unwrap_or(("GET", &line));
        let Ok(method) = Method::from_bytes(method.as_bytes()) else { return };
        // Requests that wait or stream would end only with the test.
        if path.contains("wait=") || path.contains("room=") || path.contains("/events") {
            return;
        }
        let request = Request::builder().method(method).uri(path).header("host", "localhost");
        let request = request.header("authorization", format!("Bearer {token}"));
        let request = request.header("content-type", "application/json");
        let Ok(request) = request.body(Body::from(body.to_vec())) else { return };
        let response = runtime.block_on(site.send(request));
        assert!(response.status.as_u16() != 500, "{line}: {}", response.text);
    });
}
