//! Authentication: from a request's token to a tenant.

use axum::http::header::AUTHORIZATION;
use axum::http::{Extensions, HeaderMap};
use longshore::TenantId;
use secrecy::{ExposeSecret, SecretString};

use super::error::{GatewayError, GatewayErrorKind};

/// Maps API tokens to tenants.
pub trait Authenticator: Send + Sync + 'static {
    /// The token's tenant. `None` if the token is not valid.
    fn tenant(&self, token: Option<&str>) -> Option<TenantId>;
}

/// A tenant that the application authenticated already. The gateway trusts it if it is among the
/// request's extensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthenticatedTenant(pub TenantId);

/// Accepts no tokens: the application that mounts the routes authenticates requests and adds a
/// [`AuthenticatedTenant`].
#[derive(Debug, Clone, Copy, Default)]
pub struct PreAuthenticated;

impl Authenticator for PreAuthenticated {
    fn tenant(&self, _: Option<&str>) -> Option<TenantId> {
        None
    }
}

/// Maps every request to one tenant; if a token is set, only requests with that token.
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
}

/// Compares in constant time: the duration depends only on the lengths.
fn constant_time_eq(one: &str, other: &str) -> bool {
    let differences = one.bytes().zip(other.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    one.len() == other.len() && std::hint::black_box(differences) == 0
}

/// The tenant of a request with these headers and extensions.
pub(super) fn authenticate(
    authenticator: &dyn Authenticator,
    headers: &HeaderMap,
    extensions: &Extensions,
) -> Result<TenantId, GatewayError> {
    if let Some(AuthenticatedTenant(tenant)) = extensions.get() {
        return Ok(tenant.clone());
    }
    let token = token(headers);
    let message = if token.is_none() { "no API key was given" } else { "the API key is not valid" };
    authenticator.tenant(token).ok_or_else(|| GatewayError::new(GatewayErrorKind::Unauthenticated, message))
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
        let mut extensions = Extensions::new();
        let mut headers = HeaderMap::new();
        headers.insert("x-api-key", "k".parse().unwrap());
        assert!(authenticate(&PreAuthenticated, &headers, &extensions).is_err());
        let tenant = TenantId::new("acme").unwrap();
        extensions.insert(AuthenticatedTenant(tenant.clone()));
        assert_eq!(authenticate(&PreAuthenticated, &headers, &extensions).ok(), Some(tenant));
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
