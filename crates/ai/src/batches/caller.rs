//! Requests about batches: JSON both ways, files up, and lines of results down. Each with a time of its
//! own, since a batch has no deadline that could bound it.

use std::time::Duration;

use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::{BatchItem, BatchTicket};
use crate::ask::{Answer, AskError, Code, Headroom};
use crate::http::{Frames, Framing, MOST_ANSWER, Reply};
use crate::providers::dialect::{Dialect, How};
use crate::providers::failure;
use crate::providers::remote::Remote;

/// How long a question about a batch may take.
const SHORT: Duration = Duration::from_secs(60);

/// How long it may take to hand over some hundred megabytes.
const LONG: Duration = Duration::from_secs(15 * 60);

/// How long results may pause on their way.
const PAUSE: Duration = Duration::from_secs(60);

/// The most that is read of one batch's results.
const MOST_RESULTS: usize = 8 << 30;

/// Asks one provider about batches.
pub(super) struct Caller<D> {
    pub(super) remote: Remote<D>,
}

impl<D: Dialect> Caller<D> {
    /// Asks for JSON.
    pub(super) async fn look<T: DeserializeOwned>(&self, path: &str) -> Result<T, AskError> {
        in_time(SHORT, self.call(Method::GET, path, Vec::new(), None)).await
    }

    /// Sends JSON, which may be much.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: Vec<u8>,
    ) -> Result<T, AskError> {
        in_time(LONG, self.call(Method::POST, path, body, None)).await
    }

    /// Sends a form.
    pub(super) async fn upload<T: DeserializeOwned>(
        &self,
        path: &str,
        form: super::form::Form,
    ) -> Result<T, AskError> {
        let kind = HeaderValue::from_str(&form.content_type);
        let kind = kind.map_err(|error| AskError::new(Code::Internal, error.to_string()))?;
        in_time(LONG, self.call(Method::POST, path, form.body, Some(kind))).await
    }

    /// Asks for lines.
    pub(super) async fn lines(&self, path: &str) -> Result<ResultLines, AskError> {
        let request = self.remote.request(Method::GET, path, Vec::new())?;
        let reply = in_time(SHORT, async {
            self.remote.accepted(self.remote.http.send(request).await?).await
        });
        Ok(ResultLines { reply: reply.await?, frames: Frames::new(Framing::Lines), ended: false })
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        kind: Option<HeaderValue>,
    ) -> Result<T, AskError> {
        let mut request = self.remote.request(method, path, body)?;
        if let Some(kind) = kind {
            request.headers_mut().insert(CONTENT_TYPE, kind);
        }
        let reply = self.remote.accepted(self.remote.http.send(request).await?).await?;
        let body = reply.whole(MOST_ANSWER).await?;
        serde_json::from_slice(&body).map_err(|error| self.remote.unread(&error.to_string(), &body))
    }

    /// Reads one line.
    pub(super) fn read<T: DeserializeOwned>(&self, line: &str) -> Result<T, AskError> {
        serde_json::from_str(line).map_err(|error| {
            failure::garbled(&error.to_string(), line.as_bytes(), &self.remote.veil)
        })
    }

    /// A question as the provider wants it, without what is particular about batches.
    pub(super) fn body(&self, item: &BatchItem) -> serde_json::Value {
        let model = self.remote.model(&item.question);
        self.remote.dialect.body(model, &item.question, How::Whole)
    }

    /// Reads the answer in a result. How long it took nobody knows; that it was in a batch is no tier but
    /// the batch's price.
    pub(super) fn answer(&self, body: &[u8]) -> Result<Answer, AskError> {
        let draft = self.remote.dialect.read(body);
        let draft = draft.map_err(|why| failure::garbled(&why, body, &self.remote.veil))?;
        let nothing = crate::ask::Question::new("", "", tokio::time::Instant::now());
        let took = Duration::ZERO;
        let mut answer = draft.answer(&nothing, &self.remote.model, took, Headroom::default());
        answer.tier = answer.tier.filter(|tier| tier != "batch");
        Ok(answer)
    }
}

async fn in_time<T>(
    patience: Duration,
    work: impl Future<Output = Result<T, AskError>>,
) -> Result<T, AskError> {
    timeout(patience, work).await.unwrap_or_else(|_| Err(failure::late()))
}

/// Results on their way.
pub(super) struct ResultLines {
    reply: Reply,
    frames: Frames,
    ended: bool,
}

impl ResultLines {
    /// The next line; nothing after the last.
    pub(super) async fn next(&mut self) -> Result<Option<String>, AskError> {
        loop {
            if let Some(line) = self.frames.next() {
                return Ok(Some(line.data));
            }
            if self.ended {
                return Ok(None);
            }
            let came = in_time(PAUSE, async { Ok(self.reply.chunk(MOST_RESULTS).await?) }).await?;
            match came {
                Some(bytes) => self.frames.push(&bytes),
                None => {
                    self.ended = true;
                    return Ok(self.frames.last().map(|line| line.data));
                }
            }
        }
    }
}

impl BatchTicket {
    /// The ticket as a part of a path. Providers' ids are plain; one that is not would lead elsewhere.
    pub(super) fn path(&self) -> Result<&str, AskError> {
        plain(&self.0)
    }
}

/// An id that can be a part of a path.
pub(super) fn plain(id: &str) -> Result<&str, AskError> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if !id.is_empty() && id.bytes().all(good) {
        return Ok(id);
    }
    Err(AskError::new(Code::ProviderError, "the provider's id of a batch or file makes no sense"))
}
