//! The gateway: the tenants' profiles behind the two wires that programs speak already.
//!
//! A [`Gateway`] makes a router that answers OpenAI's chat completions and Anthropic's messages, whole
//! and streamed, and lists the tenant's profiles as models. `model` names a profile; `profile/model`
//! asks another model by it. Who asks is told by [`Guests`]; what is asked goes over the [`Counter`],
//! and so through the same limits, vault and books as everything else. What a translation would lose
//! is refused in plain words, or sent on as it came where the provider speaks the asked wire
//! ([`crate::Raw`]).

mod anthropic_in;
mod anthropic_out;
mod body;
mod counter;
mod fields;
mod guests;
mod listen;
mod models;
mod openai_in;
mod openai_out;
mod refusal;
mod serve;
mod slip;
mod sse;
mod tell;
mod wire;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request};
use axum::http::request::Parts;
use axum::routing::{get, post};
use longshore::{Clock, SystemClock};
use tokio::net::TcpListener;

use self::anthropic_out::Anthropic;
use self::openai_out::OpenAi;

pub use self::counter::{Counter, Terms};
pub use self::guests::{Announced, Guest, Guests, OneTenant};

/// Longest request that is read.
const LONGEST: usize = 32 * 1024 * 1024;

/// Where OpenAI's questions come.
const COMPLETIONS: &str = "/v1/chat/completions";

/// Where Anthropic's questions come.
const MESSAGES: &str = "/v1/messages";

/// The tenants' profiles behind the wires of OpenAI and Anthropic.
pub struct Gateway {
    house: House,
}

/// What every request needs.
pub(crate) struct House {
    counter: Arc<dyn Counter>,
    guests: Arc<dyn Guests>,
    clock: Arc<dyn Clock>,
}

impl Gateway {
    /// A gateway to a counter, for some guests.
    pub fn new(counter: Arc<dyn Counter>, guests: Arc<dyn Guests>) -> Self {
        Self { house: House { counter, guests, clock: Arc::new(SystemClock) } }
    }

    /// The time that answers are dated with.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { house: House { clock, ..self.house } }
    }

    /// The routes, all below `/v1`, to be mounted beside others.
    pub fn router(self) -> Router {
        routes(&Arc::new(self.house))
    }

    /// Serves the same over a listener until `end`, and then what is under way. Cheaper than a router:
    /// for whoever serves nothing else.
    pub async fn serve(self, listener: TcpListener, end: impl Future<Output = ()> + Send) {
        let house = Arc::new(self.house);
        let router = routes(&house);
        listen::listen(listener, house, router, Box::pin(end)).await;
    }
}

fn routes(house: &Arc<House>) -> Router {
    let ask = |wire: &'static dyn wire::Wire| {
        let house = Arc::clone(house);
        post(async move |request: Request| serve::serve(wire, &house, request).await)
    };
    let (counting, listing, looking) = (Arc::clone(house), Arc::clone(house), Arc::clone(house));
    let count = post(move |request: Request| serve::count(&Anthropic, counting, request));
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
