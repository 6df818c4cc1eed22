//! The gateway: serves the tenants' profiles through the APIs of OpenAI and Anthropic.
//!
//! A [`Gateway`] makes a router for OpenAI's chat completions and Anthropic's messages, complete
//! and streamed, and lists the tenant's profiles as models. `model` names a profile;
//! `profile/model` asks another model by it. [`Authenticator`] authenticates a request; the [`Counter`]
//! answers it, through the same limits, vault and ledger as every other call. If the provider has
//! the API that the client uses, the request is passed through unchanged ([`crate::PassthroughRequest`]).
//! Otherwise it is translated, and rejected if the translation would lose something.

mod anthropic_request;
mod anthropic_response;
mod api_format;
mod auth;
mod backend;
mod body;
mod error;
mod fields;
mod handler;
mod headers;
mod models;
mod openai_request;
mod openai_response;
mod server;
mod streaming;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request};
use axum::http::request::Parts;
use axum::routing::{get, post};
use longshore::{Clock, SystemClock};
use tokio::net::TcpListener;

use self::anthropic_response::Anthropic;
use self::openai_response::OpenAi;

pub use self::auth::{Announced, Authenticator, Guest, OneTenant};
pub use self::backend::{Counter, ProfileSettings};
pub use self::server::pause_after_accept_error;

/// Longest request body, in bytes.
const MAX_BODY_BYTES: usize = 32 * 1024 * 1024;

/// Path of OpenAI's chat completions.
const COMPLETIONS: &str = "/v1/chat/completions";

/// Path of Anthropic's messages.
const MESSAGES: &str = "/v1/messages";

/// Serves the tenants' profiles through the APIs of OpenAI and Anthropic.
pub struct Gateway {
    state: GatewayState,
}

/// State shared by all requests.
pub(crate) struct GatewayState {
    backend: Arc<dyn Counter>,
    authenticator: Arc<dyn Authenticator>,
    clock: Arc<dyn Clock>,
}

impl Gateway {
    /// A gateway to a backend, with an authenticator.
    pub fn new(backend: Arc<dyn Counter>, authenticator: Arc<dyn Authenticator>) -> Self {
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
        let router = routes(&state);
        server::serve(listener, state, router, Box::pin(end)).await;
    }
}

fn routes(state: &Arc<GatewayState>) -> Router {
    let ask = |format: &'static dyn api_format::ApiFormat| {
        let state = Arc::clone(state);
        post(async move |request: Request| handler::handle(format, &state, request).await)
    };
    let (counting, listing, looking) = (Arc::clone(state), Arc::clone(state), Arc::clone(state));
    let count = post(move |request: Request| handler::count_tokens(&Anthropic, counting, request));
    let list = get(move |head: Parts| models::list(listing, head));
    let show = get(move |Path(id): Path<String>, head: Parts| models::show(looking, id, head));
    Router::new()
        .route(COMPLETIONS, ask(&OpenAi))
        .route(MESSAGES, ask(&Anthropic))
        .route("/v1/messages/count_tokens", count)
        .route("/v1/models", list)
        // A model may be `profile/model`.
        .route("/v1/models/{*id}", show)
}
