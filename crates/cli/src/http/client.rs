//! Sends one HTTP request: checks the allowlist, follows redirects if requested, and bounds the
//! body.
//!
//! It decides nothing about the unit: it returns the response, or why there is none. This is the
//! program's only HTTP client; batch hooks use it too.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use longshore::Rights;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, LOCATION};
use reqwest::{Client, Method, Response, StatusCode, Url};

use super::allowlist::DestinationRules;
use super::ssrf_guard::{AddressClass, ForbiddenAddress, GuardedResolver};

/// A longer chain of redirects is an error.
const MAX_REDIRECTS: usize = 10;

/// Sends requests to allowed destinations.
#[derive(Clone)]
pub struct HttpClient {
    /// A client that resolves names to public addresses only, and one that also accepts private ones.
    clients: Arc<[OnceLock<Client>; 2]>,
    rules: Arc<DestinationRules>,
}

/// A request.
#[derive(Debug)]
pub struct HttpRequest {
    pub method: Method,
    pub url: Url,
    /// Values that are marked as sensitive go to the URL's own origin only.
    pub headers: HeaderMap,
    pub body: Option<Vec<u8>>,
    /// For the whole exchange: name resolution, redirects, body.
    pub timeout: Duration,
    /// Whether redirects are followed.
    pub follow: bool,
    /// Maximum bytes of the response's body to read.
    pub most: usize,
    /// The rights that it is sent with.
    pub rights: Rights,
}

impl HttpRequest {
    /// A plain request of the operator, with a timeout of a minute.
    pub fn new(method: Method, url: Url) -> Self {
        let (headers, timeout) = (HeaderMap::new(), Duration::from_secs(60));
        let rights = Rights::Operator;
        Self { method, url, headers, body: None, timeout, follow: false, most: 0, rights }
    }
}

/// A response.
#[derive(Debug)]
pub struct HttpResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// The beginning of the body, or all of it.
    pub body: Vec<u8>,
    /// Whether the body was longer.
    pub cut: bool,
}

/// Why there is no response.
#[derive(Debug)]
pub enum HttpError {
    /// The destination is not allowed.
    NotAllowed(String),
    /// A redirect to an invalid URL, or too many redirects.
    BadRedirect(String),
    /// The server could not be reached, or the connection broke.
    Connection(String),
    /// The timeout expired.
    Timeout(Duration),
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAllowed(why) | Self::BadRedirect(why) | Self::Connection(why) => f.write_str(why),
            Self::Timeout(limit) => {
                write!(f, "no answer within {}", longshore::duration::format(*limit))
            }
        }
    }
}

impl HttpClient {
    /// A client with these rules.
    pub fn new(rules: DestinationRules) -> Self {
        Self { clients: Arc::default(), rules: Arc::new(rules) }
    }

