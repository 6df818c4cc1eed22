//! Authentication: from a request's token to a tenant.

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Request};
use longshore::TenantId;
use secrecy::{ExposeSecret, SecretString};

use super::error::{GatewayError, GatewayErrorKind};
use super::local_request::{host, is_cross_site, require_local};

/// Maps API tokens to tenants.
pub trait Authenticator: Send + Sync + 'static {
    /// The token's tenant. `None` if the token is not valid.
    fn tenant(&self, token: Option<&str>) -> Option<TenantId>;

    /// Whether no token is needed. Then only direct requests of programs on this machine are accepted.
    fn is_open(&self) -> bool {
        false
    }
}

/// A tenant that the application authenticated already. The gateway trusts it if it is among the
/// request's extensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthenticatedTenant(pub TenantId);

/// Why the application denies the request of a client that it authenticated. The gateway responds
/// with it if it is among the request's extensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessDenied(pub String);

/// Accepts no tokens: the application that mounts the routes authenticates requests and adds a
/// [`AuthenticatedTenant`].
#[derive(Debug, Clone, Copy, Default)]
pub struct PreAuthenticated;

impl Authenticator for PreAuthenticated {
    fn tenant(&self, _: Option<&str>) -> Option<TenantId> {
        None
    }
}

/// Maps every request to one tenant: requests with the token, or, if none is set, direct requests of
/// programs on this machine.
#[derive(Debug, Clone)]
pub struct SingleTenant {
    /// The tenant of all requests.
    pub tenant: TenantId,
    /// The token that requests must have.
    pub token: Option<SecretString>,
}

impl Authenticator for SingleTenant {
    fn tenant(&self, token: Option<&str>) -> Option<TenantId> {
        let valid = match &self.token {
            None => true,
            Some(expected) => token.is_some_and(|token| constant_time_eq(token, expected.expose_secret())),
        };
        valid.then(|| self.tenant.clone())
    }

    fn is_open(&self) -> bool {
        self.token.is_none()
    }
}

/// Compares in constant time: the duration depends only on the lengths.
fn constant_time_eq(one: &str, other: &str) -> bool {
    let differences = one.bytes().zip(other.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    one.len() == other.len() && std::hint::black_box(differences) == 0
}

/// The tenant of a request.
pub(super) fn authenticate<B>(
    authenticator: &dyn Authenticator,
    request: &Request<B>,
) -> Result<TenantId, GatewayError> {
    if let Some(AuthenticatedTenant(tenant)) = request.extensions().get() {
        return Ok(tenant.clone());
    }
    if let Some(AccessDenied(why)) = request.extensions().get() {
        return Err(GatewayError::new(GatewayErrorKind::Forbidden, why.as_str()));
    }
    if authenticator.is_open() {
        check_local(request).map_err(|why| GatewayError::new(GatewayErrorKind::Unauthenticated, why))?;
    }
    let token = token(request.headers());
    let message = if token.is_none() { "no API key was given" } else { "the API key is not valid" };
    authenticator.tenant(token).ok_or_else(|| GatewayError::new(GatewayErrorKind::Unauthenticated, message))
}

/// Rejects a request that did not come directly from a program on this machine.
fn check_local<B>(request: &Request<B>) -> Result<(), &'static str> {
    let (uri, headers) = (request.uri(), request.headers());
    require_local(request.version(), uri, headers)?;
    match is_cross_site(request.method(), headers, &[host(uri, headers).unwrap_or_default()]) {
        true => Err("another site's page may not use this server"),
        false => Ok(()),
    }
}

/// `Authorization: Bearer …`, or `x-api-key: …`.
fn token(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = bearer.and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    bearer.or_else(|| headers.get("x-api-key")?.to_str().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_token_is_the_same() {
        let authenticator = SingleTenant { tenant: TenantId::default(), token: Some("secret".into()) };
        for (token, valid) in [
            (Some("secret"), true),
            (Some("secreT"), false),
            (Some("secret2"), false),
            (Some("secre"), false),
            (Some(""), false),
            (None, false),
        ] {
            assert_eq!(authenticator.tenant(token).is_some(), valid, "{token:?}");
        }
        let open = SingleTenant { token: None, ..authenticator };
        assert!(open.tenant(None).is_some() && open.tenant(Some("any")).is_some());
    }

    #[test]
    fn who_was_announced_is_welcome_and_nobody_else() {
        let mut request = Request::builder().header("x-api-key", "k").body(()).unwrap();
        assert!(authenticate(&PreAuthenticated, &request).is_err());
        let tenant = TenantId::new("acme").unwrap();
        request.extensions_mut().insert(AuthenticatedTenant(tenant.clone()));
        assert_eq!(authenticate(&PreAuthenticated, &request).ok(), Some(tenant));
    }

    #[test]
    fn without_a_token_only_direct_local_requests_are_accepted() {
        let open = SingleTenant { tenant: TenantId::default(), token: None };
        for (host, header, accepted) in [
            ("127.0.0.1:7718", "accept", true),
            ("127.0.0.1:7718", "x-forwarded-proto", false),
            ("rebound.example", "accept", false),
            ("127.0.0.1:7718", "origin", false),
        ] {
            let request = Request::post("/v1/messages").header("host", host).header(header, "x://other");
            let found = authenticate(&open, &request.body(()).unwrap());
            assert_eq!(found.is_ok(), accepted, "{host} {header}");
        }
    }

    #[test]
    fn a_token_comes_as_bearer_or_as_a_key() {
        let mut headers = HeaderMap::new();
        assert_eq!(token(&headers), None);
        headers.insert("x-api-key", "k".parse().unwrap());
        assert_eq!(token(&headers), Some("k"));
        headers.insert(AUTHORIZATION, "Basic abc".parse().unwrap());
        assert_eq!(token(&headers), Some("k"));
        headers.insert(AUTHORIZATION, "bearer b".parse().unwrap());
        assert_eq!(token(&headers), Some("b"));
    }
}
