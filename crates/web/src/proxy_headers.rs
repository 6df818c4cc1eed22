//! What is known of a request's client behind a proxy: its address, whether it used TLS, and the host that it
//! asked. `X-Forwarded-*` counts only if the connection comes from a configured proxy.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::header::{HOST, STRICT_TRANSPORT_SECURITY};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderValue, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use longshore_ai::gateway::local_request;

use crate::app_state::AppState;
use crate::problem::Problem;
use crate::server::OverTls;

/// Tells browsers to use only TLS for this host, for a year.
const TLS_ONLY: HeaderValue = HeaderValue::from_static("max-age=31536000");

/// The URL under which users reach the server: scheme and host, without a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicUrl {
    is_https: bool,
    host: String,
}

/// The text is not a [`PublicUrl`].
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not an http or https URL without a path")]
pub struct PublicUrlError(String);

impl FromStr for PublicUrl {
    type Err = PublicUrlError;

    fn from_str(text: &str) -> Result<Self, PublicUrlError> {
        let error = || PublicUrlError(text.to_owned());
        let uri: Uri = text.parse().map_err(|_| error())?;
        let (is_https, default_port) = match uri.scheme_str() {
            Some("https") => (true, 443),
            Some("http") => (false, 80),
            _ => return Err(error()),
        };
        let host = uri.host().ok_or_else(error)?;
        if uri.path() != "/" || uri.query().is_some() {
            return Err(error());
        }
        let port = uri.port_u16().filter(|port| *port != default_port);
        let host = port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        Ok(Self { is_https, host })
    }
}

impl std::fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}", if self.is_https { "https" } else { "http" }, self.host)
    }
}

/// The proxies in front of the server.
#[derive(Debug, Clone, Default)]
pub struct ProxyConfig {
    /// The URL under which users reach the server.
    pub public_url: Option<PublicUrl>,
    /// Addresses of proxies: `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host` of their
    /// connections are believed.
    pub trusted: BTreeSet<IpAddr>,
}

impl ProxyConfig {
    /// The client's address: the connection's, or the last one in `X-Forwarded-For` that is no proxy's.
    pub(crate) fn client_address(&self, head: &Parts) -> Option<IpAddr> {
        let mut client = connection_address(&head.extensions)?;
        let forwarded = head.headers.get_all("x-forwarded-for").iter();
        let lists: Vec<_> = forwarded.map(|list| list.to_str().unwrap_or_default()).collect();
        for address in lists.iter().rev().flat_map(|list| list.rsplit(',')) {
            let address = address.trim().parse::<IpAddr>().map(|address| address.to_canonical());
            match address {
                Ok(address) if self.trusted.contains(&client) => client = address,
                _ => break,
            }
        }
        Some(client)
    }

    /// Whether the client uses TLS.
    pub(crate) fn is_https(&self, extensions: &Extensions, headers: &HeaderMap) -> bool {
        let is_public = self.public_url.as_ref().is_some_and(|url| url.is_https);
        let forwarded = || self.forwarded(extensions, headers, "x-forwarded-proto");
        is_public || extensions.get::<OverTls>().is_some() || forwarded() == Some("https")
    }

    /// Whether a page of another site makes the browser send this mutation.
    pub(crate) fn is_cross_site(&self, head: &Parts) -> bool {
        let hosts = [
            local_request::host(&head.uri, &head.headers),
            self.public_url.as_ref().map(|url| url.host.as_str()),
            self.forwarded(&head.extensions, &head.headers, "x-forwarded-host"),
        ];
        let hosts: Vec<_> = hosts.into_iter().flatten().collect();
        local_request::is_cross_site(&head.method, &head.headers, &hosts)
    }

    /// A header as the proxy set it: the last value, if the connection is a proxy's.
    fn forwarded<'a>(
        &self,
        extensions: &Extensions,
        headers: &'a HeaderMap,
        name: &'static str,
    ) -> Option<&'a str> {
        let from = connection_address(extensions)?;
        let value = headers.get_all(name).iter().next_back().filter(|_| self.trusted.contains(&from))?;
        value.to_str().ok()?.rsplit(',').next().map(str::trim)
    }
}

