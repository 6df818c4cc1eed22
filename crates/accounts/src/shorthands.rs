//! Shorthands for callers of a ledger. A store does not implement them.

use longshore_core::{Error, KeyName, ProfileName, Result, Scope, TenantId, Timestamp, TokenId};

use crate::{
    KeyRecord, Keys, Ledger, NewToken, ProfileChange, ProfileRecord, PutProfile, TokenChange, TokenHash,
    TokenRecord,
};

impl dyn Ledger + '_ {
    /// One profile.
    pub async fn profile(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &ProfileName,
    ) -> Result<ProfileRecord> {
        let own = Scope::Tenant(tenant.clone());
        let found = match scope.covers(tenant) {
            true => self.profiles(&own, Some(name.clone()), None, 1).await?.items.pop(),
            false => None,
        };
        found.ok_or_else(|| Error::not_found("profile", name))
    }

    /// Whether a tenant is suspended ([`longshore_core::Tenants::put_tenant`]), so that its profiles must not be
    /// used.
    pub async fn is_suspended(&self, scope: &Scope, tenant: &TenantId) -> Result<bool> {
        if !scope.covers(tenant) {
            return Err(Error::not_found("tenant", tenant));
        }
        let found = self.tenants(&Scope::Tenant(tenant.clone())).await?;
        Ok(found.iter().any(|tenant| tenant.suspended))
    }

    /// The token with this hash, valid or not.
    pub async fn token(&self, hash: TokenHash) -> Result<Option<TokenRecord>> {
        Ok(self.tokens(&Scope::All, Some(hash), 1).await?.pop())
    }

    /// Whether any token is valid at `now`.
    pub async fn has_valid_token(&self, now: Timestamp) -> Result<bool> {
        let all = self.tokens(&Scope::All, None, u32::MAX).await?;
        Ok(all.iter().any(|token| token.is_valid(now)))
    }

    /// Writes a profile: [`ProfileChange::Put`].
    pub async fn put_profile(&self, scope: &Scope, put: PutProfile) -> Result<ProfileRecord> {
        self.change_profile(scope, ProfileChange::Put(put)).await
    }

    /// Adds a token: [`TokenChange::Add`].
    pub async fn add_token(&self, scope: &Scope, token: NewToken) -> Result<TokenRecord> {
        self.change_token(scope, TokenChange::Add(token)).await
    }

    /// Revokes a token: [`TokenChange::Revoke`].
    pub async fn revoke_token(&self, scope: &Scope, id: TokenId) -> Result<TokenRecord> {
        self.change_token(scope, TokenChange::Revoke(id)).await
    }
}

impl dyn Keys + '_ {
    /// All versions of one key, newest first; empty if the key does not exist.
    pub async fn versions(&self, scope: &Scope, tenant: &TenantId, name: &KeyName) -> Result<Vec<KeyRecord>> {
        if !scope.covers(tenant) {
            return Ok(Vec::new());
        }
        let own = Scope::Tenant(tenant.clone());
        let mut versions = self.keys(&own, Some(name.clone()), None, u32::MAX).await?.items;
        versions.reverse();
        Ok(versions)
    }
}
