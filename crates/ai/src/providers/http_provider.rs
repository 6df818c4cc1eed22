//! A provider behind HTTP: sends the request that its [`ProviderAdapter`] builds, waits at most until the
//! question's deadline, and has the adapter parse the response.

use std::pin::pin;
use std::sync::OnceLock;
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::{Method, Request, Uri};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use super::error_mapping::{self, ErrorContext, Redactor};
use super::provider_adapter::{Draft, EventError, Flow, ProviderAdapter, ResponseMode, StreamParser};
use crate::chat::AnswerPiece;
use crate::embedding::EmbeddingInput;
use crate::http::{Http, HttpError, HttpResponse, MAX_ANSWER_BYTES, MAX_ERROR_BYTES, headroom};
use crate::model_api::{Answer, AskError, BillingStatus, Code, Headroom, Provider, Question, SentFlag};
use crate::passthrough::OnUnsupported;
use crate::sse::{DecodedEvent, EventDecoder, Framing};

/// How long to wait for the body of an error response.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a stream's connection may take to end after the last event, so that it can be reused.
const STREAM_CLOSE_TIMEOUT: Duration = Duration::from_millis(100);

/// Longest pause in an answer that has begun, unless the profile sets another.
const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// A provider that is asked over HTTP.
pub(crate) struct HttpProvider<D> {
    pub(crate) adapter: D,
    pub(crate) http: Http,
    pub(crate) base: BaseUrl,
    /// The headers of every request; secret values are marked sensitive.
    pub(crate) headers: HeaderMap,
    pub(crate) model: String,
    pub(crate) redactor: Redactor,
    /// The profile's longest time without a byte from the provider.
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) on_unsupported: OnUnsupported,
}

#[async_trait]
impl<D: ProviderAdapter> Provider for HttpProvider<D> {
    async fn ask(&self, question: &Question) -> Result<Answer, AskError> {
        let sent = &question.sent;
        sent.set(false);
        let asking = pin!(self.ask_complete(question));
        within(question.until, sent, asking).await
    }

    async fn stream(
        &self,
        question: &Question,
        pieces: &mpsc::Sender<AnswerPiece>,
    ) -> Result<Answer, AskError> {
        let (began, sent) = (Instant::now(), &question.sent);
        sent.set(false);
        let streams = self.adapter.streams(question);
        let mode = if streams { ResponseMode::Stream } else { ResponseMode::Complete };
        let sending = pin!(self.send(question, mode));
        let response = within(question.until, sent, sending).await?;
        let headroom = headroom(&response.headers);
        if !streams || is_complete::<D>(&response.headers) {
            let reading = pin!(self.read_as_pieces(response, question, pieces));
            let draft = within(question.until, sent, reading).await?;
            return self.finish(question, draft, began, headroom);
        }
        let mut stream =
            AnswerReader::new(self.piece_format(question), D::FRAMING, self.adapter.stream_parser());
        let reading = Box::pin(self.read_stream(response, question, &mut stream, pieces));
        let ended = within(question.until, sent, reading).await;
        let draft = stream.draft;
        let error = match ended {
            Ok(StreamEnd::Closed(why)) if draft.finish.is_none() => {
                error_mapping::incomplete_stream(&self.redactor.redact(&why))
            }
            Ok(StreamEnd::Closed(_)) => return self.finish(question, draft, began, headroom),
            Ok(StreamEnd::Abandoned) => {
                let took = began.elapsed();
                return Ok(draft.partial_answer(question, self.model(question), took));
            }
            Err(error) => error,
        };
        Err(self.with_bill(error, question, draft, began))
    }

    async fn count_tokens(&self, question: &Question) -> Result<Option<u64>, AskError> {
        let Some((path, body)) = self.adapter.count(self.model(question), question) else { return Ok(None) };
        within(question.until, &SentFlag::default(), self.count(&path, body, question)).await
    }

    fn dropped(&self, question: &Question) -> Option<Box<str>> {
        match self.adapter.raw(question) {
            Some(_) => None,
            None => question.translation_loss(D::NAME).dropped(),
        }
    }

    fn token_bound(&self, question: &Question) -> u64 {
        question.token_bound(D::IMAGE_TOKENS)
    }

