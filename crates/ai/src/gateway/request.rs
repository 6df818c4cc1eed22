//! From an HTTP request to an inference request: its id, tenant, deadline, body and question.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, HeaderValue, Request};
use axum::response::Response;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use longshore::{CallId, ProfileName};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::anthropic_request;
use super::anthropic_response::Anthropic;
use super::auth::authenticate;
use super::error::{GatewayError, GatewayErrorKind};
use super::fields::{Extras, object};
use super::response::{ApiFormat, ResponseMeta, answer, finish, json_response};
use super::server::GatewayState;
use crate::chat::Chat;
use crate::embedding::EmbeddingInput;
use crate::inference::InferenceRequest;
use crate::model_api::{Question, SentFlag};
use crate::passthrough::PassthroughRequest;
use crate::profile::MAX_MODEL_NAME;

/// Longest request body, in bytes.
pub const MAX_BODY_BYTES: usize = 32 * 1024 * 1024;

/// The request id, in requests and responses.
pub(super) const REQUEST_ID: &str = "x-request-id";

/// How long a request's body may take to arrive.
const BODY_READ_TIMEOUT: Duration = Duration::from_secs(60);
/// A request's timeout, in milliseconds.
const TIMEOUT_HEADER: &str = "x-longshore-timeout-ms";

/// Timeout of a request that sets none: what the official clients wait.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

/// Longest timeout.
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Maximum tokens of an answer if neither the request nor the profile sets it: one to four pages.
const DEFAULT_MAX_TOKENS: u32 = 4096;

/// The temperature if neither sets it: the default of both APIs.
const DEFAULT_TEMPERATURE: f64 = 1.0;

/// Answers a request.
pub(super) async fn handle<B: IncomingBody>(
    format: &'static dyn ApiFormat,
    state: &GatewayState,
    request: Request<B>,
) -> Response {
    let id = request_id(request.headers());
    let served = match prepare(format, state, request, &id).await {
        Ok(prepared) => answer(format, state, prepared).await,
        Err(error) => Err(error),
    };
    finish(format, &id, served)
}

/// Answers with the number of tokens of a question, by the provider if it counts them.
pub(super) async fn count_tokens(state: Arc<GatewayState>, request: Request<Body>) -> Response {
    let id = request_id(request.headers());
    finish(&Anthropic, &id, token_count(&state, request).await)
}

