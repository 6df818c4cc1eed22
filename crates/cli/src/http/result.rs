//! What is kept of an answer: the status, some headers, the beginning of the body.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use serde::Serialize;
use serde_json::value::RawValue;

use super::KEPT;
use super::call::Answer;
use super::payload::Http;
use super::secrets::Secrets;

/// How much of a body is told in a failure.
const EXCERPT: usize = 2000;

/// What is kept of a call that went well.
#[derive(Debug, Serialize)]
pub struct HttpResult {
    /// As 200.
    pub status: u16,
    /// Those of the payload's `keep_headers` that the server sent.
    pub headers: BTreeMap<String, String>,
    /// JSON if the server says so and it is; text otherwise.
    pub body: Body,
    /// Whether only the beginning of the body is kept, always as text.
    pub truncated: bool,
    /// How long it took.
    pub seconds: f64,
}

/// The body of an answer.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Body {
    /// As the server wrote it.
    Json(Box<RawValue>),
    /// Any other; what is not UTF-8 is replaced.
    Text(String),
}

impl HttpResult {
    /// What is kept of `answer`, without secrets.
    pub fn new(answer: Answer, http: &Http, secrets: &Secrets, took: Duration) -> Self {
        let (text, truncated) = text(&answer, secrets);
        let body = match is_json(&answer) && !truncated {
            true => json(text),
            false => Body::Text(text),
        };
        let status = answer.status.as_u16();
        let headers = headers(&answer, http, secrets);
        Self { status, headers, body, truncated, seconds: took.as_secs_f64() }
    }
}

fn headers(answer: &Answer, http: &Http, secrets: &Secrets) -> BTreeMap<String, String> {
    let kept = |name: &String| {
        let value = answer.headers.get(name)?;
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        Some((name.to_lowercase(), secrets.redact(value)))
    };
    http.keep_headers.iter().filter_map(kept).collect()
}

fn is_json(answer: &Answer) -> bool {
    let sort = answer.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let sort = sort.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let sort = sort.to_ascii_lowercase();
    sort == "application/json" || sort.ends_with("+json")
}

fn json(text: String) -> Body {
    RawValue::from_string(text.trim().to_owned()).map_or(Body::Text(text), Body::Json)
}

/// The body as text, at most [`KEPT`] bytes, and whether there was more.
fn text(answer: &Answer, secrets: &Secrets) -> (String, bool) {
    let truncated = answer.cut || answer.body.len() > KEPT;
    let mut text = secrets.redact(String::from_utf8_lossy(&answer.body).into_owned());
    if truncated {
        text.truncate(text.floor_char_boundary(KEPT));
    }
    (text, truncated)
}

/// The first words of a body, to be put behind what went wrong.
pub fn excerpt(answer: &Answer, secrets: &Secrets) -> String {
    let (text, _) = text(answer, secrets);
    let text = text.trim();
    match text.floor_char_boundary(EXCERPT) {
        0 => String::new(),
        end if end < text.len() => format!(": {}…", &text[..end]),
        _ => format!(": {text}"),
    }
}

#[cfg(test)]
mod tests {
    use reqwest::StatusCode;
    use reqwest::header::{HeaderMap, HeaderValue};

    use super::*;

    fn kept(sort: &'static str, body: &[u8]) -> serde_json::Value {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(sort))]);
        let body = body.to_vec();
        let answer = Answer { status: StatusCode::OK, headers, body, cut: false };
        let http = Http::read(r#"{"url":"http://h/","keep_headers":["Content-Type","x"]}"#);
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
        let long = kept("application/json", "ü".repeat(KEPT).as_bytes());
        assert_eq!(long["truncated"], true);
        assert_eq!(long["body"].as_str().unwrap().len(), KEPT);
        let fits = kept("text/plain", &[b'x'; KEPT]);
        assert_eq!(
            (&fits["truncated"], fits["body"].as_str().unwrap().len()),
            (&false.into(), KEPT)
        );
    }
}
