//! Maps a provider's error (status, headers and body) to an [`AskError`]: its code says what the
//! caller can do.
//!
//! One parser for the errors of all four providers, because proxies, gateways and compatible
//! servers answer in each other's formats.

use std::time::Duration;

use hyper::HeaderMap;
use longshore::text::truncate_chars;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use crate::http::{HttpError, duration, headroom, retry_after};
use crate::model_api::{AskError, Code, ProviderErrorId, Question, Retryability};
use crate::prompt_quotes::remove_quotes;

/// Error codes for exhausted credit or a spending limit, whatever the status.
const OVER_BUDGET_CODES: [&str; 8] = [
    "billing_error",
    "billing_hard_limit_reached",
    "credit_balance_exhausted",
    "enforced_spend_limit_reached",
    "insufficient_quota",
    "organization_spend_limit_exceeded",
    "organization_usage_limit_exceeded",
    "project_spend_limit_exceeded",
];

/// The providers' own messages for the same where there is no code: how a message begins, and what
/// else it contains. Anthropic reports a customer's own spending limit as 400, with a message only.
/// The same words elsewhere in a message mean nothing: servers quote prompts.
const OVER_BUDGET_MESSAGES: [(&str, &str); 8] = [
    ("your credit balance is too low", ""),
    ("you have reached your specified", "usage limits"),
    ("your prepayment credits are depleted", ""),
    ("your project has exceeded its", "spending cap"),
    ("your team", "used all available credits"),
    ("your newly created team doesn't have any credits", ""),
    ("insufficient balance", ""),
    ("insufficient account balance", ""),
];

/// Longest type or code of an error that is accepted as one.
const MAX_CODE_CHARS: usize = 64;

/// What the errors of one question are read with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ErrorContext<'a> {
    pub(crate) redactor: &'a Redactor,
    /// The question that failed, if it is known. Quotes of it say nothing about the provider.
    pub(crate) question: Option<&'a Question>,
}

impl<'a> From<&'a Redactor> for ErrorContext<'a> {
    fn from(redactor: &'a Redactor) -> Self {
        Self { redactor, question: None }
    }
}

impl ErrorContext<'_> {
    fn without_quotes(self, text: &str) -> String {
        self.question.map_or_else(|| text.to_owned(), |question| remove_quotes(text, question))
    }

    /// An error's type or code, if it looks like one. Some servers put the prompt there.
    fn code(self, value: &Value) -> Option<String> {
        let code = match value {
            Value::String(code) => code.clone(),
            Value::Number(code) => return Some(code.to_string()),
            _ => return None,
        };
        let is_code = |c: char| c.is_ascii_alphanumeric() || "_-./:".contains(c);
        let looks_like_one = !code.is_empty() && code.len() <= MAX_CODE_CHARS && code.chars().all(is_code);
        (looks_like_one && self.without_quotes(&code) == code).then_some(code)
    }
}

/// Whether an error that reports exhausted credit can have no other reason: it is by its status or
/// by a known code, or our own. Without these it is by the message of one request.
pub(crate) fn is_certain_lack_of_credit(error: &AskError) -> bool {
    let id = error.provider_error.as_deref();
    let words = id.into_iter().flat_map(|id| [&id.kind, &id.code]).flatten();
    let has_code = words.map(String::as_str).any(|word| OVER_BUDGET_CODES.contains(&word));
    has_code || !matches!(error.provider_status, Some(200 | 400 | 403 | 429))
}

/// A provider's error body.
#[derive(Debug, Default)]
struct ErrorBody {
    text: String,
    /// All possible error codes: `type`, `code`, `status`, `details.error_code`, `reason`.
    codes: Vec<String>,
    /// Its `type`, and its `code` or what the provider has instead of one.
    id: ProviderErrorId,
    /// The delay before a retry, if the body has one.
    wait: Option<Duration>,
}

