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
mod counter;
mod fields;
mod guests;
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
use axum::extract::{DefaultBodyLimit, Path, Request};
use axum::http::HeaderMap;
use axum::routing::{get, post};
use longshore::{Clock, SystemClock};

use self::anthropic_out::Anthropic;
use self::openai_out::OpenAi;

pub use self::counter::{Counter, Terms};
pub use self::guests::{Guests, OneTenant};

/// Longest request that is read.
const LONGEST: usize = 32 * 1024 * 1024;

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

    /// The routes, all below `/v1`.
    pub fn router(self) -> Router {
        let house = Arc::new(self.house);
        let ask = |wire: &'static dyn wire::Wire| {
            let house = Arc::clone(&house);
            post(move |request: Request| serve::serve(wire, house, request))
        };
        let (counting, listing, looking) =
            (Arc::clone(&house), Arc::clone(&house), Arc::clone(&house));
        let count = post(move |request: Request| serve::count(&Anthropic, counting, request));
        let list = get(move |headers: HeaderMap| models::list(listing, headers));
        let show = get(move |Path(id): Path<String>, headers: HeaderMap| {
            models::show(looking, id, headers)
        });
        Router::new()
            .route("/v1/chat/completions", ask(&OpenAi))
            .route("/v1/messages", ask(&Anthropic))
            .route("/v1/messages/count_tokens", count)
            .route("/v1/models", list)
            // A model may be `profile/model`.
            .route("/v1/models/{*id}", show)
            .layer(DefaultBodyLimit::max(LONGEST))
    }
}
