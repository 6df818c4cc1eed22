//! The client's configuration.

use std::net::IpAddr;
use std::time::Duration;

use longshore_ai::trust_certificates;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use secrecy::{ExposeSecret, SecretString};

use super::error::ApiError;

/// Timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a request that does not wait: the server's own limit plus the round trip.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(40);

/// A server and how to connect to it.
#[derive(Debug, Clone)]
pub struct ApiServer {
    /// Its URL, such as `https://longshore.example:7717`.
    pub url: Url,
    /// The token, if the server requires one.
    pub token: Option<SecretString>,
    /// PEM certificates to trust instead of the system's: of an authority, or the server's own.
    pub roots: Option<Vec<u8>>,
    /// How long idempotent requests are retried while the server is unavailable.
    pub retry_for: Duration,
}

impl ApiServer {
    /// A server without a token, and without retries.
    pub fn new(url: Url) -> Self {
        Self { url, token: None, roots: None, retry_for: Duration::ZERO }
    }
}

/// A client of the API. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ApiClient {
    pub(super) http: Client,
    pub(super) url: Url,
    pub(super) token: Option<HeaderValue>,
    pub(super) patience: Duration,
}

impl ApiClient {
    /// Creates a client; sends nothing yet. For `https` the program must have installed a TLS provider.
    pub fn new(server: ApiServer) -> Result<Self, ApiError> {
        let ApiServer { url, token, roots, retry_for: patience } = server;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(ApiError::InvalidUrl { problem: "it must begin with http:// or https://" });
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(ApiError::InvalidUrl { problem: "a token does not belong in the URL" });
        }
        let token = token.map(|token| bearer(&token)).transpose()?;
        // A redirect would send the token to another server.
        let mut http = Client::builder()
            .user_agent(concat!("longshore/", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::none())
            .connect_timeout(CONNECT_TIMEOUT);
        if let Some(pem) = roots {
            let certificates = CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok).collect();
            let config = trust_certificates(certificates).map_err(|_| ApiError::NoCertificate)?;
            http = http.tls_backend_preconfigured(config);
        }
        if is_loopback(&url) {
            // A loopback request must not send the token to a proxy.
            http = http.no_proxy();
        }
        let http = http.build().map_err(|error| ApiError::of(&url, error))?;
        Ok(Self { http, url, token, patience })
    }

    /// Changes how long requests are retried.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The server's URL.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Adds the token.
    pub(super) fn with_auth(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        match &self.token {
            Some(token) => request.header(AUTHORIZATION, token),
            None => request,
        }
    }
}

/// Whether the URL is on this machine.
fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn bearer(token: &SecretString) -> Result<HeaderValue, ApiError> {
    let value = format!("Bearer {}", token.expose_secret());
    let mut value = HeaderValue::try_from(value).map_err(|_| ApiError::InvalidToken)?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(url: &str) -> ApiServer {
        ApiServer::new(url.parse().unwrap())
    }

    #[test]
    fn an_address_that_is_none_is_refused_before_anything_is_asked() {
        for url in ["ftp://host/", "unix:/run/socket", "http://token@host/", "http://a:b@host/"] {
            let refused = ApiClient::new(server(url));
            assert!(matches!(refused, Err(ApiError::InvalidUrl { .. })), "{url}: {refused:?}");
        }
    }

    #[test]
    fn a_token_is_never_printed() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let token = Some(SecretString::from("lsh_marked"));
        let server = ApiServer { token, ..server("http://127.0.0.1:1/") };
        let shown = format!("{server:?} {:?}", ApiClient::new(server.clone()).unwrap());
        assert!(!shown.contains("marked"), "{shown}");
        let not_longshore = ApiServer { token: Some("lsh_mar\nked".to_owned().into()), ..server };
        let error = ApiClient::new(not_longshore).unwrap_err().to_string();
        assert!(!error.contains("ked"), "{error}");
    }
}