    async fn health(&self, until: Instant) -> Result<String, AskError> {
        within(until, &SentFlag::default(), self.check_health()).await
    }
}

/// Runs `work` until a deadline; does not start it after the deadline. Large futures come pinned:
/// moved in here they would need their space twice.
async fn within<T>(
    until: Instant,
    sent: &SentFlag,
    work: impl Future<Output = Result<T, AskError>>,
) -> Result<T, AskError> {
    if Instant::now() >= until {
        return Err(error_mapping::deadline_before_send());
    }
    let late = || {
        if sent.is_set() { error_mapping::deadline_exceeded() } else { error_mapping::deadline_before_send() }
    };
    timeout_at(until, work).await.unwrap_or_else(|_| Err(late()))
}

impl<D: ProviderAdapter> HttpProvider<D> {
    async fn ask_complete(&self, question: &Question) -> Result<Answer, AskError> {
        let began = Instant::now();
        let response = self.send(question, ResponseMode::Complete).await?;
        let headroom = headroom(&response.headers);
        let (draft, body) = self.read(response, question).await?;
        let answer = self.finish(question, draft, began, headroom)?;
        let raw = self.adapter.raw(question).map(|_| Box::new(body));
        Ok(Answer { raw, ..answer })
    }

    /// Builds the answer and checks it against the question. An invalid one was billed all the
    /// same.
    fn finish(
        &self,
        question: &Question,
        draft: Draft,
        began: Instant,
        headroom: Headroom,
    ) -> Result<Answer, AskError> {
        let invalid = self.adapter.check(question, &draft).err();
        let answer = draft.answer(question, self.model(question), began.elapsed(), headroom);
        match invalid {
            None => Ok(answer),
            Some(error) => Err(AskError { billing: BillingStatus::Partial(Box::new(answer)), ..error }),
        }
    }

    /// Adds what was received to an error: that much was billed, as far as is known.
    fn with_bill(&self, error: AskError, question: &Question, draft: Draft, began: Instant) -> AskError {
        if error.billing == BillingStatus::Nothing {
            return error;
        }
        if draft.is_empty() {
            return AskError { billing: BillingStatus::Unknown, ..error };
        }
        let received = draft.partial_answer(question, self.model(question), began.elapsed());
        AskError { billing: BillingStatus::Partial(Box::new(received)), ..error }
    }

    /// Reads a complete answer; also returns the body.
    async fn read(&self, response: HttpResponse, question: &Question) -> Result<(Draft, Bytes), AskError> {
        let body = response.read_all(MAX_ANSWER_BYTES).await?;
        let context = self.errors_of(question);
        let parsed = match &question.embeddings {
            None => self.adapter.parse(&body),
            Some(input) => self.adapter.parse_embeddings(&body).and_then(|draft| complete_list(draft, input)),
        };
        let mut draft = parsed.map_err(|why| unreadable(&why, &body, context))?;
        self.adapter.complete(question, &mut draft);
        Ok((draft, body))
    }

    /// Reads a complete answer from a server that was asked to stream.
    async fn read_as_pieces(
        &self,
        response: HttpResponse,
        question: &Question,
        pieces: &mpsc::Sender<AnswerPiece>,
    ) -> Result<Draft, AskError> {
        let (draft, _) = self.read(response, question).await?;
        forward(draft.pieces(), pieces).await;
        Ok(draft)
    }

    /// Reads a stream to its end, or until the receiver is dropped: closing the connection tells
    /// the provider to stop.
    async fn read_stream(
        &self,
        mut response: HttpResponse,
        question: &Question,
        stream: &mut AnswerReader,
        pieces: &mpsc::Sender<AnswerPiece>,
    ) -> Result<StreamEnd, AskError> {
        let context = self.errors_of(question);
        loop {
            let chunk = tokio::select! {
                biased;
                chunk = response.chunk(MAX_ANSWER_BYTES) => chunk,
                () = pieces.closed() => return Ok(StreamEnd::Abandoned),
            };
            let (received, at_end) = match chunk {
                Ok(Some(bytes)) => (stream.push(&bytes, context)?, None),
                Ok(None) => (stream.last(context)?, Some("the connection was closed".to_owned())),
                Err(stalled @ HttpError::Stalled(_)) if stream.draft.finish.is_none() => {
                    return Err(stalled.into());
                }
                Err(broken) => ((Vec::new(), Flow::More), Some(AskError::from(broken).message)),
            };
            let (received, flow) = received;
            if !forward(received, pieces).await {
                return Ok(StreamEnd::Abandoned);
            }
            match (flow, at_end) {
                (Flow::Done, _) => {
                    let _ = timeout(STREAM_CLOSE_TIMEOUT, response.drain()).await;
                    return Ok(StreamEnd::Closed(
                        "the last event arrived before the answer's end".to_owned(),
                    ));
                }
                (Flow::More, Some(why)) => return Ok(StreamEnd::Closed(why)),
                (Flow::More, None) => {}
            }
        }
    }

