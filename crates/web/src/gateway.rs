//! The AI gateway at `/v1`, with the same authentication as the API.
//!
//! Clients of OpenAI's and Anthropic's APIs send their key in their own headers; here it is a Longshore token
//! with at least role `submit`. The gateway answers an unauthenticated request in the client's API format.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use longshore::TenantId;
use longshore::accounts::Role;
use longshore_ai::gateway::{AccessDenied, AuthenticatedTenant, Gateway, InferenceBackend, PreAuthenticated};
use tracing::Instrument;

use crate::app_state::AppState;
use crate::caller_limits::CallerSlot;
use crate::problem::Problem;
use crate::trace_context;

/// The gateway's routes.
pub(crate) fn routes(app: &Arc<AppState>, counter: Arc<dyn InferenceBackend>) -> Router {
    let app = Arc::clone(app);
    let middleware = move |request: Request, next: Next| traced(Arc::clone(&app), request, next);
    let gateway = Gateway::new(counter, Arc::new(PreAuthenticated));
    gateway.router().layer(from_fn(middleware))
}

async fn traced(app: Arc<AppState>, request: Request, next: Next) -> Response {
    let span = trace_context::request_span(&request, format_args!("{} gateway", request.method()));
    let response = authenticated(app, request, next).instrument(span.clone()).await;
    trace_context::record_status(&span, response.status());
    response
}

async fn authenticated(app: Arc<AppState>, request: Request, next: Next) -> Response {
    let (mut head, body) = request.into_parts();
    let slot = match tenant(&app, &mut head).await {
        Ok((tenant, slot)) => {
            head.extensions.insert(AuthenticatedTenant(tenant));
            slot
        }
        // The token could not be checked or is at its limits; a retry may succeed.
        Err(problem) if is_temporary(problem.status()) => return problem.into_response(),
        Err(problem) if problem.status() == StatusCode::FORBIDDEN => {
            head.extensions.insert(AccessDenied(problem.detail().to_owned()));
            return next.run(Request::from_parts(head, body)).await;
        }
        Err(problem) => {
            tracing::debug!(why = problem.detail(), "gateway request not authenticated");
            return next.run(Request::from_parts(head, body)).await;
        }
    };
    let response = next.run(Request::from_parts(head, slot.reserving(body))).await;
    if let Some(problem) = slot.refusal() {
        return problem.into_response();
    }
    // The provider's answer is paid for: it is not refused.
    let _ = slot.charge(&response);
    slot.hold(response)
}

fn is_temporary(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
}

async fn tenant(app: &AppState, head: &mut Parts) -> Result<(TenantId, Arc<CallerSlot>), Problem> {
    // Anthropic's clients send their key in this header.
    if let Some(key) = head.headers.remove("x-api-key")
        && !head.headers.contains_key(AUTHORIZATION)
    {
        let key = [b"Bearer ", key.as_bytes()].concat();
        let key = HeaderValue::from_bytes(&key)
            .map_err(|_| Problem::unauthorized("`x-api-key` is not a valid header value"))?;
        head.headers.insert(AUTHORIZATION, key);
    }
    let (caller, slot) = app.admit(head).await?;
    caller.require_role(Role::Submit)?;
    Ok((caller.tenant_for_new(None)?, slot))
}
