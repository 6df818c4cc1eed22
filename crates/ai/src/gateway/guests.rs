//! Who asks: from a token to a tenant.

use axum::http::header::AUTHORIZATION;
use axum::http::{Extensions, HeaderMap};
use longshore::TenantId;
use secrecy::{ExposeSecret, SecretString};

use super::refusal::{Refusal, Why};

/// Knows guests by their tokens.
pub trait Guests: Send + Sync + 'static {
    /// Whose token it is. `None` if it is nobody's.
    fn tenant(&self, token: Option<&str>) -> Option<TenantId>;
}

/// A tenant that whoever mounted the routes has found out already: among a request's extensions it is
/// believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guest(pub TenantId);

/// Nobody is known by a token: whoever mounts the routes says who asks, by a [`Guest`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Announced;

impl Guests for Announced {
    fn tenant(&self, _: Option<&str>) -> Option<TenantId> {
        None
    }
}

/// Everybody is the same tenant; with a token, everybody who has it.
#[derive(Debug, Clone)]
pub struct OneTenant {
    /// The tenant.
    pub tenant: TenantId,
    /// What one has to know.
    pub token: Option<SecretString>,
}

impl Guests for OneTenant {
    fn tenant(&self, token: Option<&str>) -> Option<TenantId> {
        let known = match &self.token {
            None => true,
            Some(known) => token.is_some_and(|token| same(token, known.expose_secret())),
        };
        known.then(|| self.tenant.clone())
    }
}

/// Whether two texts are the same. How long that takes says only how long they are.
fn same(one: &str, other: &str) -> bool {
    let differences = one.bytes().zip(other.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    one.len() == other.len() && std::hint::black_box(differences) == 0
}

/// The tenant of whoever sent a request with this.
pub(super) fn welcome(
    guests: &dyn Guests,
    headers: &HeaderMap,
    extensions: &Extensions,
) -> Result<TenantId, Refusal> {
    if let Some(Guest(tenant)) = extensions.get() {
        return Ok(tenant.clone());
    }
    let token = token(headers);
    let words = if token.is_none() { "no API key was given" } else { "the API key is not valid" };
    guests.tenant(token).ok_or_else(|| Refusal::new(Why::Stranger, words))
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
        let guests = OneTenant { tenant: TenantId::default(), token: Some("secret".into()) };
        for (token, known) in [
            (Some("secret"), true),
            (Some("secreT"), false),
            (Some("secret2"), false),
            (Some("secre"), false),
            (Some(""), false),
            (None, false),
        ] {
            assert_eq!(guests.tenant(token).is_some(), known, "{token:?}");
        }
        let open = OneTenant { token: None, ..guests };
        assert!(open.tenant(None).is_some() && open.tenant(Some("any")).is_some());
    }

    #[test]
    fn who_was_announced_is_welcome_and_nobody_else() {
        let mut extensions = Extensions::new();
        let mut headers = HeaderMap::new();
        headers.insert("x-api-key", "k".parse().unwrap());
        assert!(welcome(&Announced, &headers, &extensions).is_err());
        let tenant = TenantId::new("acme").unwrap();
        extensions.insert(Guest(tenant.clone()));
        assert_eq!(welcome(&Announced, &headers, &extensions).ok(), Some(tenant));
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
