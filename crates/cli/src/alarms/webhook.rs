//! Alerts for a URL: a JSON document is posted there.

use anyhow::anyhow;
use longshore::{Clock, PoolAlert, PoolName, SystemClock};
use reqwest::{Client, Url};
use serde::Serialize;

use super::{Figures, sentence, trouble};
use crate::error::hinted;
use crate::whoami;

/// A URL that is never shown: who knows it may write there.
#[derive(Clone, PartialEq, Eq)]
pub struct Address(Url);

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Address(…)")
    }
}

impl std::str::FromStr for Address {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let url = text.parse::<Url>().ok();
        let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        url.map(Self).ok_or_else(|| {
            hinted(anyhow!("that is no address of a webhook"), "as https://HOST/PATH")
        })
    }
}

/// Posts alerts to a URL.
pub struct Webhook {
    client: Client,
    to: Address,
}

/// What is posted. `text` is what chats show of it.
#[derive(Serialize)]
struct Document<'a> {
    text: String,
    pool: &'a PoolName,
    alert: &'static str,
    at: String,
    host: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    error: &'a str,
    figures: Option<Figures>,
}

impl Webhook {
    /// Posts there.
    pub fn new(client: Client, to: Address) -> Self {
        Self { client, to }
    }

    /// Posts the alert.
    pub async fn raise(&self, alert: &PoolAlert) {
        let document = Document {
            text: sentence(alert),
            pool: &alert.pool,
            alert: alert.kind.as_str(),
            at: SystemClock.now().to_string(),
            host: whoami::host(),
            error: &alert.error,
            figures: Figures::of(alert),
        };
        if let Err(error) = self.post(&document).await {
            tracing::warn!(pool = %alert.pool, error, "an alert could not be posted to the webhook");
        }
    }

    async fn post(&self, document: &Document<'_>) -> Result<(), String> {
        let body = serde_json::to_vec(document).map_err(|error| error.to_string())?;
        let request = self.client.post(self.to.0.clone());
        let request = request.header("content-type", "application/json").body(body);
        let answer = request.send().await.map_err(trouble)?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("it answered {status}")),
        }
    }
}
