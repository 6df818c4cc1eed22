//! The stored part of a response: the status, some headers, the beginning of the body.

use std::collections::BTreeMap;
use std::time::Duration;

use longshore::text::truncate_bytes;
use reqwest::header::CONTENT_TYPE;
use serde::Serialize;
use serde_json::value::RawValue;

use super::MAX_BODY;
use super::client::HttpResponse;
use super::payload::HttpPayload;
use super::secrets::Secrets;

/// Bytes of a body in a failure's message.
const MAX_EXCERPT: usize = 2000;

/// The stored result of a successful request.
#[derive(Debug, Serialize)]
pub struct HttpResult {
    /// As 200.
    pub status: u16,
    /// The headers in the payload's `keep_headers` that the server sent.
    pub headers: BTreeMap<String, String>,
    /// JSON if the content type says so and it is valid; text otherwise.
    pub body: HttpResponseBody,
    /// Whether only the beginning of the body is stored, always as text.
    pub truncated: bool,
    /// How long it took.
    pub seconds: f64,
}

/// The body of a response.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum HttpResponseBody {
    /// As the server wrote it.
    Json(Box<RawValue>),
    /// Any other; invalid UTF-8 is replaced.
    Text(String),
}

impl HttpResult {
    /// The stored part of `answer`, without secrets.
    pub fn new(answer: HttpResponse, http: &HttpPayload, secrets: &Secrets, took: Duration) -> Self {
        let (text, truncated) = text(&answer, secrets);
        let body = match is_json(&answer) && !truncated {
            true => json(text),
            false => HttpResponseBody::Text(text),
        };
        let status = answer.status.as_u16();
        let headers = headers(&answer, http, secrets);
        Self { status, headers, body, truncated, seconds: took.as_secs_f64() }
    }
}

fn headers(answer: &HttpResponse, http: &HttpPayload, secrets: &Secrets) -> BTreeMap<String, String> {
    let kept = |name: &String| {
        let value = answer.headers.get(name)?;
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        Some((name.to_lowercase(), secrets.redact(value)))
    };
    http.keep_headers.iter().filter_map(kept).collect()
}

fn is_json(answer: &HttpResponse) -> bool {
    let sort = answer.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let sort = sort.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let sort = sort.to_ascii_lowercase();
    sort == "application/json" || sort.ends_with("+json")
}

fn json(text: String) -> HttpResponseBody {
    RawValue::from_string(text.trim().to_owned()).map_or(HttpResponseBody::Text(text), HttpResponseBody::Json)
}

/// The body as text, at most [`MAX_BODY`] bytes, and whether it was longer.
fn text(answer: &HttpResponse, secrets: &Secrets) -> (String, bool) {
    let truncated = answer.cut || answer.body.len() > MAX_BODY;
    let mut text = secrets.redact(String::from_utf8_lossy(&answer.body).into_owned());
    if truncated {
        text.truncate(text.floor_char_boundary(MAX_BODY));
    }
    (text, truncated)
}

/// The beginning of a body, to append to an error.
pub fn excerpt(answer: &HttpResponse, secrets: &Secrets) -> String {
    let (text, _) = text(answer, secrets);
    let text = text.trim();
    if text.is_empty() { String::new() } else { format!(": {}", truncate_bytes(text, MAX_EXCERPT)) }
}

#[cfg(test)]
mod tests {
    use reqwest::StatusCode;
    use reqwest::header::{HeaderMap, HeaderValue};

    use super::*;

    fn kept(sort: &'static str, body: &[u8]) -> serde_json::Value {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(sort))]);
        let body = body.to_vec();
        let answer = HttpResponse { status: StatusCode::OK, headers, body, cut: false };
        let http = HttpPayload::read(r#"{"url":"http://h/","keep_headers":["Content-Type","x"]}"#);
        let result = HttpResult::new(answer, &http.unwrap(), &Secrets::default(), Duration::ZERO);
        serde_json::to_value(result).unwrap()
    }

    #[test]
    fn a_body_is_json_where_the_server_says_so_and_it_is() {
        assert_eq!(kept("application/json; charset=utf-8", b" {\"a\":1}\n")["body"]["a"], 1);
        assert_eq!(kept("application/problem+json", b"[1]")["body"][0], 1);
        assert_eq!(kept("application/json", b"{oops")["body"], "{oops");
        assert_eq!(kept("text/plain", b"{\"a\":1}")["body"], "{\"a\":1}");
        assert_eq!(kept("text/plain", b"\xff!")["body"], "\u{fffd}!");
        assert_eq!(kept("text/x", b"")["headers"], serde_json::json!({"content-type": "text/x"}));
    }

    #[test]
    fn a_long_body_is_cut_between_characters() {
        let long = kept("application/json", "ü".repeat(MAX_BODY).as_bytes());
        assert_eq!(long["truncated"], true);
        assert_eq!(long["body"].as_str().unwrap().len(), MAX_BODY);
        let fits = kept("text/plain", &[b'x'; MAX_BODY]);
        assert_eq!((&fits["truncated"], fits["body"].as_str().unwrap().len()), (&false.into(), MAX_BODY));
    }
}
