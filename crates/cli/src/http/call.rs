//! One call of a URL: rules first, then the exchange, redirects by request, a bounded body.
//!
//! Decides nothing about the unit: it says what the server answered, or why nobody did. The one
//! HTTP client of the program lives here; batches tell by it too.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, LOCATION};
use reqwest::{Client, Method, Response, StatusCode, Url};

use super::address::{Forbidden, Guard};
use super::rules::Rules;

/// A chain of redirects that is longer leads nowhere.
const MOST_REDIRECTS: usize = 10;

/// Calls URLs, where the rules allow it.
#[derive(Clone)]
pub struct Caller {
    client: Arc<OnceLock<Client>>,
    rules: Arc<Rules>,
}

/// What is to be called.
#[derive(Debug)]
pub struct Call {
    pub method: Method,
    pub url: Url,
    /// Values that are marked as sensitive go to the URL's own origin only.
    pub headers: HeaderMap,
    pub body: Option<Vec<u8>>,
    /// For all together: names, redirects, body.
    pub timeout: Duration,
    /// Whether redirects are followed.
    pub follow: bool,
    /// How much of the answer's body is read.
    pub most: usize,
}

impl Call {
    /// A bare call that may take a minute.
    pub fn new(method: Method, url: Url) -> Self {
        let (headers, timeout) = (HeaderMap::new(), Duration::from_secs(60));
        Self { method, url, headers, body: None, timeout, follow: false, most: 0 }
    }
}

/// What the server said.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// The beginning of the body, or all of it.
    pub body: Vec<u8>,
    /// Whether there was more of it.
    pub cut: bool,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum CallError {
    /// This worker may not call there.
    NotAllowed(String),
    /// The server sent us somewhere that is nowhere, or round and round.
    BadRedirect(String),
    /// The server could not be reached, or fell silent in the middle.
    Connection(String),
    /// It took longer than this.
    Timeout(Duration),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAllowed(why) | Self::BadRedirect(why) | Self::Connection(why) => {
                f.write_str(why)
            }
            Self::Timeout(limit) => {
                write!(f, "no answer within {}", crate::span::brief(*limit))
            }
        }
    }
}

impl Caller {
    /// A caller that keeps to these rules.
    pub fn new(rules: Arc<Rules>) -> Self {
        Self { client: Arc::default(), rules }
    }

