//! HTTP client for providers: pooled connections, answers of bounded size, and errors that say
//! whether the request may have reached the server.
//!
//! Follows no redirects, because they would carry the key to another host. Knows no provider. Its
//! only timeouts are for connecting and for a body that stops arriving: the caller has a deadline
//! and drops the future when it has passed.

mod ca_verifier;
mod connect;
mod options;
mod rate_limit_headers;
mod tls_error;

use std::convert::Infallible;
use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::timeout;

pub use ca_verifier::trust_certificates;
use connect::Connector;
pub use options::{HttpOptions, HttpOptionsError};
pub(crate) use rate_limit_headers::{duration, headroom};
pub use rate_limit_headers::{http_date, retry_after};
pub use tls_error::tls_error;

use crate::model_api::SentFlag;

/// Longest answer, and longest part of an error response that is read.
pub(crate) const MAX_ANSWER_BYTES: usize = 32 << 20;
pub(crate) const MAX_ERROR_BYTES: usize = 64 << 10;

/// How long an unused connection is kept: less than most servers keep theirs, so that a request is
/// seldom written to a connection that is being closed.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// An HTTP client for all providers of a process, apart from those with a proxy or certificates of
/// their own. Clones share its connections.
#[derive(Clone)]
pub struct Http {
    client: Client<Connector, FlaggedBody>,
    /// Why certificates cannot be verified, if so.
    no_roots: Option<Arc<str>>,
}

/// Why there is no response.
#[derive(Debug)]
pub(crate) enum HttpError {
    /// The request was not sent.
    NotSent(String),
    /// The request was sent, and the response did not arrive, or not completely.
    Lost(String),
    /// The request was sent, and nothing arrived for this long.
    Stalled(Duration),
    /// The response is larger than this many bytes.
    TooLarge(usize),
}

impl HttpError {
    /// There was no connection within this time.
    pub(crate) fn no_connection(limit: Duration) -> Self {
        Self::NotSent(no_connection(limit))
    }
}

/// Why a connection was given up.
fn no_connection(limit: Duration) -> String {
    format!("no connection within {} s", limit.as_secs())
}

impl Http {
    /// A client that connects directly and trusts the machine's certificate authorities.
    pub fn new() -> Self {
        Self::with(&HttpOptions::default())
    }

    /// A client with a proxy or with certificate authorities of its own.
    pub fn with(options: &HttpOptions) -> Self {
        let (connector, no_roots) = connect::connector(options);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .build(connector);
        Self { client, no_roots }
    }

    /// Sends a request and waits for the response's head.
    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Result<HttpResponse, HttpError> {
        self.send_with_flag(request, &SentFlag::default()).await
    }

    /// Sends a request, and sets `sent` when it is written.
    pub(crate) async fn send_with_flag(
        &self,
        request: Request<Full<Bytes>>,
        sent: &SentFlag,
    ) -> Result<HttpResponse, HttpError> {
        if let (Some(why), Some("https")) = (&self.no_roots, request.uri().scheme_str()) {
            return Err(HttpError::NotSent(format!("TLS certificates cannot be verified: {why}")));
        }
        let request = request.map(|body| FlaggedBody { body, sent: sent.share() });
        let answer = self.client.request(request).await.map_err(|error| request_error(&error))?;
        let (head, body) = answer.into_parts();
        let (status, headers) = (head.status, head.headers);
        Ok(HttpResponse { status, headers, body, read: 0, idle_timeout: None })
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

/// A body that sets the flag when it is first read, which happens once there is a connection.
struct FlaggedBody {
    body: Full<Bytes>,
    sent: SentFlag,
}

impl Body for FlaggedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.sent.set(true);
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A response: status and headers have arrived, the body may follow.
pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    body: Incoming,
    read: usize,
    /// Longest pause between two parts of the body.
    pub(crate) idle_timeout: Option<Duration>,
}

impl HttpResponse {
    /// The whole body, if it is no larger than this.
    pub(crate) async fn read_all(mut self, max: usize) -> Result<Bytes, HttpError> {
        let first = self.chunk(max).await?.unwrap_or_default();
        let Some(second) = self.chunk(max).await? else { return Ok(first) };
        let mut all = [first, second].concat();
        while let Some(bytes) = self.chunk(max).await? {
            all.extend_from_slice(&bytes);
        }
        Ok(all.into())
    }

    /// Reads the start of the body, as far as it arrives: for an error's message.
    pub(crate) async fn read_start(mut self, max: usize, read: &mut Vec<u8>) {
        while let Some(Ok(frame)) = self.body.frame().await {
            let Ok(bytes) = frame.into_data() else { continue };
            read.extend_from_slice(&bytes[..bytes.len().min(max - read.len())]);
            if read.len() == max {
                return;
            }
        }
    }

    /// Reads and discards the rest of the body: only then can the connection be reused.
    pub(crate) async fn drain(mut self) {
        while let Ok(Some(_)) = self.chunk(MAX_ANSWER_BYTES).await {}
    }

    /// The next part of the body; `None` at its end.
    pub(crate) async fn chunk(&mut self, max: usize) -> Result<Option<Bytes>, HttpError> {
        while let Some(frame) = self.frame().await? {
            let Ok(bytes) = frame.into_data() else { continue };
            self.read += bytes.len();
            if self.read > max {
                return Err(HttpError::TooLarge(max));
            }
            return Ok(Some(bytes));
        }
        Ok(None)
    }

    async fn frame(&mut self) -> Result<Option<Frame<Bytes>>, HttpError> {
        let frame = match self.idle_timeout {
            Some(limit) => timeout(limit, self.body.frame()).await.map_err(|_| HttpError::Stalled(limit))?,
            None => self.body.frame().await,
        };
        frame.transpose().map_err(|error| HttpError::Lost(with_causes(&error)))
    }
}

/// A cancelled request was never written: its connection was closed before.
fn request_error(error: &legacy::Error) -> HttpError {
    let inner = error.source().and_then(|source| source.downcast_ref::<hyper::Error>());
    if error.is_connect() || inner.is_some_and(hyper::Error::is_canceled) {
        return HttpError::NotSent(with_causes(error));
    }
    HttpError::Lost(with_causes(error))
}

/// An error with its causes; a TLS error in words. None of them quotes the request.
fn with_causes(error: &(dyn Error + 'static)) -> String {
    if let Some(words) = tls_error(error) {
        return words;
    }
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        // Some errors repeat their cause.
        if !message.ends_with(&text) {
            message = format!("{message}: {text}");
        }
        cause = error.source();
    }
    message
}