async fn token_count(state: &GatewayState, request: Request<Body>) -> Result<Response, GatewayError> {
    let tenant = authenticate(&*state.authenticator, &request)?;
    let until = deadline(request.headers(), Instant::now())?;
    let body = object(read_body(request).await?)?;
    let parsed = anthropic_request::parse_for_count(&body)?;
    let (profile, model) = profile_and_model(&parsed.model)?;
    let extras = parsed.extras;
    let raw = PassthroughRequest {
        format: Anthropic.provider(),
        body,
        unsupported: extras.unsupported,
        ignored: extras.ignored,
        unpriced: extras.unpriced,
        choices: 1,
        images: extras.images,
        has_system: parsed.system.is_some(),
    };
    let question = Question {
        system: parsed.system,
        schema: parsed.schema,
        model,
        chat: Some(Arc::new(parsed.chat)),
        raw: Some(Arc::new(raw)),
        ..Question::new("", "", until)
    };
    let counted = state.backend.count_tokens(&tenant, &profile, &question).await?;
    let tokens = counted.unwrap_or_else(|| question.estimate_with_template());
    let mut response = json_response(json!({"input_tokens": tokens}).to_string());
    if counted.is_none() {
        response.headers_mut().insert("x-longshore-estimated", HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// A request that can be asked, and how to answer it.
pub(super) struct PreparedRequest {
    pub(super) request: InferenceRequest,
    pub(super) meta: ResponseMeta,
    pub(super) delivery: Delivery,
}

/// Authenticates and parses a request.
async fn prepare<B: IncomingBody>(
    format: &'static dyn ApiFormat,
    state: &GatewayState,
    request: Request<B>,
    id: &str,
) -> Result<PreparedRequest, GatewayError> {
    let tenant = authenticate(&*state.authenticator, &request)?;
    let until = deadline(request.headers(), Instant::now())?;
    let body = object(read_body(request).await?)?;
    let parsed = format.parse(&body)?;
    let (profile, model) = profile_and_model(&parsed.model)?;
    // A profile that cannot be used is rejected by the backend, so that the ledger has a record of
    // it.
    let settings = state.backend.profile_settings(&tenant, &profile).await.unwrap_or_default();
    let Extras { unsupported, ignored, unpriced, choices, images } = parsed.extras;
    let raw = PassthroughRequest {
        format: format.provider(),
        body,
        unsupported,
        ignored,
        unpriced,
        choices,
        images,
        has_system: parsed.system.is_some(),
    };
    let question = Question {
        request_id: id.to_owned(),
        prompt: String::new(),
        system: parsed.system,
        max_tokens: parsed.max_tokens.or(settings.max_tokens).unwrap_or(DEFAULT_MAX_TOKENS),
        temperature: parsed.temperature.or(settings.temperature).unwrap_or(DEFAULT_TEMPERATURE),
        schema: parsed.schema,
        model,
        chat: parsed.embeddings.is_none().then(|| Arc::new(parsed.chat)),
        embeddings: parsed.embeddings,
        raw: Some(Arc::new(raw)),
        until,
        sent: SentFlag::default(),
        connect_timeout: None,
    };
    let unsupported = |provider| question.unsupported_by(provider, settings.on_unsupported);
    if let Some(error) = settings.provider.and_then(unsupported) {
        return Err(error.into());
    }
    let streams = parsed.delivery != Delivery::Complete;
    let meta = ResponseMeta {
        id: id.to_owned(),
        created: state.clock.now().as_micros() / 1_000_000,
        model: question.model.clone().unwrap_or(settings.model),
        // Only sent at the start of a stream; the estimate is not free.
        tokens_in: if streams { question.estimate() } else { 0 },
        echo: parsed.echo,
    };
    let request = InferenceRequest::new(tenant, Some(profile), question);
    Ok(PreparedRequest { request, meta, delivery: parsed.delivery })
}

/// A parsed request, independent of the format.
#[derive(Debug)]
pub(crate) struct ParsedRequest {
    /// A profile, or `profile/model`.
    pub(super) model: String,
    pub(super) system: Option<String>,
    pub(super) max_tokens: Option<u32>,
    pub(super) temperature: Option<f64>,
    pub(super) schema: Option<Arc<Value>>,
    pub(super) chat: Chat,
    /// Texts to embed, in place of a conversation.
    pub(super) embeddings: Option<Arc<EmbeddingInput>>,
    pub(super) delivery: Delivery,
    /// What the response repeats of the request, or is written by.
    pub(super) echo: Value,
    pub(super) extras: Extras,
}

/// How the client wants the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Delivery {
    /// As one response.
    #[default]
    Complete,
    /// As a stream.
    Stream,
    /// As a stream, with token usage at the end.
    StreamWithUsage,
}

/// The request id: the client's, if it is safe in logs and in the ledger, or else a new one.
pub(super) fn request_id(headers: &HeaderMap) -> String {
    let sane = |id: &&str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        (1..=128).contains(&id.len()) && id.bytes().all(plain)
    };
    let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).filter(sane);
    given.map_or_else(|| CallId::new().to_string(), str::to_owned)
}

/// The request's deadline.
fn deadline(headers: &HeaderMap, now: Instant) -> Result<Instant, GatewayError> {
    let Some(given) = headers.get(TIMEOUT_HEADER) else { return Ok(now + DEFAULT_TIMEOUT) };
    let millis = given.to_str().ok().and_then(|text| text.parse().ok()).filter(|ms| *ms > 0);
    let millis = millis.ok_or_else(|| {
        GatewayError::of(TIMEOUT_HEADER, format!("{TIMEOUT_HEADER} must be a whole number above 0"))
    })?;
    Ok(now + Duration::from_millis(millis).min(MAX_TIMEOUT))
}

