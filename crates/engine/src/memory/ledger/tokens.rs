//! API tokens by hash, and the audit log.

use async_trait::async_trait;
use longshore_accounts::{
    AuditEntry, AuditLog, BrowserSession, MAX_SESSIONS, NewAuditEntry, TokenChange, TokenHash, TokenRecord,
    Tokens, page_cursor,
};
use longshore_core::store::Page;
use longshore_core::{Error, Result, Scope, Timestamp};

use super::LedgerState;
use crate::memory::MemoryStore;

#[async_trait]
impl Tokens for MemoryStore {
    async fn change_token(&self, scope: &Scope, change: TokenChange) -> Result<TokenRecord> {
        if let TokenChange::Add(token) = &change {
            token.check(scope)?;
        }
        self.write(|state, now| {
            let LedgerState { tokens, browser_sessions: sessions, .. } = &mut state.ledger;
            let id = match &change {
                TokenChange::Add(token) => {
                    let made = TokenRecord::new(token, now);
                    tokens.entry(token.id).or_insert((token.hash, made));
                    token.id
                }
                TokenChange::Revoke(id) => *id,
                TokenChange::BeginSession(session) => session.token,
                TokenChange::EndSession(hash) => {
                    let session = sessions.iter().find(|session| session.hash == *hash);
                    session.ok_or_else(|| Error::not_found("browser session", "of this cookie"))?.token
                }
            };
            let found = tokens.get_mut(&id).filter(|(_, record)| scope.covers(&record.tenant));
            let (_, record) = found.ok_or_else(|| Error::not_found("token", id))?;
            match change {
                TokenChange::Add(_) => {}
                TokenChange::Revoke(_) => record.revoked_at = record.revoked_at.or(Some(now)),
                TokenChange::BeginSession(session) => begin_session(sessions, session, now),
                TokenChange::EndSession(hash) => sessions.retain(|session| session.hash != hash),
            }
            Ok(record.clone())
        })
    }

    async fn tokens(&self, scope: &Scope, hash: Option<TokenHash>, limit: u32) -> Result<Vec<TokenRecord>> {
        Ok(self.read(|state, _| {
            let sessions = &state.ledger.browser_sessions;
            let session = sessions.iter().find(|session| Some(session.hash) == hash);
            let found = state.ledger.tokens.values().filter_map(|(known, record)| match session {
                Some(session) if session.token == record.id => Some(record.clone().until(session.expires_at)),
                _ => hash.is_none_or(|hash| hash == *known).then(|| record.clone()),
            });
            found.filter(|record| scope.covers(&record.tenant)).take(limit as usize).collect()
        }))
    }
}

/// Adds a session, without expired ones and with at most [`MAX_SESSIONS`] of its token.
fn begin_session(sessions: &mut Vec<BrowserSession>, session: BrowserSession, now: Timestamp) {
    let token = session.token;
    sessions.retain(|other| other.expires_at > now && other.hash != session.hash);
    sessions.push(session);
    sessions.sort_by_key(|session| session.expires_at);
    let mut excess = sessions.iter().filter(|session| session.token == token).count();
    sessions.retain(|session| {
        let is_kept = session.token != token || excess <= MAX_SESSIONS;
        excess -= usize::from(!is_kept);
        is_kept
    });
}

impl LedgerState {
    /// Prunes tokens that ended up to `before`.
    pub(in crate::memory) fn prune_tokens(&mut self, before: Timestamp) {
        let ended = |at: Option<Timestamp>| at.is_some_and(|at| at <= before);
        self.tokens.retain(|_, (_, record)| !ended(record.revoked_at) && !ended(record.expires_at));
        self.browser_sessions.retain(|session| self.tokens.contains_key(&session.token));
    }

    /// Prunes the oldest entries up to `before`.
    pub(in crate::memory) fn prune_audit_log(&mut self, before: Timestamp, limit: usize) -> u64 {
        let old = |entry: &&AuditEntry| entry.at <= before;
        let old = self.audit_log.iter().take(limit).take_while(old).count();
        self.audit_log.drain(..old);
        old as u64
    }
}

#[async_trait]
impl AuditLog for MemoryStore {
    async fn append(&self, entry: NewAuditEntry) -> Result<()> {
        self.write(|state, at| {
            state.ledger.last_audit_seq += 1;
            let seq = state.ledger.last_audit_seq;
            state.ledger.audit_log.push_back(AuditEntry { seq, at, entry });
        });
        Ok(())
    }

    async fn audit_entries(
        &self,
        scope: &Scope,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<AuditEntry>> {
        let before = after.map(page_cursor::audit_entry).transpose()?.unwrap_or(i64::MAX).unsigned_abs();
        Ok(self.read(|state, _| {
            let own = |entry: &&AuditEntry| match scope {
                Scope::All => true,
                Scope::Tenant(tenant) => entry.entry.tenant.as_ref() == Some(tenant),
            };
            let newest = state.ledger.audit_log.iter().rev().filter(own);
            let older = newest.filter(|entry| entry.seq < before).cloned();
            Page::first(older, limit, page_cursor::after_audit_entry)
        }))
    }
}
