//! The part of a trace that a request is: a child of whoever asked, if they said who they are.

use axum::http::{HeaderMap, Request, StatusCode};
use longshore::trace;
use tracing::Span;
use tracing::field::Empty;

/// So much of a path is told.
const LONGEST: usize = 256;

/// The span of a request. It is named by who answers, not by its path: of those there are too many.
pub(crate) fn request<B>(request: &Request<B>, name: std::fmt::Arguments<'_>) -> Span {
    // A stranger's path may be long, and many may wait to be told.
    let path = request.uri().path();
    let path = &path[..path.floor_char_boundary(LONGEST)];
    let span = tracing::info_span!(
        target: trace::TARGET,
        "request",
        otel.name = %name,
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = request.method().as_str(),
        url.path = path,
        http.response.status_code = Empty,
    );
    trace::adopt(&span, traceparent(request.headers()));
    span
}

/// Says how it was answered.
pub(crate) fn answered(span: &Span, status: StatusCode) {
    span.record("http.response.status_code", i64::from(status.as_u16()));
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
}

/// What a unit that comes with a request belongs to: the request, or whoever asked where nobody follows
/// requests.
pub(crate) fn origin(headers: &HeaderMap) -> Option<String> {
    trace::here().or_else(|| traceparent(headers).map(str::to_owned))
}

fn traceparent(headers: &HeaderMap) -> Option<&str> {
    let given = headers.get("traceparent")?.to_str().ok()?;
    trace::is_traceparent(given).then_some(given)
}
