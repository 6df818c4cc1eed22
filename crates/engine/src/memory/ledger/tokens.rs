//! API tokens by hash, and the audit log.

use async_trait::async_trait;
use longshore_core::ledger::{
    Audit, Deed, NewDeed, NewToken, TokenHash, TokenRecord, Tokens, cursor,
};
use longshore_core::store::Page;
use longshore_core::{Error, Result, Scope, Timestamp, TokenId};

use super::LedgerState;
use crate::memory::MemoryStore;

#[async_trait]
impl Tokens for MemoryStore {
    async fn add_token(&self, scope: &Scope, token: NewToken) -> Result<TokenRecord> {
        token.check(scope)?;
        self.write(|state, now| {
            let tokens = &mut state.ledger.tokens;
            if let Some((_, record)) = tokens.get(&token.id) {
                let found = scope.covers(&record.tenant).then(|| record.clone());
                return found.ok_or_else(|| Error::not_found("token", token.id));
            }
            let made = TokenRecord::new(&token, now);
            tokens.insert(token.id, (token.hash, made.clone()));
            Ok(made)
        })
    }

    async fn revoke_token(&self, scope: &Scope, id: TokenId) -> Result<TokenRecord> {
        self.write(|state, now| {
            let found = state.ledger.tokens.get_mut(&id);
            let found = found.filter(|(_, record)| scope.covers(&record.tenant));
            let (_, record) = found.ok_or_else(|| Error::not_found("token", id))?;
            record.revoked_at = record.revoked_at.or(Some(now));
            Ok(record.clone())
        })
    }

    async fn token(&self, hash: TokenHash) -> Result<Option<TokenRecord>> {
        Ok(self.read(|state, _| {
            let mut tokens = state.ledger.tokens.values();
            tokens.find(|(known, _)| *known == hash).map(|(_, record)| record.clone())
        }))
    }

    async fn tokens(&self, scope: &Scope) -> Result<Vec<TokenRecord>> {
        Ok(self.read(|state, _| {
            let tokens = state.ledger.tokens.values().map(|(_, record)| record);
            tokens.filter(|record| scope.covers(&record.tenant)).cloned().collect()
        }))
    }

    async fn is_locked(&self) -> Result<bool> {
        Ok(self.read(|state, _| !state.ledger.tokens.is_empty()))
    }
}

impl LedgerState {
    /// Prunes the oldest entries up to `before`.
    pub(in crate::memory) fn prune_audit_log(&mut self, before: Timestamp, limit: usize) -> u64 {
        let old = |deed: &&Deed| deed.at <= before;
        let old = self.audit_log.iter().take(limit).take_while(old).count();
        self.audit_log.drain(..old);
        old as u64
    }
}

#[async_trait]
impl Audit for MemoryStore {
    async fn note(&self, deed: NewDeed) -> Result<()> {
        self.write(|state, at| {
            state.ledger.last_audit_seq += 1;
            let seq = state.ledger.last_audit_seq;
            state.ledger.audit_log.push_back(Deed { seq, at, deed });
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
            let newest = state.ledger.audit_log.iter().rev().filter(own);
            let older = newest.filter(|deed| deed.seq < before).cloned();
            Page::first(older, limit, cursor::after_deed)
        }))
    }
}
