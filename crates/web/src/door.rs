//! The door: from a request to who asks, how far they may go, and whose things they see.
//!
//! A caller is known by a token. Where the door is open (nobody ever made a token, and only this
//! machine can reach it) everybody is let in as who runs the machine, but not by way of somebody
//! else's web page or proxy: a request that says it came by one is refused.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Uri};
use longshore::ledger::{Role, TokenHash};
use longshore::{Ledger, Scope, TenantId, Timestamp, TokenId};

use crate::house::Limits;
use crate::problem::Problem;
use crate::session::Sessions;
use crate::token;

/// Wrong tokens are counted for so long.
const WINDOW: Duration = Duration::from_secs(60);
/// So many addresses are remembered.
const REMEMBERED: usize = 10_000;

/// When a token is demanded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// Always.
    Always,
    /// Once there is one. Only for a listener that nobody else can reach.
    OnceThereIsAToken,
}

/// Whoever asks.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// Whose things they see.
    pub(crate) scope: Scope,
    pub(crate) role: Role,
    /// Whose payloads they may read; all without.
    pub(crate) own: Option<TenantId>,
    pub(crate) token: Option<TokenId>,
    /// Who it is, for the audit log.
    pub(crate) by: String,
}

impl Caller {
    /// Whether they may read what a tenant's units carry.
    pub(crate) fn reads(&self, tenant: &TenantId) -> bool {
        self.own.as_ref().is_none_or(|own| own == tenant)
    }

    /// The scope, narrowed to one tenant if they ask for that.
    pub(crate) fn narrowed(&self, to: Option<TenantId>) -> Result<Scope, Problem> {
        match to {
            None => Ok(self.scope.clone()),
            Some(tenant) if self.scope.covers(&tenant) => Ok(Scope::Tenant(tenant)),
            Some(tenant) => Err(Problem::not_found(format!("there is no tenant `{tenant}`"))),
        }
    }

    /// The tenant that a new thing belongs to.
    pub(crate) fn sends_as(&self, tenant: Option<TenantId>) -> Result<TenantId, Problem> {
        let own = || self.own.clone().unwrap_or_default();
        let tenant = tenant.unwrap_or_else(own);
        match self.reads(&tenant) {
            true => Ok(tenant),
            false => Err(Problem::not_found(format!("there is no tenant `{tenant}`"))),
        }
    }

    /// Refuses what their role does not include.
    pub(crate) fn must_be(&self, role: Role) -> Result<(), Problem> {
        match self.role >= role {
            true => Ok(()),
            false => {
                let words = format!("this needs role `{role}`, the token has `{}`", self.role);
                Err(Problem::forbidden(words))
            }
        }
    }
}

/// Knows callers.
pub(crate) struct Door {
    ledger: Arc<dyn Ledger>,
    lock: Lock,
    /// Once locked, it stays so: nobody has to ask again.
    locked: AtomicBool,
    failures: Mutex<HashMap<IpAddr, Failures>>,
    /// So many wrong tokens of one address are answered plainly; then it hears to come back later.
    pub(crate) wrong_tokens: u32,
    pub(crate) sessions: Sessions,
}

struct Failures {
    since: Timestamp,
    count: u32,
}

impl Door {
    pub(crate) fn new(ledger: Arc<dyn Ledger>, lock: Lock) -> Self {
        let locked = AtomicBool::new(lock == Lock::Always);
        let (failures, sessions) = (Mutex::default(), Sessions::default());
        let wrong_tokens = Limits::default().wrong_tokens;
        Self { ledger, lock, locked, failures, wrong_tokens, sessions }
    }

    /// Who sent this request.
    pub(crate) async fn admit(&self, head: &Parts, now: Timestamp) -> Result<Caller, Problem> {
        not_by_another_page(head)?;
        let from = head.extensions.get::<SocketAddr>().map(SocketAddr::ip);
        if let Some(given) = bearer(&head.headers) {
            return self.known(token::hash(given), from, now).await;
        }
        if head.headers.contains_key(AUTHORIZATION) {
            return Err(Problem::stranger("send `Authorization: Bearer TOKEN`, or nothing of it"));
        }
        if let Some(token) = self.sessions.token(&head.headers, now) {
            // A session whose token was revoked is none: no wrong guess was made.
            return self.known(token, None, now).await;
        }
        if self.is_locked().await? {
            let words = "no token was given: send `Authorization: Bearer TOKEN`";
            return Err(Problem::stranger(words));
        }
        at_home(head)?;
        let by = from.map_or_else(|| "this machine".to_owned(), |from| from.to_string());
        Ok(Caller { scope: Scope::All, role: Role::Admin, own: None, token: None, by })
    }

