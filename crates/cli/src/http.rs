//! The built-in kind `http`: a unit is an HTTP request, its result the response.
//!
//! This module is the handler: it maps the response of [`client`] to an outcome. [`payload`]
//! parses, [`allowlist`] and [`ssrf_guard`] restrict the destinations, and [`secrets`] keeps
//! secrets that the worker adds out of everything that is stored.

use std::time::{Duration, Instant};

use longshore::{Clock, Context, Handler, HandlerReply, HandlerResult, SystemClock, Verdict, trace};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use serde_json::value::RawValue;

use client::{HttpClient, HttpError, HttpRequest, HttpResponse};
use payload::HttpPayload;
use result::{HttpResult, excerpt};
use secrets::{AllowedVariables, Secrets};
use statuses::RequestFailure;

pub mod allowlist;
pub mod client;
pub mod payload;
mod result;
mod retry_after;
pub mod secrets;
mod ssrf_guard;
pub mod statuses;

/// The kind's name.
pub const KIND: &str = "http";

/// Bytes of a body that are stored.
const MAX_BODY: usize = 64 * 1024;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const ATTEMPT: HeaderName = HeaderName::from_static("longshore-attempt");
const TIME_LEFT: HeaderName = HeaderName::from_static("longshore-time-left");

/// Sends HTTP requests.
pub struct HttpHandler {
    caller: HttpClient,
    variables: AllowedVariables,
}

impl HttpHandler {
    /// Sends through `caller`; header values may name the variables.
    pub fn new(caller: HttpClient, variables: AllowedVariables) -> Self {
        Self { caller, variables }
    }

    /// The request for a payload, with the secrets that this worker adds.
    fn prepare(&self, http: &HttpPayload, context: &Context) -> Result<(HttpRequest, Secrets), Verdict> {
        let mut secrets = Secrets::default();
        let url = http.url()?;
        let mut call = http.call(|value| self.variables.fill(value, &url, &mut secrets))?;
        call.rights = context.unit().rights;
        // A secret that begins within the stored part must be read completely to be recognised.
        call.most = MAX_BODY + secrets.longest();
        add_unit_headers(&mut call, context);
        Ok((call, secrets))
    }
}

impl Handler for HttpHandler {
    // Parsed here and not by the engine, for better error messages.
    type Input = Box<RawValue>;
    type Output = HttpResult;

    async fn run(&self, context: Context, input: Box<RawValue>) -> HandlerResult<HttpResult> {
        let http = HttpPayload::read(input.get())?;
        let (call, secrets) = self.prepare(&http, &context)?;
        let (began, cancelled) = (Instant::now(), context.cancelled());
        let answered = tokio::select! {
            biased;
            answered = self.caller.call(call) => answered,
            // The engine decides whether it was cancelled or only interrupted.
            () = cancelled.cancelled() => return Err(Verdict::Cancel),
        };
        match answered {
            Ok(answer) if http.expect.contains(answer.status) => {
                Ok(HandlerReply::new(HttpResult::new(answer, &http, &secrets, began.elapsed())))
            }
            Ok(answer) => Err(unexpected(&answer, &http, &secrets)),
            Err(error) => Err(no_answer(&error, &http, &secrets)),
        }
    }
}

/// Adds headers with the unit's id, its attempt and the time left. The payload's own headers take
/// precedence: some servers need another key.
fn add_unit_headers(call: &mut HttpRequest, context: &Context) {
    let unit = context.unit();
    let limit = context.time_left().map_or(call.timeout, |left| left.min(call.timeout));
    add(&mut call.headers, IDEMPOTENCY_KEY, &unit.id.to_string());
    add(&mut call.headers, ATTEMPT, &unit.attempt.to_string());
    if let Some(at) = trace::current_traceparent().or_else(|| unit.trace.clone()) {
        add(&mut call.headers, TRACEPARENT, &at);
    }
    add(&mut call.headers, TIME_LEFT, &format!("{:.3}", limit.as_secs_f64()));
}

fn add(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.entry(name).or_insert(value);
    }
}

/// The verdict for an unexpected status.
fn unexpected(answer: &HttpResponse, http: &HttpPayload, secrets: &Secrets) -> Verdict {
    let code = format!("http-{}", answer.status.as_u16());
    let message = format!("the server answered {}{}", answer.status, excerpt(answer, secrets));
    if !http.retry_on.contains(RequestFailure::Status(answer.status)) {
        return Verdict::fail(code, message);
    }
    match wait(answer) {
        Some(after) => Verdict::retry_after(code, message, after),
        None => Verdict::retry(code, message),
    }
}

/// How long to wait before a retry, if the server says so.
fn wait(answer: &HttpResponse) -> Option<Duration> {
    let value = answer.headers.get(RETRY_AFTER)?.to_str().ok()?;
    retry_after::read(value, SystemClock.now())
}

fn no_answer(error: &HttpError, http: &HttpPayload, secrets: &Secrets) -> Verdict {
    let message = secrets.redact(error.to_string());
    let (code, trouble) = match error {
        HttpError::NotAllowed(_) => return Verdict::fail("not-allowed", message),
        HttpError::BadRedirect(_) => return Verdict::fail("redirect", message),
        HttpError::Timeout(_) => ("timeout", RequestFailure::Timeout),
        HttpError::Connection(_) => ("connection", RequestFailure::Connection),
    };
    if http.retry_on.contains(trouble) { Verdict::retry(code, message) } else { Verdict::fail(code, message) }
}
