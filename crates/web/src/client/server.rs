//! Which server is asked, and by what.

use std::net::IpAddr;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use secrecy::{ExposeSecret, SecretString};

use super::error::ApiError;
use super::trust::trusting;

/// Longest time until a server takes a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Longest time until a plain question is answered; the server's own limit, and the way there and back.
pub(super) const ANSWER: Duration = Duration::from_secs(40);

/// A server, and how it is spoken to.
#[derive(Debug, Clone)]
pub struct Server {
    /// Where it is, as `https://longshore.example:7717`.
    pub url: Url,
    /// The token, if it demands one.
    pub token: Option<SecretString>,
    /// Certificates in PEM that vouch for it, its own among them, and no others; the machine's without.
    pub roots: Option<Vec<u8>>,
    /// How long what may be repeated is repeated while the server is away.
    pub patience: Duration,
}

impl Server {
    /// A server that demands nothing, and is asked once.
    pub fn at(url: Url) -> Self {
        Self { url, token: None, roots: None, patience: Duration::ZERO }
    }
}

/// Asks a server. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ApiClient {
    pub(super) http: Client,
    pub(super) url: Url,
    pub(super) token: Option<HeaderValue>,
    pub(super) patience: Duration,
}

impl ApiClient {
    /// A client of this server. Nothing is asked yet. Whoever calls `https` has chosen a provider of TLS
    /// for the whole program before.
    pub fn new(server: Server) -> Result<Self, ApiError> {
        let Server { url, token, roots, patience } = server;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(ApiError::Address { problem: "it must begin with http:// or https://" });
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(ApiError::Address { problem: "a token does not belong into the URL" });
        }
        let token = token.map(|token| bearer(&token)).transpose()?;
        // A redirect would carry the token to somebody else.
        let mut http = Client::builder()
            .user_agent(concat!("longshore/", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::none())
            .connect_timeout(CONNECT);
        if let Some(pem) = roots {
            http = http.tls_backend_preconfigured(trusting(&pem).ok_or(ApiError::Roots)?);
        }
        if is_here(&url) {
            // No proxy is to hear the token on its way to this very machine.
            http = http.no_proxy();
        }
        let http = http.build().map_err(|error| ApiError::of(&url, error))?;
        Ok(Self { http, url, token, patience })
    }

    /// The same, with another patience.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Where the server is.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The header of every request.
    pub(super) fn signed(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        match &self.token {
            Some(token) => request.header(AUTHORIZATION, token),
            None => request,
        }
    }
}

/// Whether it is on this machine.
fn is_here(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn bearer(token: &SecretString) -> Result<HeaderValue, ApiError> {
    let value = format!("Bearer {}", token.expose_secret());
    let mut value = HeaderValue::try_from(value).map_err(|_| ApiError::Token)?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(url: &str) -> Server {
        Server::at(url.parse().unwrap())
    }

    #[test]
    fn an_address_that_is_none_is_refused_before_anything_is_asked() {
        for url in ["ftp://host/", "unix:/run/socket", "http://token@host/", "http://a:b@host/"] {
            let refused = ApiClient::new(server(url));
            assert!(matches!(refused, Err(ApiError::Address { .. })), "{url}: {refused:?}");
        }
    }

    #[test]
    fn a_token_is_never_printed() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let token = Some(SecretString::from("lsh_marked"));
        let server = Server { token, ..server("http://127.0.0.1:1/") };
        let shown = format!("{server:?} {:?}", ApiClient::new(server.clone()).unwrap());
        assert!(!shown.contains("marked"), "{shown}");
        let odd = Server { token: Some("lsh_mar\nked".to_owned().into()), ..server };
        let error = ApiClient::new(odd).unwrap_err().to_string();
        assert!(!error.contains("ked"), "{error}");
    }
}