fn connection_address(extensions: &Extensions) -> Option<IpAddr> {
    extensions.get::<SocketAddr>().map(|from| from.ip().to_canonical())
}

/// Rejects a request with two hosts, which a proxy and this server could read differently, and tells browsers
/// that came over TLS to use only TLS. Names of this machine are shared with other programs and get no such
/// header.
pub(crate) async fn with_host_policy(app: Arc<AppState>, request: Request, next: Next) -> Response {
    let (headers, proxies) = (request.headers(), &app.auth.proxies);
    if headers.get_all(HOST).iter().nth(1).is_some() {
        return Problem::bad_request("the request has more than one `Host` header").into_response();
    }
    let is_local = local_request::host(request.uri(), headers).is_none_or(local_request::is_loopback);
    let is_https = proxies.is_https(request.extensions(), headers);
    let mut response = next.run(request).await;
    if is_https && !is_local {
        response.headers_mut().insert(STRICT_TRANSPORT_SECURITY, TLS_ONLY);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(from: [u8; 4], pairs: &[(&str, &str)]) -> Parts {
        let mut request = axum::http::Request::post("/queues/x/pause");
        for (name, value) in pairs {
            request = request.header(*name, *value);
        }
        let (mut head, ()) = request.body(()).unwrap().into_parts();
        head.extensions.insert(SocketAddr::from((from, 1)));
        head
    }

    fn config(trusted: &[&str], public_url: Option<&str>) -> ProxyConfig {
        ProxyConfig {
            public_url: public_url.map(|url| url.parse().unwrap()),
            trusted: trusted.iter().map(|address| address.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn only_a_trusted_proxy_says_where_a_client_comes_from() {
        let config = config(&["10.0.0.1", "10.0.0.2"], None);
        let address = |from: [u8; 4], list: &str| {
            let head = head(from, &[("x-forwarded-for", list)]);
            config.client_address(&head).unwrap().to_string()
        };
        assert_eq!(address([10, 0, 0, 9], "203.0.113.7"), "10.0.0.9");
        assert_eq!(address([10, 0, 0, 1], "203.0.113.7"), "203.0.113.7");
        assert_eq!(
            address([10, 0, 0, 1], "1.2.3.4, 203.0.113.7"),
            "203.0.113.7",
            "the client sent the first"
        );
        assert_eq!(address([10, 0, 0, 1], "203.0.113.7, 10.0.0.2"), "203.0.113.7", "two proxies");
        assert_eq!(address([10, 0, 0, 1], "unknown"), "10.0.0.1");
    }

    #[test]
    fn tls_and_host_of_a_proxy_count_if_it_is_trusted() {
        let pairs = [
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "site.example"),
            ("host", "127.0.0.1:7717"),
        ];
        let pairs = [&pairs[..], &[("origin", "https://site.example")]].concat();
        let head = head([10, 0, 0, 1], &pairs);
        for (config, believed) in [
            (config(&["10.0.0.1"], None), true),
            (config(&[], None), false),
            (config(&[], Some("https://site.example:443/")), true),
            (config(&[], Some("http://other.example")), false),
        ] {
            assert_eq!(config.is_https(&head.extensions, &head.headers), believed, "{config:?}");
            assert_eq!(config.is_cross_site(&head), !believed, "{config:?}");
        }
    }

    #[test]
    fn a_public_url_has_a_scheme_and_a_host_only() {
        for (text, shown) in [
            ("https://site.example", Some("https://site.example")),
            ("https://site.example:8443/", Some("https://site.example:8443")),
            ("http://site.example:80", Some("http://site.example")),
            ("site.example", None),
            ("ftp://site.example", None),
            ("https://site.example/longshore", None),
        ] {
            let url = text.parse::<PublicUrl>().map(|url| url.to_string());
            assert_eq!(url.as_deref().ok(), shown, "{text}");
        }
    }
}
