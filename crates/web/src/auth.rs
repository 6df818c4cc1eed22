//! Authentication: from a request to its caller, with role and scope.
//!
//! A caller is identified by a token, or by a browser session that stands for one. Mutations that a page of
//! another site makes a browser send are rejected.

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use longshore::accounts::{Role, TokenHash};
use longshore::{Ledger, Rights, Scope, TenantId, Timestamp, TokenId};
use longshore_ai::gateway::local_request::require_local;

use crate::app_state::ConnectionLimits;
use crate::browser_session;
use crate::login_throttle::{FAILURE_WINDOW, LoginThrottle};
use crate::problem::Problem;
use crate::proxy_headers::ProxyConfig;
use crate::server::PeerUser;
use crate::token;

/// Whether a token is required.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthMode {
    /// Every request needs a token.
    TokenRequired,
    /// Requests without a token may do everything, if they come directly from this machine; over a Unix
    /// socket, from the server's own user or root. Only for a listener that other machines cannot reach.
    NoAuth,
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

    /// The rights that the caller's units are sent with.
    pub(crate) fn rights(&self) -> Rights {
        if self.role == Role::Admin { Rights::Operator } else { Rights::Tenant }
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
    throttle: LoginThrottle,
    /// Wrong tokens per address that are answered with 401; further ones get 429.
    pub(crate) wrong_tokens: u32,
    pub(crate) proxies: ProxyConfig,
}

impl Authenticator {
    pub(crate) fn new(ledger: Arc<dyn Ledger>, mode: AuthMode) -> Self {
        let wrong_tokens = ConnectionLimits::default().wrong_tokens;
        let (throttle, proxies) = (LoginThrottle::default(), ProxyConfig::default());
        Self { ledger, mode, throttle, wrong_tokens, proxies }
    }

    /// Authenticates a request.
    pub(crate) async fn authenticate(&self, head: &Parts, now: Timestamp) -> Result<Caller, Problem> {
        self.reject_cross_site(head)?;
        if let Some(given) = bearer(&head.headers) {
            return self.authenticate_token(token::hash(given), self.proxies.client_address(head), now).await;
        }
        if head.headers.contains_key(AUTHORIZATION) {
            return Err(Problem::unauthorized("send `Authorization: Bearer TOKEN`, or no such header"));
        }
        if self.mode == AuthMode::NoAuth {
            return local_caller(head);
        }
        let is_https = self.proxies.is_https(&head.extensions, &head.headers);
        match browser_session::cookie_hash(&head.headers, is_https) {
            // A session that has ended is not a wrong guess: do not count it.
            Some(session) => self.authenticate_token(session, None, now).await,
            None => Err(Problem::unauthorized("no token was given: send `Authorization: Bearer TOKEN`")),
        }
    }

    /// Rejects a mutation that a page of another site makes the browser send.
    pub(crate) fn reject_cross_site(&self, head: &Parts) -> Result<(), Problem> {
        match self.proxies.is_cross_site(head) {
            true => Err(Problem::forbidden("another site's page may not change anything here")),
            false => Ok(()),
        }
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
        let Some(from) = from else { return wrong };
        let count = self.throttle.record(from, now);
        if count <= self.wrong_tokens {
            return wrong;
        }
        if count == self.wrong_tokens.saturating_add(1) {
            tracing::warn!(%from, "too many wrong tokens from one address");
        }
        Problem::too_many("too many wrong tokens from your address", FAILURE_WINDOW)
    }
}

/// The caller of a server without authentication: a client that sends requests directly from this machine.
fn local_caller(head: &Parts) -> Result<Caller, Problem> {
    require_local(head.version, &head.uri, &head.headers).map_err(Problem::forbidden)?;
    if let Some(PeerUser(user)) = head.extensions.get() {
        require_user(*user, rustix::process::geteuid().as_raw())?;
    }
    let label = "this machine".to_owned();
    Ok(Caller { scope: Scope::All, role: Role::Admin, tenant: None, token: None, label })
}

/// Admits the server's own user and root to a Unix socket without authentication.
fn require_user(peer: u32, own: u32) -> Result<(), Problem> {
    match [0, own].contains(&peer) {
        true => Ok(()),
        false => Err(Problem::forbidden("only the server's own user and root may use this socket")),
    }
}

/// `Authorization: Bearer …`
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    #[test]
    fn without_authentication_a_socket_is_for_its_own_user_and_root() {
        for (peer, own, is_admitted) in
            [(0, 0, true), (7, 0, false), (7, 7, true), (0, 7, true), (8, 7, false), (u32::MAX, 7, false)]
        {
            assert_eq!(require_user(peer, own).is_ok(), is_admitted, "{peer} {own}");
        }
        let own = rustix::process::geteuid().as_raw();
        for (user, is_admitted) in [(own, true), (own + 1, false)] {
            let request = Request::get("http://localhost/").extension(PeerUser(user));
            let (head, ()) = request.body(()).unwrap().into_parts();
            assert_eq!(local_caller(&head).is_ok(), is_admitted, "{user}");
        }
    }
}
