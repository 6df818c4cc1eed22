//! From an answer or an error to the HTTP response, complete or streamed.
//!
//! A streamed question runs in its own task, so that a stalled client does not hold the provider
//! past the question's deadline. When the client disconnects, the response is dropped: a question
//! that streams is ended and booked by what arrived, and any other is aborted.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use futures_util::stream;
use longshore::TenantId;
use longshore::accounts::CallRecord;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout_at;
use tracing::Instrument;

use super::InferenceBackend;
use super::error::GatewayError;
use super::request::{Delivery, ParsedRequest, PreparedRequest, REQUEST_ID};
use super::server::GatewayState;
use crate::chat::{AnswerPiece, ToolCall};
use crate::inference::InferenceRequest;
use crate::model_api::{Answer, AskError, Code};
use crate::pricing::Cost;
use crate::profile::ProviderName;
use crate::raw_json::RawObject;

/// An API format that the gateway serves.
pub(super) trait ApiFormat: Send + Sync + 'static {
    /// The provider that is sent requests of this API unchanged.
    fn provider(&self) -> Option<ProviderName>;

    /// Parses a request.
    fn parse(&self, body: &RawObject) -> Result<ParsedRequest, GatewayError>;

    /// Encodes a complete answer.
    fn encode(&self, meta: &ResponseMeta, answer: &Answer) -> Vec<u8>;

    /// An encoder for the events of a streamed answer.
    fn events(&self, delivery: Delivery) -> Box<dyn EventEncoder>;

    /// The HTTP status and the body of an error.
    fn error(&self, error: &GatewayError, request_id: &str) -> (StatusCode, Value);

    /// The response header for the request id that the provider's clients read, besides
    /// `x-request-id`.
    fn id_header(&self) -> Option<&'static str> {
        None
    }
}

/// Encodes the events of a streamed answer in one API format.
pub(super) trait EventEncoder: Send + 'static {
    /// Encodes what comes before the first piece.
    fn start(&mut self, meta: &ResponseMeta, out: &mut Vec<u8>);

    /// Encodes a text that is not empty.
    fn text(&mut self, meta: &ResponseMeta, text: &str, out: &mut Vec<u8>);

    /// Encodes a tool call; `number` counts from 0.
    fn call(&mut self, meta: &ResponseMeta, call: &ToolCall, number: u32, out: &mut Vec<u8>);

    /// Passes the provider's own event through.
    fn raw(&mut self, event: &str, out: &mut Vec<u8>);

    /// Encodes the finish reason and the usage.
    fn finish(&mut self, meta: &ResponseMeta, answer: &Answer, out: &mut Vec<u8>);

    /// Encodes what ends every stream, also that of a provider's own events.
    fn end(&mut self, _out: &mut Vec<u8>) {}

    /// Ends the stream with an error.
    fn fail(&mut self, meta: &ResponseMeta, error: &GatewayError, out: &mut Vec<u8>);
}

