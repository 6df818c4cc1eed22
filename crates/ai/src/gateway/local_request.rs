//! Checks of requests to a server without authentication, and of requests that a page of another site makes
//! a browser send.

use std::net::IpAddr;

use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, Uri, Version};

/// Headers that only proxies send, besides all names with the prefix `x-forwarded`.
const PROXY_HEADERS: [&str; 14] = [
    "cdn-loop",
    "cf-connecting-ip",
    "cf-ray",
    "client-ip",
    "fastly-client-ip",
    "forwarded",
    "true-client-ip",
    "via",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-envoy-external-address",
    "x-original-forwarded-for",
    "x-original-host",
    "x-real-ip",
];

/// Rejects a request unless a client on this machine sent it to `localhost` itself: neither through a proxy,
/// nor under a name that was rebound to this address. HTTP/1.0 is rejected because proxies use it by default
/// and current clients do not. The error says why.
pub fn require_local(version: Version, uri: &Uri, headers: &HeaderMap) -> Result<(), &'static str> {
    let is_forwarded = |name: &str| PROXY_HEADERS.contains(&name) || name.starts_with("x-forwarded");
    if version < Version::HTTP_11 || headers.keys().any(|name| is_forwarded(name.as_str())) {
        return Err("the server runs without authentication, and this request came through a proxy");
    }
    // In absolute form the URL's host overrides `Host` (RFC 9112), so both must be loopback.
    let named = uri.authority().is_none_or(|authority| is_loopback(authority.as_str()));
    match named && host(uri, headers).is_some_and(is_loopback) {
        true => Ok(()),
        false => Err("the server runs without authentication, and only answers requests to `localhost`"),
    }
}

/// Whether a host, with or without a port, is `localhost` or a loopback address.
pub fn is_loopback(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    // An authority may also name a user, and its port need not be a number.
    let Some(port) = host.strip_prefix(authority.host()) else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    let is_name = name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
    is_name && (port.is_empty() || authority.port_u16().is_some())
}

/// The host that a request was sent to.
pub fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    let header = headers.get(HOST).and_then(|host| host.to_str().ok());
    header.or_else(|| uri.authority().map(Authority::as_str))
}

/// Whether a page of another site makes the browser send this mutation. `Sec-Fetch-Site` decides, which a
/// page cannot set. Without it, the page's `Origin` must be one of the server's own `hosts`. Other programs
/// send neither.
pub fn is_cross_site(method: &Method, headers: &HeaderMap, hosts: &[&str]) -> bool {
    if method.is_safe() {
        return false;
    }
    if let Some(site) = headers.get("sec-fetch-site") {
        return !matches!(site.as_bytes(), b"same-origin" | b"none");
    }
    let Some(origin) = headers.get(ORIGIN) else { return false };
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    !origin.is_some_and(|(_, origin)| hosts.iter().any(|host| host.eq_ignore_ascii_case(origin)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn only_a_direct_request_to_localhost_is_local() {
        let uri = Uri::from_static("/api/v1/queues");
        for (host, is_local) in [
            ("localhost:7717", true),
            ("127.0.0.1:7717", true),
            ("[::1]:7717", true),
            ("[::ffff:127.0.0.1]", true),
            ("evil.example", false),
            ("localhost.evil.example:7717", false),
            ("127.0.0.1.evil.example", false),
            ("10.0.0.1:7717", false),
            ("evil@localhost", false),
            ("localhost:evil", false),
            ("localhost:80/x", false),
            ("localhost/x", false),
            ("127.0.0.1?x", false),
            ("", false),
        ] {
            let checked = require_local(Version::HTTP_11, &uri, &headers(&[("host", host)]));
            assert_eq!(checked.is_ok(), is_local, "{host}");
        }
        let direct = headers(&[("host", "127.0.0.1")]);
        let other = Uri::from_static("http://evil.example/api/v1/queues");
        assert!(require_local(Version::HTTP_11, &other, &direct).is_err(), "as a forward proxy sends it");
        assert!(require_local(Version::HTTP_10, &uri, &direct).is_err(), "as nginx sends it by default");
        for header in ["x-forwarded-host", "x-forwarded-proto", "x-forwarded-for", "true-client-ip", "via"] {
            let proxied = headers(&[("host", "127.0.0.1"), (header, "1")]);
            assert!(require_local(Version::HTTP_11, &uri, &proxied).is_err(), "{header}");
        }
    }

    #[test]
    fn a_page_of_another_site_is_recognised_by_what_the_browser_says() {
        for (method, pairs, is_cross) in [
            (Method::POST, &[("origin", "http://localhost:7717")][..], false),
            (Method::POST, &[("origin", "http://evil.example")], true),
            (Method::POST, &[("origin", "null")], true),
            (Method::POST, &[("sec-fetch-site", "cross-site")], true),
            (Method::POST, &[("sec-fetch-site", "same-site")], true),
            (Method::POST, &[("sec-fetch-site", "same-origin")], false),
            // A proxy replaced `Host`.
            (Method::POST, &[("sec-fetch-site", "same-origin"), ("origin", "https://site.example")], false),
            (Method::GET, &[("origin", "http://evil.example")], false),
            (Method::POST, &[("accept", "*/*")], false),
        ] {
            assert_eq!(is_cross_site(&method, &headers(pairs), &["localhost:7717"]), is_cross, "{pairs:?}");
        }
    }
}
