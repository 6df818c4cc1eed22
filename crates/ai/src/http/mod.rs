//! HTTP as providers need it: one pooled client, answers of bounded size, and errors that say
//! whether the question may have reached anybody.
//!
//! Follows no redirects, since keys would travel with them. Knows no provider, and keeps no time: whoever
//! asks has a deadline and drops the call when it has passed.

mod connect;
mod frames;
mod limits;
mod sent;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};

use connect::Connector;
pub(crate) use frames::{Event, Frames, Framing};
pub(crate) use limits::{duration, headroom, retry_after};
use sent::Noted;
pub(crate) use sent::Sent;

/// The largest answer, and the most that is read of a refusal.
pub(crate) const MOST_ANSWER: usize = 32 << 20;
pub(crate) const MOST_REFUSAL: usize = 64 << 10;

/// How long a connection is kept that nobody uses: less than most servers keep theirs, so that a
/// question is seldom written to a connection that is just being closed.
const IDLE: Duration = Duration::from_secs(20);

/// A client for all providers of a process. Made once; clones share its connections.
#[derive(Clone)]
pub struct Http {
    client: Client<Connector, Noted>,
    /// Why no certificate can be checked, if so.
    no_roots: Option<Arc<str>>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The question never left.
    NotSent(String),
    /// It left, and the answer did not come, or not all of it.
    Lost(String),
    /// The answer is larger than this many bytes.
    TooLarge(usize),
}

impl Http {
    /// A client that trusts the certificate authorities that the machine trusts.
    pub fn new() -> Self {
        let (connector, no_roots) = connect::connector();
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build(connector);
        Self { client, no_roots }
    }

    /// Sends a request, and waits for the beginning of the answer.
    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Result<Reply, Broken> {
        self.send_noting(request, &Sent::default()).await
    }

    /// The same, and notes in `sent` when the request leaves.
    pub(crate) async fn send_noting(
        &self,
        request: Request<Full<Bytes>>,
        sent: &Sent,
    ) -> Result<Reply, Broken> {
        if let (Some(why), Some("https")) = (&self.no_roots, request.uri().scheme_str()) {
            return Err(Broken::NotSent(format!("no certificate can be checked: {why}")));
        }
        let request = request.map(|body| Noted { body, sent: sent.clone() });
        let answer = self.client.request(request).await.map_err(|error| unanswered(&error))?;
        let (head, body) = answer.into_parts();
        Ok(Reply { status: head.status, headers: head.headers, body, read: 0 })
    }
}

impl Default for Http {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http").finish_non_exhaustive()
    }
}

/// An answer whose head has come.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    body: Incoming,
    read: usize,
}

impl Reply {
    /// All of the body, if it is no larger than this.
    pub(crate) async fn whole(mut self, most: usize) -> Result<Bytes, Broken> {
        let first = self.chunk(most).await?.unwrap_or_default();
        let Some(second) = self.chunk(most).await? else { return Ok(first) };
        let mut all = [first, second].concat();
        while let Some(bytes) = self.chunk(most).await? {
            all.extend_from_slice(&bytes);
        }
        Ok(all.into())
    }

    /// Reads the beginning of the body, as far as it comes: for words about a refusal.
    pub(crate) async fn beginning(mut self, most: usize, read: &mut Vec<u8>) {
        while let Some(Ok(frame)) = self.body.frame().await {
            let Ok(bytes) = frame.into_data() else { continue };
            read.extend_from_slice(&bytes[..bytes.len().min(most - read.len())]);
            if read.len() == most {
                return;
            }
        }
    }

    /// Reads what nobody wants, up to the end: only then is the connection of use again.
    pub(crate) async fn rest(mut self) {
        while let Ok(Some(_)) = self.chunk(MOST_ANSWER).await {}
    }

    /// Some more of the body; nothing at its end.
    pub(crate) async fn chunk(&mut self, most: usize) -> Result<Option<Bytes>, Broken> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| Broken::Lost(words(&error)))?;
            let Ok(bytes) = frame.into_data() else { continue };
            self.read += bytes.len();
            if self.read > most {
                return Err(Broken::TooLarge(most));
            }
            return Ok(Some(bytes));
        }
        Ok(None)
    }
}

/// A request that was cancelled was never written: its connection closed before its turn.
fn unanswered(error: &legacy::Error) -> Broken {
    let inner = error.source().and_then(|source| source.downcast_ref::<hyper::Error>());
    if error.is_connect() || inner.is_some_and(hyper::Error::is_canceled) {
        return Broken::NotSent(words(error));
    }
    Broken::Lost(words(error))
}

/// An error with its causes. None of them quotes the request.
fn words(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        // Some errors repeat their cause.
        if !words.ends_with(&said) {
            words = format!("{words}: {said}");
        }
        cause = error.source();
    }
    words
}