    async fn check_health(&self) -> Result<String, AskError> {
        let request = self.request(Method::GET, &self.adapter.health_path(&self.model), Vec::new())?;
        let response = self.require_success(self.http.send(request).await?, None).await?;
        let body = response.read_all(MAX_ANSWER_BYTES).await?;
        let status: Value =
            serde_json::from_slice(&body).map_err(|error| self.unreadable(&error.to_string(), &body))?;
        let missing = |why: String| AskError::new(Code::InvalidRequest, why);
        self.adapter.health(&self.model, &status).map_err(missing)
    }

    /// Asks how many tokens a question has. A server of the same API that does not count is no error.
    async fn count(&self, path: &str, body: Vec<u8>, question: &Question) -> Result<Option<u64>, AskError> {
        let response = self.http.send(self.request(Method::POST, path, body)?).await?;
        if matches!(response.status.as_u16(), 404 | 405 | 501) {
            return Ok(None);
        }
        let response = self.require_success(response, Some(question)).await?;
        let body = response.read_all(MAX_ANSWER_BYTES).await?;
        let counted = serde_json::from_slice(&body).ok().and_then(|response| self.adapter.counted(&response));
        counted.map(Some).ok_or_else(|| self.unreadable("it has no count", &body))
    }

    async fn send(&self, question: &Question, mode: ResponseMode) -> Result<HttpResponse, AskError> {
        let model = self.model(question);
        if model.is_empty() {
            return Err(AskError::new(
                Code::InvalidRequest,
                "neither the profile nor the question names a model",
            ));
        }
        let (path, body) = match &question.embeddings {
            None => (self.adapter.path(model, question, mode)?, self.body(model, question, mode)?),
            Some(input) => self.embedding(model, question, input)?,
        };
        let request = self.request(Method::POST, &path, body)?;
        let response = self.response(request, question).await?;
        let mut response = self.require_success(response, Some(question)).await?;
        question.sent.set_accepted();
        response.idle_timeout = Some(self.idle_timeout.unwrap_or(DEFAULT_IDLE_TIMEOUT));
        Ok(response)
    }

    /// Sends a request and waits for the response to begin.
    async fn response(
        &self,
        request: Request<Full<Bytes>>,
        question: &Question,
    ) -> Result<HttpResponse, HttpError> {
        let sent = &question.sent;
        let mut sending = pin!(self.http.send_with_flag(request, sent));
        if let Some(limit) = question.connect_timeout {
            match timeout(limit, sending.as_mut()).await {
                Ok(response) => return response,
                Err(_) if !sent.is_set() => return Err(HttpError::no_connection(limit)),
                Err(_) => {}
            }
        }
        let Some(limit) = self.idle_timeout else { return sending.await };
        loop {
            match timeout(limit, sending.as_mut()).await {
                Ok(response) => return response,
                Err(_) if sent.is_set() => return Err(HttpError::Stalled(limit)),
                // Connecting has a time limit of its own.
                Err(_) => {}
            }
        }
    }

    /// The request body: the client's original, or a translation that loses nothing.
    fn body(&self, model: &str, question: &Question, mode: ResponseMode) -> Result<Vec<u8>, AskError> {
        let body = match self.adapter.raw(question) {
            Some(raw) => raw.with_changes(&self.adapter.changes(model, question, raw, mode)),
            None => match question.translation_loss(D::NAME).refused(D::NAME, self.on_unsupported) {
                Some(refused) => return Err(refused),
                None => serde_json::to_vec(&self.adapter.body(model, question, mode)),
            },
        };
        body.map_err(|error| AskError::new(Code::Internal, error.to_string()))
    }