/// The error of a response without a success status.
pub(crate) fn from_response<'a>(
    status: u16,
    headers: &HeaderMap,
    body: &[u8],
    context: impl Into<ErrorContext<'a>>,
) -> AskError {
    let context = context.into();
    let redactor = context.redactor;
    if (300..400).contains(&status) {
        return redirect(status, headers, redactor);
    }
    let json = serde_json::from_slice::<Value>(body).ok();
    let parsed = json.as_ref().map(|json| ErrorBody::parse(json, context)).unwrap_or_default();
    let text =
        if parsed.text.is_empty() { redactor.redact_bytes(body) } else { redactor.redact(&parsed.text) };
    let mut error = provider_error(status, &parsed, text, context);
    error.retry_after = retry_after(headers).or(parsed.wait);
    error.headroom = Some(Box::new(headroom(headers)));
    apply_retry_header(&mut error, headers);
    error
}

/// The error of an error event in a stream with status 200. Before the first piece of the answer it
/// means the same as the status would; after that the question is billed.
pub(crate) fn from_event<'a>(error: &Value, started: bool, context: impl Into<ErrorContext<'a>>) -> AskError {
    let context = context.into();
    let parsed = ErrorBody::parse(error, context);
    let text = context.redactor.redact(&parsed.text);
    let mut failure = provider_error(parsed.status(), &parsed, text, context);
    failure.message = format!("in the stream, {}", failure.message);
    failure.provider_status = Some(200);
    failure.retry_after = parsed.wait;
    if started && failure.retry == Retryability::Later {
        failure.retry = Retryability::Never;
    }
    if started { failure.maybe_billed() } else { failure }
}

/// The error of one result of a batch. It was not billed.
pub(crate) fn from_batch_result(error: &Value, redactor: &Redactor) -> AskError {
    let parsed = ErrorBody::parse(error, redactor.into());
    provider_error(parsed.status(), &parsed, redactor.redact(&parsed.text), redactor.into())
}

/// The error of a failed batch: the queue is full, the credit is exhausted, or it is invalid.
pub(crate) fn failed_batch(error: &Value, redactor: &Redactor) -> AskError {
    let parsed = ErrorBody::parse(error, redactor.into());
    let status = if parsed.has("token_limit_exceeded") { 429 } else { 400 };
    provider_error(status, &parsed, redactor.redact(&parsed.text), redactor.into())
}

/// The error of an invalid answer with status 200. It may have been billed.
pub(crate) fn invalid_answer(why: &str, body: &[u8], redactor: &Redactor) -> AskError {
    let message = format!("the answer is invalid ({why}): {}", redactor.redact_bytes(body));
    let error = AskError::new(Code::ProviderError, message).maybe_billed();
    AskError { provider_status: Some(200), ..error }
}

/// The error of a stream that ended without its last event. It was billed.
pub(crate) fn incomplete_stream(why: &str) -> AskError {
    let message = format!("the stream ended before the answer did: {why}");
    let error = AskError::new(Code::ProviderError, message).maybe_billed();
    AskError { provider_status: Some(200), ..error }
}

/// The deadline passed after the question was sent.
pub(crate) fn deadline_exceeded() -> AskError {
    let text = "no answer before the deadline; it may have been billed";
    AskError::new(Code::Timeout, text).maybe_billed()
}

/// The provider sent nothing for as long as the profile allows, after the question was sent. The limit may be one that
/// no provider meets, so it is a timeout of ours, and not a failure of the provider.
pub(crate) fn stalled(limit: Duration) -> AskError {
    let limit = longshore::duration::format(limit);
    let text = format!("the provider sent nothing for {limit} (idle timeout); it may have been billed");
    AskError::new(Code::Timeout, text).maybe_billed()
}

/// The deadline passed before the question was sent.
pub(crate) fn deadline_before_send() -> AskError {
    AskError::not_sent("no connection before the deadline; the question was not sent")
}

