//! A fake AI provider on loopback: speaks the wires of Anthropic, OpenAI, Ollama and Gemini, told apart by
//! path, answers as it is told, fails in every way that a network knows, and remembers what it was asked.
//!
//! ```text
//! let fake = FakeAi::start().await?;
//! fake.next([Act::refuse(529), Act::say("hello")]);
//! // … ask at fake.url() …
//! assert_eq!(fake.seen()[1].body["model"], "m");
//! ```

mod act;
mod batches;
mod body;
mod responses;
mod wire;

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

pub use act::{Act, End, Say};
use batches::Office;
pub use batches::{BatchPlan, FakeBatch, Fate};
use body::{FakeBody, Step};
use wire::Wire;

/// A fake provider. Stops when it is dropped.
pub struct FakeAi {
    address: SocketAddr,
    state: Arc<State>,
    _serving: JoinSet<()>,
}

/// A request that the fake has read.
#[derive(Debug, Clone)]
pub struct Seen {
    /// How it was asked.
    pub method: Method,
    /// Where, with what stands behind a question mark.
    pub path: String,
    /// With which headers.
    pub headers: HeaderMap,
    /// What was asked; null where that was no JSON.
    pub body: Value,
    /// When.
    pub at: tokio::time::Instant,
}

impl Seen {
    /// A header's text; empty if there is none.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

#[derive(Default)]
struct State {
    acts: Mutex<VecDeque<Act>>,
    usual: Mutex<Act>,
    seen: Mutex<Vec<Seen>>,
    office: Mutex<Office>,
    connections: AtomicUsize,
}

impl FakeAi {
    /// Starts one on a free port of loopback.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (address, state) = (listener.local_addr()?, Arc::new(State::default()));
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, state.clone()));
        Ok(Self { address, state, _serving: serving })
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What it does with the next questions, one each, after those that it was told before.
    pub fn next(&self, acts: impl IntoIterator<Item = Act>) {
        lock(&self.state.acts).extend(acts);
    }

    /// Forgets what it was told to do next.
    pub fn clear(&self) {
        lock(&self.state.acts).clear();
    }

    /// What it does with all others: unless it is told, it says back what it was asked.
    pub fn usually(&self, act: Act) {
        *lock(&self.state.usual) = act;
    }

    /// What it has been asked so far.
    pub fn seen(&self) -> Vec<Seen> {
        lock(&self.state.seen).clone()
    }

    /// What becomes of the next batches, one each. The others end at once, with all questions answered.
    pub fn plan(&self, plans: impl IntoIterator<Item = BatchPlan>) {
        lock(&self.state.office).plans.extend(plans);
    }

    /// What becomes of a question in the first batch that it is in, whichever that is.
    pub fn doom(&self, custom_id: &str, fate: Fate) {
        lock(&self.state.office).doomed.insert(custom_id.to_owned(), fate);
    }

    /// The batches that it was given so far.
    pub fn batches(&self) -> Vec<FakeBatch> {
        lock(&self.state.office).batches.clone()
    }

    /// How many connections there have been.
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
    if state.takes(&Act::ResetUnread) {
        // Bytes that nobody has read make the kernel reset the connection when it is closed.
        let _ = stream.peek(&mut [0]).await;
        return;
    }
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| answer(request, state.clone()));
    let server = http1::Builder::new().timer(TokioTimer::new()).clone();
    // However it ends, the client sees it, and that is what is tested.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

/// The connection ends without an answer.
#[derive(Debug)]
struct HangUp;

impl std::fmt::Display for HangUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the fake hangs up")
    }
}

impl std::error::Error for HangUp {}

async fn answer(
    request: Request<Incoming>,
    state: Arc<State>,
) -> Result<Response<FakeBody>, HangUp> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let path = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    let wire = Wire::of(&path);
    lock(&state.seen).push(Seen {
        method: head.method.clone(),
        path: path.clone(),
        headers: head.headers,
        body: asked.clone(),
        at: tokio::time::Instant::now(),
    });
    let act = state.act();
    if batches::is_about_batches(&path) {
        return match act {
            Act::Say(_) => Ok(lock(&state.office).answer(&head.method, &path, &body)),
            Act::Unheard => {
                lock(&state.office).answer(&head.method, &path, &body);
                Err(HangUp)
            }
            Act::Mute => {
                lock(&state.office).answer(&head.method, &path, &body);
                std::future::pending().await
            }
            act => act.perform(Wire::Openai, &path, &asked).await,
        };
    }
    match (wire, head.method == Method::GET) {
        (Some(wire), _) => act.perform(wire, &path, &asked).await,
        (None, true) if matches!(act, Act::Say(_)) => Ok(wire::catalogue(&path)),
        (None, _) => act.perform(Wire::Openai, &path, &asked).await,
    }
}