    /// The path and the request body of texts to embed.
    fn embedding(
        &self,
        model: &str,
        question: &Question,
        input: &EmbeddingInput,
    ) -> Result<(String, Vec<u8>), AskError> {
        let (path, body) = self.adapter.embedding(model, input).ok_or_else(|| {
            AskError::new(Code::InvalidRequest, format!("provider {} has no embeddings", D::NAME))
        })?;
        let body = match self.adapter.raw(question) {
            Some(raw) => raw.with_changes(&[("model", Some(model.into()))]),
            None => match question.translation_loss(D::NAME).refused(D::NAME, OnUnsupported::Refuse) {
                Some(refused) => return Err(refused),
                None => serde_json::to_vec(&body),
            },
        };
        Ok((path, body.map_err(|error| AskError::new(Code::Internal, error.to_string()))?))
    }

    fn piece_format(&self, question: &Question) -> PieceFormat {
        if self.adapter.raw(question).is_some() { PieceFormat::Raw } else { PieceFormat::Parsed }
    }

    pub(crate) fn request(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Request<Full<Bytes>>, AskError> {
        // Without the parser's message: the URL may contain secrets in its path.
        let address = self.base.uri(path).ok_or_else(|| {
            AskError::new(Code::InvalidRequest, "the model's name does not make a valid URL")
        })?;
        let mut request = Request::new(Full::from(body));
        *request.method_mut() = method;
        *request.uri_mut() = address;
        *request.headers_mut() = self.headers.clone();
        Ok(request)
    }

    /// Passes a response with a success status on. `question` is the one that was sent, if it was
    /// one.
    pub(crate) async fn require_success(
        &self,
        response: HttpResponse,
        question: Option<&Question>,
    ) -> Result<HttpResponse, AskError> {
        if response.status.is_success() {
            return Ok(response);
        }
        Err(Box::pin(self.error_of(response, question)).await)
    }

    /// The error of any other response.
    async fn error_of(&self, response: HttpResponse, question: Option<&Question>) -> AskError {
        let (status, headers) = (response.status.as_u16(), response.headers.clone());
        let mut body = Vec::new();
        // If the body takes too long, the status is enough.
        let _ = timeout(ERROR_BODY_TIMEOUT, response.read_start(MAX_ERROR_BYTES, &mut body)).await;
        let context = ErrorContext { redactor: &self.redactor, question };
        error_mapping::from_response(status, &headers, &body, context)
    }

    /// What this question's errors are read with.
    fn errors_of<'a>(&'a self, question: &'a Question) -> ErrorContext<'a> {
        ErrorContext { redactor: &self.redactor, question: Some(question) }
    }

    /// The error of an answer with status 200 that cannot be parsed.
    pub(crate) fn unreadable(&self, why: &str, body: &[u8]) -> AskError {
        unreadable(why, body, ErrorContext::from(&self.redactor))
    }

    pub(crate) fn model<'a>(&'a self, question: &'a Question) -> &'a str {
        question.model.as_deref().unwrap_or(&self.model)
    }
}

/// Embeddings of all texts; the error says why they are not.
fn complete_list(draft: Draft, input: &EmbeddingInput) -> Result<Draft, String> {
    match draft.embeddings.len() {
        count if input.tokens > 0 || count == input.texts.len() => Ok(draft),
        count => Err(format!("it has {count} embeddings of {} texts", input.texts.len())),
    }
}

/// The error of an answer with status 200 that cannot be parsed: it may be an error body.
fn unreadable(why: &str, body: &[u8], context: ErrorContext<'_>) -> AskError {
    match serde_json::from_slice::<Value>(body) {
        Ok(json) if json.get("error").is_some_and(|error| !error.is_null()) => {
            // An error instead of an answer is not billed.
            AskError { billing: BillingStatus::Nothing, ..error_mapping::from_event(&json, true, context) }
        }
        _ => error_mapping::invalid_answer(why, body, context.redactor),
    }
}

/// The form in which a stream's pieces are forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PieceFormat {
    /// Parsed.
    Parsed,
    /// Unchanged.
    Raw,
}