impl From<HttpError> for AskError {
    fn from(broken: HttpError) -> Self {
        let message = match broken {
            HttpError::NotSent(why) => {
                return Self::not_sent(format!("no connection: {why}"));
            }
            HttpError::Stalled(limit) => return stalled(limit),
            HttpError::Lost(why) => format!("the connection broke: {why}"),
            HttpError::TooLarge(max) => format!("the answer is larger than {} MB", max >> 20),
        };
        Self::new(Code::ProviderError, message).maybe_billed()
    }
}

fn provider_error(status: u16, parsed: &ErrorBody, text: String, context: ErrorContext<'_>) -> AskError {
    let (code, again) = parsed.classify(status, context);
    let id = parsed.redacted_id(context.redactor).unwrap_or_default();
    let kind = match (id.kind, id.code) {
        (Some(kind), Some(code)) if kind != code => format!(" ({kind}, {code})"),
        (Some(word), _) | (None, Some(word)) => format!(" ({word})"),
        // A number.
        (None, None) => parsed.codes.first().map(|code| format!(" ({code})")).unwrap_or_default(),
    };
    let message = match text.as_str() {
        "" => format!("the provider said {status}{kind}"),
        text => format!("the provider said {status}{kind}: {text}"),
    };
    AskError {
        retry: again,
        provider_status: Some(status),
        provider_error: parsed.redacted_id(context.redactor),
        ..AskError::new(code, message)
    }
}

/// Redirects are not followed, so that the key is sent to no other host. A URL without its query is
/// not a secret.
fn redirect(status: u16, headers: &HeaderMap, redactor: &Redactor) -> AskError {
    let to = headers.get("location").and_then(|to| to.to_str().ok()).unwrap_or("nowhere");
    let to = redactor.redact(to.split(['?', '#']).next().unwrap_or(to));
    let message = format!("the provider redirects to {to}, which is not followed");
    AskError { provider_status: Some(status), ..AskError::new(Code::ProviderError, message) }
}

/// A header may say whether to retry. It does not override exhausted credit or a rejected key.
fn apply_retry_header(error: &mut AskError, headers: &HeaderMap) {
    let settled = error.retry == Retryability::AfterTopUp || error.code == Code::ProviderAuth;
    match headers.get("x-should-retry").map(hyper::header::HeaderValue::as_bytes) {
        Some(b"true") if !settled => error.retry = Retryability::Later,
        Some(b"false") if !settled => error.retry = Retryability::Never,
        _ => {}
    }
}

impl ErrorBody {
    /// Parses `{"error": {…}}`, `{"error": "…"}`, a list of these, and the same without the
    /// wrapping.
    fn parse(json: &Value, context: ErrorContext<'_>) -> Self {
        let json = json.get(0).unwrap_or(json);
        let error = json.get("error").unwrap_or(json);
        if let Some(text) = error.as_str() {
            return Self { text: text.to_owned(), ..Self::default() };
        }
        let text = error.get("message").or_else(|| error.get("detail")).and_then(Value::as_str);
        let mut parsed = Self { text: text.unwrap_or_default().to_owned(), ..Self::default() };
        for name in ["type", "code", "status"] {
            parsed.codes.extend(error.get(name).and_then(|value| context.code(value)));
        }
        let before = parsed.codes.len();
        parsed.add_details(error.get("details"), context);
        let word =
            |name| error.get(name).filter(|value| value.is_string()).and_then(|value| context.code(value));
        let detail = parsed.codes.get(before).cloned();
        // Google's `code` repeats the HTTP status as a number; its `status` is a word.
        let code = word("code").or_else(|| word("status")).or(detail);
        parsed.id = ProviderErrorId { kind: word("type"), code };
        parsed
    }

    /// The provider's type and code, safe to show.
    fn redacted_id(&self, redactor: &Redactor) -> Option<Box<ProviderErrorId>> {
        let ProviderErrorId { kind, code } = &self.id;
        let show = |word: &Option<String>| word.as_deref().map(|word| redactor.redact(word));
        let id = ProviderErrorId { kind: show(kind), code: show(code) };
        (id != ProviderErrorId::default()).then(|| Box::new(id))
    }

