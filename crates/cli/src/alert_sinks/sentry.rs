//! Alerts for Sentry: an event per alert, grouped by pool and kind.
//!
//! An event travels as an envelope: a JSON line for the envelope, one for the item, one for the event. Three
//! lines need no SDK, and Sentry's own client has a thread and a queue and does not report delivery.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::anyhow;
use reqwest::header::HeaderValue;
use reqwest::{Client, Response, StatusCode, Url};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{AlertDocument, AlertSource, USER_AGENT, describe_error};
use crate::commands::now;
use crate::error::hinted;
use crate::host_identity;

/// How long an overloaded server is left alone when it names no time.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(60);

/// A project on a Sentry server, by its DSN. Never printed: the key in it permits writing there.
#[derive(Clone, PartialEq, Eq)]
pub struct SentryDsn {
    envelope_url: Url,
    auth: HeaderValue,
}

impl std::fmt::Debug for SentryDsn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SentryDsn(…)")
    }
}

impl std::str::FromStr for SentryDsn {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        parse_dsn(text)
            .ok_or_else(|| hinted(anyhow!("not a Sentry DSN"), "write it as https://KEY@HOST/PROJECT"))
    }
}

/// Reads `SCHEME://KEY[:SECRET]@HOST[:PORT]/[PATH/]PROJECT`.
fn parse_dsn(text: &str) -> Option<SentryDsn> {
    let mut url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    let (path, project) = url.path().trim_end_matches('/').rsplit_once('/')?;
    if url.username().is_empty() || project.is_empty() {
        return None;
    }
    let mut auth =
        format!("Sentry sentry_key={}, sentry_version=7, sentry_client={USER_AGENT}", url.username());
    if let Some(secret) = url.password() {
        auth = format!("{auth}, sentry_secret={secret}");
    }
    let mut auth = HeaderValue::from_str(&auth).ok()?;
    auth.set_sensitive(true);
    let path = format!("{path}/api/{project}/envelope/");
    url.set_path(&path);
    url.set_query(None);
    url.set_username("").and_then(|()| url.set_password(None)).ok()?;
    Some(SentryDsn { envelope_url: url, auth })
}

/// Sends alerts to a Sentry server.
pub struct Sentry {
    client: Client,
    to: SentryDsn,
    /// The server asked for no events before this time.
    muted: Mutex<Option<Instant>>,
}

impl Sentry {
    /// Sends alerts to `to`.
    pub fn new(client: Client, to: SentryDsn) -> Self {
        Self { client, to, muted: Mutex::default() }
    }

    /// Sends the alert.
    pub(super) async fn raise(&self, alert: &AlertDocument) {
        let of = alert.source.tag().1;
        if self.muted_until().is_some_and(|until| until > Instant::now()) {
            return tracing::warn!(of, "the alert was dropped: Sentry asked for a pause");
        }
        if let Err(error) = self.send(&event(alert)).await {
            tracing::warn!(of, error, "cannot send an alert to Sentry");
        }
    }

    async fn send(&self, event: &Value) -> Result<(), String> {
        let SentryDsn { envelope_url, auth } = self.to.clone();
        let request = self.client.post(envelope_url).header("x-sentry-auth", auth);
        let request = request.body(envelope(event));
        let answer = request.send().await.map_err(describe_error)?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            status => {
                if status == StatusCode::TOO_MANY_REQUESTS {
                    *self.lock_muted_until() = Some(Instant::now() + retry_delay(&answer));
                }
                Err(format!("it answered {status}"))
            }
        }
    }

    fn muted_until(&self) -> Option<Instant> {
        *self.lock_muted_until()
    }

    fn lock_muted_until(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.muted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a server that answered 429 is left alone: the first number of its rate-limit headers.
fn retry_delay(answer: &Response) -> Duration {
    let seconds = ["x-sentry-rate-limits", "retry-after"].into_iter().find_map(|name| {
        let value = answer.headers().get(name)?.to_str().ok()?;
        value.split([':', ',']).next()?.trim().parse().ok()
    });
    seconds.map_or(DEFAULT_RETRY_AFTER, Duration::from_secs)
}

/// The envelope's three lines.
fn envelope(event: &Value) -> String {
    let header = json!({ "event_id": event["event_id"] });
    let event = event.to_string();
    let item = json!({ "type": "event", "length": event.len() });
    format!("{header}\n{item}\n{event}\n")
}

fn event(alert: &AlertDocument) -> Value {
    let (source, name) = alert.source.tag();
    let (logger, group) = match alert.source {
        AlertSource::Pool(_) => ("longshore.pools", "bounded-pool"),
        AlertSource::Service(_) => ("longshore.services", "service"),
    };
    json!({
        "event_id": longshore::SessionId::new().to_string().replace('-', ""),
        "timestamp": now().to_string(),
        "platform": "other",
        "message": alert.text,
        "level": alert.level,
        "logger": logger,
        "server_name": host_identity::host(),
        "release": USER_AGENT,
        "fingerprint": [group, name, alert.alert],
        "tags": { (source): name, "alert": alert.alert },
        "extra": { "figures": alert.figures },
    })
}

#[cfg(test)]
mod tests {
    use longshore::{PoolAlert, PoolAlertKind, PoolName};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_server_that_is_overrun_is_left_alone() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dsn = format!("http://key@{}/1", listener.local_addr().unwrap());
        let sentry = Sentry::new(Client::new(), dsn.parse().unwrap());
        let (pool, kind) = (PoolName::new("mjml").unwrap(), PoolAlertKind::BackendLost);
        let alert = PoolAlert { pool, kind, stats: None, error: "gone".to_owned() };
        let alert = AlertDocument::of_pool(&alert);
        let answers = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await.unwrap();
            let answer = "HTTP/1.1 429 So\r\nx-sentry-rate-limits: 900:error:project\r\n\
                          content-length: 0\r\nconnection: close\r\n\r\n";
            stream.write_all(answer.as_bytes()).await.unwrap();
        };
        tokio::join!(sentry.raise(&alert), answers);
        let until = sentry.muted_until().unwrap() - Instant::now();
        assert!(until > Duration::from_secs(800), "{until:?}");
        sentry.raise(&alert).await;
        let again = futures_util::poll!(std::pin::pin!(listener.accept()));
        assert!(again.is_pending(), "no request is sent meanwhile");
    }
}
