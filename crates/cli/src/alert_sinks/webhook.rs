//! Posts alerts to a URL as JSON documents.

use anyhow::anyhow;
use reqwest::{Client, Url};

use super::{AlertDocument, describe_error};
use crate::error::hinted;

/// A webhook's URL. Never printed: knowing it is enough to write there.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookUrl(Url);

impl std::fmt::Debug for WebhookUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WebhookUrl(…)")
    }
}

impl std::str::FromStr for WebhookUrl {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let url = text.parse::<Url>().ok();
        let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        url.map(Self).ok_or_else(|| hinted(anyhow!("not a webhook URL"), "write it as https://HOST/PATH"))
    }
}

/// Posts alerts to a URL.
pub struct Webhook {
    client: Client,
    to: WebhookUrl,
}

impl Webhook {
    /// Posts to `to`.
    pub fn new(client: Client, to: WebhookUrl) -> Self {
        Self { client, to }
    }

    /// Posts the alert.
    pub(super) async fn raise(&self, alert: &AlertDocument) {
        if let Err(error) = self.post(alert).await {
            tracing::warn!(of = alert.source.tag().1, error, "cannot post an alert to the webhook");
        }
    }

    async fn post(&self, document: &AlertDocument) -> Result<(), String> {
        let body = serde_json::to_vec(document).map_err(|error| error.to_string())?;
        let request = self.client.post(self.to.0.clone());
        let request = request.header("content-type", "application/json").body(body);
        let answer = request.send().await.map_err(describe_error)?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("it answered {status}")),
        }
    }
}
