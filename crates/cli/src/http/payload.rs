//! The payload of an `http` unit, and the request it describes.

use std::collections::BTreeMap;
use std::time::Duration;

use longshore::{HumanDuration, Verdict};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::client::HttpRequest;
use super::statuses::{ExpectedStatuses, RetryConditions};

/// The default timeout: a server that never answers must not hold a slot for ever.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// Headers that follow from the URL and the body, and must not contradict them.
const RESERVED: [&str; 5] = ["host", "content-length", "transfer-encoding", "connection", "upgrade"];

/// A request. Unknown fields are rejected: a misspelt `timeout` must not mean the default.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpPayload {
    /// The URL; http or https.
    url: String,
    /// POST if absent.
    #[serde(default)]
    method: Option<String>,
    /// Values may contain words `env:NAME`, which the worker replaces.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Text, or any other JSON, which is sent as it is written.
    #[serde(default)]
    body: Option<Box<RawValue>>,
    /// Timeout, with all redirects: seconds, or text as "30s".
    #[serde(default)]
    timeout: Option<HumanDuration>,
    /// Statuses that mean success; 2xx if absent.
    #[serde(default)]
    pub expect: ExpectedStatuses,
    /// Statuses and errors that are retried.
    #[serde(default)]
    pub retry_on: RetryConditions,
    /// Whether redirects are followed.
    #[serde(default)]
    follow: bool,
    /// Response headers that are stored with the result.
    #[serde(default = "kept_headers")]
    pub keep_headers: Vec<String>,
}

fn kept_headers() -> Vec<String> {
    ["content-type", "etag", "last-modified", "location"].map(str::to_owned).into()
}

impl HttpPayload {
    /// Parses a payload.
    pub fn read(text: &str) -> Result<Self, Verdict> {
        serde_json::from_str(text).map_err(|error| bad(format!("not an http payload: {error}")))
    }

    /// The request; `fill` turns the payload's header values into real ones.
    pub fn call(
        &self,
        mut fill: impl FnMut(&str) -> Result<HeaderValue, Verdict>,
    ) -> Result<HttpRequest, Verdict> {
        let mut call = HttpRequest::new(self.method()?, self.url()?);
        for (name, value) in &self.headers {
            let name = header_name(name)?;
            let mut value = fill(value)?;
            if [AUTHORIZATION, COOKIE].contains(&name) {
                value.set_sensitive(true);
            }
            call.headers.insert(name, value);
        }
        call.body = self.body(&mut call.headers)?;
        call.timeout = self.timeout.map_or(DEFAULT_TIMEOUT, |limit| limit.0);
        call.follow = self.follow;
        Ok(call)
    }

    /// Rejects what no worker could send.
    pub fn check(&self) -> Result<(), Verdict> {
        self.call(header_value).map(|_| ())
    }

    fn method(&self) -> Result<Method, Verdict> {
        let text = self.method.as_deref().unwrap_or("POST");
        let method = Method::from_bytes(text.to_ascii_uppercase().as_bytes());
        let known = method.ok().filter(|m| ![Method::CONNECT, Method::TRACE].contains(m));
        known.ok_or_else(|| bad(format!("`{text}` is no supported method")))
    }

    /// The URL to call.
    pub fn url(&self) -> Result<Url, Verdict> {
        // No message names the URL, which may hold a secret.
        let url = Url::parse(&self.url).map_err(|error| bad(format!("`url`: {error}")))?;
        if !["http", "https"].contains(&url.scheme()) {
            return Err(bad(format!("`url` begins with `{}:`, not with http(s):", url.scheme())));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(bad("`url` holds a user or password; use a header `authorization` with `env:NAME`"));
        }
        Ok(url)
    }

    /// The bytes to send; sets their content type unless the payload did.
    fn body(&self, headers: &mut HeaderMap) -> Result<Option<Vec<u8>>, Verdict> {
        let Some(body) = &self.body else {
            return Ok(None);
        };
        let (bytes, sort) = if body.get().starts_with('"') {
            let text: String = serde_json::from_str(body.get())
                .map_err(|error| bad(format!("`body` is not text: {error}")))?;
            (text.into_bytes(), "text/plain; charset=utf-8")
        } else {
            (body.get().as_bytes().to_vec(), "application/json")
        };
        headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static(sort));
        Ok(Some(bytes))
    }
}

fn header_name(text: &str) -> Result<HeaderName, Verdict> {
    let name: HeaderName =
        text.parse().map_err(|_| bad(format!("`headers` holds the invalid name {text:?}")))?;
    if RESERVED.contains(&name.as_str()) {
        return Err(bad(format!("the header `{name}` follows from the call and cannot be set")));
    }
    Ok(name)
}

