//! Who is told of a bounded pool's alerts: the log, and whoever `[alerts]` of the configuration names.
//!
//! How often something is told is the pool's business. An alert that cannot be delivered is logged and
//! forgotten: what it is about goes on.

mod sentry;
mod webhook;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use longshore::{Alarm, LogAlarm, PoolAlert, PoolAlertKind};
use reqwest::Client;
use serde::Serialize;

pub use self::sentry::{Project, Sentry};
pub use self::webhook::{Address, Webhook};

/// How long somebody may take to hear an alert.
const LIMIT: Duration = Duration::from_secs(5);

/// Who is told, beside the log.
#[derive(Debug, Clone, Default)]
pub struct AlertSettings {
    /// A URL that gets a JSON document.
    pub webhook: Option<Address>,
    /// A project on a Sentry server.
    pub sentry: Option<Project>,
}

/// Everybody who is told.
pub struct Alarms {
    webhook: Option<Webhook>,
    sentry: Option<Sentry>,
}

impl Alarms {
    /// Those that the settings name.
    pub fn open(settings: &AlertSettings) -> anyhow::Result<Arc<dyn Alarm>> {
        let AlertSettings { webhook, sentry } = settings.clone();
        if webhook.is_none() && sentry.is_none() {
            return Ok(Arc::new(LogAlarm));
        }
        let client = Client::builder()
            .user_agent(AGENT)
            .redirect(reqwest::redirect::Policy::none())
            .timeout(LIMIT)
            .build()?;
        Ok(Arc::new(Self {
            webhook: webhook.map(|to| Webhook::new(client.clone(), to)),
            sentry: sentry.map(|to| Sentry::new(client, to)),
        }))
    }
}

const AGENT: &str = concat!("longshore/", env!("CARGO_PKG_VERSION"));

#[async_trait]
impl Alarm for Alarms {
    async fn raise(&self, alert: &PoolAlert) {
        LogAlarm.raise(alert).await;
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

/// An alert in one sentence.
fn sentence(alert: &PoolAlert) -> String {
    let (pool, stats) = (&alert.pool, alert.stats.clone().unwrap_or_default());
    let what = match alert.kind {
        PoolAlertKind::BackEndLost => {
            return format!(
                "the back end of bounded pool `{pool}` does not answer: {}",
                alert.error
            );
        }
        PoolAlertKind::TimedOut => "somebody waited too long for",
        _ => "there is no permit left in",
    };
    let (in_use, max, waiting) = (stats.in_use, stats.max, stats.waiting.len());
    format!("{what} bounded pool `{pool}`: {in_use} of {max} in use, {waiting} wait")
}

/// A pool's figures at the time of an alert.
#[derive(Debug, Serialize)]
struct Figures {
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

impl Figures {
    /// None if the back end is away.
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

/// What is logged of a call that failed; where it went is a secret.
fn trouble(error: reqwest::Error) -> String {
    let error = error.without_url();
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    match cause {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
