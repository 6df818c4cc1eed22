//! Browser sessions: a cookie stands for a token, so that the user enters the token once and the browser does
//! not store it. The store keeps the cookie's hash: sessions outlive this process and hold for all servers of
//! the store. They end at logout, after 12 hours, or with their token.

use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::COOKIE;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use longshore::accounts::{BrowserSession, TokenChange, TokenHash};
use longshore::{Error, Ledger, Scope, Timestamp, TokenId};

use crate::token;

/// Lifetime of a session.
const SESSION_TTL: Duration = Duration::from_secs(12 * 3600);

/// The cookie's name. With the prefix, browsers accept it only over TLS and only from this very host.
fn cookie_name(is_https: bool) -> &'static str {
    if is_https { "__Host-longshore_session" } else { "longshore_session" }
}

/// Begins a session of a token; returns the cookie's value.
pub(crate) async fn begin(ledger: &dyn Ledger, token: TokenId, now: Timestamp) -> Result<String, Error> {
    let cookie = URL_SAFE_NO_PAD.encode(token::random_bytes());
    let session = BrowserSession { hash: token::hash(&cookie), token, expires_at: now + SESSION_TTL };
    ledger.change_token(&Scope::All, TokenChange::BeginSession(session)).await?;
    Ok(cookie)
}

/// Ends a session, if there is one.
pub(crate) async fn end(ledger: &dyn Ledger, session: TokenHash) -> Result<(), Error> {
    match ledger.change_token(&Scope::All, TokenChange::EndSession(session)).await {
        Ok(_) | Err(Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The hash of a request's cookie.
pub(crate) fn cookie_hash(headers: &HeaderMap, is_https: bool) -> Option<TokenHash> {
    let name = cookie_name(is_https);
    let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.split_once('='));
    pairs.find(|(found, _)| found.trim() == name).map(|(_, value)| token::hash(value.trim()))
}

/// The `Set-Cookie` header; an empty value deletes the cookie.
pub(crate) fn set_cookie(value: &str, is_https: bool) -> String {
    let (name, secure) = (cookie_name(is_https), if is_https { "; Secure" } else { "" });
    let max_age = if value.is_empty() { 0 } else { SESSION_TTL.as_secs() };
    format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={max_age}{secure}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_tls_only_a_cookie_of_this_host_counts() {
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, "other=1; longshore_session=plain".parse().unwrap());
        assert_eq!(cookie_hash(&headers, false), Some(token::hash("plain")));
        assert_eq!(cookie_hash(&headers, true), None);
        headers.append(COOKIE, "__Host-longshore_session=tls".parse().unwrap());
        assert_eq!(cookie_hash(&headers, true), Some(token::hash("tls")));
        assert!(set_cookie("x", true).starts_with("__Host-longshore_session=x; Path=/;"));
        assert!(set_cookie("x", true).ends_with("; Secure") && !set_cookie("x", false).contains("Secure"));
        assert!(set_cookie("", true).contains("Max-Age=0"));
    }
}