impl State {
    fn act(&self) -> Act {
        lock(&self.acts).pop_front().unwrap_or_else(|| lock(&self.usual).clone())
    }

    /// Takes the next act if it is this one.
    fn takes(&self, act: &Act) -> bool {
        let mut acts = lock(&self.acts);
        let it_is = acts.front() == Some(act);
        if it_is {
            acts.pop_front();
        }
        it_is
    }
}

impl Act {
    async fn perform(
        self,
        wire: Wire,
        path: &str,
        asked: &Value,
    ) -> Result<Response<FakeBody>, HangUp> {
        let streamed = wire.is_streamed(path, asked);
        Ok(match self {
            Self::Say(say) => {
                tokio::time::sleep(say.delay).await;
                said(wire, &say, streamed, asked)
            }
            Self::Refuse { status, headers, body } => {
                let body = body.unwrap_or_else(|| wire.error(status).to_string());
                let reply = headers
                    .iter()
                    .fold(Response::builder().status(status), |reply, (name, value)| {
                        reply.header(name, value)
                    });
                made(reply.header(CONTENT_TYPE, "application/json"), vec![Step::bytes(body)])
            }
            Self::Html(status) => {
                let reply = Response::builder().status(status).header(CONTENT_TYPE, "text/html");
                made(reply, vec![Step::bytes("<html>\n<h1>Please log in</h1></html>")])
            }
            Self::Redirect(to) => {
                made(Response::builder().status(307).header(LOCATION, to), Vec::new())
            }
            Self::Truncated => truncated(wire, asked),
            Self::Cut => cut(wire, asked, None),
            Self::Broken => cut(wire, asked, Some(Step::Break)),
            Self::ErrorInStream => {
                cut(wire, asked, Some(Step::bytes(wire.event(&wire.error(529)))))
            }
            Self::Drip(pause) => dripping(wire, pause, streamed, asked),
            Self::Huge(size) => {
                let piece = Bytes::from(vec![b' '; 1 << 20]);
                let steps = (0..size.div_ceil(1 << 20)).map(|_| Step::Bytes(piece.clone()));
                made(wire.head(streamed), steps.collect())
            }
            Self::Hang | Self::Mute => std::future::pending::<Response<FakeBody>>().await,
            Self::ResetUnread | Self::ResetRead | Self::Unheard => return Err(HangUp),
        })
    }
}

fn said(wire: Wire, say: &Say, streamed: bool, asked: &Value) -> Response<FakeBody> {
    let head = say
        .headers
        .iter()
        .fold(wire.head(streamed), |head, (name, value)| head.header(name, value));
    if streamed {
        made(head, wire.events(say, asked).into_iter().map(Step::bytes).collect())
    } else {
        made(head, vec![Step::bytes(wire.answer(say, asked).to_string())])
    }
}

/// Promises more than comes.
fn truncated(wire: Wire, asked: &Value) -> Response<FakeBody> {
    let body = wire.answer(&Say::default(), asked).to_string();
    let head = wire.head(false).header(CONTENT_LENGTH, body.len());
    made(head, vec![Step::bytes(&body[..body.len() / 2]), Step::Break])
}

/// A stream that ends in the middle, and how.
fn cut(wire: Wire, asked: &Value, end: Option<Step>) -> Response<FakeBody> {
    let events = wire.events(&Say::default(), asked);
    let half = events.into_iter().take(wire.events_before_the_end()).map(Step::bytes);
    made(wire.head(true), half.chain(end).collect())
}

fn dripping(
    wire: Wire,
    pause: std::time::Duration,
    streamed: bool,
    asked: &Value,
) -> Response<FakeBody> {
    let all = match streamed {
        true => wire.events(&Say::default(), asked).concat(),
        false => wire.answer(&Say::default(), asked).to_string(),
    };
    let drops = all.into_bytes().into_iter().map(|byte| Step::bytes(vec![byte]));
    made(wire.head(streamed), drops.flat_map(|drop| [drop, Step::Pause(pause)]).collect())
}

/// A response; headers that are none are a mistake in a test, which sees a 500.
fn made(head: Builder, steps: Vec<Step>) -> Response<FakeBody> {
    head.body(FakeBody::new(steps)).unwrap_or_else(|error| {
        let mut response = Response::new(FakeBody::new(vec![Step::bytes(error.to_string())]));
        *response.status_mut() = hyper::StatusCode::INTERNAL_SERVER_ERROR;
        response
    })
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