    /// Anthropic's details are an object, Google's are a list of objects.
    fn add_details(&mut self, details: Option<&Value>, context: ErrorContext<'_>) {
        let one = details.filter(|details| details.is_object());
        let many = details.and_then(Value::as_array).into_iter().flatten();
        for detail in one.into_iter().chain(many) {
            for name in ["error_code", "reason"] {
                self.codes.extend(detail.get(name).and_then(|value| context.code(value)));
            }
            let wait = detail.get("retryDelay").and_then(Value::as_str).and_then(duration);
            self.wait = self.wait.or(wait);
        }
    }

    fn has(&self, code: &str) -> bool {
        self.codes.iter().any(|have| have == code)
    }

    fn classify(&self, status: u16, context: ErrorContext<'_>) -> (Code, Retryability) {
        match status {
            400..=499 if self.is_over_budget(status, context) => (Code::OverBudget, Retryability::AfterTopUp),
            401 | 403 => (Code::ProviderAuth, Retryability::Never),
            // Google answers an invalid key with 400.
            400 if self.has("API_KEY_INVALID") => (Code::ProviderAuth, Retryability::Never),
            429 => (Code::RateLimited, Retryability::Later),
            // A request that was not read in time, and a lock that was not acquired: the providers'
            // own clients retry both.
            408 | 409 => (Code::ProviderError, Retryability::Later),
            400..=499 => (Code::InvalidRequest, Retryability::Never),
            500 | 502 | 503 | 504 | 529 => (Code::ProviderError, Retryability::Later),
            _ => (Code::ProviderError, Retryability::Never),
        }
    }

    fn is_over_budget(&self, status: u16, context: ErrorContext<'_>) -> bool {
        let coded = OVER_BUDGET_CODES.iter().any(|code| self.has(code));
        status == 402 || coded || (matches!(status, 400 | 403 | 429) && self.reports_no_credit(context))
    }

    /// Whether the message is one of the providers' own about credit, and not a quote of the
    /// question.
    fn reports_no_credit(&self, context: ErrorContext<'_>) -> bool {
        let is_known = |text: &str| {
            let text = text.trim().to_lowercase();
            let mut messages = OVER_BUDGET_MESSAGES.iter();
            messages.any(|(begin, part)| text.starts_with(begin) && text.contains(part))
        };
        is_known(&self.text) && is_known(&context.without_quotes(&self.text))
    }

    /// The status that an error event stands for.
    fn status(&self) -> u16 {
        let statuses = self.codes.iter().filter_map(|code| match code.as_str() {
            "invalid_request_error" | "INVALID_ARGUMENT" => Some(400),
            "authentication_error" | "UNAUTHENTICATED" => Some(401),
            "billing_error" => Some(402),
            "permission_error" | "PERMISSION_DENIED" => Some(403),
            "not_found_error" | "NOT_FOUND" => Some(404),
            "request_too_large" => Some(413),
            "rate_limit_error" | "rate_limit_exceeded" | "insufficient_quota" | "RESOURCE_EXHAUSTED" => {
                Some(429)
            }
            "timeout_error" => Some(504),
            "overloaded_error" => Some(529),
            number => number.parse().ok().filter(|status| (400..600).contains(status)),
        });
        statuses.into_iter().next().unwrap_or(500)
    }
}

/// Characters of a message that are shown.
const MAX_CHARS: usize = 300;

/// Shorter values occur in other texts by chance.
const MIN_SECRET_BYTES: usize = 6;

/// The secrets of one provider. Redacts its messages before they are shown: one line, limited
/// length, no secrets, even if the provider quotes the key that it rejects.
#[derive(Debug, Default)]
pub(crate) struct Redactor(Vec<SecretString>);

