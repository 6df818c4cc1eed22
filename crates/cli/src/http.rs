//! The built-in kind `http`: a unit is a call of a URL, its result what the server said.
//!
//! This module is the handler: it turns what [`call`] saw into an outcome. Reading the payload is
//! [`payload`]'s part, where calls may go [`rules`]' and [`address`]', and [`secrets`] keeps what
//! the worker adds to a call out of everything that is kept of it.

use std::time::{Duration, Instant};

use longshore::{Clock, Context, Handler, HandlerResult, Reply, SystemClock, Verdict, trace};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use serde_json::value::RawValue;

use call::{Answer, Call, CallError, Caller};
use payload::Http;
use result::{HttpResult, excerpt};
use secrets::{Secrets, Vault};
use statuses::Trouble;

mod address;
pub mod call;
pub mod payload;
mod result;
mod retry_after;
pub mod rules;
mod secrets;
pub mod statuses;

/// The kind's name.
pub const KIND: &str = "http";

/// How much of a body is kept.
const KEPT: usize = 64 * 1024;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const ATTEMPT: HeaderName = HeaderName::from_static("longshore-attempt");
const TIME_LEFT: HeaderName = HeaderName::from_static("longshore-time-left");

/// Calls URLs.
pub struct HttpHandler {
    caller: Caller,
    vault: Vault,
}

impl HttpHandler {
    /// Calls through `caller`; header values may name the variables `env`.
    pub fn new(caller: Caller, env: Vec<String>) -> Self {
        Self { caller, vault: Vault::new(env) }
    }

    /// The call that a payload describes, with the secrets that this worker adds to it.
    fn prepare(&self, http: &Http, context: &Context) -> Result<(Call, Secrets), Verdict> {
        let mut secrets = Secrets::default();
        let mut call = http.call(|value| self.vault.fill(value, &mut secrets))?;
        // A secret that begins within what is kept must be seen whole to be recognised.
        call.most = KEPT + secrets.longest();
        introduce(&mut call, context);
        Ok((call, secrets))
    }
}

impl Handler for HttpHandler {
    // The payload is read here and not by the engine, so that its errors can say more.
    type Input = Box<RawValue>;
    type Output = HttpResult;

    async fn run(&self, context: Context, input: Box<RawValue>) -> HandlerResult<HttpResult> {
        let http = Http::read(input.get())?;
        let (call, secrets) = self.prepare(&http, &context)?;
        let (began, cancelled) = (Instant::now(), context.cancelled());
        let answered = tokio::select! {
            biased;
            answered = self.caller.call(call) => answered,
            // Whether it was cancelled or only interrupted is for the engine to say.
            () = cancelled.cancelled() => return Err(Verdict::Cancel),
        };
        match answered {
            Ok(answer) if http.expect.contains(answer.status) => {
                Ok(Reply::new(HttpResult::new(answer, &http, &secrets, began.elapsed())))
            }
            Ok(answer) => Err(unexpected(&answer, &http, &secrets)),
            Err(error) => Err(no_answer(&error, &http, &secrets)),
        }
    }
}

/// Tells the server which unit calls, for the how manieth time, and how long it will wait. What
/// the payload says goes first: some servers want another key.
fn introduce(call: &mut Call, context: &Context) {
    let unit = context.unit();
    let limit = context.time_left().map_or(call.timeout, |left| left.min(call.timeout));
    add(&mut call.headers, IDEMPOTENCY_KEY, &unit.id.to_string());
    add(&mut call.headers, ATTEMPT, &unit.attempt.to_string());
    if let Some(at) = trace::here().or_else(|| unit.trace.clone()) {
        add(&mut call.headers, TRACEPARENT, &at);
    }
    add(&mut call.headers, TIME_LEFT, &format!("{:.3}", limit.as_secs_f64()));
}

fn add(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.entry(name).or_insert(value);
    }
}

/// A status that the sender did not want.
fn unexpected(answer: &Answer, http: &Http, secrets: &Secrets) -> Verdict {
    let code = format!("http-{}", answer.status.as_u16());
    let message = format!("the server answered {}{}", answer.status, excerpt(answer, secrets));
    if !http.retry_on.contains(Trouble::Status(answer.status)) {
        return Verdict::fail(code, message);
    }
    match wait(answer) {
        Some(after) => Verdict::retry_after(code, message, after),
        None => Verdict::retry(code, message),
    }
}

/// How long the server wants to be left alone, if it says so.
fn wait(answer: &Answer) -> Option<Duration> {
    let value = answer.headers.get(RETRY_AFTER)?.to_str().ok()?;
    retry_after::read(value, SystemClock.now())
}

fn no_answer(error: &CallError, http: &Http, secrets: &Secrets) -> Verdict {
    let message = secrets.redact(error.to_string());
    let (code, trouble) = match error {
        CallError::NotAllowed(_) => return Verdict::fail("not-allowed", message),
        CallError::BadRedirect(_) => return Verdict::fail("redirect", message),
        CallError::Timeout(_) => ("timeout", Trouble::Timeout),
        CallError::Connection(_) => ("connection", Trouble::Connection),
    };
    if http.retry_on.contains(trouble) {
        Verdict::retry(code, message)
    } else {
        Verdict::fail(code, message)
    }
}
