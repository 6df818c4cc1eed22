//! Traces across processes.
//!
//! Trace spans are spans of `tracing` with target [`TARGET`], so they cost nothing without a
//! collector. This module depends on no collector: the program that has one installs a [`Tracer`],
//! which returns the current `traceparent` and links a span to a parent in another process. A unit
//! carries the sender's W3C `traceparent`.

use std::sync::OnceLock;

use longshore_core::{NewUnit, Unit};
use tracing::Span;

/// The target of all trace spans.
pub const TARGET: &str = "longshore::trace";

static TRACER: OnceLock<Box<dyn Tracer>> = OnceLock::new();

/// Links spans of different processes.
pub trait Tracer: Send + Sync {
    /// Makes `span` a child of the span that `parent`, a `traceparent`, names. Does nothing if the
    /// span is not recorded or `parent` is invalid.
    fn set_parent(&self, span: &Span, parent: &str);

    /// The current `traceparent`, if the span is recorded.
    fn current_traceparent(&self) -> Option<String>;
}

/// Installs the process's tracer. Returns false if there is one already.
pub fn install(tracer: Box<dyn Tracer>) -> bool {
    TRACER.set(tracer).is_ok()
}

/// The current `traceparent`, if a tracer records the span.
pub fn current_traceparent() -> Option<String> {
    TRACER.get()?.current_traceparent()
}

/// Makes a span the child of a span in another process, if `parent` is given.
pub fn set_parent(span: &Span, parent: Option<&str>) {
    if let (Some(tracer), Some(parent)) = (TRACER.get(), parent) {
        tracer.set_parent(span, parent);
    }
}

/// Whether text is a valid `traceparent`: version, trace, span and flags in hex with their lengths,
/// and neither trace nor span all zero.
pub fn is_traceparent(text: &str) -> bool {
    let is_hex = |part: &str| part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let mut parts = text.splitn(4, '-');
    let mut next = |length: usize| parts.next().filter(|part| part.len() == length && is_hex(part));
    let (Some(version), Some(trace), Some(span)) = (next(2), next(32), next(16)) else {
        return false;
    };
    let is_set = |part: &str| part.bytes().any(|b| b != b'0');
    version != "ff" && next(2).is_some() && is_set(trace) && is_set(span)
}

/// Sets the trace of units that have none: the current `traceparent`, or else the sender's.
pub(crate) fn set_trace(units: &mut [NewUnit], sender: Option<&str>) {
    let Some(here) = current_traceparent().or_else(|| sender.map(str::to_owned)) else { return };
    for unit in units {
        unit.trace.get_or_insert_with(|| here.clone());
    }
}

/// The span of sending units.
pub(crate) fn send_span(units: usize) -> Span {
    // OpenTelemetry keeps only signed integers as numbers.
    let units = i64::try_from(units).unwrap_or(i64::MAX);
    tracing::info_span!(target: TARGET, "send", otel.kind = "producer", units)
}

/// The span of one run, from its start until its outcome is passed to the completer.
pub(crate) fn run_span(unit: &Unit) -> Span {
    let span = tracing::info_span!(
        target: TARGET,
        "run",
        otel.name = %format_args!("run {}", unit.kind),
        otel.kind = "consumer",
        otel.status_code = tracing::field::Empty,
        unit = %unit.id,
        kind = %unit.kind,
        queue = %unit.queue,
        tenant = %unit.tenant,
        attempt = i64::from(unit.attempt),
        batch = unit.batch.as_ref().map(tracing::field::display),
        outcome = tracing::field::Empty,
        error = tracing::field::Empty,
    );
    set_parent(&span, unit.trace.as_deref());
    span
}

/// The span of the handler within a run.
pub(crate) fn handler_span() -> Span {
    tracing::info_span!(target: TARGET, "handler")
}

/// The span of recording a run's outcome: a child of the run that outlives it.
pub(crate) fn finish_span() -> Span {
    tracing::info_span!(target: TARGET, "finish")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_traceparent_is_taken_for_one() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert!(is_traceparent(good));
        for bad in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0af7651916cd43dd8448eb211c80319c\n-b7ad6b7169203331-01",
        ] {
            assert!(!is_traceparent(bad), "{bad:?}");
        }
    }
}
