//! A build without OpenTelemetry: units still carry the trace of the command that sent them.

use longshore::trace::{self, Tracer};
use tokio::runtime::Handle;
use tracing::{Span, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Identity;

/// Exports no spans.
pub struct Telemetry {
    collector: Option<String>,
}

impl Telemetry {
    /// `sender` is a command that only submits: its units continue its caller's trace.
    pub fn new(url: Option<&str>, _: &Handle, sender: bool) -> anyhow::Result<Self> {
        let origin = super::traceparent().filter(|_| sender);
        trace::install(Box::new(CallerTrace(origin)));
        Ok(Self { collector: url.map(str::to_owned) })
    }

    /// No layer.
    #[expect(clippy::unused_self, reason = "as in a build with OpenTelemetry")]
    pub fn layer<S: Subscriber>(&self) -> Option<impl Layer<S> + use<S>> {
        None::<Identity>
    }

    /// Warns that a collector is configured and gets nothing. Called once logging works.
    pub fn warn_if_unavailable(&self) {
        if let Some(url) = &self.collector {
            tracing::warn!(
                url,
                "this build exports no traces; for that: cargo build --release --features otel"
            );
        }
    }

    /// Nothing is left to send.
    pub async fn end(self) {}
}

/// The caller's trace, for every unit that this process sends.
struct CallerTrace(Option<String>);

impl Tracer for CallerTrace {
    fn set_parent(&self, _: &Span, _: &str) {}

    fn current_traceparent(&self) -> Option<String> {
        self.0.clone()
    }
}
