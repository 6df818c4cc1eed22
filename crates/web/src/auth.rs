//! Authentication: from a request to its caller, with role and scope.
//!
//! A caller is identified by a token. If no token was ever created and only this machine can reach the
//! listener, requests without a token are admitted as admin; requests that came through a proxy or from
//! another site's page are rejected.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Uri};
use longshore::accounts::{Role, TokenHash};
use longshore::{Ledger, Scope, TenantId, Timestamp, TokenId};

use crate::app_state::ConnectionLimits;
use crate::browser_session::BrowserSessions;
use crate::problem::Problem;
use crate::token;

/// How long wrong tokens are counted.
const FAILURE_WINDOW: Duration = Duration::from_secs(60);
/// Maximum number of addresses with counted failures.
const MAX_TRACKED_ADDRESSES: usize = 10_000;

/// When a token is required.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthMode {
    /// Always.
    TokenRequired,
    /// Once the first token exists. Only for a listener that other machines cannot reach.
    OpenUntilFirstToken,
}

/// The authenticated caller of a request.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// The tenants that the caller sees.
    pub(crate) scope: Scope,
    pub(crate) role: Role,
    /// The caller may read payloads of this tenant only; all if none.
    pub(crate) tenant: Option<TenantId>,
    pub(crate) token: Option<TokenId>,
    /// The token's label, for the audit log.
    pub(crate) label: String,
}

impl Caller {
    /// Whether the caller may read a tenant's payloads.
    pub(crate) fn can_read(&self, tenant: &TenantId) -> bool {
        self.tenant.as_ref().is_none_or(|own| own == tenant)
    }

    /// The caller's scope, restricted to `tenant` if given.
    pub(crate) fn scope_for(&self, tenant: Option<TenantId>) -> Result<Scope, Problem> {
        match tenant {
            None => Ok(self.scope.clone()),
            Some(tenant) if self.scope.covers(&tenant) => Ok(Scope::Tenant(tenant)),
            Some(tenant) => Err(Problem::not_found(format!("there is no tenant `{tenant}`"))),
        }
    }

    /// The tenant that a new unit or batch belongs to.
    pub(crate) fn tenant_for_new(&self, tenant: Option<TenantId>) -> Result<TenantId, Problem> {
        let own = || self.tenant.clone().unwrap_or_default();
        let tenant = tenant.unwrap_or_else(own);
        match self.can_read(&tenant) {
            true => Ok(tenant),
            false => Err(Problem::not_found(format!("there is no tenant `{tenant}`"))),
        }
    }

    /// Rejects the request if the caller's role is below `role`.
    pub(crate) fn require_role(&self, role: Role) -> Result<(), Problem> {
        match self.role >= role {
            true => Ok(()),
            false => {
                let detail = format!("this needs role `{role}`, the token has `{}`", self.role);
                Err(Problem::forbidden(detail))
            }
        }
    }
}

/// Authenticates requests.
pub(crate) struct Authenticator {
    ledger: Arc<dyn Ledger>,
    mode: AuthMode,
    /// Once a token exists, one is always required: the ledger need not be asked again.
    token_required: AtomicBool,
    failures: Mutex<HashMap<IpAddr, FailedAttempts>>,
    /// Wrong tokens per address that are answered with 401; further ones get 429.
    pub(crate) wrong_tokens: u32,
    pub(crate) sessions: BrowserSessions,
}

struct FailedAttempts {
    since: Timestamp,
    count: u32,
}

impl Authenticator {
    pub(crate) fn new(ledger: Arc<dyn Ledger>, mode: AuthMode) -> Self {
        let token_required = AtomicBool::new(mode == AuthMode::TokenRequired);
        let (failures, sessions) = (Mutex::default(), BrowserSessions::default());
        let wrong_tokens = ConnectionLimits::default().wrong_tokens;
        Self { ledger, mode, token_required, failures, wrong_tokens, sessions }
    }

    /// Authenticates a request.
    pub(crate) async fn authenticate(&self, head: &Parts, now: Timestamp) -> Result<Caller, Problem> {
        reject_cross_site(head)?;
        let from = head.extensions.get::<SocketAddr>().map(SocketAddr::ip);
        if let Some(given) = bearer(&head.headers) {
            return self.authenticate_token(token::hash(given), from, now).await;
        }
        if head.headers.contains_key(AUTHORIZATION) {
            return Err(Problem::unauthorized("send `Authorization: Bearer TOKEN`, or no such header"));
        }
        if let Some(token) = self.sessions.token(&head.headers, now) {
            // A revoked token's session is not a wrong guess: do not count it.
            return self.authenticate_token(token, None, now).await;
        }
        if self.is_token_required().await? {
            let detail = "no token was given: send `Authorization: Bearer TOKEN`";
            return Err(Problem::unauthorized(detail));
        }
        require_loopback(head)?;
        let label = from.map_or_else(|| "this machine".to_owned(), |from| from.to_string());
        Ok(Caller { scope: Scope::All, role: Role::Admin, tenant: None, token: None, label })
    }

    async fn is_token_required(&self) -> Result<bool, Problem> {
        if self.mode == AuthMode::TokenRequired || self.token_required.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let locked = self.ledger.is_locked().await?;
        self.token_required.fetch_or(locked, Ordering::Relaxed);
        Ok(locked)
    }