impl Redactor {
    pub(crate) fn new(secrets: impl IntoIterator<Item = SecretString>) -> Self {
        let secrets = secrets.into_iter();
        Self(secrets.filter(|secret| secret.expose_secret().len() >= MIN_SECRET_BYTES).collect())
    }

    /// A text on one line, without secrets, truncated.
    pub(crate) fn redact(&self, text: &str) -> String {
        let hidden = self
            .0
            .iter()
            .fold(text.to_owned(), |text, secret| text.replace(secret.expose_secret(), "[secret]"));
        let words = hidden.split(|c: char| c.is_whitespace() || c.is_control());
        let line = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        truncate_chars(&line, MAX_CHARS)
    }

    /// Redacts bytes.
    pub(crate) fn redact_bytes(&self, bytes: &[u8]) -> String {
        self.redact(&String::from_utf8_lossy(bytes))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model_api::BillingStatus;

    fn classified(status: u16, body: &Value) -> (Code, Retryability) {
        let error =
            from_response(status, &HeaderMap::new(), body.to_string().as_bytes(), &Redactor::default());
        (error.code, error.retry)
    }

    fn anthropic(kind: &str, message: &str) -> Value {
        json!({ "type": "error", "error": { "type": kind, "message": message } })
    }

    #[test]
    fn a_status_says_what_the_caller_can_do() {
        for (status, code, again) in [
            (400, Code::InvalidRequest, Retryability::Never),
            (401, Code::ProviderAuth, Retryability::Never),
            (402, Code::OverBudget, Retryability::AfterTopUp),
            (403, Code::ProviderAuth, Retryability::Never),
            (404, Code::InvalidRequest, Retryability::Never),
            (408, Code::ProviderError, Retryability::Later),
            (409, Code::ProviderError, Retryability::Later),
            (413, Code::InvalidRequest, Retryability::Never),
            (422, Code::InvalidRequest, Retryability::Never),
            (429, Code::RateLimited, Retryability::Later),
            (500, Code::ProviderError, Retryability::Later),
            (501, Code::ProviderError, Retryability::Never),
            (502, Code::ProviderError, Retryability::Later),
            (503, Code::ProviderError, Retryability::Later),
            (504, Code::ProviderError, Retryability::Later),
            (529, Code::ProviderError, Retryability::Later),
        ] {
            assert_eq!(classified(status, &json!({})), (code, again), "{status}");
            let error = from_response(status, &HeaderMap::new(), b"{}", &Redactor::default());
            assert_eq!(error.billing, BillingStatus::Nothing, "{status}: a refusal costs nothing");
        }
    }

    #[test]
    fn what_means_money_is_told_apart_from_what_means_waiting() {
        let openai = |code: &str| json!({ "error": { "message": "x", "type": "t", "code": code } });
        let google = |message: &str| json!([{ "error": { "code": 429, "message": message, "status": "RESOURCE_EXHAUSTED" } }]);
        let mut spent = anthropic("rate_limit_error", "x");
        spent["error"]["details"] = json!({ "error_code": "enforced_spend_limit_reached" });
        let mut ramp = anthropic("rate_limit_error", "x");
        ramp["error"]["details"] = json!({ "error_code": "ramp_limit_exceeded" });
        let money = [
            (429, openai("insufficient_quota")),
            (429, openai("credit_balance_exhausted")),
            (429, openai("project_spend_limit_exceeded")),
            (429, spent),
            (402, anthropic("billing_error", "x")),
            (400, anthropic("invalid_request_error", "Your credit balance is too low to access")),
            (400, anthropic("invalid_request_error", "You have reached your specified API usage limits.")),
            (429, google("Your project has exceeded its monthly spending cap")),
        ];
        for (status, body) in money {
            assert_eq!(classified(status, &body), (Code::OverBudget, Retryability::AfterTopUp), "{body}");
        }
        let waiting = [
            openai("rate_limit_exceeded"),
            openai("slow_down"),
            ramp,
            google("You exceeded your current quota, please check your plan and billing details."),
        ];
        for body in waiting {
            assert_eq!(classified(429, &body), (Code::RateLimited, Retryability::Later), "{body}");
        }
        let usual = anthropic("invalid_request_error", "max_tokens: must be greater than 0");
        assert_eq!(classified(400, &usual), (Code::InvalidRequest, Retryability::Never));
    }

    #[test]
    fn a_wrong_key_is_a_wrong_key_even_where_the_status_says_less() {
        let body = json!({ "error": { "code": 400, "message": "API key not valid",
            "status": "INVALID_ARGUMENT", "details": [{ "reason": "API_KEY_INVALID" }] } });
        assert_eq!(classified(400, &body), (Code::ProviderAuth, Retryability::Never));
    }

    #[test]
    fn the_header_decides_about_another_try_unless_it_is_about_money_or_the_key() {
        let with = |status, word: &'static str| {
            let headers = [("x-should-retry".parse().unwrap(), word.parse().unwrap())];
            from_response(status, &headers.into_iter().collect(), b"{}", &Redactor::default()).retry
        };
        assert_eq!(with(503, "false"), Retryability::Never);
        assert_eq!(with(409, "false"), Retryability::Never);
        assert_eq!(with(422, "true"), Retryability::Later);
        assert_eq!(with(402, "true"), Retryability::AfterTopUp);
        assert_eq!(with(401, "true"), Retryability::Never);
        assert_eq!(with(429, "perhaps"), Retryability::Later);
    }