/// Parses a header's value. The message does not repeat it: it may be a secret.
pub fn header_value(text: &str) -> Result<HeaderValue, Verdict> {
    HeaderValue::from_str(text)
        .map_err(|_| bad("a value in `headers` holds a character that no header may have"))
}

fn bad(problem: impl Into<String>) -> Verdict {
    Verdict::fail("bad-input", problem.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<HttpRequest, String> {
        let call = HttpPayload::read(text).and_then(|http| http.call(header_value));
        call.map_err(|verdict| match verdict {
            Verdict::Fail(failure) if failure.code == "bad-input" => failure.message,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn a_url_alone_is_an_empty_post() {
        let call = read(r#"{"url":"https://example.com/a?b"}"#).unwrap();
        assert_eq!((call.method, call.url.as_str()), (Method::POST, "https://example.com/a?b"));
        assert!(call.body.is_none() && !call.follow && call.headers.is_empty());
        assert_eq!(call.timeout, DEFAULT_TIMEOUT);
    }

    #[test]
    fn a_body_is_text_or_json_as_it_was_written() {
        let body = |body: &str| {
            let call = read(&format!(r#"{{"url":"http://h/","body":{body}}}"#)).unwrap();
            let sort = call.headers.get(CONTENT_TYPE).map(|v| v.to_str().unwrap().to_owned());
            (call.body.map(|bytes| String::from_utf8(bytes).unwrap()), sort.unwrap_or_default())
        };
        let json = |text: &str| (Some(text.to_owned()), "application/json".to_owned());
        assert_eq!(body(r#"{"z":1,  "a":1.50}"#), json(r#"{"z":1,  "a":1.50}"#));
        assert_eq!(body("12345678901234567890123"), json("12345678901234567890123"));
        assert_eq!(body("null"), (None, String::new()));
        let (text, sort) = body(r#""a\nü""#);
        assert_eq!((text.as_deref(), &*sort), (Some("a\nü"), "text/plain; charset=utf-8"));
    }

    #[test]
    fn a_content_type_in_the_headers_goes_before_ours() {
        let call = read(r#"{"url":"http://h/","body":"<a/>","headers":{"Content-Type":"text/xml"}}"#);
        assert_eq!(call.unwrap().headers[CONTENT_TYPE], "text/xml");
    }

    #[test]
    fn what_cannot_be_called_is_refused_with_the_reason() {
        for (text, why) in [
            (r#"{}"#, "missing field `url`"),
            (r#"[1]"#, "not an http payload"),
            (r#"{"url":"example.com"}"#, "`url`: relative URL"),
            (r#"{"url":"file:///etc/passwd"}"#, "`file:`"),
            (r#"{"url":"http://"}"#, "empty host"),
            (r#"{"url":"http://a:b@h/"}"#, "user or password"),
            (r#"{"url":"http://h/","method":"CONNECT"}"#, "`CONNECT` is no supported method"),
            (r#"{"url":"http://h/","method":"a b"}"#, "`a b` is no supported method"),
            (r#"{"url":"http://h/","headers":{"a b":"1"}}"#, "invalid name \"a b\""),
            (r#"{"url":"http://h/","headers":{"a":"1\r\nb: 2"}}"#, "no header may have"),
            (r#"{"url":"http://h/","headers":{"Host":"x"}}"#, "`host` follows from the call"),
            (r#"{"url":"http://h/","timeuot":3}"#, "unknown field `timeuot`"),
            (r#"{"url":"http://h/","timeout":-1}"#, "length of time"),
            (r#"{"url":"http://h/","expect":["2x"]}"#, "`2x`"),
            (r#"{"url":"http://h/","retry_on":[99]}"#, "`99`"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn secrets_are_not_in_what_is_said_of_a_bad_payload() {
        for text in [
            r#"{"url":"http://a:hunter2@h/"}"#,
            r#"{"url":"http://h:hunter2/"}"#,
            r#"{"url":"http://h/","headers":{"a":"hunter2\n"}}"#,
        ] {
            assert!(!read(text).unwrap_err().contains("hunter2"), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_the_problem_is_named(
            url in r"https?://[a-z0-9.:@\[\]%/?]{0,12}|\PC*", name in r"[a-zA-Z: -]{0,6}|\PC*",
            value: String, method in "[A-Za-z ]{0,8}", body: String,
        ) {
            let payload = serde_json::json!({
                "url": url, "headers": { name: value }, "method": method, "body": body,
            });
            if let Err(error) = read(&payload.to_string()) {
                proptest::prop_assert!(error.contains('`'), "{}", error);
            }
        }
    }
}