    /// Authenticates a token. A valid token is always accepted, so that failed attempts cannot lock others
    /// out; wrong tokens are rate-limited by address.
    pub(crate) async fn authenticate_token(
        &self,
        given: TokenHash,
        from: Option<IpAddr>,
        now: Timestamp,
    ) -> Result<Caller, Problem> {
        let found = self.ledger.token(given).await?;
        let Some(token) = found.filter(|token| token.is_valid(now)) else {
            return Err(self.record_failure(from, now));
        };
        let scope = match token.role {
            Role::Admin => Scope::All,
            _ => Scope::Tenant(token.tenant.clone()),
        };
        let (role, id) = (token.role, Some(token.id));
        Ok(Caller { scope, role, tenant: Some(token.tenant), token: id, label: token.label })
    }

    fn record_failure(&self, from: Option<IpAddr>, now: Timestamp) -> Problem {
        let wrong = Problem::unauthorized("the token is not valid: wrong, expired or revoked");
        let Some(from) = from.map(rate_limit_key) else { return wrong };
        let mut all = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_TRACKED_ADDRESSES && !all.contains_key(&from) {
            all.retain(|_, failures| now.since(failures.since) < FAILURE_WINDOW);
            if all.len() >= MAX_TRACKED_ADDRESSES {
                all.clear();
            }
        }
        let failures = all.entry(from).or_insert(FailedAttempts { since: now, count: 0 });
        if now.since(failures.since) >= FAILURE_WINDOW {
            *failures = FailedAttempts { since: now, count: 0 };
        }
        failures.count = failures.count.saturating_add(1);
        if failures.count <= self.wrong_tokens {
            return wrong;
        }
        if failures.count == self.wrong_tokens.saturating_add(1) {
            tracing::warn!(%from, "too many wrong tokens from one address");
        }
        Problem::too_many("too many wrong tokens from your address", FAILURE_WINDOW)
    }
}

/// The key for counting failures: an IPv6 client usually has a /64 network.
fn rate_limit_key(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(six) => IpAddr::V6((u128::from(six) & !u128::from(u64::MAX)).into()),
        four => four,
    }
}

/// `Authorization: Bearer …`
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Rejects a mutation that a page of another site makes the browser send.
pub(crate) fn reject_cross_site(head: &Parts) -> Result<(), Problem> {
    if head.method.is_safe() {
        return Ok(());
    }
    let refused = || Err(Problem::forbidden("another site's page may not change anything here"));
    let site = head.headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    if !matches!(site, None | Some(b"same-origin" | b"none")) {
        return refused();
    }
    let Some(origin) = head.headers.get(ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    match (origin, host(head)) {
        (Some((_, origin)), Some(host)) if origin.eq_ignore_ascii_case(&host) => Ok(()),
        _ => refused(),
    }
}

/// Without a token, only direct requests to `localhost` are admitted: neither through a proxy nor under a
/// name that was rebound to this address.
fn require_loopback(head: &Parts) -> Result<(), Problem> {
    for header in ["forwarded", "x-forwarded-for", "x-real-ip", "via"] {
        if head.headers.contains_key(header) {
            let detail = "this came through a proxy, and no token exists yet: `longshore token add`";
            return Err(Problem::forbidden(detail));
        }
    }
    let host = host(head).unwrap_or_default();
    let uri = format!("http://{host}").parse::<Uri>().ok();
    let name = uri.as_ref().and_then(Uri::host).unwrap_or_default();
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
    match is_loopback {
        true => Ok(()),
        false => {
            let detail = "without a token this is only for `localhost`: `longshore token add`";
            Err(Problem::forbidden(detail))
        }
    }
}

/// The host that the request was sent to.
fn host(head: &Parts) -> Option<String> {
    let header = head.headers.get(HOST).and_then(|host| host.to_str().ok()).map(str::to_owned);
    header.or_else(|| head.uri.authority().map(ToString::to_string))
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn head(method: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri("/api/v1/queues");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn an_open_door_is_for_who_is_at_home() {
        for (host, is_loopback) in [
            ("localhost:7717", true),
            ("127.0.0.1:7717", true),
            ("[::1]:7717", true),
            ("[::ffff:127.0.0.1]", true),
            ("evil.example", false),
            ("localhost.evil.example:7717", false),
            ("127.0.0.1.evil.example", false),
            ("10.0.0.1:7717", false),
            ("", false),
        ] {
            assert_eq!(require_loopback(&head("GET", &[("host", host)])).is_ok(), is_loopback, "{host}");
        }
        let by_proxy = head("GET", &[("host", "localhost"), ("x-forwarded-for", "10.0.0.9")]);
        assert!(require_loopback(&by_proxy).is_err());
    }

    #[test]
    fn another_sites_page_changes_nothing() {
        let home = ("host", "localhost:7717");
        for (method, header, passes) in [
            ("POST", ("origin", "http://localhost:7717"), true),
            ("POST", ("origin", "http://evil.example"), false),
            ("POST", ("origin", "null"), false),
            ("POST", ("sec-fetch-site", "cross-site"), false),
            ("POST", ("sec-fetch-site", "same-site"), false),
            ("POST", ("sec-fetch-site", "same-origin"), true),
            ("GET", ("origin", "http://evil.example"), true),
            ("POST", ("accept", "*/*"), true),
        ] {
            let passed = reject_cross_site(&head(method, &[home, header])).is_ok();
            assert_eq!(passed, passes, "{method} {header:?}");
        }
    }

    #[test]
    fn all_addresses_of_one_network_are_one_neighbour() {
        let near = |text: &str| rate_limit_key(text.parse().unwrap());
        assert_eq!(near("2001:db8::1"), near("2001:db8::ffff:1"));
        assert_ne!(near("2001:db8::1"), near("2001:db8:0:1::1"));
        assert_ne!(near("10.0.0.1"), near("10.0.0.2"));
        assert_eq!(near("::ffff:10.0.0.1"), near("10.0.0.1"));
    }
}
