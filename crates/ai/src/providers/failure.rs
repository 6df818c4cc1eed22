//! From what a provider says to what the caller can do: status, headers and body become an
//! [`AskError`].
//!
//! All four wires are read here, because servers in between (proxies, gateways, compatible servers)
//! answer in each other's forms.

use hyper::HeaderMap;
use serde_json::Value;

use super::veil::Veil;
use crate::ask::{Again, AskError, Code};
use crate::http::{Broken, duration, headroom, retry_after};

/// Codes that say that there is no money, whatever the status.
const NO_MONEY: [&str; 8] = [
    "billing_error",
    "billing_hard_limit_reached",
    "credit_balance_exhausted",
    "enforced_spend_limit_reached",
    "insufficient_quota",
    "organization_spend_limit_exceeded",
    "organization_usage_limit_exceeded",
    "project_spend_limit_exceeded",
];

/// Words that say so where there is no code for it. A limit that a customer has set for
/// themselves comes from Anthropic as 400, with words only.
const NO_MONEY_WORDS: [&str; 7] = [
    "credit balance",
    "credits are depleted",
    "insufficient balance",
    "spend limit",
    "spending cap",
    "spending limit",
    "usage limits",
];

/// What a provider's error says.
#[derive(Debug, Default)]
struct Said {
    words: String,
    /// Everything that may be a code: `type`, `code`, `status`, `details.error_code`, `reason`.
    codes: Vec<String>,
    /// How long to wait, where that is said in the body.
    wait: Option<std::time::Duration>,
}

/// An answer that is none: its status is not 200.
pub(crate) fn refused(status: u16, headers: &HeaderMap, body: &[u8], veil: &Veil) -> AskError {
    if (300..400).contains(&status) {
        return redirected(status, headers, veil);
    }
    let json = serde_json::from_slice::<Value>(body).ok();
    let said = json.as_ref().map(Said::read).unwrap_or_default();
    let words = if said.words.is_empty() { veil.bytes(body) } else { veil.line(&said.words) };
    let mut error = judged(status, &said, words, veil);
    error.retry_after = retry_after(headers).or(said.wait);
    error.headroom = Some(Box::new(headroom(headers)));
    obey(&mut error, headers);
    error
}

/// An error that comes as an event of a stream, with status 200. Before any piece of the answer has
/// come, it means what the status would have meant; afterwards the question is paid for.
pub(crate) fn told(error: &Value, begun: bool, veil: &Veil) -> AskError {
    let said = Said::read(error);
    let mut failure = judged(said.status(), &said, veil.line(&said.words), veil);
    failure.message = format!("in the stream, {}", failure.message);
    failure.provider_status = Some(200);
    failure.retry_after = said.wait;
    if begun && failure.again == Again::Later {
        failure.again = Again::Never;
    }
    if begun { failure.maybe_billed() } else { failure }
}

/// An error among the results of a batch. Nothing was billed for it.
pub(crate) fn listed(error: &Value, veil: &Veil) -> AskError {
    let said = Said::read(error);
    judged(said.status(), &said, veil.line(&said.words), veil)
}

/// Why a whole batch came to nothing: it is full, there is no money, or it makes no sense.
pub(crate) fn failed_batch(error: &Value, veil: &Veil) -> AskError {
    let said = Said::read(error);
    let status = if said.has("token_limit_exceeded") { 429 } else { 400 };
    judged(status, &said, veil.line(&said.words), veil)
}

/// An answer with status 200 that is not what it should be. It may have been billed.
pub(crate) fn garbled(why: &str, body: &[u8], veil: &Veil) -> AskError {
    let message = format!("the answer makes no sense ({why}): {}", veil.bytes(body));
    let error = AskError::new(Code::ProviderError, message).maybe_billed();
    AskError { provider_status: Some(200), ..error }
}

/// A stream without its last event. It was billed.
pub(crate) fn cut(why: &str) -> AskError {
    let message = format!("the stream ended before the answer did: {why}");
    let error = AskError::new(Code::ProviderError, message).maybe_billed();
    AskError { provider_status: Some(200), ..error }
}

/// The deadline has passed.
pub(crate) fn late() -> AskError {
    let words = "no answer before the deadline; it may have been billed";
    AskError::new(Code::Timeout, words).maybe_billed()
}

/// The same, and the question is still here.
pub(crate) fn unsent() -> AskError {
    AskError::new(Code::Timeout, "no connection before the deadline; the question was not sent")
}

impl From<Broken> for AskError {
    fn from(broken: Broken) -> Self {
        let message = match broken {
            Broken::NotSent(why) => {
                let unsent = Self::new(Code::ProviderError, format!("no connection: {why}"));
                return Self { again: Again::NotSent, ..unsent };
            }
            Broken::Lost(why) => format!("the connection broke: {why}"),
            Broken::TooLarge(most) => format!("the answer is larger than {} MB", most >> 20),
        };
        Self::new(Code::ProviderError, message).maybe_billed()
    }
}

