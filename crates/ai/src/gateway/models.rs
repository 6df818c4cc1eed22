//! Lists a tenant's profiles as models, in either API format.

use std::sync::Arc;

use axum::http::request::Parts;
use axum::http::{HeaderMap, Request};
use axum::response::Response;
use longshore::{ProfileName, TenantId};
use serde_json::{Value, json};

use super::auth::authenticate;
use super::error::{GatewayError, GatewayErrorKind};
use super::request::{profile_and_model, request_id};
use super::response::{ApiFormat, finish, json_response};
use super::server::{GatewayState, format_of};
use crate::profile::ProviderName;

/// Lists the profiles.
pub(super) async fn list(state: Arc<GatewayState>, head: Parts) -> Response {
    let format = format_of(&head.headers, head.uri.path());
    let found = names(&state, &head).await.map(|names| {
        let models = names.iter().map(|name| model(format.provider(), name.as_str())).collect();
        all(format.provider(), models)
    });
    answer(format, &head.headers, found)
}

/// Shows one profile.
pub(super) async fn show(state: Arc<GatewayState>, id: String, head: Parts) -> Response {
    let format = format_of(&head.headers, head.uri.path());
    let found = require_offered(&state, &id, &head).await.map(|()| model(format.provider(), &id));
    answer(format, &head.headers, found)
}

/// Fails if there is no such profile, or if it does not offer the model that is named with it.
async fn require_offered(state: &GatewayState, id: &str, head: &Parts) -> Result<(), GatewayError> {
    let tenant = tenant_of(state, head)?;
    let names = state.backend.profiles(&tenant).await?;
    let (profile, model) = profile_and_model(id)?;
    let not_found = |message: String| GatewayError::new(GatewayErrorKind::NotFound, message);
    if !names.contains(&profile) {
        return Err(not_found(format!("there is no profile `{profile}`")));
    }
    let Some(model) = model else { return Ok(()) };
    let offered = state.backend.require_model(&tenant, &profile, &model).await;
    offered.map_err(|error| not_found(error.message))
}

fn answer(format: &dyn ApiFormat, headers: &HeaderMap, found: Result<Value, GatewayError>) -> Response {
    finish(format, &request_id(headers), found.map(|body| json_response(body.to_string())))
}

async fn names(state: &GatewayState, head: &Parts) -> Result<Vec<ProfileName>, GatewayError> {
    Ok(state.backend.profiles(&tenant_of(state, head)?).await?)
}

fn tenant_of(state: &GatewayState, head: &Parts) -> Result<TenantId, GatewayError> {
    authenticate(&*state.authenticator, &Request::from_parts(head.clone(), ()))
}

/// The model's creation time is unknown: both formats use 1970 for that.
fn model(format: Option<ProviderName>, id: &str) -> Value {
    if format == Some(ProviderName::Anthropic) {
        let made = "1970-01-01T00:00:00Z";
        return json!({"type": "model", "id": id, "display_name": id, "created_at": made});
    }
    json!({"id": id, "object": "model", "created": 0, "owned_by": "longshore"})
}

fn all(format: Option<ProviderName>, models: Vec<Value>) -> Value {
    if format == Some(ProviderName::Anthropic) {
        let id = |model: Option<&Value>| model.map(|model| model["id"].clone());
        let (first, last) = (id(models.first()), id(models.last()));
        return json!({"data": models, "has_more": false, "first_id": first, "last_id": last});
    }
    json!({"object": "list", "data": models})
}