    async fn is_locked(&self) -> Result<bool, Problem> {
        if self.lock == Lock::Always || self.locked.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let locked = self.ledger.is_locked().await?;
        self.locked.fetch_or(locked, Ordering::Relaxed);
        Ok(locked)
    }

    /// Whose token it is. A good one is always let in, so that nobody can lock others out by
    /// knocking; wrong ones are told to rest after some.
    pub(crate) async fn known(
        &self,
        given: TokenHash,
        from: Option<IpAddr>,
        now: Timestamp,
    ) -> Result<Caller, Problem> {
        let found = self.ledger.token(given).await?;
        let Some(token) = found.filter(|token| token.is_good(now)) else {
            return Err(self.failed(from, now));
        };
        let scope = match token.role {
            Role::Admin => Scope::All,
            _ => Scope::Tenant(token.tenant.clone()),
        };
        let (role, id) = (token.role, Some(token.id));
        Ok(Caller { scope, role, own: Some(token.tenant), token: id, by: token.label })
    }

    fn failed(&self, from: Option<IpAddr>, now: Timestamp) -> Problem {
        let wrong = Problem::stranger("the token is not valid: wrong, expired or revoked");
        let Some(from) = from.map(neighbourhood) else { return wrong };
        let mut all = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= REMEMBERED && !all.contains_key(&from) {
            all.retain(|_, failures| now.since(failures.since) < WINDOW);
            if all.len() >= REMEMBERED {
                all.clear();
            }
        }
        let failures = all.entry(from).or_insert(Failures { since: now, count: 0 });
        if now.since(failures.since) >= WINDOW {
            *failures = Failures { since: now, count: 0 };
        }
        failures.count = failures.count.saturating_add(1);
        if failures.count <= self.wrong_tokens {
            return wrong;
        }
        if failures.count == self.wrong_tokens.saturating_add(1) {
            tracing::warn!(%from, "many wrong tokens");
        }
        Problem::too_many("too many wrong tokens from your address", WINDOW)
    }
}

/// Whoever has one address of IPv6 has 2^64.
fn neighbourhood(address: IpAddr) -> IpAddr {
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

/// Refuses a change that another site's page makes a browser ask for.
pub(crate) fn not_by_another_page(head: &Parts) -> Result<(), Problem> {
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

/// Where the door is open, only who is at home comes in: not a proxy for others, and not a page whose
/// name was made to lead here.
fn at_home(head: &Parts) -> Result<(), Problem> {
    for sign in ["forwarded", "x-forwarded-for", "x-real-ip", "via"] {
        if head.headers.contains_key(sign) {
            let words =
                "this came through a proxy, and no token was made yet: `longshore token add`";
            return Err(Problem::forbidden(words));
        }
    }
    let host = host(head).unwrap_or_default();
    let uri = format!("http://{host}").parse::<Uri>().ok();
    let name = uri.as_ref().and_then(Uri::host).unwrap_or_default();
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let is_home = name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
    match is_home {
        true => Ok(()),
        false => {
            let words = "without a token this is only for `localhost`: `longshore token add`";
            Err(Problem::forbidden(words))
        }
    }
}

/// Where the request was sent to.
fn host(head: &Parts) -> Option<String> {
    let said = head.headers.get(HOST).and_then(|host| host.to_str().ok()).map(str::to_owned);
    said.or_else(|| head.uri.authority().map(ToString::to_string))
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
        for (host, is_home) in [
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
            assert_eq!(at_home(&head("GET", &[("host", host)])).is_ok(), is_home, "{host}");
        }
        let by_proxy = head("GET", &[("host", "localhost"), ("x-forwarded-for", "10.0.0.9")]);
        assert!(at_home(&by_proxy).is_err());
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
            let passed = not_by_another_page(&head(method, &[home, header])).is_ok();
            assert_eq!(passed, passes, "{method} {header:?}");
        }
    }

    #[test]
    fn all_addresses_of_one_network_are_one_neighbour() {
        let near = |text: &str| neighbourhood(text.parse().unwrap());
        assert_eq!(near("2001:db8::1"), near("2001:db8::ffff:1"));
        assert_ne!(near("2001:db8::1"), near("2001:db8:0:1::1"));
        assert_ne!(near("10.0.0.1"), near("10.0.0.2"));
        assert_eq!(near("::ffff:10.0.0.1"), near("10.0.0.1"));
    }
}