fn judged(status: u16, said: &Said, words: String, veil: &Veil) -> AskError {
    let (code, again) = said.verdict(status);
    let kind = said.codes.first().map(|kind| format!(" ({})", veil.line(kind)));
    let kind = kind.unwrap_or_default();
    let message = match words.as_str() {
        "" => format!("the provider said {status}{kind}"),
        words => format!("the provider said {status}{kind}: {words}"),
    };
    AskError { again, provider_status: Some(status), ..AskError::new(code, message) }
}

/// Redirects are not followed, so that keys stay where they belong. Without its query, an address is
/// no secret.
fn redirected(status: u16, headers: &HeaderMap, veil: &Veil) -> AskError {
    let to = headers.get("location").and_then(|to| to.to_str().ok()).unwrap_or("nowhere");
    let to = veil.line(to.split(['?', '#']).next().unwrap_or(to));
    let message = format!("the provider redirects to {to}, which is not followed");
    AskError { provider_status: Some(status), ..AskError::new(Code::ProviderError, message) }
}

/// The provider may say by a header whether to try again. That there is no money, or that the key is
/// wrong, stays so.
fn obey(error: &mut AskError, headers: &HeaderMap) {
    let settled = error.again == Again::Money || error.code == Code::ProviderAuth;
    match headers.get("x-should-retry").map(hyper::header::HeaderValue::as_bytes) {
        Some(b"true") if !settled => error.again = Again::Later,
        Some(b"false") if !settled => error.again = Again::Never,
        _ => {}
    }
}

impl Said {
    /// Reads `{"error": {…}}`, `{"error": "…"}` and the same in a list, and what has no such wrapping.
    fn read(json: &Value) -> Self {
        let json = json.get(0).unwrap_or(json);
        let error = json.get("error").unwrap_or(json);
        if let Some(words) = error.as_str() {
            return Self { words: words.to_owned(), ..Self::default() };
        }
        let words = error.get("message").or_else(|| error.get("detail")).and_then(Value::as_str);
        let mut said = Self { words: words.unwrap_or_default().to_owned(), ..Self::default() };
        for name in ["type", "code", "status"] {
            said.codes.extend(error.get(name).and_then(code));
        }
        said.details(error.get("details"));
        said
    }

    /// Anthropic's details are an object, Google's a list of objects.
    fn details(&mut self, details: Option<&Value>) {
        let one = details.filter(|details| details.is_object());
        let many = details.and_then(Value::as_array).into_iter().flatten();
        for detail in one.into_iter().chain(many) {
            for name in ["error_code", "reason"] {
                self.codes.extend(detail.get(name).and_then(code));
            }
            let wait = detail.get("retryDelay").and_then(Value::as_str).and_then(duration);
            self.wait = self.wait.or(wait);
        }
    }

    fn has(&self, code: &str) -> bool {
        self.codes.iter().any(|have| have == code)
    }

    fn verdict(&self, status: u16) -> (Code, Again) {
        match status {
            400..=499 if self.is_about_money(status) => (Code::OverBudget, Again::Money),
            401 | 403 => (Code::ProviderAuth, Again::Never),
            // Google answers a wrong key with 400.
            400 if self.has("API_KEY_INVALID") => (Code::ProviderAuth, Again::Never),
            429 => (Code::RateLimited, Again::Later),
            408 => (Code::ProviderError, Again::Never),
            400..=499 => (Code::InvalidRequest, Again::Never),
            500 | 502 | 503 | 504 | 529 => (Code::ProviderError, Again::Later),
            _ => (Code::ProviderError, Again::Never),
        }
    }

    fn is_about_money(&self, status: u16) -> bool {
        let words = self.words.to_lowercase();
        let says = || NO_MONEY_WORDS.iter().any(|phrase| words.contains(phrase));
        let coded = NO_MONEY.iter().any(|code| self.has(code));
        status == 402 || coded || (matches!(status, 400 | 403 | 429) && says())
    }

    /// The status that an error in a stream would have had.
    fn status(&self) -> u16 {
        let statuses = self.codes.iter().filter_map(|code| match code.as_str() {
            "invalid_request_error" | "INVALID_ARGUMENT" => Some(400),
            "authentication_error" | "UNAUTHENTICATED" => Some(401),
            "billing_error" => Some(402),
            "permission_error" | "PERMISSION_DENIED" => Some(403),
            "not_found_error" | "NOT_FOUND" => Some(404),
            "request_too_large" => Some(413),
            "rate_limit_error"
            | "rate_limit_exceeded"
            | "insufficient_quota"
            | "RESOURCE_EXHAUSTED" => Some(429),
            "timeout_error" => Some(504),
            "overloaded_error" => Some(529),
            number => number.parse().ok().filter(|status| (400..600).contains(status)),
        });
        statuses.into_iter().next().unwrap_or(500)
    }
}