/// A request body: from the gateway's own connections, or from a router that it is mounted in.
pub(super) trait IncomingBody:
    HttpBody<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin
{
}

impl<B> IncomingBody for B where
    B: HttpBody<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin
{
}

/// Reads the whole body within [`BODY_READ_TIMEOUT`].
async fn read_body<B: IncomingBody>(request: Request<B>) -> Result<Bytes, GatewayError> {
    let read = tokio::time::timeout(BODY_READ_TIMEOUT, read_frames(request)).await;
    read.unwrap_or_else(|_| {
        let detail = "the request's body did not arrive in time";
        Err(GatewayError::new(GatewayErrorKind::InvalidRequest, detail))
    })
}

/// Reads all frames of a body. It usually arrives in one, which is not copied.
async fn read_frames<B: IncomingBody>(request: Request<B>) -> Result<Bytes, GatewayError> {
    let mut body = Limited::new(request.into_body(), MAX_BODY_BYTES);
    let (mut first, mut all) = (Bytes::new(), Vec::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| body_error(&*error))?;
        let Ok(bytes) = frame.into_data() else { continue };
        if first.is_empty() && all.is_empty() {
            first = bytes;
        } else {
            all.extend_from_slice(&std::mem::take(&mut first));
            all.extend_from_slice(&bytes);
        }
    }
    Ok(if all.is_empty() { first } else { all.into() })
}

fn body_error(error: &(dyn Error + Send + Sync + 'static)) -> GatewayError {
    match error.is::<LengthLimitError>() {
        true => GatewayError::new(
            GatewayErrorKind::TooLarge,
            format!("the request is longer than {} MB", MAX_BODY_BYTES >> 20),
        ),
        false => GatewayError::new(
            GatewayErrorKind::InvalidRequest,
            "the connection ended before the end of the request's body",
        ),
    }
}

/// Splits `profile` or `profile/model`. The model's name may contain slashes.
pub(super) fn profile_and_model(name: &str) -> Result<(ProfileName, Option<String>), GatewayError> {
    let (profile, model) = match name.split_once('/') {
        Some((profile, model)) => (profile, Some(model.to_owned())),
        None => (name, None),
    };
    if model.as_ref().is_some_and(|model| model.len() > MAX_MODEL_NAME) {
        return Err(GatewayError::of(
            "model",
            format!("the model's name is longer than {MAX_MODEL_NAME} bytes"),
        ));
    }
    let none = |_| {
        let shown = &name[..name.floor_char_boundary(80)];
        let param = Some("model".to_owned());
        GatewayError {
            param,
            ..GatewayError::new(GatewayErrorKind::NotFound, format!("there is no profile `{shown}`"))
        }
    };
    Ok((ProfileName::new(profile).map_err(none)?, model.filter(|model| !model.is_empty())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())])
    }

    #[test]
    fn a_request_keeps_its_id_if_that_is_sane() {
        assert_eq!(request_id(&with(REQUEST_ID, "job-7.a:b_c")), "job-7.a:b_c");
        for bad in ["", "a b", "a;b", "x".repeat(129).as_str()] {
            let id = request_id(&with(REQUEST_ID, bad));
            assert_eq!(id.len(), 36, "{bad}: {id}");
        }
        assert_ne!(request_id(&HeaderMap::new()), request_id(&HeaderMap::new()));
    }

    #[test]
    fn a_request_says_how_long_it_may_take() {
        let now = Instant::now();
        assert_eq!(deadline(&HeaderMap::new(), now).unwrap(), now + DEFAULT_TIMEOUT);
        let soon = deadline(&with(TIMEOUT_HEADER, "1500"), now).unwrap();
        assert_eq!(soon, now + Duration::from_millis(1500));
        let most = deadline(&with(TIMEOUT_HEADER, "18446744073709551615"), now).unwrap();
        assert_eq!(most, now + MAX_TIMEOUT);
        for bad in ["0", "-1", "soon", "1.5"] {
            assert!(deadline(&with(TIMEOUT_HEADER, bad), now).is_err(), "{bad}");
        }
    }
}
