//! The gateway's routes, and its own HTTP server: accepts connections, answers, shuts down
//! gracefully.
//!
//! The server matches the two paths for questions itself. A router would cost every question a
//! dozen allocations; all other requests go through it.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::header::HOST;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Request, Response, StatusCode};
use axum::routing::{any, get, post};
use futures_util::future::BoxFuture;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use longshore::{Clock, SystemClock};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower_service::Service as _;

use super::anthropic_response::Anthropic;
use super::completions::Completions;
use super::embeddings::Embeddings;
use super::error::{GatewayError, GatewayErrorKind};
use super::fields::short;
use super::openai_response::OpenAi;
use super::response::{ApiFormat, finish};
use super::responses_response::Responses;
use super::{Authenticator, InferenceBackend, models, request};

/// Path of OpenAI's chat completions.
const CHAT_COMPLETIONS: &str = "/v1/chat/completions";

/// Path of Anthropic's messages.
const MESSAGES: &str = "/v1/messages";

/// How long a connection may take to send its next request head. Also applies to the first, so that
/// idle connections are closed.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(75);

/// Maximum number of concurrent connections; further ones wait.
const MAX_CONNECTIONS: usize = 10_000;

/// Delay after a failed `accept`: the process may be out of file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Serves the tenants' profiles through the APIs of OpenAI and Anthropic.
pub struct Gateway {
    state: GatewayState,
}

/// State shared by all requests.
pub(super) struct GatewayState {
    pub(super) backend: Arc<dyn InferenceBackend>,
    pub(super) authenticator: Arc<dyn Authenticator>,
    pub(super) clock: Arc<dyn Clock>,
}

impl Gateway {
    /// A gateway to a backend, with an authenticator.
    pub fn new(backend: Arc<dyn InferenceBackend>, authenticator: Arc<dyn Authenticator>) -> Self {
        Self { state: GatewayState { backend, authenticator, clock: Arc::new(SystemClock) } }
    }

    /// Sets the clock for the `created` time of answers.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { state: GatewayState { clock, ..self.state } }
    }

    /// The routes, all below `/v1`, to mount beside others.
    pub fn router(self) -> Router {
        routes(&Arc::new(self.state))
    }

    /// Serves the same routes over a listener until `end`, then finishes the requests in progress.
    /// Cheaper than a router, for processes that serve nothing else.
    pub async fn serve(self, listener: TcpListener, end: impl Future<Output = ()> + Send) {
        let state = Arc::new(self.state);
        let router = routes(&state).fallback(unknown);
        Arc::new(Connections { state, router }).accept(listener, Box::pin(end)).await;
    }
}

fn routes(state: &Arc<GatewayState>) -> Router {
    let ask = |format: &'static dyn ApiFormat| {
        let state = Arc::clone(state);
        post(async move |request: Request<Body>| request::handle(format, &state, request).await)
    };
    let (counting, listing, looking) = (Arc::clone(state), Arc::clone(state), Arc::clone(state));
    let count = post(move |request: Request<Body>| request::count_tokens(counting, request));
    let list = get(move |head: Parts| models::list(listing, head));
    let show = get(move |Path(id): Path<String>, head: Parts| models::show(looking, id, head));
    Router::new()
        .route(CHAT_COMPLETIONS, ask(&OpenAi))
        .route("/v1/completions", ask(&Completions))
        .route("/v1/embeddings", ask(&Embeddings))
        .route("/v1/responses", ask(&Responses))
        .route(MESSAGES, ask(&Anthropic))
        .route("/v1/messages/count_tokens", count)
        .route("/v1/models", list)
        // A model may be `profile/model`.
        .route("/v1/models/{*id}", show)
        .method_not_allowed_fallback(wrong_method)
        .route("/v1/", any(unknown))
        .route("/v1/{*path}", any(unknown))
}

/// Answers a request for a path that does not exist in its API's format.
async fn unknown(head: Parts) -> axum::response::Response {
    let path = head.uri.path();
    let message = format!("there is no `{} {}`", head.method, short(path));
    let message = match path.starts_with("/v1/") {
        true => message,
        false => format!("{message}: paths of the API begin with `/v1/`"),
    };
    let format = format_of(&head.headers, path);
    let id = request::request_id(&head.headers);
    finish(format, &id, Err(GatewayError::new(GatewayErrorKind::UnknownPath, message)))
}

async fn wrong_method(head: Parts) -> axum::response::Response {
    let mut response = unknown(head).await;
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    response
}

/// Only Anthropic's clients send a version header.
pub(super) fn format_of(headers: &HeaderMap, path: &str) -> &'static dyn ApiFormat {
    let is_anthropic = headers.contains_key("anthropic-version") || path.starts_with(MESSAGES);
    if is_anthropic { &Anthropic } else { &OpenAi }
}

/// Shared by all connections.
struct Connections {
    state: Arc<GatewayState>,
    router: Router,
}

/// Waits after a failed `accept`, unless the connection only broke before it was accepted: any other
/// error is a lack of resources, and passes.
pub async fn pause_after_accept_error(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::warn!(%error, "accepting a connection failed");
        tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
    }
}

impl Connections {
    /// Accepts connections until `end`, then finishes the requests in progress.
    // Boxed, so that the future is compiled in this crate and not, with less optimisation, in the
    // caller's.
    fn accept(self: Arc<Self>, listener: TcpListener, mut end: BoxFuture<'_, ()>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let (ending, open) = watch::channel(());
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    () = &mut end => break,
                    accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                        Ok((stream, _)) => {
                            connections.spawn(Arc::clone(&self).serve(stream, open.clone()));
                        }
                        Err(error) => pause_after_accept_error(&error).await,
                    },
                    Some(_) = connections.join_next() => {}
                }
            }
            // No new connections; requests in progress are answered.
            drop((listener, ending));
            while connections.join_next().await.is_some() {}
        })
    }

    /// Answers the requests of a connection, until either side closes it.
    async fn serve(self: Arc<Self>, stream: TcpStream, mut open: watch::Receiver<()>) {
        // Sends answers without delay; if this fails, they are only sent a little later.
        let _ = stream.set_nodelay(true);
        let answering = service_fn(|request| self.answer(request));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_READ_TIMEOUT)
            .serve_connection(TokioIo::new(stream), answering);
        let mut connection = pin!(connection);
        tokio::select! {
            biased;
            ended = connection.as_mut() => return log_end(ended),
            _ = open.changed() => connection.as_mut().graceful_shutdown(),
        }
        log_end(connection.await);
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        // A proxy in front may have decided by the other one.
        if request.headers().get_all(HOST).iter().nth(1).is_some() {
            let mut response = Response::new(Body::from("the request has two `Host` headers"));
            *response.status_mut() = StatusCode::BAD_REQUEST;
            return Ok(response);
        }
        let format: &'static dyn ApiFormat = match (request.method(), request.uri().path()) {
            (&Method::POST, CHAT_COMPLETIONS) => &OpenAi,
            (&Method::POST, MESSAGES) => &Anthropic,
            _ => return Box::pin(self.router.clone().call(request)).await,
        };
        Ok(request::handle(format, &self.state, request).await)
    }
}

/// Logged at debug level only: mostly the client closed the connection.
fn log_end(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "connection closed");
    }
}
