//! Exports spans through our HTTP client. When the collector rejects spans, that is logged once,
//! and the number of lost spans once it accepts them again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{RetryPolicy, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tokio::runtime::Handle;

/// Timeout of one export.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// The exporter for a collector; spans go to its `/v1/traces`.
pub(super) fn open(url: &str, runtime: &Handle) -> anyhow::Result<impl SpanExporter + use<>> {
    let client = reqwest::Client::builder().timeout(EXPORT_TIMEOUT).build()?;
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_http_client(RuntimeClient { client, runtime: runtime.clone() })
        .with_endpoint(traces_url(url))
        .with_timeout(EXPORT_TIMEOUT)
        .with_retry_policy(RetryPolicy::recommended().with_max_retries(1))
        .build()
        .with_context(|| format!("cannot send traces to `{url}`"))?;
    Ok(CountingExporter { exporter, lost: AtomicU64::new(0) })
}

/// The collector's URL for spans: the variable that names the collector for all programs omits the
/// path.
fn traces_url(url: &str) -> String {
    let url = url.trim_end_matches('/');
    match url.ends_with("/v1/traces") {
        true => url.to_owned(),
        false => format!("{url}/v1/traces"),
    }
}

/// Sends spans and counts the lost ones.
#[derive(Debug)]
struct CountingExporter {
    exporter: opentelemetry_otlp::SpanExporter,
    lost: AtomicU64,
}

impl SpanExporter for CountingExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len() as u64;
        match self.exporter.export(batch).await {
            Ok(()) => {
                let lost = self.lost.swap(0, Ordering::Relaxed);
                if lost > 0 {
                    tracing::info!(lost, "the collector accepts traces again");
                }
            }
            Err(error) => {
                if self.lost.fetch_add(spans, Ordering::Relaxed) == 0 {
                    tracing::warn!(%error, "the collector rejects traces; they are lost until it accepts them");
                }
            }
        }
        // Already logged, and once is enough.
        Ok(())
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            tracing::warn!(lost, "spans were lost: the collector did not accept them");
        }
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

/// Sends requests for a thread without a runtime.
#[derive(Debug)]
struct RuntimeClient {
    client: reqwest::Client,
    runtime: Handle,
}

#[async_trait]
impl HttpClient for RuntimeClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let request = reqwest::Request::try_from(request)?;
        let client = self.client.clone();
        let calling = async move {
            let mut answer = client.execute(request).await?;
            let mut response = Response::builder().status(answer.status());
            if let Some(headers) = response.headers_mut() {
                headers.clone_from(answer.headers());
            }
            // The exporter reads no more of the body.
            let body = answer.chunk().await?.unwrap_or_default();
            Ok::<_, HttpError>(response.body(body)?)
        };
        self.runtime.spawn(calling).await?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_go_where_collectors_want_them() {
        for (named, meant) in [
            ("http://localhost:4318", "http://localhost:4318/v1/traces"),
            ("http://localhost:4318/", "http://localhost:4318/v1/traces"),
            ("https://here.example/otlp", "https://here.example/otlp/v1/traces"),
            ("http://localhost:4318/v1/traces", "http://localhost:4318/v1/traces"),
        ] {
            assert_eq!(traces_url(named), meant);
        }
    }
}
