//! Traces: the parent of submitted units, and spans for an OpenTelemetry collector (feature
//! `otel`).

#[cfg(feature = "otel")]
mod otel;
#[cfg(not(feature = "otel"))]
mod without_otel;

use longshore::trace;

use crate::env;

#[cfg(feature = "otel")]
pub use otel::Telemetry;
#[cfg(not(feature = "otel"))]
pub use without_otel::Telemetry;

/// The parent span that the caller of this command passed in `TRACEPARENT`.
fn traceparent() -> Option<String> {
    std::env::var(env::TRACEPARENT).ok().filter(|given| trace::is_traceparent(given))
}
