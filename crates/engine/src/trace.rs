//! Traces: which work belongs together, across processes.
//!
//! Spans of traces are spans of `tracing` with target [`TARGET`], so they cost nothing where nobody
//! collects them. This module knows no collector: whoever brings one installs a [`Tracer`], which says
//! where we are and ties a span to a parent in another process. A unit carries the place that it was
//! sent from, as W3C's `traceparent`.

use std::sync::OnceLock;

use longshore_core::{NewUnit, Unit};
use tracing::Span;

/// The target of all spans that belong to traces.
pub const TARGET: &str = "longshore::trace";

static TRACER: OnceLock<Box<dyn Tracer>> = OnceLock::new();

/// What ties spans of different processes together.
pub trait Tracer: Send + Sync {
    /// Makes a span the child of one that is known by its `traceparent`. A span of nobody's stays so,
    /// and words that are no `traceparent` change nothing.
    fn adopt(&self, span: &Span, parent: &str);

    /// The `traceparent` of where we are, if anybody follows it.
    fn here(&self) -> Option<String>;
}

/// Takes the one tracer of this process; false if it has one already.
pub fn install(tracer: Box<dyn Tracer>) -> bool {
    TRACER.set(tracer).is_ok()
}

/// The `traceparent` of where we are, if anybody follows it.
pub fn here() -> Option<String> {
    TRACER.get()?.here()
}

/// Makes a span the child of one in another process, if there is one.
pub fn adopt(span: &Span, parent: Option<&str>) {
    if let (Some(tracer), Some(parent)) = (TRACER.get(), parent) {
        tracer.adopt(span, parent);
    }
}

/// Whether text is a `traceparent` that may be passed on: version, trace, span and flags in hex, of
/// their lengths, and neither trace nor span all zero.
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

/// Units that do not say what they belong to belong to where they are sent from; where nobody follows
/// that, to what the sender belongs to.
pub(crate) fn mark(units: &mut [NewUnit], sender: Option<&str>) {
    let Some(here) = here().or_else(|| sender.map(str::to_owned)) else { return };
    for unit in units {
        unit.trace.get_or_insert_with(|| here.clone());
    }
}

/// The span of sending units.
pub(crate) fn sending(units: usize) -> Span {
    // Only signed numbers stay numbers on their way.
    let units = i64::try_from(units).unwrap_or(i64::MAX);
    tracing::info_span!(target: TARGET, "send", otel.kind = "producer", units)
}

/// The span of one run of a unit, from its start until its end is handed over to be recorded.
pub(crate) fn run(unit: &Unit) -> Span {
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
    adopt(&span, unit.trace.as_deref());
    span
}

/// The span of the handler within a run.
pub(crate) fn handling() -> Span {
    tracing::info_span!(target: TARGET, "handler")
}

/// The span of bringing a run's end to the store: a child of the run that outlives it.
pub(crate) fn finishing() -> Span {
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
