//! A tenant's profiles, listed as models in the shape of either wire.

use std::sync::Arc;

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use longshore::ProfileName;
use serde_json::{Value, json};

use super::House;
use super::anthropic_out::Anthropic;
use super::guests::welcome;
use super::openai_out::OpenAi;
use super::refusal::{Refusal, Why};
use super::serve::{finish, profile_and_model, respond};
use super::slip;
use super::wire::Wire;
use crate::profile::ProviderName;

/// Lists profiles.
pub(super) async fn list(house: Arc<House>, head: Parts) -> Response {
    let wire = wire_of(&head.headers);
    let found = names(&house, &head).await.map(|names| {
        let models = names.iter().map(|name| model(wire.name(), name.as_str())).collect();
        all(wire.name(), models)
    });
    answer(wire, &head.headers, found)
}

/// Shows one profile.
pub(super) async fn show(house: Arc<House>, id: String, head: Parts) -> Response {
    let wire = wire_of(&head.headers);
    let found = names(&house, &head).await.and_then(|names| {
        let (profile, _) = profile_and_model(&id)?;
        if !names.contains(&profile) {
            return Err(Refusal::new(Why::Unknown, format!("there is no profile `{profile}`")));
        }
        Ok(model(wire.name(), &id))
    });
    answer(wire, &head.headers, found)
}

fn answer(wire: &dyn Wire, headers: &HeaderMap, found: Result<Value, Refusal>) -> Response {
    let served = found.map(|body| {
        let json = HeaderValue::from_static("application/json");
        respond(StatusCode::OK, json, body.to_string().into())
    });
    finish(wire, &slip::request_id(headers), served)
}

async fn names(house: &House, head: &Parts) -> Result<Vec<ProfileName>, Refusal> {
    let tenant = welcome(&*house.guests, &head.headers, &head.extensions)?;
    Ok(house.counter.profiles(&tenant).await?)
}

/// Both wires have the same path; only Anthropic's clients say which version they speak.
fn wire_of(headers: &HeaderMap) -> &'static dyn Wire {
    if headers.contains_key("anthropic-version") { &Anthropic } else { &OpenAi }
}

/// Nobody knows when a profile's model was made: both wires have 1970 for that.
fn model(wire: ProviderName, id: &str) -> Value {
    if wire == ProviderName::Anthropic {
        let made = "1970-01-01T00:00:00Z";
        return json!({"type": "model", "id": id, "display_name": id, "created_at": made});
    }
    json!({"id": id, "object": "model", "created": 0, "owned_by": "longshore"})
}

fn all(wire: ProviderName, models: Vec<Value>) -> Value {
    if wire == ProviderName::Anthropic {
        let id = |model: Option<&Value>| model.map(|model| model["id"].clone());
        let (first, last) = (id(models.first()), id(models.last()));
        return json!({"data": models, "has_more": false, "first_id": first, "last_id": last});
    }
    json!({"object": "list", "data": models})
}
