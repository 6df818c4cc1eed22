//! Alerts for Sentry: an event per alert, grouped by pool and kind.
//!
//! Events and envelopes are those of the crate `sentry`; its client is not used: it has a thread and a
//! queue of its own, and does not say what became of an event.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::anyhow;
use longshore::{PoolAlert, PoolAlertKind};
use reqwest::{Client, Response, StatusCode};
use sentry::protocol::{Envelope, Event, Level};
use sentry::types::Dsn;
use tokio::time::Instant;

use super::{AGENT, Figures, sentence, trouble};
use crate::error::hinted;
use crate::whoami;

/// How long a server that is overrun is left alone, if it does not say.
const REST: Duration = Duration::from_secs(60);

/// A project on a Sentry server, by its DSN. Never shown: who knows it may write there.
#[derive(Clone, PartialEq, Eq)]
pub struct Project(Dsn);

impl std::fmt::Debug for Project {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Project(…)")
    }
}

impl std::str::FromStr for Project {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let dsn = text.parse().map(Self).ok();
        dsn.ok_or_else(|| {
            hinted(anyhow!("that is no DSN of Sentry"), "as https://KEY@HOST/PROJECT")
        })
    }
}

/// Sends alerts to a Sentry server.
pub struct Sentry {
    client: Client,
    to: Project,
    /// The server wants to hear nothing before.
    silent_until: Mutex<Option<Instant>>,
}

impl Sentry {
    /// Sends them there.
    pub fn new(client: Client, to: Project) -> Self {
        Self { client, to, silent_until: Mutex::default() }
    }

    /// Sends the alert.
    pub async fn raise(&self, alert: &PoolAlert) {
        if self.silent().is_some_and(|until| until > Instant::now()) {
            return tracing::warn!(pool = %alert.pool, "Sentry wants no alerts for a while");
        }
        if let Err(error) = self.send(event(alert)).await {
            tracing::warn!(pool = %alert.pool, error, "an alert could not be sent to Sentry");
        }
    }

    async fn send(&self, event: Event<'static>) -> Result<(), String> {
        let mut body = Vec::new();
        Envelope::from(event).to_writer(&mut body).map_err(|error| error.to_string())?;
        let Project(dsn) = &self.to;
        let mut auth =
            reqwest::header::HeaderValue::from_str(&dsn.to_auth(Some(AGENT)).to_string())
                .map_err(|_| "its key cannot be sent".to_owned())?;
        auth.set_sensitive(true);
        let request = self.client.post(dsn.envelope_api_url());
        let request = request.header("x-sentry-auth", auth).body(body);
        let answer = request.send().await.map_err(trouble)?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            status => {
                if status == StatusCode::TOO_MANY_REQUESTS {
                    *self.silence() = Some(Instant::now() + rest(&answer));
                }
                Err(format!("it answered {status}"))
            }
        }
    }

    fn silent(&self) -> Option<Instant> {
        *self.silence()
    }

    fn silence(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.silent_until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long an overrun server is to be left alone: the first number of what it says.
fn rest(answer: &Response) -> Duration {
    let said = ["x-sentry-rate-limits", "retry-after"].into_iter().find_map(|name| {
        let value = answer.headers().get(name)?.to_str().ok()?;
        value.split([':', ',']).next()?.trim().parse().ok()
    });
    said.map_or(REST, Duration::from_secs)
}

fn event(alert: &PoolAlert) -> Event<'static> {
    let (pool, kind) = (alert.pool.to_string(), alert.kind.as_str());
    let level = match alert.kind {
        PoolAlertKind::AtCapacity => Level::Warning,
        _ => Level::Error,
    };
    let mut event = Event {
        message: Some(sentence(alert)),
        level,
        logger: Some("longshore.pools".to_owned()),
        server_name: Some(whoami::host().into()),
        release: Some(AGENT.into()),
        fingerprint: vec!["bounded-pool".into(), pool.clone().into(), kind.into()].into(),
        ..Event::default()
    };
    event.tags.insert("pool".to_owned(), pool);
    event.tags.insert("alert".to_owned(), kind.to_owned());
    if let Ok(figures) = serde_json::to_value(Figures::of(alert)) {
        event.extra.insert("figures".to_owned(), figures);
    }
    event
}

#[cfg(test)]
mod tests {
    use longshore::PoolName;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_server_that_is_overrun_is_left_alone() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dsn = format!("http://key@{}/1", listener.local_addr().unwrap());
        let sentry = Sentry::new(Client::new(), dsn.parse().unwrap());
        let (pool, kind) = (PoolName::new("mjml").unwrap(), PoolAlertKind::BackEndLost);
        let alert = PoolAlert { pool, kind, stats: None, error: "gone".to_owned() };
        let answers = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await.unwrap();
            let answer = "HTTP/1.1 429 So\r\nx-sentry-rate-limits: 900:error:project\r\n\
                          content-length: 0\r\nconnection: close\r\n\r\n";
            stream.write_all(answer.as_bytes()).await.unwrap();
        };
        tokio::join!(sentry.raise(&alert), answers);
        let until = sentry.silent().unwrap() - Instant::now();
        assert!(until > Duration::from_secs(800), "{until:?}");
        sentry.raise(&alert).await;
        let again = futures_util::poll!(std::pin::pin!(listener.accept()));
        assert!(again.is_pending(), "nobody calls meanwhile");
    }
}
