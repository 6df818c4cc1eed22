//! Delivers alerts of bounded pools and maintenance services: to the log, and to the webhook and
//! Sentry project that `[alerts]` of the configuration names.
//!
//! The pool or service decides how often an alert is raised. An alert that cannot be delivered is logged and
//! dropped: the operation that raised it continues.

mod sentry;
mod webhook;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use longshore::{AlertSink, Clock, LogAlertSink, PoolAlert, PoolAlertKind, ServiceAlert, SystemClock};
use reqwest::Client;
use serde::Serialize;

pub use self::sentry::{Sentry, SentryDsn};
pub use self::webhook::{Webhook, WebhookUrl};
use crate::config::AlertsConfig;
use crate::host_identity;

/// Timeout of one delivery.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// The log and the configured sinks.
pub struct AlertSinks {
    webhook: Option<Webhook>,
    sentry: Option<Sentry>,
}

impl AlertSinks {
    /// Opens the sinks that the settings name.
    pub fn open(settings: &AlertsConfig) -> anyhow::Result<Arc<dyn AlertSink>> {
        let AlertsConfig { webhook, sentry } = settings.clone();
        if webhook.is_none() && sentry.is_none() {
            return Ok(Arc::new(LogAlertSink));
        }
        let client = Client::builder()
            .user_agent(USER_AGENT)
            .redirect(reqwest::redirect::Policy::none())
            .timeout(SEND_TIMEOUT)
            .build()?;
        Ok(Arc::new(Self {
            webhook: webhook.map(|to| Webhook::new(client.clone(), to)),
            sentry: sentry.map(|to| Sentry::new(client, to)),
        }))
    }
}

const USER_AGENT: &str = concat!("longshore/", env!("CARGO_PKG_VERSION"));

#[async_trait]
impl AlertSink for AlertSinks {
    async fn send(&self, alert: &PoolAlert) {
        LogAlertSink.send(alert).await;
        self.deliver(&AlertDocument::of_pool(alert)).await;
    }

    async fn send_service_alert(&self, alert: &ServiceAlert) {
        alert.log();
        self.deliver(&AlertDocument::of_service(alert)).await;
    }
}

impl AlertSinks {
    async fn deliver(&self, alert: &AlertDocument) {
        let webhook = async {
            if let Some(webhook) = &self.webhook {
                webhook.raise(alert).await;
            }
        };
        let sentry = async {
            if let Some(sentry) = &self.sentry {
                sentry.raise(alert).await;
            }
        };
        tokio::join!(webhook, sentry);
    }
}

/// An alert as a webhook gets it. Chat programs show `text`.
#[derive(Debug, Serialize)]
struct AlertDocument {
    text: String,
    /// The source of the alert: a bounded pool or a service.
    #[serde(flatten)]
    source: AlertSource,
    alert: &'static str,
    at: String,
    host: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    error: String,
    figures: Option<AlertStats>,
    #[serde(skip)]
    level: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum AlertSource {
    Pool(String),
    Service(&'static str),
}

impl AlertSource {
    /// The kind of the source, and its name.
    fn tag(&self) -> (&'static str, &str) {
        match self {
            Self::Pool(name) => ("pool", name),
            Self::Service(name) => ("service", name),
        }
    }
}

impl AlertDocument {
    fn of_pool(alert: &PoolAlert) -> Self {
        let level = if alert.kind == PoolAlertKind::AtCapacity { "warning" } else { "error" };
        let source = AlertSource::Pool(alert.pool.to_string());
        let figures = AlertStats::of(alert);
        let error = alert.error.clone();
        Self { error, figures, ..Self::new(describe_alert(alert), source, alert.kind.as_str(), level) }
    }

    fn of_service(alert: &ServiceAlert) -> Self {
        Self::new(alert.message.clone(), AlertSource::Service(alert.service), "service", "error")
    }

    fn new(text: String, source: AlertSource, alert: &'static str, level: &'static str) -> Self {
        let (at, host) = (SystemClock.now().to_string(), host_identity::host());
        Self { text, source, alert, at, host, error: String::new(), figures: None, level }
    }
}

/// An alert in one sentence.
fn describe_alert(alert: &PoolAlert) -> String {
    let (pool, stats) = (&alert.pool, alert.stats.clone().unwrap_or_default());
    let what = match alert.kind {
        PoolAlertKind::BackendLost => {
            return format!("the back end of bounded pool `{pool}` does not answer: {}", alert.error);
        }
        PoolAlertKind::TimedOut => "an acquire timed out in",
        _ => "there is no permit left in",
    };
    let (in_use, max, waiting) = (stats.in_use, stats.max, stats.waiting.len());
    format!("{what} bounded pool `{pool}`: {in_use} of {max} in use, {waiting} wait")
}

/// A pool's statistics at the time of an alert.
#[derive(Debug, Serialize)]
struct AlertStats {
    max: u32,
    available: u32,
    in_use: u32,
    waiting: usize,
    utilization: f64,
    acquired: u64,
    timeouts: u64,
    expired: u64,
    wait_p50_ms: Option<u64>,
    wait_p95_ms: Option<u64>,
}

impl AlertStats {
    /// `None` if the back end is unavailable.
    fn of(alert: &PoolAlert) -> Option<Self> {
        let stats = alert.stats.as_ref()?;
        let millis = |share| {
            let wait = stats.waits.percentile(share)?;
            u64::try_from(wait.as_millis()).ok()
        };
        Some(Self {
            max: stats.max,
            available: stats.available(),
            in_use: stats.in_use,
            waiting: stats.waiting.len(),
            utilization: stats.utilization(),
            acquired: stats.acquired,
            timeouts: stats.timeouts,
            expired: stats.expired,
            wait_p50_ms: millis(0.5),
            wait_p95_ms: millis(0.95),
        })
    }
}

/// A failed request as text for the log, without its URL, which is a secret.
fn describe_error(error: reqwest::Error) -> String {
    let error = error.without_url();
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    match cause {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
