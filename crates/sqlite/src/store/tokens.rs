//! Implements [`Tokens`] and [`Audit`].

use async_trait::async_trait;
use longshore_core::ledger::{Audit, Deed, NewDeed, NewToken, TokenHash, TokenRecord, Tokens};
use longshore_core::store::Page;
use longshore_core::{Result, Scope, TokenId};

use super::SqliteStore;
use crate::ledger::tokens;
use crate::writer::Durability::Durable;

#[async_trait]
impl Tokens for SqliteStore {
    async fn add_token(&self, scope: &Scope, token: NewToken) -> Result<TokenRecord> {
        let scope = scope.clone();
        self.writer.call(Durable, move |tx| tokens::add(tx, &scope, &token)).await
    }

    async fn revoke_token(&self, scope: &Scope, id: TokenId) -> Result<TokenRecord> {
        let scope = scope.clone();
        self.writer.call(Durable, move |tx| tokens::revoke(tx, &scope, id)).await
    }

    async fn token(&self, hash: TokenHash) -> Result<Option<TokenRecord>> {
        self.read(move |db| tokens::find_by_hash(db, hash)).await
    }

    async fn tokens(&self, scope: &Scope) -> Result<Vec<TokenRecord>> {
        let scope = scope.clone();
        self.read(move |db| tokens::list(db, &scope)).await
    }

    async fn is_locked(&self) -> Result<bool> {
        self.read(tokens::any_exists).await
    }
}

#[async_trait]
impl Audit for SqliteStore {
    async fn note(&self, deed: NewDeed) -> Result<()> {
        self.writer.call(Durable, move |tx| tokens::append_audit_entry(tx, &deed)).await
    }

    async fn deeds(&self, scope: &Scope, after: Option<&str>, limit: u32) -> Result<Page<Deed>> {
        let (scope, after) = (scope.clone(), after.map(str::to_owned));
        self.read(move |db| tokens::audit_entries(db, &scope, after.as_deref(), limit)).await
    }
}
