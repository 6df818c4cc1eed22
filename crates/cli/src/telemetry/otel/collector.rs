//! The collector at the other end, by the HTTP client that we have; and what is said of one that does
//! not take what it is sent: once, and how much was lost once it does again.

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

/// How long it may take to take some spans.
const PATIENCE: Duration = Duration::from_secs(5);

/// The collector at a URL; spans go to its `/v1/traces`.
pub(super) fn at(url: &str, runtime: &Handle) -> anyhow::Result<impl SpanExporter + use<>> {
    let client = reqwest::Client::builder().timeout(PATIENCE).build()?;
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_http_client(Client { client, runtime: runtime.clone() })
        .with_endpoint(traces(url))
        .with_timeout(PATIENCE)
        .with_retry_policy(RetryPolicy::recommended().with_max_retries(1))
        .build()
        .with_context(|| format!("traces cannot be sent to `{url}`"))?;
    Ok(Collector { exporter, lost: AtomicU64::new(0) })
}

/// Where a collector wants spans: the variable that names it for all programs leaves this out.
fn traces(url: &str) -> String {
    let url = url.trim_end_matches('/');
    match url.ends_with("/v1/traces") {
        true => url.to_owned(),
        false => format!("{url}/v1/traces"),
    }
}

/// Sends spans and keeps count of those that were not taken.
#[derive(Debug)]
struct Collector {
    exporter: opentelemetry_otlp::SpanExporter,
    lost: AtomicU64,
}

impl SpanExporter for Collector {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len() as u64;
        match self.exporter.export(batch).await {
            Ok(()) => {
                let lost = self.lost.swap(0, Ordering::Relaxed);
                if lost > 0 {
                    tracing::info!(lost, "the collector of traces takes them again");
                }
            }
            Err(error) => {
                if self.lost.fetch_add(spans, Ordering::Relaxed) == 0 {
                    tracing::warn!(%error, "the collector takes no traces; they are lost until it does");
                }
            }
        }
        // Said already, and better once than each time.
        Ok(())
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            tracing::warn!(lost, "spans were lost: the collector did not take them");
        }
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

/// Calls on behalf of a thread that has no runtime.
#[derive(Debug)]
struct Client {
    client: reqwest::Client,
    runtime: Handle,
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let request = reqwest::Request::try_from(request)?;
        let client = self.client.clone();
        let calling = async move {
            let mut answer = client.execute(request).await?;
            let mut response = Response::builder().status(answer.status());
            if let Some(headers) = response.headers_mut() {
                headers.clone_from(answer.headers());
            }
            // Nobody reads more of what it says.
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
            assert_eq!(traces(named), meant);
        }
    }
}
