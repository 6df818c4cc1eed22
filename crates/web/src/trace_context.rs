//! The span of a request, as a child of the client's span if the request has a `traceparent`.

use axum::http::{HeaderMap, Request, StatusCode};
use longshore::trace;
use tracing::Span;
use tracing::field::Empty;

/// Maximum length of a recorded path.
const MAX_PATH: usize = 256;

/// Opens the span of a request. It is named by the endpoint, since there are too many different paths.
pub(crate) fn request_span<B>(request: &Request<B>, name: std::fmt::Arguments<'_>) -> Span {
    // Limit untrusted paths: many spans may wait to be exported.
    let path = request.uri().path();
    let path = &path[..path.floor_char_boundary(MAX_PATH)];
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
    trace::set_parent(&span, traceparent(request.headers()));
    span
}

/// Records the response's status.
pub(crate) fn record_status(span: &Span, status: StatusCode) {
    span.record("http.response.status_code", i64::from(status.as_u16()));
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
}

/// The trace context for units of this request: the request's span, or the client's if requests are not
/// traced.
pub(crate) fn trace_parent(headers: &HeaderMap) -> Option<String> {
    trace::current_traceparent().or_else(|| traceparent(headers).map(str::to_owned))
}

fn traceparent(headers: &HeaderMap) -> Option<&str> {
    let given = headers.get("traceparent")?.to_str().ok()?;
    trace::is_traceparent(given).then_some(given)
}
