//! Exports traces to a collector, by OTLP over HTTP, if one is configured.
//!
//! Spans are buffered in a bounded queue for a thread of their own: a collector that is slow, full
//! or dead costs spans, never work. Sampling, the service's name, headers and sizes are
//! OpenTelemetry's own variables (`OTEL_TRACES_SAMPLER`, `OTEL_SERVICE_NAME`,
//! `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_BSP_*`).

mod otlp_exporter;

use std::time::Duration;

use longshore::trace::{self, Tracer};
use opentelemetry::Context;
use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState, TracerProvider,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::runtime::Handle;
use tracing::{Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;

use crate::env;

/// Timeout of the last export at the end of the process.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// The exporter of this process's traces.
pub struct Telemetry(Option<SdkTracerProvider>);

impl Telemetry {
    /// Exports to the collector at `url`, if any, on `runtime`. `sender` is a command that only
    /// submits: it continues its caller's trace, which `TRACEPARENT` names.
    pub fn new(url: Option<&str>, runtime: &Handle, sender: bool) -> anyhow::Result<Self> {
        let origin = super::traceparent().filter(|_| sender);
        trace::install(Box::new(CurrentSpan { origin }));
        let Some(url) = url else { return Ok(Self(None)) };
        let collector = otlp_exporter::open(url, runtime)?;
        let mut resource = Resource::builder();
        if std::env::var_os(env::SERVICE_NAME).is_none() {
            resource = resource.with_service_name("longshore");
        }
        let provider = SdkTracerProvider::builder()
            .with_resource(resource.build())
            .with_batch_exporter(collector)
            .build();
        Ok(Self(Some(provider)))
    }

    /// The layer that passes trace spans, and nothing else, to the collector.
    pub fn layer<S>(&self) -> Option<impl Layer<S> + use<S>>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let tracer = self.0.as_ref()?.tracer("longshore");
        let ours = Targets::new().with_target(trace::TARGET, tracing::Level::INFO);
        let layer = tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false);
        Some(layer.with_filter(ours))
    }

    /// This build exports traces.
    #[expect(clippy::unused_self, reason = "as in a build without OpenTelemetry")]
    pub fn warn_if_unavailable(&self) {}

    /// Exports the remaining spans, within a short timeout.
    pub async fn end(self) {
        let Some(provider) = self.0 else { return };
        // It waits for a thread that waits for this runtime to call the collector.
        let ending = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(SHUTDOWN_TIMEOUT));
        if let Ok(Err(error)) = ending.await {
            tracing::debug!(%error, "cannot send the last spans");
        }
    }
}

/// The current position in a trace.
struct CurrentSpan {
    /// The span of this command's caller.
    origin: Option<String>,
}

impl Tracer for CurrentSpan {
    fn set_parent(&self, span: &Span, parent: &str) {
        if let Some(parent) = parse_traceparent(parent) {
            // Fails only for a span that has started, or that no layer records.
            let _ = span.set_parent(Context::new().with_remote_span_context(parent));
        }
    }

    fn current_traceparent(&self) -> Option<String> {
        let context = Span::current().context();
        let at = context.span().span_context().clone();
        match at.is_valid() {
            true => Some(format!("00-{}-{}-{:02x}", at.trace_id(), at.span_id(), at.trace_flags().to_u8())),
            false => self.origin.clone(),
        }
    }
}

/// Parses a `traceparent`.
fn parse_traceparent(text: &str) -> Option<SpanContext> {
    if !trace::is_traceparent(text) {
        return None;
    }
    let mut parts = text.split('-').skip(1);
    let trace = TraceId::from_hex(parts.next()?).ok()?;
    let span = SpanId::from_hex(parts.next()?).ok()?;
    let flags = TraceFlags::new(u8::from_str_radix(parts.next()?, 16).ok()?);
    Some(SpanContext::new(trace, span, flags, true, TraceState::default()))
}
