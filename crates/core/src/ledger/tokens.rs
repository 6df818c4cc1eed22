//! API tokens: who may come in over the network, as whom, and how far. The store never sees one: it
//! keeps what a token hashes to.

use std::fmt;
use std::str::FromStr;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::name::{Scope, TenantId, TokenId};
use crate::time::Timestamp;
use crate::{Error, Result};

/// How far a token reaches. Each role may also do what those before it may.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Look at the tenant's things.
    #[default]
    Read,
    /// Send units, and wait for them.
    Submit,
    /// Cancel, retry, pause, resume.
    Operate,
    /// Every tenant's counters and switches, workers and pools; payloads of its own tenant only.
    Admin,
}

impl Role {
    /// Every role, the weakest first.
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

/// What a token hashes to (SHA-256). Neither slow nor salted: a token is 256 random bits, so there
/// is nothing to guess, and whoever reads the store cannot turn it back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenHash(pub [u8; 32]);

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(…)")
    }
}

/// A token to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    /// Its identity; not a secret.
    pub id: TokenId,
    /// Whose it is.
    pub tenant: TenantId,
    /// How far it reaches.
    pub role: Role,
    /// For people: who has it.
    pub label: String,
    /// What it hashes to.
    pub hash: TokenHash,
    /// It is good until then; for ever without.
    pub expires_at: Option<Timestamp>,
}

impl NewToken {
    /// Refuses what nobody may give: another tenant's token, and power over all by one of them.
    pub fn check(&self, scope: &Scope) -> Result<()> {
        if !scope.covers(&self.tenant) {
            return Err(Error::not_found("tenant", &self.tenant));
        }
        if self.role == Role::Admin && *scope != Scope::All {
            let words = "an admin's token is over all tenants: one tenant cannot give it";
            return Err(Error::Invalid(words.to_owned()));
        }
        if self.label.len() > MAX_LABEL {
            return Err(Error::Invalid(format!("a label is at most {MAX_LABEL} bytes long")));
        }
        Ok(())
    }
}

/// Longest label of a token.
pub const MAX_LABEL: usize = 256;

/// A token as it is kept, without what it hashes to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// Its identity; not a secret.
    #[serde(rename = "token")]
    pub id: TokenId,
    /// Whose it is.
    pub tenant: TenantId,
    /// How far it reaches.
    pub role: Role,
    /// For people: who has it.
    pub label: String,
    /// When it was added.
    pub created_at: Timestamp,
    /// It is good until then.
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

    /// Whether it opens anything at `now`.
    pub fn is_good(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

/// API tokens. Verbs that take a scope see only what is within it; the rest does not exist.
#[async_trait]
pub trait Tokens: Send + Sync + 'static {
    /// Keeps a token. Adding the same id again changes nothing. An admin's needs [`Scope::All`].
    async fn add_token(&self, scope: &Scope, token: NewToken) -> Result<TokenRecord>;

    /// Revokes a token, for good. Revoking it again changes nothing.
    async fn revoke_token(&self, scope: &Scope, id: TokenId) -> Result<TokenRecord>;

    /// Whose token hashes to this, good or not; `None` if nobody's.
    async fn token(&self, hash: TokenHash) -> Result<Option<TokenRecord>>;

    /// Tokens, oldest first, good or not.
    async fn tokens(&self, scope: &Scope) -> Result<Vec<TokenRecord>>;

    /// Whether a token was ever added. A door that was locked once stays locked: revoking the last
    /// token must not open it.
    async fn is_locked(&self) -> Result<bool>;
}