/// How a stream ended.
enum StreamEnd {
    /// The provider ended it; the reason, in case the answer is incomplete.
    Closed(String),
    /// The receiver was dropped.
    Abandoned,
}

/// A stream that is being read.
struct AnswerReader {
    piece_format: PieceFormat,
    decoder: EventDecoder,
    parser: Box<dyn StreamParser>,
    draft: Draft,
    /// Some of the answer arrived.
    started: bool,
}

impl AnswerReader {
    fn new(piece_format: PieceFormat, framing: Framing, parser: Box<dyn StreamParser>) -> Self {
        let (decoder, draft) = (EventDecoder::new(framing), Draft::default());
        Self { piece_format, decoder, parser, draft, started: false }
    }

    fn push(
        &mut self,
        bytes: &[u8],
        context: ErrorContext<'_>,
    ) -> Result<(Vec<AnswerPiece>, Flow), AskError> {
        self.decoder.push(bytes);
        let mut received = Vec::new();
        while let Some(event) = self.decoder.next_event() {
            if self.take(&event, &mut received, context)? == Flow::Done {
                return Ok((received, Flow::Done));
            }
        }
        Ok((received, Flow::More))
    }

    fn last(&mut self, context: ErrorContext<'_>) -> Result<(Vec<AnswerPiece>, Flow), AskError> {
        let mut received = Vec::new();
        if let Some(event) = self.decoder.last_event() {
            self.take(&event, &mut received, context)?;
        }
        Ok((received, Flow::More))
    }

    fn take(
        &mut self,
        event: &DecodedEvent,
        received: &mut Vec<AnswerPiece>,
        context: ErrorContext<'_>,
    ) -> Result<Flow, AskError> {
        let understood = received.len();
        let flow = self.parser.take(event, &mut self.draft, received).map_err(|error| match error {
            EventError::Provider(error) => error_mapping::from_event(&error, self.started, context),
            EventError::Invalid(why) => {
                error_mapping::invalid_answer(&why, event.data.as_bytes(), context.redactor)
            }
        })?;
        if self.piece_format == PieceFormat::Raw {
            received.truncate(understood);
            received.push(AnswerPiece::Raw(one_line(&event.data)));
        }
        self.started |= !received.is_empty();
        Ok(flow)
    }
}

/// JSON on one line: a newline can only stand between tokens.
fn one_line(data: &str) -> String {
    data.replace('\n', " ")
}

/// Forwards pieces; returns whether the receiver is still open.
async fn forward(received: Vec<AnswerPiece>, pieces: &mpsc::Sender<AnswerPiece>) -> bool {
    for piece in received {
        if pieces.send(piece).await.is_err() {
            return false;
        }
    }
    true
}

/// Some servers answer completely although a stream was requested; error pages are never streamed.
fn is_complete<D: ProviderAdapter>(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    D::FRAMING == Framing::Sse
        && ["application/json", "text/html"].iter().any(|whole| kind.starts_with(whole))
}

/// A provider's base URL: scheme, host and path prefix.
#[derive(Debug)]
pub(crate) struct BaseUrl {
    address: String,
    /// The first path that was requested, and its URL. Hardly any provider is asked for another
    /// path, and parsing a URL costs as much as sending it.
    first: OnceLock<(String, Uri)>,
}

impl BaseUrl {
    pub(crate) fn new(address: String) -> Self {
        Self { address, first: OnceLock::new() }
    }

    /// The URL of a path; `None` if it is not valid.
    pub(crate) fn uri(&self, path: &str) -> Option<Uri> {
        if let Some((known, uri)) = self.first.get()
            && known == path
        {
            return Some(uri.clone());
        }
        let uri = Uri::try_from(format!("{}{path}", self.address)).ok()?;
        // The first path stays cached.
        let _ = self.first.set((path.to_owned(), uri.clone()));
        Some(uri)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_has_its_own_address() {
        let base = BaseUrl::new("http://host/v1".to_owned());
        for path in ["/chat", "/models?limit=1", "/chat"] {
            assert_eq!(base.uri(path).unwrap().to_string(), format!("http://host/v1{path}"));
        }
        assert_eq!(base.uri("/a b"), None);
    }
}
