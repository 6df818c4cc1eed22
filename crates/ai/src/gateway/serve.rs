//! One request, from the headers to the answer.

use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use axum::response::Response;
use longshore::{ProfileName, TenantId};
use tokio::time::Instant;

use super::House;
use super::body::{Incoming, whole_body};
use super::counter::Terms;
use super::fields::object;
use super::guests::welcome;
use super::refusal::{Refusal, Why};
use super::slip;
use super::tell::{Heard, Hearing, told};
use super::wire::{About, Asked, Delivery, Wire};
use super::{anthropic_in, sse};
use crate::ask::{Answer, Question};
use crate::desk::Errand;
use crate::object::Object;
use crate::raw::Raw;

/// Most tokens of an answer where neither the question nor the profile says: a page or four.
const MAX_TOKENS: u32 = 4096;

/// The temperature where neither says: what it is by default on both wires.
const TEMPERATURE: f64 = 1.0;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream; charset=utf-8");

/// Answers a request.
pub(super) async fn serve<B: Incoming>(
    wire: &'static dyn Wire,
    house: &House,
    request: Request<B>,
) -> Response {
    let id = slip::request_id(request.headers());
    let order = take(wire, house, request, &id).await;
    let served = match order {
        Ok(order) => order.serve(wire, house).await,
        Err(refusal) => Err(refusal),
    };
    finish(wire, &id, served)
}

/// Answers how many tokens a question has, about.
pub(super) async fn count(
    wire: &'static dyn Wire,
    house: Arc<House>,
    request: Request<Body>,
) -> Response {
    let id = slip::request_id(request.headers());
    finish(wire, &id, counted(&house, request).await)
}

async fn counted(house: &House, request: Request<Body>) -> Result<Response, Refusal> {
    let tenant = welcome(&*house.guests, request.headers(), request.extensions())?;
    let asked = anthropic_in::read_uncounted(&object(whole_body(request).await?)?)?;
    let (profile, _) = profile_and_model(&asked.model)?;
    house.counter.terms(&tenant, &profile).await?;
    let about = Question {
        system: asked.system,
        chat: Some(Arc::new(asked.chat)),
        ..Question::new("", "", Instant::now())
    };
    let mut out = Vec::new();
    sse::json(&mut out, &serde_json::json!({"input_tokens": about.estimate()}));
    Ok(respond(StatusCode::OK, JSON, out.into()))
}

/// A request that was read: what is to be asked, and how the answer is wanted.
struct Order {
    errand: Errand,
    about: About,
    delivery: Delivery,
}

/// Reads a request.
async fn take<B: Incoming>(
    wire: &'static dyn Wire,
    house: &House,
    request: Request<B>,
    id: &str,
) -> Result<Order, Refusal> {
    let tenant = welcome(&*house.guests, request.headers(), request.extensions())?;
    let until = slip::until(request.headers(), Instant::now())?;
    let body = object(whole_body(request).await?)?;
    let asked = wire.read(&body)?;
    let (profile, model) = profile_and_model(&asked.model)?;
    // A profile that cannot be used is refused where it is asked, so that the books say so.
    let terms = house.counter.terms(&tenant, &profile).await.unwrap_or_default();
    order(wire, house, asked, body, Ask { id, until, tenant, profile, model, terms })
}

/// By whom, by what and until when something is asked.
struct Ask<'a> {
    id: &'a str,
    until: Instant,
    tenant: TenantId,
    profile: ProfileName,
    model: Option<String>,
    terms: Terms,
}

