//! The part of a trace that a request is: a child of whoever asked, if they said who they are.

use std::convert::Infallible;

use axum::http::{HeaderMap, Request};
use axum::response::Response;
use longshore::trace;
use tracing::Span;
use tracing::field::Empty;

use crate::table::{BASE, Endpoint};

/// The span of a request. Its name becomes that of its endpoint once that is known: paths are too many.
pub(crate) fn request<B>(request: &Request<B>) -> Span {
    let span = tracing::info_span!(
        target: trace::TARGET,
        "request",
        otel.name = request.method().as_str(),
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = request.method().as_str(),
        url.path = request.uri().path(),
        http.response.status_code = Empty,
    );
    trace::adopt(&span, traceparent(request.headers()));
    span
}

/// Says which endpoint answers.
pub(crate) fn endpoint(endpoint: &Endpoint) {
    let name = format_args!("{} {BASE}{}", endpoint.method, endpoint.path);
    Span::current().record("otel.name", tracing::field::display(name));
}

/// Says how it was answered.
pub(crate) fn answered(span: &Span, response: &Result<Response, Infallible>) {
    let status = match response {
        Ok(response) => response.status(),
        Err(never) => match *never {},
    };
    span.record("http.response.status_code", status.as_u16());
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
