//! The gateway at `/v1`, behind the same door as everything else.
//!
//! Programs that speak the wires of OpenAI and Anthropic send their key in their own way; here it is
//! one of our tokens, of role `submit` at least. Who is not let in hears so from the gateway, in the
//! words of the wire that they speak.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use longshore::TenantId;
use longshore::ledger::Role;
use longshore_ai::gateway::{Announced, Counter, Gateway, Guest};
use tracing::Instrument;

use crate::house::House;
use crate::problem::Problem;
use crate::traces;

/// The gateway's routes.
pub(crate) fn routes(house: &Arc<House>, counter: Arc<dyn Counter>) -> Router {
    let house = Arc::clone(house);
    let knock = move |request: Request, next: Next| announce(Arc::clone(&house), request, next);
    let gateway = Gateway::new(counter, Arc::new(Announced));
    gateway.router().layer(from_fn(knock))
}

async fn announce(house: Arc<House>, request: Request, next: Next) -> Response {
    let span = traces::request(&request, format_args!("{} gateway", request.method()));
    let response = let_in(house, request, next).instrument(span.clone()).await;
    traces::answered(&span, response.status());
    response
}

async fn let_in(house: Arc<House>, request: Request, next: Next) -> Response {
    let (mut head, body) = request.into_parts();
    match known(&house, &mut head).await {
        Ok(tenant) => drop(head.extensions.insert(Guest(tenant))),
        // Nobody knows who they are just now: another time they may be let in.
        Err(problem) if problem.status().is_server_error() => return problem.into_response(),
        Err(problem) => tracing::debug!(why = problem.words(), "not let to the gateway"),
    }
    next.run(Request::from_parts(head, body)).await
}

async fn known(house: &House, head: &mut Parts) -> Result<TenantId, Problem> {
    // Anthropic's clients send their key so.
    if let Some(key) = head.headers.remove("x-api-key")
        && !head.headers.contains_key(AUTHORIZATION)
    {
        let key = [b"Bearer ", key.as_bytes()].concat();
        let key = HeaderValue::from_bytes(&key).map_err(|_| Problem::stranger("no key"))?;
        head.headers.insert(AUTHORIZATION, key);
    }
    let caller = house.door.admit(head, house.now()).await?;
    caller.must_be(Role::Submit)?;
    caller.sends_as(None)
}
