//! API tokens: authentication and roles of network clients. The store keeps only their hashes.

use std::fmt;
use std::str::FromStr;

use async_trait::async_trait;
use longshore_core::{Error, Result, Scope, TenantId, Timestamp, TokenId};
use serde::{Deserialize, Serialize};

/// What a token permits. Each role includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Read the tenant's data.
    #[default]
    Read,
    /// Send units, and wait for them.
    Submit,
    /// Cancel, retry, pause, resume.
    Operate,
    /// Read counters and change settings of every tenant, workers and pools; payloads of its own
    /// tenant only.
    Admin,
}

impl Role {
    /// Every role, weakest first.
    pub const ALL: [Self; 4] = [Self::Read, Self::Submit, Self::Operate, Self::Admin];

    /// Its name, as in JSON, SQL and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Submit => "submit",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|role| role.as_str() == text);
        found.ok_or_else(|| format!("`{text}` is not read, submit, operate or admin"))
    }
}

/// SHA-256 of a token. Neither slow nor salted: a token is 256 random bits, so it cannot be
/// guessed, and the hash cannot be inverted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenHash(pub [u8; 32]);

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(…)")
    }
}

/// A token to add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    /// Its id; not a secret.
    pub id: TokenId,
    /// Its tenant.
    pub tenant: TenantId,
    /// What it permits.
    pub role: Role,
    /// Its owner, for people.
    pub label: String,
    /// Its hash.
    pub hash: TokenHash,
    /// When it expires; never without.
    pub expires_at: Option<Timestamp>,
}

impl NewToken {
    /// Rejects a token of another tenant, and an admin's token from within a tenant's scope.
    pub fn check(&self, scope: &Scope) -> Result<()> {
        if !scope.covers(&self.tenant) {
            return Err(Error::not_found("tenant", &self.tenant));
        }
        if self.role == Role::Admin && *scope != Scope::All {
            let words = "an admin token covers all tenants: adding one needs a scope over all tenants";
            return Err(Error::Invalid(words.to_owned()));
        }
        if self.label.len() > MAX_LABEL {
            return Err(Error::Invalid(format!("a label may have at most {MAX_LABEL} bytes")));
        }
        Ok(())
    }
}

/// Most bytes in a token's label.
pub const MAX_LABEL: usize = 256;

/// A token as stored, without its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// Its id; not a secret.
    #[serde(rename = "token")]
    pub id: TokenId,
    /// Its tenant.
    pub tenant: TenantId,
    /// What it permits.
    pub role: Role,
    /// Its owner, for people.
    pub label: String,
    /// When it was added.
    pub created_at: Timestamp,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

impl TokenRecord {
    /// A token that was just added.
    pub fn new(new: &NewToken, now: Timestamp) -> Self {
        Self {
            id: new.id,
            tenant: new.tenant.clone(),
            role: new.role,
            label: new.label.clone(),
            created_at: now,
            expires_at: new.expires_at,
            revoked_at: None,
        }
    }

    /// The same token, valid until `end` at most.
    #[must_use]
    pub fn until(self, end: Timestamp) -> Self {
        let expires_at = Some(self.expires_at.map_or(end, |own| own.min(end)));
        Self { expires_at, ..self }
    }

    /// Whether it is valid at `now`.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

/// A browser session: a cookie that stands for a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrowserSession {
    /// The cookie's hash.
    pub hash: TokenHash,
    /// The token that the browser logged in with. Its revocation ends the session.
    pub token: TokenId,
    /// When the session ends.
    pub expires_at: Timestamp,
}

/// Most browser sessions of one token; a further one ends the session that expires first.
pub const MAX_SESSIONS: usize = 100;

/// A change of a token. A repeat changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenChange {
    /// Adds it. An admin token needs [`Scope::All`].
    Add(NewToken),
    /// Revokes it for good.
    Revoke(TokenId),
    /// Begins a browser session of a token, and deletes expired sessions.
    BeginSession(BrowserSession),
    /// Ends the browser session with this hash.
    EndSession(TokenHash),
}

/// API tokens. Operations see only tokens within `scope`.
#[async_trait]
pub trait Tokens: Send + Sync + 'static {
    /// Changes a token or its sessions, and returns the token. Without such a token or session, the
    /// error is [`Error::NotFound`].
    async fn change_token(&self, scope: &Scope, change: TokenChange) -> Result<TokenRecord>;

    /// Tokens, oldest first, valid or not: up to `limit`, or the one with this hash. The hash of a
    /// browser session finds the session's token, which then expires with the session.
    async fn tokens(&self, scope: &Scope, hash: Option<TokenHash>, limit: u32) -> Result<Vec<TokenRecord>>;
}
