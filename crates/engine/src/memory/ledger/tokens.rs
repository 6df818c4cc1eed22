//! API tokens by what they hash to, and the log of what was asked with them.

use async_trait::async_trait;
use longshore_core::ledger::{
    Audit, Deed, NewDeed, NewToken, TokenHash, TokenRecord, Tokens, cursor,
};
use longshore_core::store::Page;
use longshore_core::{Error, Result, Scope, Timestamp, TokenId};

use super::Books;
use crate::memory::MemoryStore;
use crate::memory::inspect::page;

#[async_trait]
impl Tokens for MemoryStore {
    async fn add_token(&self, scope: &Scope, token: NewToken) -> Result<TokenRecord> {
        token.check(scope)?;
        self.write(|state, now| {
            let tokens = &mut state.books.tokens;
            if let Some((_, kept)) = tokens.get(&token.id) {
                let found = scope.covers(&kept.tenant).then(|| kept.clone());
                return found.ok_or_else(|| Error::not_found("token", token.id));
            }
            let made = TokenRecord::new(&token, now);
            tokens.insert(token.id, (token.hash, made.clone()));
            Ok(made)
        })
    }

    async fn revoke_token(&self, scope: &Scope, id: TokenId) -> Result<TokenRecord> {
        self.write(|state, now| {
            let found = state.books.tokens.get_mut(&id);
            let found = found.filter(|(_, kept)| scope.covers(&kept.tenant));
            let (_, kept) = found.ok_or_else(|| Error::not_found("token", id))?;
            kept.revoked_at = kept.revoked_at.or(Some(now));
            Ok(kept.clone())
        })
    }

    async fn token(&self, hash: TokenHash) -> Result<Option<TokenRecord>> {
        Ok(self.read(|state, _| {
            let mut tokens = state.books.tokens.values();
            tokens.find(|(known, _)| *known == hash).map(|(_, kept)| kept.clone())
        }))
    }

    async fn tokens(&self, scope: &Scope) -> Result<Vec<TokenRecord>> {
        Ok(self.read(|state, _| {
            let tokens = state.books.tokens.values().map(|(_, kept)| kept);
            tokens.filter(|kept| scope.covers(&kept.tenant)).cloned().collect()
        }))
    }

    async fn is_locked(&self) -> Result<bool> {
        Ok(self.read(|state, _| !state.books.tokens.is_empty()))
    }
}

impl Books {
    /// Forgets the oldest entries that were kept long enough.
    pub(in crate::memory) fn prune_deeds(&mut self, before: Timestamp, limit: usize) -> u64 {
        let old = |deed: &&Deed| deed.at <= before;
        let old = self.deeds.iter().take(limit).take_while(old).count();
        self.deeds.drain(..old);
        old as u64
    }
}

#[async_trait]
impl Audit for MemoryStore {
    async fn note(&self, deed: NewDeed) -> Result<()> {
        self.write(|state, at| {
            state.books.last_deed += 1;
            let seq = state.books.last_deed;
            state.books.deeds.push_back(Deed { seq, at, deed });
        });
        Ok(())
    }

    async fn deeds(&self, scope: &Scope, after: Option<&str>, limit: u32) -> Result<Page<Deed>> {
        let before = after.map(cursor::deed).transpose()?.unwrap_or(i64::MAX).unsigned_abs();
        Ok(self.read(|state, _| {
            let own = |deed: &&Deed| match scope {
                Scope::All => true,
                Scope::Tenant(tenant) => deed.deed.tenant.as_ref() == Some(tenant),
            };
            let newest = state.books.deeds.iter().rev().filter(own);
            let older = newest.filter(|deed| deed.seq < before).cloned();
            page(older, limit, cursor::after_deed)
        }))
    }
}