    /// Builds the client at the first call: it reads the machine's certificate authorities, which takes longer
    /// than all else that a worker does at its start.
    fn client(&self) -> Result<&Client, CallError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        // The caller follows redirects itself, because the rules hold for each step.
        let client = Client::builder()
            .user_agent(concat!("longshore/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .dns_resolver(Arc::new(Guard))
            .build()
            .map_err(|error| CallError::Connection(error.to_string()))?;
        Ok(self.client.get_or_init(|| client))
    }

    /// Calls, within its time. Dropping the future ends the call.
    pub async fn call(&self, call: Call) -> Result<Answer, CallError> {
        let limit = call.timeout;
        let answered = tokio::time::timeout(limit, self.exchange(call)).await;
        answered.unwrap_or(Err(CallError::Timeout(limit)))
    }

    async fn exchange(&self, mut call: Call) -> Result<Answer, CallError> {
        for _ in 0..=MOST_REDIRECTS {
            self.rules.check(&call.url).map_err(CallError::NotAllowed)?;
            let response = self.send(&call).await?;
            match redirect(&response).filter(|_| call.follow) {
                Some(to) => call.turn(response.status(), &to)?,
                None => return read(response, call.most).await,
            }
        }
        Err(CallError::BadRedirect(format!("more than {MOST_REDIRECTS} redirects")))
    }

    async fn send(&self, call: &Call) -> Result<Response, CallError> {
        let request = self.client()?.request(call.method.clone(), call.url.clone());
        let request = request.headers(call.headers.clone());
        let request = match &call.body {
            Some(body) => request.body(body.clone()),
            // Some servers refuse a POST that does not say that it has nothing to say.
            None if [Method::POST, Method::PUT, Method::PATCH].contains(&call.method) => {
                request.header(CONTENT_LENGTH, 0)
            }
            None => request,
        };
        request.send().await.map_err(no_answer)
    }
}

impl Call {
    /// Follows a redirect.
    fn turn(&mut self, status: StatusCode, to: &str) -> Result<(), CallError> {
        let nowhere = || CallError::BadRedirect("the server redirects to what is no URL".into());
        let url = self.url.join(to).map_err(|_| nowhere())?;
        if !["http", "https"].contains(&url.scheme()) {
            return Err(nowhere());
        }
        if url.origin() != self.url.origin() {
            strip(&mut self.headers);
        }
        self.url = url;
        if becomes_get(status, &self.method) {
            self.method = Method::GET;
            self.body = None;
            self.headers.remove(CONTENT_TYPE);
        }
        Ok(())
    }
}

/// Leaves out what is meant for one server's eyes only.
fn strip(headers: &mut HeaderMap) {
    let secret = headers.iter().filter(|(_, value)| value.is_sensitive());
    let secret: Vec<_> = secret.map(|(name, _)| name.clone()).collect();
    for name in secret {
        headers.remove(name);
    }
}

/// Where the server sends us, if it does.
fn redirect(response: &Response) -> Option<String> {
    let follows = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = response.headers().get(LOCATION).filter(|_| follows)?;
    location.to_str().ok().map(str::to_owned)
}

/// Whether what was sent is not sent again, as all clients have it.
fn becomes_get(status: StatusCode, method: &Method) -> bool {
    match status.as_u16() {
        303 => *method != Method::HEAD,
        301 | 302 => *method == Method::POST,
        _ => false,
    }
}

/// Reads no more than `most`: what is longer stays with the server, and its connection is closed.
async fn read(mut response: Response, most: usize) -> Result<Answer, CallError> {
    let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(no_answer)? {
        let room = most - body.len();
        body.extend_from_slice(&chunk[..room.min(chunk.len())]);
        if chunk.len() > room {
            return Ok(Answer { status, headers, body, cut: true });
        }
    }
    Ok(Answer { status, headers, body, cut: false })
}

fn no_answer(error: reqwest::Error) -> CallError {
    // Not the URL in the message: it may hold a secret.
    let error = error.without_url();
    if let Some(forbidden) = causes(&error).find_map(|cause| cause.downcast_ref::<Forbidden>()) {
        return CallError::NotAllowed(forbidden.to_string());
    }
    let words: Vec<String> = causes(&error).map(ToString::to_string).collect();
    CallError::Connection(words.join(": "))
}

fn causes<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |cause| cause.source())
}

#[cfg(test)]
mod tests {
    use reqwest::header::{AUTHORIZATION, HeaderValue};

    use super::*;

    fn call(url: &str) -> Call {
        let mut call = Call::new(Method::POST, url.parse().unwrap());
        let mut secret = HeaderValue::from_static("hunter2");
        secret.set_sensitive(true);
        call.headers.insert(AUTHORIZATION, secret);
        call.headers.insert("x-open", HeaderValue::from_static("yes"));
        call.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        call.body = Some(b"body".to_vec());
        call
    }

    #[test]
    fn a_redirect_to_another_origin_takes_no_secrets_along() {
        for (to, same) in [
            ("/other", true),
            ("https://a.example/other", true),
            ("https://a.example:444/", false),
            ("http://a.example/", false),
            ("//b.example/", false),
        ] {
            let mut call = call("https://a.example/here");
            call.turn(StatusCode::TEMPORARY_REDIRECT, to).unwrap();
            assert_eq!(call.headers.contains_key(AUTHORIZATION), same, "{to}");
            assert!(call.headers.contains_key("x-open"), "{to}");
        }
    }

    #[test]
    fn a_redirect_keeps_or_drops_the_body_as_its_status_says() {
        for (status, kept) in [(301, false), (302, false), (303, false), (307, true), (308, true)] {
            let mut call = call("https://a.example/");
            call.turn(StatusCode::from_u16(status).unwrap(), "/b").unwrap();
            assert_eq!(call.body.is_some(), kept, "{status}");
            assert_eq!(call.method == Method::POST, kept, "{status}");
            assert_eq!(call.headers.contains_key(CONTENT_TYPE), kept, "{status}");
        }
    }

    #[test]
    fn a_redirect_to_no_place_is_an_error() {
        for to in ["file:///etc/passwd", "http://", "javascript:alert(1)"] {
            let turned = call("https://a.example/").turn(StatusCode::FOUND, to);
            assert!(matches!(turned, Err(CallError::BadRedirect(_))), "{to}");
        }
    }
}
