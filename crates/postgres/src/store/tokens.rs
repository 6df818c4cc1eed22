//! [`Tokens`] and [`Audit`] on PostgreSQL.

use async_trait::async_trait;
use longshore_core::ledger::{Audit, Deed, NewDeed, NewToken, TokenHash, TokenRecord, Tokens};
use longshore_core::store::Page;
use longshore_core::{Result, Scope, TokenId};

use super::{PostgresStore, operation};
use crate::ledger::tokens;

#[async_trait]
impl Tokens for PostgresStore {
    async fn add_token(&self, scope: &Scope, token: NewToken) -> Result<TokenRecord> {
        operation!(self, Durable, tx => tokens::add(&mut tx, scope, &token))
    }

    async fn revoke_token(&self, scope: &Scope, id: TokenId) -> Result<TokenRecord> {
        operation!(self, Durable, tx => tokens::revoke(&mut tx, scope, id))
    }

    async fn token(&self, hash: TokenHash) -> Result<Option<TokenRecord>> {
        operation!(self, Read, tx => tokens::find_by_hash(&mut tx, hash))
    }

    async fn tokens(&self, scope: &Scope) -> Result<Vec<TokenRecord>> {
        operation!(self, Read, tx => tokens::list(&mut tx, scope))
    }

    async fn is_locked(&self) -> Result<bool> {
        operation!(self, Read, tx => tokens::is_locked(&mut tx))
    }
}

#[async_trait]
impl Audit for PostgresStore {
    async fn note(&self, deed: NewDeed) -> Result<()> {
        operation!(self, Durable, tx => tokens::append_audit(&mut tx, &deed))
    }

    async fn deeds(&self, scope: &Scope, after: Option<&str>, limit: u32) -> Result<Page<Deed>> {
        operation!(self, Read, tx => tokens::list_audit(&mut tx, scope, after, limit))
    }
}
