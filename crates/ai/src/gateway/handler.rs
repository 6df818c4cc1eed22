//! Handles one request, from the headers to the response.

use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use axum::response::Response;
use longshore::{ProfileName, TenantId};
use tokio::time::Instant;

use super::GatewayState;
use super::anthropic_request;
use super::api_format::{ApiFormat, Delivery, ParsedRequest, ResponseMeta};
use super::auth::authenticate;
use super::backend::ProfileSettings;
use super::body::{IncomingBody, read_body};
use super::error::{GatewayError, GatewayErrorKind};
use super::fields::object;
use super::headers;
use super::streaming::{AnswerEvent, AnswerStream, event_stream_body};
use crate::inference::Errand;
use crate::model_api::{Answer, Question};
use crate::passthrough::PassthroughRequest;
use crate::raw_json::RawObject;
use crate::sse;

/// Maximum tokens of an answer if neither the request nor the profile sets it: one to four pages.
const MAX_TOKENS: u32 = 4096;

/// The temperature if neither sets it: the default of both APIs.
const TEMPERATURE: f64 = 1.0;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream; charset=utf-8");

/// Answers a request.
pub(super) async fn handle<B: IncomingBody>(
    format: &'static dyn ApiFormat,
    state: &GatewayState,
    request: Request<B>,
) -> Response {
    let id = headers::request_id(request.headers());
    let prepared = prepare(format, state, request, &id).await;
    let served = match prepared {
        Ok(prepared) => prepared.ask(format, state).await,
        Err(error) => Err(error),
    };
    finish(format, &id, served)
}

/// Answers with the estimated number of tokens of a question.
pub(super) async fn count_tokens(
    format: &'static dyn ApiFormat,
    state: Arc<GatewayState>,
    request: Request<Body>,
) -> Response {
    let id = headers::request_id(request.headers());
    finish(format, &id, token_count(&state, request).await)
}

async fn token_count(
    state: &GatewayState,
    request: Request<Body>,
) -> Result<Response, GatewayError> {
    let tenant = authenticate(&*state.authenticator, request.headers(), request.extensions())?;
    let parsed = anthropic_request::parse_for_count(&object(read_body(request).await?)?)?;
    let (profile, _) = profile_and_model(&parsed.model)?;
    state.backend.profile_settings(&tenant, &profile).await?;
    let question = Question {
        system: parsed.system,
        chat: Some(Arc::new(parsed.chat)),
        ..Question::new("", "", Instant::now())
    };
    let mut out = Vec::new();
    sse::json(&mut out, &serde_json::json!({"input_tokens": question.estimate()}));
    Ok(respond(StatusCode::OK, JSON, out.into()))
}

/// A parsed request, ready to be parsed.
struct PreparedRequest {
    request: Errand,
    meta: ResponseMeta,
    delivery: Delivery,
}

/// Authenticates and parses a request.
async fn prepare<B: IncomingBody>(
    format: &'static dyn ApiFormat,
    state: &GatewayState,
    request: Request<B>,
    id: &str,
) -> Result<PreparedRequest, GatewayError> {
    let tenant = authenticate(&*state.authenticator, request.headers(), request.extensions())?;
    let until = headers::deadline(request.headers(), Instant::now())?;
    let body = object(read_body(request).await?)?;
    let parsed = format.parse(&body)?;
    let (profile, model) = profile_and_model(&parsed.model)?;
    // A profile that cannot be used is rejected by the backend, so that the ledger has a record of
    // it.
    let settings = state.backend.profile_settings(&tenant, &profile).await.unwrap_or_default();
    prepare_question(
        format,
        state,
        parsed,
        body,
        RequestContext { id, until, tenant, profile, model, settings },
    )
}

/// The request's id, deadline, tenant and profile.
struct RequestContext<'a> {
    id: &'a str,
    until: Instant,
    tenant: TenantId,
    profile: ProfileName,
    model: Option<String>,
    settings: ProfileSettings,
}

