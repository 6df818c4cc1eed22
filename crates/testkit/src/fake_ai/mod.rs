//! A fake AI provider on loopback. It implements the APIs of Anthropic, OpenAI, Ollama and Gemini, which it
//! distinguishes by path. Tests choose its answers and failures, and read the requests it received.
//!
//! ```text
//! let fake = FakeAi::start().await?;
//! fake.push_behaviours([FakeBehaviour::refuse(529), FakeBehaviour::say("hello")]);
//! // … send requests to fake.url() …
//! assert_eq!(fake.requests()[1].body["model"], "m");
//! ```

mod api_format;
mod batch_api;
mod behaviour;
mod billing;
mod extras;
mod openai_responses;
mod response_body;

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use hyper::http::response::Builder;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use api_format::ApiFormat;
use batch_api::BatchApi;
pub use batch_api::{BatchItemFailure, BatchPlan, FakeProviderBatch};
pub use behaviour::{AnswerEnd, FakeAnswer, FakeBehaviour};
pub use billing::billed_tokens;
use response_body::{BodyStep, FakeBody};

/// A fake provider. Stops on drop.
pub struct FakeAi {
    address: SocketAddr,
    state: Arc<State>,
    _serving: JoinSet<()>,
}

/// A request that the fake provider received.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// The HTTP method.
    pub method: Method,
    /// The path with the query string.
    pub path: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body; null if it is not JSON.
    pub body: Value,
    /// When it was received.
    pub at: tokio::time::Instant,
}

impl RecordedRequest {
    /// The value of a header; empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

#[derive(Default)]
struct State {
    acts: Mutex<VecDeque<FakeBehaviour>>,
    default_act: Mutex<FakeBehaviour>,
    requests: Mutex<Vec<RecordedRequest>>,
    batch_api: Mutex<BatchApi>,
    connections: AtomicUsize,
}

impl FakeAi {
    /// Starts a fake provider on a free port of loopback.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (address, state) = (listener.local_addr()?, Arc::new(State::default()));
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, state.clone()));
        Ok(Self { address, state, _serving: serving })
    }

    /// Its base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Appends to the queue of behaviours, of which each request takes one.
    pub fn push_behaviours(&self, acts: impl IntoIterator<Item = FakeBehaviour>) {
        lock(&self.state.acts).extend(acts);
    }

    /// Clears the queue of behaviours.
    pub fn clear(&self) {
        lock(&self.state.acts).clear();
    }

    /// Sets the behaviour when the queue is empty. By default it repeats the prompt.
    pub fn set_default(&self, act: FakeBehaviour) {
        *lock(&self.state.default_act) = act;
    }

    /// The requests received so far.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        lock(&self.state.requests).clone()
    }

    /// Appends plans, of which each new batch takes one. Without a plan a batch ends immediately, and all requests
    /// succeed.
    pub fn push_batch_plans(&self, plans: impl IntoIterator<Item = BatchPlan>) {
        lock(&self.state.batch_api).plans.extend(plans);
    }

    /// Makes a request fail in the first batch that contains it.
    pub fn fail_in_batch(&self, custom_id: &str, failure: BatchItemFailure) {
        lock(&self.state.batch_api).item_failures.insert(custom_id.to_owned(), failure);
    }

    /// The batches created so far.
    pub fn batches(&self) -> Vec<FakeProviderBatch> {
        lock(&self.state.batch_api).batches.clone()
    }

    /// How many connections were accepted.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::Relaxed)
    }
}

async fn serve(listener: TcpListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                state.connections.fetch_add(1, Ordering::Relaxed);
                connections.spawn(connection(stream, state.clone()));
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, state: Arc<State>) {
    if state.take_if_next(&FakeBehaviour::ResetUnread) {
        // Closing a socket with unread bytes makes the kernel reset the connection.
        let _ = stream.peek(&mut [0]).await;
        return;
    }
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| answer(request, state.clone()));
    let server = http1::Builder::new().timer(TokioTimer::new()).clone();
    // An error here is part of the tested behaviour; the client sees it.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

/// Closes the connection without an answer.
#[derive(Debug)]
struct ConnectionClosed;

impl std::fmt::Display for ConnectionClosed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the fake provider closes the connection")
    }
}

impl std::error::Error for ConnectionClosed {}

async fn answer(
    request: Request<Incoming>,
    state: Arc<State>,
) -> Result<Response<FakeBody>, ConnectionClosed> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let path = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let request_json: Value = serde_json::from_slice(&body).unwrap_or_default();
    let format = ApiFormat::of(&path);
    lock(&state.requests).push(RecordedRequest {
        method: head.method.clone(),
        path: path.clone(),
        headers: head.headers,
        body: request_json.clone(),
        at: tokio::time::Instant::now(),
    });
    let act = state.act();
    if batch_api::is_batch_path(&path) {
        return match act {
            FakeBehaviour::Answer(_) => Ok(lock(&state.batch_api).answer(&head.method, &path, &body)),
            FakeBehaviour::ExecuteThenClose => {
                lock(&state.batch_api).answer(&head.method, &path, &body);
                Err(ConnectionClosed)
            }
            FakeBehaviour::ExecuteThenHang => {
                lock(&state.batch_api).answer(&head.method, &path, &body);
                std::future::pending().await
            }
            act => act.perform(ApiFormat::Openai, &path, &request_json).await,
        };
    }
    if matches!(act, FakeBehaviour::Answer(_))
        && let Some(response) = extras::answer(&path, &request_json)
    {
        return Ok(response);
    }
    match (format, head.method == Method::GET) {
        (Some(format), _) => act.perform(format, &path, &request_json).await,
        (None, true) if matches!(act, FakeBehaviour::Answer(_)) => Ok(api_format::catalogue(&path)),
        (None, _) => act.perform(ApiFormat::Openai, &path, &request_json).await,
    }
}