    /// Builds a client at its first request: it loads the machine's certificate authorities,
    /// which takes longer than the rest of a worker's start.
    fn client(&self, most: AddressClass) -> Result<&Client, HttpError> {
        let place = &self.clients[usize::from(most > AddressClass::Public)];
        if let Some(client) = place.get() {
            return Ok(client);
        }
        // Redirects are followed here, because the rules apply to each step.
        let client = Client::builder()
            .user_agent(concat!("longshore/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .dns_resolver(Arc::new(GuardedResolver(most)))
            .build()
            .map_err(|error| HttpError::Connection(error.to_string()))?;
        Ok(place.get_or_init(|| client))
    }

    /// Sends a request within its timeout. Dropping the future cancels it.
    pub async fn call(&self, call: HttpRequest) -> Result<HttpResponse, HttpError> {
        let limit = call.timeout;
        let answered = tokio::time::timeout(limit, self.exchange(call)).await;
        answered.unwrap_or(Err(HttpError::Timeout(limit)))
    }

    async fn exchange(&self, mut call: HttpRequest) -> Result<HttpResponse, HttpError> {
        for _ in 0..=MAX_REDIRECTS {
            let most = self.rules.check(&call.url, call.rights).map_err(HttpError::NotAllowed)?;
            let response = self.send(&call, most).await?;
            match redirect(&response).filter(|_| call.follow) {
                Some(to) => call.follow_redirect(response.status(), &to)?,
                None => return read(response, call.most).await,
            }
        }
        Err(HttpError::BadRedirect(format!("more than {MAX_REDIRECTS} redirects")))
    }

    async fn send(&self, call: &HttpRequest, most: AddressClass) -> Result<Response, HttpError> {
        let request = self.client(most)?.request(call.method.clone(), call.url.clone());
        let request = request.headers(call.headers.clone());
        let request = match &call.body {
            Some(body) => request.body(body.clone()),
            // Some servers reject a POST without a body and without a Content-Length.
            None if [Method::POST, Method::PUT, Method::PATCH].contains(&call.method) => {
                request.header(CONTENT_LENGTH, 0)
            }
            None => request,
        };
        request.send().await.map_err(no_answer)
    }
}

impl HttpRequest {
    /// Follows a redirect.
    fn follow_redirect(&mut self, status: StatusCode, to: &str) -> Result<(), HttpError> {
        let nowhere = || HttpError::BadRedirect("the server redirects to an invalid URL".into());
        let url = self.url.join(to).map_err(|_| nowhere())?;
        if !["http", "https"].contains(&url.scheme()) {
            return Err(nowhere());
        }
        if url.origin() != self.url.origin() {
            remove_sensitive(&mut self.headers);
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

/// Removes headers that are meant for one origin only.
fn remove_sensitive(headers: &mut HeaderMap) {
    let secret = headers.iter().filter(|(_, value)| value.is_sensitive());
    let secret: Vec<_> = secret.map(|(name, _)| name.clone()).collect();
    for name in secret {
        headers.remove(name);
    }
}

/// The destination of a redirect, if it is one.
fn redirect(response: &Response) -> Option<String> {
    let follows = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = response.headers().get(LOCATION).filter(|_| follows)?;
    location.to_str().ok().map(str::to_owned)
}

/// Whether a redirect drops the method and body, as all clients do.
fn becomes_get(status: StatusCode, method: &Method) -> bool {
    match status.as_u16() {
        303 => *method != Method::HEAD,
        301 | 302 => *method == Method::POST,
        _ => false,
    }
}

/// Reads at most `most` bytes: if the body is longer, the connection is closed.
async fn read(mut response: Response, most: usize) -> Result<HttpResponse, HttpError> {
    let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(no_answer)? {
        let room = most - body.len();
        body.extend_from_slice(&chunk[..room.min(chunk.len())]);
        if chunk.len() > room {
            return Ok(HttpResponse { status, headers, body, cut: true });
        }
    }
    Ok(HttpResponse { status, headers, body, cut: false })
}

fn no_answer(error: reqwest::Error) -> HttpError {
    // The message does not name the URL, which may hold a secret.
    let error = error.without_url();
    if let Some(forbidden) = causes(&error).find_map(|cause| cause.downcast_ref::<ForbiddenAddress>()) {
        return HttpError::NotAllowed(forbidden.to_string());
    }
    let words: Vec<String> = causes(&error).map(ToString::to_string).collect();
    HttpError::Connection(words.join(": "))
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

    fn call(url: &str) -> HttpRequest {
        let mut call = HttpRequest::new(Method::POST, url.parse().unwrap());
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
            call.follow_redirect(StatusCode::TEMPORARY_REDIRECT, to).unwrap();
            assert_eq!(call.headers.contains_key(AUTHORIZATION), same, "{to}");
            assert!(call.headers.contains_key("x-open"), "{to}");
        }
    }

    #[test]
    fn a_redirect_keeps_or_drops_the_body_as_its_status_says() {
        for (status, kept) in [(301, false), (302, false), (303, false), (307, true), (308, true)] {
            let mut call = call("https://a.example/");
            call.follow_redirect(StatusCode::from_u16(status).unwrap(), "/b").unwrap();
            assert_eq!(call.body.is_some(), kept, "{status}");
            assert_eq!(call.method == Method::POST, kept, "{status}");
            assert_eq!(call.headers.contains_key(CONTENT_TYPE), kept, "{status}");
        }
    }

    #[test]
    fn a_redirect_to_no_place_is_an_error() {
        for to in ["file:///etc/passwd", "http://", "javascript:alert(1)"] {
            let turned = call("https://a.example/").follow_redirect(StatusCode::FOUND, to);
            assert!(matches!(turned, Err(HttpError::BadRedirect(_))), "{to}");
        }
    }
}