/// Codes are words, or numbers.
fn code(value: &Value) -> Option<String> {
    match value {
        Value::String(code) if !code.is_empty() => Some(code.clone()),
        Value::Number(code) => Some(code.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ask::Bill;

    fn judge(status: u16, body: &Value) -> (Code, Again) {
        let error =
            refused(status, &HeaderMap::new(), body.to_string().as_bytes(), &Veil::default());
        (error.code, error.again)
    }

    fn anthropic(kind: &str, message: &str) -> Value {
        json!({ "type": "error", "error": { "type": kind, "message": message } })
    }

    #[test]
    fn a_status_says_what_the_caller_can_do() {
        for (status, code, again) in [
            (400, Code::InvalidRequest, Again::Never),
            (401, Code::ProviderAuth, Again::Never),
            (402, Code::OverBudget, Again::Money),
            (403, Code::ProviderAuth, Again::Never),
            (404, Code::InvalidRequest, Again::Never),
            (408, Code::ProviderError, Again::Never),
            (409, Code::InvalidRequest, Again::Never),
            (413, Code::InvalidRequest, Again::Never),
            (422, Code::InvalidRequest, Again::Never),
            (429, Code::RateLimited, Again::Later),
            (500, Code::ProviderError, Again::Later),
            (501, Code::ProviderError, Again::Never),
            (502, Code::ProviderError, Again::Later),
            (503, Code::ProviderError, Again::Later),
            (504, Code::ProviderError, Again::Later),
            (529, Code::ProviderError, Again::Later),
        ] {
            assert_eq!(judge(status, &json!({})), (code, again), "{status}");
            let error = refused(status, &HeaderMap::new(), b"{}", &Veil::default());
            assert_eq!(error.bill, Bill::Nothing, "{status}: a refusal costs nothing");
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
            (
                400,
                anthropic(
                    "invalid_request_error",
                    "You have reached your specified API usage limits.",
                ),
            ),
            (429, google("Your project has exceeded its monthly spending cap")),
        ];
        for (status, body) in money {
            assert_eq!(judge(status, &body), (Code::OverBudget, Again::Money), "{body}");
        }
        let waiting = [
            openai("rate_limit_exceeded"),
            openai("slow_down"),
            ramp,
            google("You exceeded your current quota, please check your plan and billing details."),
        ];
        for body in waiting {
            assert_eq!(judge(429, &body), (Code::RateLimited, Again::Later), "{body}");
        }
        let usual = anthropic("invalid_request_error", "max_tokens: must be greater than 0");
        assert_eq!(judge(400, &usual), (Code::InvalidRequest, Again::Never));
    }

    #[test]
    fn a_wrong_key_is_a_wrong_key_even_where_the_status_says_less() {
        let body = json!({ "error": { "code": 400, "message": "API key not valid",
            "status": "INVALID_ARGUMENT", "details": [{ "reason": "API_KEY_INVALID" }] } });
        assert_eq!(judge(400, &body), (Code::ProviderAuth, Again::Never));
    }

    #[test]
    fn the_header_decides_about_another_try_unless_it_is_about_money_or_the_key() {
        let with = |status, word: &'static str| {
            let headers = [("x-should-retry".parse().unwrap(), word.parse().unwrap())];
            refused(status, &headers.into_iter().collect(), b"{}", &Veil::default()).again
        };
        assert_eq!(with(503, "false"), Again::Never);
        assert_eq!(with(409, "true"), Again::Later);
        assert_eq!(with(402, "true"), Again::Money);
        assert_eq!(with(401, "true"), Again::Never);
        assert_eq!(with(429, "perhaps"), Again::Later);
    }

    #[test]
    fn an_error_in_a_stream_is_final_once_something_was_said() {
        let overloaded = anthropic("overloaded_error", "Overloaded");
        assert_eq!(told(&overloaded, false, &Veil::default()).again, Again::Later);
        assert_eq!(told(&overloaded, false, &Veil::default()).bill, Bill::Nothing);
        let late = told(&overloaded, true, &Veil::default());
        assert_eq!(late.bill, Bill::Unknown);
        assert_eq!((late.code, late.again), (Code::ProviderError, Again::Never));
        let words = "in the stream, the provider said 529 (overloaded_error): Overloaded";
        assert_eq!(late.message, words);
        let plain = told(&json!({ "error": "model died" }), true, &Veil::default());
        assert_eq!(plain.message, "in the stream, the provider said 500: model died");
    }

    #[test]
    fn words_are_taken_from_the_body_whatever_it_is() {
        let page = b"<html>\n<body>Bad Gateway</body>";
        let error = refused(502, &HeaderMap::new(), page, &Veil::default());
        assert_eq!(error.message, "the provider said 502: <html> <body>Bad Gateway</body>");
        let error = refused(503, &HeaderMap::new(), b"", &Veil::default());
        assert_eq!(error.message, "the provider said 503");
        let body = json!({ "error": { "details": [{ "retryDelay": "34.5s" }] } }).to_string();
        let error = refused(429, &HeaderMap::new(), body.as_bytes(), &Veil::default());
        assert_eq!(error.retry_after.unwrap().as_secs_f64(), 34.5);
    }
}