impl State {
    fn act(&self) -> FakeBehaviour {
        lock(&self.acts).pop_front().unwrap_or_else(|| lock(&self.default_act).clone())
    }

    /// Removes the next behaviour from the queue if it is `act`.
    fn take_if_next(&self, act: &FakeBehaviour) -> bool {
        let mut acts = lock(&self.acts);
        let is_next = acts.front() == Some(act);
        if is_next {
            acts.pop_front();
        }
        is_next
    }
}

impl FakeBehaviour {
    async fn perform(
        self,
        format: ApiFormat,
        path: &str,
        request_json: &Value,
    ) -> Result<Response<FakeBody>, ConnectionClosed> {
        let streamed = format.is_streamed(path, request_json);
        Ok(match self {
            Self::Answer(say) => {
                tokio::time::sleep(say.delay).await;
                answer_response(format, &say.counted(request_json), streamed, request_json)
            }
            Self::Error { status, headers, body } => {
                let body = body.unwrap_or_else(|| format.error(status).to_string());
                let reply =
                    headers.iter().fold(Response::builder().status(status), |reply, (name, value)| {
                        reply.header(name, value)
                    });
                respond(reply.header(CONTENT_TYPE, "application/json"), vec![BodyStep::bytes(body)])
            }
            Self::Html(status) => {
                let reply = Response::builder().status(status).header(CONTENT_TYPE, "text/html");
                respond(reply, vec![BodyStep::bytes("<html>\n<h1>Please log in</h1></html>")])
            }
            Self::Redirect(to) => respond(Response::builder().status(307).header(LOCATION, to), Vec::new()),
            Self::Truncated => truncated_answer(format, request_json),
            Self::TruncatedStream => truncated_stream(format, request_json, None),
            Self::Broken => truncated_stream(format, request_json, Some(BodyStep::Break)),
            Self::StalledStream => {
                let stall = BodyStep::Pause(std::time::Duration::from_secs(3600));
                truncated_stream(format, request_json, Some(stall))
            }
            Self::ErrorInStream => truncated_stream(
                format,
                request_json,
                Some(BodyStep::bytes(format.event(&format.error(529)))),
            ),
            Self::Drip(pause) => drip(format, pause, streamed, request_json),
            Self::Huge(size) => {
                let piece = Bytes::from(vec![b' '; 1 << 20]);
                let steps = (0..size.div_ceil(1 << 20)).map(|_| BodyStep::Bytes(piece.clone()));
                respond(format.head(streamed), steps.collect())
            }
            Self::Hang | Self::ExecuteThenHang => std::future::pending::<Response<FakeBody>>().await,
            Self::ResetUnread | Self::ResetRead | Self::ExecuteThenClose => {
                return Err(ConnectionClosed);
            }
        })
    }
}

fn answer_response(
    format: ApiFormat,
    say: &FakeAnswer,
    streamed: bool,
    request_json: &Value,
) -> Response<FakeBody> {
    let head = say.headers.iter().fold(format.head(streamed), |head, (name, value)| head.header(name, value));
    if streamed {
        respond(head, format.events(say, request_json).into_iter().map(BodyStep::bytes).collect())
    } else {
        respond(head, vec![BodyStep::bytes(format.answer(say, request_json).to_string())])
    }
}

/// An answer that is shorter than its Content-Length.
fn truncated_answer(format: ApiFormat, request_json: &Value) -> Response<FakeBody> {
    let body = format.answer(&FakeAnswer::default(), request_json).to_string();
    let head = format.head(false).header(CONTENT_LENGTH, body.len());
    respond(head, vec![BodyStep::bytes(&body[..body.len() / 2]), BodyStep::Break])
}

/// A stream that stops in the middle, with an optional last step.
fn truncated_stream(format: ApiFormat, request_json: &Value, end: Option<BodyStep>) -> Response<FakeBody> {
    let events = format.events(&FakeAnswer::default(), request_json);
    let half = events.into_iter().take(format.events_before_end()).map(BodyStep::bytes);
    respond(format.head(true), half.chain(end).collect())
}

fn drip(
    format: ApiFormat,
    pause: std::time::Duration,
    streamed: bool,
    request_json: &Value,
) -> Response<FakeBody> {
    let all = match streamed {
        true => format.events(&FakeAnswer::default(), request_json).concat(),
        false => format.answer(&FakeAnswer::default(), request_json).to_string(),
    };
    let drops = all.into_bytes().into_iter().map(|byte| BodyStep::bytes(vec![byte]));
    respond(format.head(streamed), drops.flat_map(|drop| [drop, BodyStep::Pause(pause)]).collect())
}

/// Builds a response. Invalid headers are a mistake in the test, which gets a 500.
fn respond(head: Builder, steps: Vec<BodyStep>) -> Response<FakeBody> {
    head.body(FakeBody::new(steps)).unwrap_or_else(|error| {
        let mut response = Response::new(FakeBody::new(vec![BodyStep::bytes(error.to_string())]));
        *response.status_mut() = hyper::StatusCode::INTERNAL_SERVER_ERROR;
        response
    })
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
