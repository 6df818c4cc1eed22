//! Tokens and the audit log: each verb as one transaction.

use async_trait::async_trait;
use longshore_core::ledger::{Audit, Deed, NewDeed, NewToken, TokenHash, TokenRecord, Tokens};
use longshore_core::store::Page;
use longshore_core::{Result, Scope, TokenId};

use super::{PostgresStore, verb};
use crate::ledger::tokens;

#[async_trait]
impl Tokens for PostgresStore {
    async fn add_token(&self, scope: &Scope, token: NewToken) -> Result<TokenRecord> {
        verb!(self, Durable, tx => tokens::add(&mut tx, scope, &token))
    }

    async fn revoke_token(&self, scope: &Scope, id: TokenId) -> Result<TokenRecord> {
        verb!(self, Durable, tx => tokens::revoke(&mut tx, scope, id))
    }

    async fn token(&self, hash: TokenHash) -> Result<Option<TokenRecord>> {
        verb!(self, Read, tx => tokens::find_by_hash(&mut tx, hash))
    }

    async fn tokens(&self, scope: &Scope) -> Result<Vec<TokenRecord>> {
        verb!(self, Read, tx => tokens::list(&mut tx, scope))
    }

    async fn is_locked(&self) -> Result<bool> {
        verb!(self, Read, tx => tokens::is_locked(&mut tx))
    }
}

#[async_trait]
impl Audit for PostgresStore {
    async fn note(&self, deed: NewDeed) -> Result<()> {
        verb!(self, Durable, tx => tokens::append_audit(&mut tx, &deed))
    }

    async fn deeds(&self, scope: &Scope, after: Option<&str>, limit: u32) -> Result<Page<Deed>> {
        verb!(self, Read, tx => tokens::list_audit(&mut tx, scope, after, limit))
    }
}
