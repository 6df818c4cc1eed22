//! Browser sessions: a cookie stands for a token, so that the user enters the token once and the browser does
//! not store it. Sessions live in this process; they end with it, after 12 hours, or with their token.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::COOKIE;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use longshore::Timestamp;
use longshore::accounts::TokenHash;

use crate::token;

/// The cookie's name.
const COOKIE_NAME: &str = "longshore_session";
/// Lifetime of a session.
const SESSION_TTL: Duration = Duration::from_secs(12 * 3600);
/// Maximum number of sessions; the oldest is dropped first.
const MAX_SESSIONS: usize = 10_000;

/// Sessions by the hash of their cookie.
#[derive(Default)]
pub(crate) struct BrowserSessions(Mutex<HashMap<TokenHash, BrowserSession>>);

struct BrowserSession {
    token: TokenHash,
    since: Timestamp,
}

impl BrowserSessions {
    /// Begins a session for a token; returns the cookie's value.
    pub(crate) fn begin(&self, token: TokenHash, now: Timestamp) -> String {
        let cookie = URL_SAFE_NO_PAD.encode(token::random_bytes());
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, session| now.since(session.since) < SESSION_TTL);
        if all.len() >= MAX_SESSIONS
            && let Some(oldest) =
                all.iter().min_by_key(|(_, session)| session.since).map(|(cookie, _)| *cookie)
        {
            all.remove(&oldest);
        }
        all.insert(token::hash(&cookie), BrowserSession { token, since: now });
        cookie
    }

    /// The token hash of a request's session.
    pub(crate) fn token(&self, headers: &HeaderMap, now: Timestamp) -> Option<TokenHash> {
        let cookie = token::hash(cookie(headers)?);
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let session = all.get(&cookie)?;
        (now.since(session.since) < SESSION_TTL).then_some(session.token)
    }

    /// Ends a request's session.
    pub(crate) fn end(&self, headers: &HeaderMap) {
        if let Some(cookie) = cookie(headers) {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.remove(&token::hash(cookie));
        }
    }
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.split_once('='));
    pairs.find(|(name, _)| name.trim() == COOKIE_NAME).map(|(_, value)| value.trim())
}

/// The `Set-Cookie` header. `is_secure`: only over TLS.
pub(crate) fn set_cookie(value: &str, is_secure: bool) -> String {
    let secure = if is_secure { "; Secure" } else { "" };
    let max_age = if value.is_empty() { 0 } else { SESSION_TTL.as_secs() };
    format!("{COOKIE_NAME}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={max_age}{secure}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(cookie: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, format!("other=1; {COOKIE_NAME}={cookie}").parse().unwrap());
        headers
    }

    #[test]
    fn a_cookie_stands_for_its_token_until_it_ends() {
        let (sessions, token) = (BrowserSessions::default(), token::hash("lsh_x"));
        let now = Timestamp::from_micros(1);
        let cookie = sessions.begin(token, now);
        assert_eq!(sessions.token(&with(&cookie), now), Some(token));
        assert_eq!(sessions.token(&with("guess"), now), None);
        assert_eq!(sessions.token(&HeaderMap::new(), now), None);
        assert_eq!(sessions.token(&with(&cookie), now + SESSION_TTL), None);
        sessions.end(&with(&cookie));
        assert_eq!(sessions.token(&with(&cookie), now), None);
    }
}