fn order(
    wire: &dyn Wire,
    house: &House,
    asked: Asked,
    body: Object,
    ask: Ask<'_>,
) -> Result<Order, Refusal> {
    let Ask { id, until, tenant, profile, model, terms } = ask;
    let has_system = asked.system.is_some();
    let raw = Raw { wire: wire.name(), body, left_out: asked.left_out, has_system };
    if let Some(error) = terms.provider.and_then(|provider| raw.refusal(provider)) {
        return Err(error.into());
    }
    let question = Question {
        request_id: id.to_owned(),
        prompt: String::new(),
        system: asked.system,
        max_tokens: asked.max_tokens.or(terms.max_tokens).unwrap_or(MAX_TOKENS),
        temperature: asked.temperature.or(terms.temperature).unwrap_or(TEMPERATURE),
        schema: asked.schema,
        model,
        chat: Some(Arc::new(asked.chat)),
        raw: Some(Arc::new(raw)),
        until,
    };
    let streams = asked.delivery != Delivery::Whole;
    let about = About {
        id: id.to_owned(),
        created: house.clock.now().as_micros() / 1_000_000,
        model: question.model.clone().unwrap_or(terms.model),
        // Only told at the beginning of a stream, and not for nothing.
        tokens_in: if streams { question.estimate() } else { 0 },
    };
    let errand = Errand::new(tenant, Some(profile), question);
    Ok(Order { errand, about, delivery: asked.delivery })
}

/// `profile`, or `profile/model`: the model's own name may have slashes too.
pub(super) fn profile_and_model(asked: &str) -> Result<(ProfileName, Option<String>), Refusal> {
    let (profile, model) = match asked.split_once('/') {
        Some((profile, model)) => (profile, Some(model.to_owned())),
        None => (asked, None),
    };
    let none = |_| {
        let shown = &asked[..asked.floor_char_boundary(80)];
        let param = Some("model".to_owned());
        Refusal { param, ..Refusal::new(Why::Unknown, format!("there is no profile `{shown}`")) }
    };
    Ok((ProfileName::new(profile).map_err(none)?, model.filter(|model| !model.is_empty())))
}

impl Order {
    async fn serve(self, wire: &'static dyn Wire, house: &House) -> Result<Response, Refusal> {
        let Self { errand, about, delivery } = self;
        if delivery == Delivery::Whole {
            let mut settled = house.counter.ask(&errand, None).await;
            house.counter.note(std::mem::take(&mut settled.records));
            let answer = settled.result?;
            return Ok(respond(StatusCode::OK, JSON, whole(wire, &about, answer)));
        }
        let mut hearing = Hearing::begin(Arc::clone(&house.counter), errand);
        // Until something is heard, whatever goes wrong can still be told by a status.
        let first = match hearing.next().await {
            Heard::End(Err(error)) => return Err(error.into()),
            first => first,
        };
        let body = told(wire.teller(about, delivery), first, hearing);
        let mut response = respond(StatusCode::OK, EVENTS, body);
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        Ok(response)
    }
}

/// An answer as it came, or translated.
fn whole(wire: &dyn Wire, about: &About, answer: Answer) -> Body {
    match answer.raw {
        Some(raw) => Body::from(*raw),
        None => wire.whole(about, &answer).into(),
    }
}

pub(super) fn respond(status: StatusCode, kind: HeaderValue, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// What was served or refused, under the request's id.
pub(super) fn finish(wire: &dyn Wire, id: &str, served: Result<Response, Refusal>) -> Response {
    let mut response = served.unwrap_or_else(|refusal| refused(wire, id, &refusal));
    if let Ok(id) = HeaderValue::from_str(id) {
        if let Some(name) = wire.id_header() {
            response.headers_mut().insert(HeaderName::from_static(name), id.clone());
        }
        response.headers_mut().insert(slip::REQUEST_ID, id);
    }
    response
}

fn refused(wire: &dyn Wire, id: &str, refusal: &Refusal) -> Response {
    let (status, body) = wire.refuse(refusal, id);
    let mut response = respond(status, JSON, body.into());
    advise(refusal, response.headers_mut());
    response
}

/// When to come back, and whether: the official clients try again by themselves, and would do so
/// where it means money.
fn advise(refusal: &Refusal, headers: &mut HeaderMap) {
    if let Some(after) = refusal.retry_after {
        let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
        headers.insert(RETRY_AFTER, seconds.into());
        if let Ok(millis) = u64::try_from(after.as_millis()) {
            headers.insert("retry-after-ms", millis.into());
        }
    }
    if let Some(may) = refusal.why.may_be_retried() {
        let may = if may { "true" } else { "false" };
        headers.insert("x-should-retry", HeaderValue::from_static(may));
    }
}
