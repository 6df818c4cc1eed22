//! HTTP calls of the batch APIs: JSON in both directions, uploaded files, and downloaded lines of
//! results. Each call has its own timeout, since a batch has no deadline.

use std::time::Duration;

use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::{BatchItem, BatchTicket};
use crate::http::{HttpResponse, MAX_ANSWER_BYTES};
use crate::model_api::{Answer, AskError, Code, Headroom};
use crate::providers::error_mapping;
use crate::providers::http_provider::HttpProvider;
use crate::providers::provider_adapter::{ProviderAdapter, ResponseMode};
use crate::sse::{EventDecoder, Framing};

/// Timeout of a request about a batch.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Timeout of an upload of some hundred megabytes.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// Longest pause between two chunks of results.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Most bytes read of one batch's results.
const MAX_RESULT_BYTES: usize = 8 << 30;

/// Calls the batch API of one provider.
pub(super) struct BatchClient<D> {
    pub(super) provider: HttpProvider<D>,
}

impl<D: ProviderAdapter> BatchClient<D> {
    /// Requests JSON.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, AskError> {
        with_timeout(REQUEST_TIMEOUT, self.call(Method::GET, path, Vec::new(), None)).await
    }

    /// Posts JSON, possibly large.
    pub(super) async fn post<T: DeserializeOwned>(&self, path: &str, body: Vec<u8>) -> Result<T, AskError> {
        with_timeout(UPLOAD_TIMEOUT, self.call(Method::POST, path, body, None)).await
    }

    /// Uploads a form.
    pub(super) async fn upload<T: DeserializeOwned>(
        &self,
        path: &str,
        form: super::multipart::MultipartForm,
    ) -> Result<T, AskError> {
        let kind = HeaderValue::from_str(&form.content_type);
        let kind = kind.map_err(|error| AskError::new(Code::Internal, error.to_string()))?;
        with_timeout(UPLOAD_TIMEOUT, self.call(Method::POST, path, form.body, Some(kind))).await
    }

    /// Requests lines.
    pub(super) async fn lines(&self, path: &str) -> Result<ResultLines, AskError> {
        let request = self.provider.request(Method::GET, path, Vec::new())?;
        let response = with_timeout(REQUEST_TIMEOUT, async {
            self.provider.require_success(self.provider.http.send(request).await?, None).await
        });
        Ok(ResultLines {
            response: response.await?,
            decoder: EventDecoder::new(Framing::Lines),
            ended: false,
        })
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        kind: Option<HeaderValue>,
    ) -> Result<T, AskError> {
        let mut request = self.provider.request(method, path, body)?;
        if let Some(kind) = kind {
            request.headers_mut().insert(CONTENT_TYPE, kind);
        }
        let response = self.provider.require_success(self.provider.http.send(request).await?, None).await?;
        let body = response.read_all(MAX_ANSWER_BYTES).await?;
        serde_json::from_slice(&body).map_err(|error| self.provider.unreadable(&error.to_string(), &body))
    }

    /// Parses one line.
    pub(super) fn read<T: DeserializeOwned>(&self, line: &str) -> Result<T, AskError> {
        serde_json::from_str(line).map_err(|error| {
            error_mapping::invalid_answer(&error.to_string(), line.as_bytes(), &self.provider.redactor)
        })
    }

    /// A question's request body, without the batch API's envelope.
    pub(super) fn body(&self, item: &BatchItem) -> serde_json::Value {
        let model = self.provider.model(&item.question);
        self.provider.adapter.body(model, &item.question, ResponseMode::Complete)
    }

    /// Parses the answer in a result. Its latency is unknown. The tier `batch` is dropped, because
    /// the price of batches already covers it.
    pub(super) fn answer(&self, body: &[u8]) -> Result<Answer, AskError> {
        let draft = self.provider.adapter.parse(body);
        let draft =
            draft.map_err(|why| error_mapping::invalid_answer(&why, body, &self.provider.redactor))?;
        let nothing = crate::model_api::Question::new("", "", tokio::time::Instant::now());
        let took = Duration::ZERO;
        let mut answer = draft.answer(&nothing, &self.provider.model, took, Headroom::default());
        answer.tier = answer.tier.filter(|tier| tier != "batch");
        Ok(answer)
    }
}

async fn with_timeout<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, AskError>>,
) -> Result<T, AskError> {
    timeout(limit, work).await.unwrap_or_else(|_| Err(error_mapping::deadline_exceeded()))
}

/// Results that are being downloaded.
pub(super) struct ResultLines {
    response: HttpResponse,
    decoder: EventDecoder,
    ended: bool,
}

impl ResultLines {
    /// The next line; `None` after the last.
    pub(super) async fn next(&mut self) -> Result<Option<String>, AskError> {
        loop {
            if let Some(line) = self.decoder.next_event() {
                return Ok(Some(line.data));
            }
            if self.ended {
                return Ok(None);
            }
            let chunk =
                with_timeout(READ_TIMEOUT, async { Ok(self.response.chunk(MAX_RESULT_BYTES).await?) })
                    .await?;
            match chunk {
                Some(bytes) => self.decoder.push(&bytes),
                None => {
                    self.ended = true;
                    return Ok(self.decoder.last_event().map(|line| line.data));
                }
            }
        }
    }
}

impl BatchTicket {
    /// The batch's id as a path segment. An id with other characters could change the path.
    pub(super) fn path(&self) -> Result<&str, AskError> {
        path_segment(&self.0)
    }
}

/// An id that is safe as a path segment.
pub(super) fn path_segment(id: &str) -> Result<&str, AskError> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if !id.is_empty() && id.bytes().all(good) {
        return Ok(id);
    }
    Err(AskError::new(Code::ProviderError, "the provider's id of a batch or file is not valid"))
}