fn prepare_question(
    format: &dyn ApiFormat,
    state: &GatewayState,
    parsed: ParsedRequest,
    body: RawObject,
    context: RequestContext<'_>,
) -> Result<PreparedRequest, GatewayError> {
    let RequestContext { id, until, tenant, profile, model, settings } = context;
    let has_system = parsed.system.is_some();
    let raw = PassthroughRequest {
        format: format.name(),
        body,
        unsupported: parsed.unsupported,
        has_system,
    };
    if let Some(error) = settings.provider.and_then(|provider| raw.unsupported_by(provider)) {
        return Err(error.into());
    }
    let question = Question {
        request_id: id.to_owned(),
        prompt: String::new(),
        system: parsed.system,
        max_tokens: parsed.max_tokens.or(settings.max_tokens).unwrap_or(MAX_TOKENS),
        temperature: parsed.temperature.or(settings.temperature).unwrap_or(TEMPERATURE),
        schema: parsed.schema,
        model,
        chat: Some(Arc::new(parsed.chat)),
        raw: Some(Arc::new(raw)),
        until,
    };
    let streams = parsed.delivery != Delivery::Complete;
    let meta = ResponseMeta {
        id: id.to_owned(),
        created: state.clock.now().as_micros() / 1_000_000,
        model: question.model.clone().unwrap_or(settings.model),
        // Only sent at the start of a stream; the estimate is not free.
        tokens_in: if streams { question.estimate() } else { 0 },
    };
    let request = Errand::new(tenant, Some(profile), question);
    Ok(PreparedRequest { request, meta, delivery: parsed.delivery })
}

/// Splits `profile` or `profile/model`. The model's name may contain slashes.
pub(super) fn profile_and_model(name: &str) -> Result<(ProfileName, Option<String>), GatewayError> {
    let (profile, model) = match name.split_once('/') {
        Some((profile, model)) => (profile, Some(model.to_owned())),
        None => (name, None),
    };
    let none = |_| {
        let shown = &name[..name.floor_char_boundary(80)];
        let param = Some("model".to_owned());
        GatewayError {
            param,
            ..GatewayError::new(
                GatewayErrorKind::NotFound,
                format!("there is no profile `{shown}`"),
            )
        }
    };
    Ok((ProfileName::new(profile).map_err(none)?, model.filter(|model| !model.is_empty())))
}

impl PreparedRequest {
    async fn ask(
        self,
        format: &'static dyn ApiFormat,
        state: &GatewayState,
    ) -> Result<Response, GatewayError> {
        let Self { request, meta, delivery } = self;
        if delivery == Delivery::Complete {
            let mut outcome = state.backend.ask(&request, None).await;
            state.backend.record(std::mem::take(&mut outcome.records));
            let answer = outcome.result?;
            return Ok(respond(StatusCode::OK, JSON, answer_body(format, &meta, answer)));
        }
        let mut answers = AnswerStream::begin(Arc::clone(&state.backend), request);
        // Before the first event is sent, an error can still be reported by the status.
        let first = match answers.next().await {
            AnswerEvent::End(Err(error)) => return Err(error.into()),
            first => first,
        };
        let body = event_stream_body(format.stream_encoder(meta, delivery), first, answers);
        let mut response = respond(StatusCode::OK, EVENTS, body);
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        Ok(response)
    }
}

/// An answer passed through unchanged, or encoded.
fn answer_body(format: &dyn ApiFormat, meta: &ResponseMeta, answer: Answer) -> Body {
    match answer.raw {
        Some(raw) => Body::from(*raw),
        None => format.encode(meta, &answer).into(),
    }
}

pub(super) fn respond(status: StatusCode, kind: HeaderValue, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// The response or the error, with the request's id in its headers.
pub(super) fn finish(
    format: &dyn ApiFormat,
    id: &str,
    served: Result<Response, GatewayError>,
) -> Response {
    let mut response = served.unwrap_or_else(|error| error_response(format, id, &error));
    if let Ok(id) = HeaderValue::from_str(id) {
        if let Some(name) = format.id_header() {
            response.headers_mut().insert(HeaderName::from_static(name), id.clone());
        }
        response.headers_mut().insert(headers::REQUEST_ID, id);
    }
    response
}

fn error_response(format: &dyn ApiFormat, id: &str, error: &GatewayError) -> Response {
    let (status, body) = format.encode_error(error, id);
    let mut response = respond(status, JSON, body.into());
    set_retry_headers(error, response.headers_mut());
    response
}

/// Sets the headers that tell a client when and whether to retry. The official clients retry by
/// themselves, also where that would cost money.
fn set_retry_headers(error: &GatewayError, headers: &mut HeaderMap) {
    if let Some(after) = error.retry_after {
        let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
        headers.insert(RETRY_AFTER, seconds.into());
        if let Ok(millis) = u64::try_from(after.as_millis()) {
            headers.insert("retry-after-ms", millis.into());
        }
    }
    if let Some(may) = error.kind.may_be_retried() {
        let may = if may { "true" } else { "false" };
        headers.insert("x-should-retry", HeaderValue::from_static(may));
    }
}