/// Metadata of a response.
#[derive(Debug, Clone)]
pub(super) struct ResponseMeta {
    /// The request's id.
    pub(super) id: String,
    /// When it was requested, in seconds since 1970.
    pub(super) created: i64,
    /// The requested model; once the answer starts, the model that answers.
    pub(super) model: String,
    /// Estimated tokens of the question.
    pub(super) tokens_in: u64,
    /// What it repeats of the request, or is written by.
    pub(super) echo: Value,
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream; charset=utf-8");

/// Asks the question, and responds with the answer.
pub(super) async fn answer(
    format: &'static dyn ApiFormat,
    state: &GatewayState,
    prepared: PreparedRequest,
) -> Result<Response, GatewayError> {
    let PreparedRequest { request, meta, delivery } = prepared;
    let tenant = request.tenant.clone();
    if delivery == Delivery::Complete {
        let mut outcome = state.backend.ask(&request, None).await;
        let records = std::mem::take(&mut outcome.records);
        let usage = UsageHeaders::new(&records, outcome.cost_picos);
        state.backend.record(records);
        let may_be_repeated = outcome.may_be_repeated();
        let mut response = match outcome.into_valid() {
            Ok(mut answer) => {
                let dropped = answer.dropped.take();
                let mut response = json_response(match answer.raw {
                    Some(raw) => Body::from(*raw),
                    None => format.encode(&meta, &answer).into(),
                });
                set_dropped_header(dropped.as_deref(), response.headers_mut());
                response
            }
            Err(error) => {
                error_response(format, &meta.id, &GatewayError::of_question(error, may_be_repeated))
            }
        };
        usage.set(response.headers_mut());
        set_budget_header(state, &tenant, response.headers_mut());
        return Ok(response);
    }
    let mut answers = AnswerStream::begin(Arc::clone(&state.backend), request);
    // Before the first event is sent, an error can still be reported by the status.
    let first = match answers.next().await {
        AnswerEvent::End(Err(error)) => {
            let mut response = error_response(format, &meta.id, &error);
            set_budget_header(state, &tenant, response.headers_mut());
            return Ok(response);
        }
        first => first,
    };
    let dropped = match &first {
        AnswerEvent::Piece(AnswerPiece::Started { dropped, .. }) => dropped.clone(),
        AnswerEvent::End(Ok(answer)) => answer.dropped.clone(),
        _ => None,
    };
    let encoder = StreamEncoder::new(format.events(delivery), meta);
    let mut response = respond(StatusCode::OK, EVENTS, event_stream_body(encoder, first, answers));
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    set_dropped_header(dropped.as_deref(), headers);
    set_budget_header(state, &tenant, headers);
    Ok(response)
}

/// Sets the header that tells a client how much of its monthly budget is used, from the budget's
/// `warn_at` on.
fn set_budget_header(state: &GatewayState, tenant: &TenantId, headers: &mut HeaderMap) {
    let used = state.backend.budget_used(tenant).map(|used| format!("{used:.3}"));
    if let Some(used) = used.and_then(|used| HeaderValue::from_str(&used).ok()) {
        headers.insert("x-longshore-budget-used", used);
    }
}

/// Sets the header that tells a client what of its request the provider was not told.
fn set_dropped_header(dropped: Option<&str>, headers: &mut HeaderMap) {
    if let Some(dropped) = dropped.and_then(|dropped| HeaderValue::from_str(dropped).ok()) {
        headers.insert("x-longshore-dropped", dropped);
    }
}

/// A successful response with JSON.
pub(super) fn json_response(body: impl Into<Body>) -> Response {
    respond(StatusCode::OK, JSON, body.into())
}

fn respond(status: StatusCode, kind: HeaderValue, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// The response or the error, with the request's id in its headers.
pub(super) fn finish(format: &dyn ApiFormat, id: &str, served: Result<Response, GatewayError>) -> Response {
    let mut response = served.unwrap_or_else(|error| error_response(format, id, &error));
    if let Ok(id) = HeaderValue::from_str(id) {
        if let Some(name) = format.id_header() {
            response.headers_mut().insert(HeaderName::from_static(name), id.clone());
        }
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

fn error_response(format: &dyn ApiFormat, id: &str, error: &GatewayError) -> Response {
    let (status, body) = format.error(error, id);
    let mut response = respond(status, JSON, body.to_string().into());
    set_retry_headers(error, response.headers_mut());
    response
}

/// Sets the headers that tell a client when and whether to retry. The official clients retry by
/// themselves, also where that would cost money.
fn set_retry_headers(error: &GatewayError, headers: &mut HeaderMap) {
    if let Some(after) = error.retry_after {
        let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
        headers.insert(RETRY_AFTER, seconds.into());
        if let Ok(millis) = u64::try_from(after.as_millis()) {
            headers.insert("retry-after-ms", millis.into());
        }
    }
    if let Some(may) = error.may_be_retried() {
        let may = if may { "true" } else { "false" };
        headers.insert("x-should-retry", HeaderValue::from_static(may));
    }
}

/// What a request used and cost, over all its calls: of fallback profiles, and of a correction.
struct UsageHeaders {
    calls: usize,
    tokens_in: u64,
    tokens_out: u64,
    estimated: bool,
    cost_picos: i64,
}

impl UsageHeaders {
    fn new(records: &[CallRecord], cost_picos: i64) -> Self {
        let ends = || records.iter().filter_map(|record| record.end.as_ref());
        Self {
            calls: ends().filter(|end| end.attempts > 0).count(),
            tokens_in: ends().map(|end| end.tokens_in).fold(0, u64::saturating_add),
            tokens_out: ends().map(|end| end.tokens_out).fold(0, u64::saturating_add),
            estimated: ends().any(|end| end.estimated),
            cost_picos,
        }
    }

    /// Sets the headers, unless no provider was asked.
    fn set(&self, headers: &mut HeaderMap) {
        if self.calls == 0 {
            return;
        }
        headers.insert("x-longshore-calls", self.calls.into());
        headers.insert("x-longshore-tokens-in", self.tokens_in.into());
        headers.insert("x-longshore-tokens-out", self.tokens_out.into());
        if let Ok(cost) = HeaderValue::from_str(&Cost(self.cost_picos).plain()) {
            headers.insert("x-longshore-cost-usd", cost);
        }
        if self.estimated {
            headers.insert("x-longshore-estimated", HeaderValue::from_static("true"));
        }
    }
}

/// Pieces buffered for a slow client.
const CHANNEL_CAPACITY: usize = 64;

/// Bytes sent as one chunk, if so many are available.
const MAX_CHUNK_BYTES: usize = 16 * 1024;

/// How long after its deadline a question that has not ended is aborted.
const DEADLINE_GRACE: Duration = Duration::from_secs(2);

/// How long after its client disconnected a question that has not ended is aborted.
const DISCONNECT_GRACE: Duration = Duration::from_secs(1);

/// A question that is being answered.
struct AnswerStream {
    pieces: mpsc::Receiver<AnswerPiece>,
    /// One task. When this is dropped, it is aborted, or ends by itself if the answer has begun.
    asking: JoinSet<Result<Answer, GatewayError>>,
    /// Part of the answer arrived.
    begun: bool,
    end: Option<Result<Answer, GatewayError>>,
}

/// The next event of an answer.
enum AnswerEvent {
    /// More of the answer.
    Piece(AnswerPiece),
    /// The end of the answer, or the error.
    End(Result<Answer, GatewayError>),
}

impl AnswerStream {
    /// Starts asking.
    fn begin(backend: Arc<dyn InferenceBackend>, request: InferenceRequest) -> Self {
        let (sender, pieces) = mpsc::channel(CHANNEL_CAPACITY);
        let mut asking = JoinSet::new();
        asking.spawn(ask(backend, request, sender).in_current_span());
        Self { pieces, asking, begun: false, end: None }
    }

    /// Waits for the next event.
    async fn next(&mut self) -> AnswerEvent {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<AnswerEvent> {
        if self.end.is_none() {
            if let Poll::Ready(Some(piece)) = self.pieces.poll_recv(cx) {
                self.begun = true;
                return Poll::Ready(AnswerEvent::Piece(piece));
            }
            let over = std::task::ready!(self.asking.poll_join_next(cx));
            self.end = Some(over.and_then(Result::ok).unwrap_or_else(lost));
        }
        // The last pieces may have arrived meanwhile.
        Poll::Ready(match self.pieces.try_recv() {
            Ok(piece) => AnswerEvent::Piece(piece),
            Err(_) => AnswerEvent::End(self.end.take().unwrap_or_else(lost)),
        })
    }
}

impl Drop for AnswerStream {
    fn drop(&mut self) {
        if self.begun {
            self.asking.detach_all();
        }
    }
}

fn lost() -> Result<Answer, GatewayError> {
    Err(AskError::new(Code::Internal, "the task that asked the question panicked").into())
}

async fn ask(
    backend: Arc<dyn InferenceBackend>,
    request: InferenceRequest,
    pieces: mpsc::Sender<AnswerPiece>,
) -> Result<Answer, GatewayError> {
    let until = request.question.until + DEADLINE_GRACE;
    let disconnected = async {
        pieces.closed().await;
        tokio::time::sleep(DISCONNECT_GRACE).await;
    };
    let outcome = tokio::select! {
        biased;
        outcome = timeout_at(until, backend.ask(&request, Some(&pieces))) => outcome,
        () = disconnected => return lost(),
    };
    let outcome = outcome.map_err(|_| {
        AskError::new(Code::Timeout, "the client did not read the answer before the deadline")
    })?;
    let may_be_repeated = outcome.may_be_repeated();
    backend.record(outcome.records);
    outcome.result.map_err(|error| GatewayError::of_question(error, may_be_repeated))
}

/// Encodes an answer as a stream. Knows what was sent; the API format knows the events.
struct StreamEncoder {
    events: Box<dyn EventEncoder>,
    meta: ResponseMeta,
    started: bool,
    /// Some text was sent.
    has_text: bool,
    /// Tool calls sent.
    calls: u32,
    /// The provider's own events are passed through.
    raw: bool,
}

impl StreamEncoder {
    fn new(events: Box<dyn EventEncoder>, meta: ResponseMeta) -> Self {
        Self { events, meta, started: false, has_text: false, calls: 0, raw: false }
    }

    fn piece(&mut self, piece: AnswerPiece, out: &mut Vec<u8>) {
        match piece {
            AnswerPiece::Started { model, .. } => self.meta.model = model,
            AnswerPiece::Text(text) => self.text(&text, out),
            AnswerPiece::ToolCall(call) => self.call(&call, out),
            AnswerPiece::Raw(event) => {
                self.raw = true;
                self.events.raw(&event, out);
            }
        }
    }

    fn start(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.started, true) {
            self.events.start(&self.meta, out);
        }
    }

    fn text(&mut self, text: &str, out: &mut Vec<u8>) {
        if !text.is_empty() {
            self.start(out);
            self.has_text = true;
            self.events.text(&self.meta, text, out);
        }
    }

    fn call(&mut self, call: &ToolCall, out: &mut Vec<u8>) {
        self.start(out);
        self.events.call(&self.meta, call, self.calls, out);
        self.calls += 1;
    }

    /// Encodes what was not sent yet, and ends the stream.
    fn end(&mut self, answer: &Answer, out: &mut Vec<u8>) {
        if !self.raw {
            if !self.has_text {
                self.text(&answer.text, out);
            }
            for call in answer.tool_calls.iter().skip(self.calls as usize) {
                self.call(call, out);
            }
            self.start(out);
            self.events.finish(&self.meta, answer, out);
        }
        self.events.end(out);
    }
}

/// A response body that streams the answer.
fn event_stream_body(encoder: StreamEncoder, first: AnswerEvent, answers: AnswerStream) -> Body {
    let mut stream_state = Some(EventStream { encoder, answers });
    let mut first = Some(first);
    Body::from_stream(stream::poll_fn(move |cx| {
        let Some(open) = &mut stream_state else { return Poll::Ready(None) };
        let (bytes, over) = std::task::ready!(open.poll(&mut first, cx));
        if over {
            stream_state = None;
        }
        Poll::Ready(Some(Ok::<_, std::convert::Infallible>(bytes)))
    }))
}

struct EventStream {
    encoder: StreamEncoder,
    answers: AnswerStream,
}

impl EventStream {
    /// What can be sent now, and whether the stream ends with it.
    fn poll(&mut self, first: &mut Option<AnswerEvent>, cx: &mut Context<'_>) -> Poll<(Bytes, bool)> {
        let mut out = Vec::new();
        while out.len() < MAX_CHUNK_BYTES {
            let event = match first.take() {
                Some(event) => event,
                None => match self.answers.poll(cx) {
                    Poll::Ready(event) => event,
                    Poll::Pending if out.is_empty() => return Poll::Pending,
                    Poll::Pending => break,
                },
            };
            match event {
                AnswerEvent::Piece(piece) => self.encoder.piece(piece, &mut out),
                AnswerEvent::End(Ok(answer)) => {
                    self.encoder.end(&answer, &mut out);
                    return Poll::Ready((out.into(), true));
                }
                AnswerEvent::End(Err(error)) => {
                    let StreamEncoder { events, meta, .. } = &mut self.encoder;
                    events.fail(meta, &error, &mut out);
                    return Poll::Ready((out.into(), true));
                }
            }
        }
        Poll::Ready((out.into(), false))
    }
}