    #[test]
    fn an_error_in_a_stream_is_final_once_something_was_said() {
        let overloaded = anthropic("overloaded_error", "Overloaded");
        assert_eq!(from_event(&overloaded, false, &Redactor::default()).retry, Retryability::Later);
        assert_eq!(from_event(&overloaded, false, &Redactor::default()).billing, BillingStatus::Nothing);
        let late = from_event(&overloaded, true, &Redactor::default());
        assert_eq!(late.billing, BillingStatus::Unknown);
        assert_eq!((late.code, late.retry), (Code::ProviderError, Retryability::Never));
        let text = "in the stream, the provider said 529 (overloaded_error): Overloaded";
        assert_eq!(late.message, text);
        let plain = from_event(&json!({ "error": "model died" }), true, &Redactor::default());
        assert_eq!(plain.message, "in the stream, the provider said 500: model died");
    }

    #[test]
    fn words_are_taken_from_the_body_whatever_it_is() {
        let page = b"<html>\n<body>Bad Gateway</body>";
        let error = from_response(502, &HeaderMap::new(), page, &Redactor::default());
        assert_eq!(error.message, "the provider said 502: <html> <body>Bad Gateway</body>");
        let error = from_response(503, &HeaderMap::new(), b"", &Redactor::default());
        assert_eq!(error.message, "the provider said 503");
        let body = json!({ "error": { "details": [{ "retryDelay": "34.5s" }] } }).to_string();
        let error = from_response(429, &HeaderMap::new(), body.as_bytes(), &Redactor::default());
        assert_eq!(error.retry_after.unwrap().as_secs_f64(), 34.5);
    }

    #[test]
    fn a_provider_that_quotes_the_key_does_not_spread_it() {
        let redactor = Redactor::new(["sk-marked-1".into(), "abc".into()]);
        assert_eq!(redactor.redact("bad key:\n\tsk-marked-1\u{7}abc"), "bad key: [secret] abc");
        // Redacted before it is truncated: no half of the secret remains.
        let long = format!("{}sk-marked-1", "x".repeat(MAX_CHARS - 5));
        assert!(!redactor.redact(&long).contains("sk-m"), "{}", redactor.redact(&long));
        assert_eq!(redactor.redact_bytes("é".repeat(400).as_bytes()).chars().count(), MAX_CHARS + 1);
    }
}
