//! The accounts in memory: profiles, keys, calls, months, token buckets, reply queues, API tokens
//! and the audit log.
//!
//! Calls change only by [`LedgerState::put`], which keeps months and indexes consistent.

mod budgets;
mod calls;
mod keys;
mod profiles;
mod provider_batches;
mod reply_queues;
mod tokens;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use longshore_accounts::token_bucket::BucketLevel;
use longshore_accounts::{
    AuditEntry, BrowserSession, Budget, BudgetState, Call, KeyRecord, ProfileRecord, TokenHash, TokenRecord,
};
use longshore_core::{
    BatchId, CallId, KeyName, ProfileName, QueueName, SessionId, TenantId, Timestamp, TokenId,
};

pub(super) use calls::check_calls;

/// All data of the ledger.
#[derive(Default)]
pub(super) struct LedgerState {
    profiles: BTreeMap<(TenantId, ProfileName), ProfileRecord>,
    keys: BTreeMap<(TenantId, KeyName, u32), KeyRecord>,
    calls: BTreeMap<CallId, Call>,
    /// Calls by tenant and request id.
    requests: BTreeMap<(TenantId, String), BTreeSet<CallId>>,
    /// Open calls by session.
    pub(super) open: BTreeMap<SessionId, BTreeSet<CallId>>,
    budgets: BTreeMap<TenantId, Budget>,
    /// Each month's usage, without its budget.
    pub(super) months: BTreeMap<(TenantId, String), BudgetState>,
    buckets: BTreeMap<String, BucketLevel>,
    replies: BTreeMap<(TenantId, QueueName), SessionId>,
    provider_batches: BTreeMap<BatchId, provider_batches::RequestQueue>,
    tokens: BTreeMap<TokenId, (TokenHash, TokenRecord)>,
    browser_sessions: Vec<BrowserSession>,
    audit_log: VecDeque<AuditEntry>,
    /// The sequence number of the newest audit log entry, even if it is pruned.
    last_audit_seq: u64,
}

impl LedgerState {
    /// Revokes a removed tenant's tokens, and deletes its profiles, keys and budget.
    pub(super) fn remove_tenant(&mut self, id: &TenantId, now: Timestamp) {
        for (_, token) in self.tokens.values_mut().filter(|(_, token)| token.tenant == *id) {
            token.revoked_at = token.revoked_at.or(Some(now));
        }
        self.profiles.retain(|(tenant, _), _| tenant != id);
        self.keys.retain(|(tenant, ..), _| tenant != id);
        self.budgets.remove(id);
    }

    /// Inserts or replaces a call.
    fn put(&mut self, call: Call) {
        if let Some(before) = self.calls.remove(&call.call.id) {
            self.month_of(&before).discount(&before);
            self.remove_open(&before);
        }
        self.month_of(&call).add(&call);
        let request = (call.call.tenant.clone(), call.call.request_id.clone());
        self.requests.entry(request).or_default().insert(call.call.id);
        if let (Some(session), None) = (call.call.session, &call.end) {
            self.open.entry(session).or_default().insert(call.call.id);
        }
        self.calls.insert(call.call.id, call);
    }

    fn remove_open(&mut self, call: &Call) {
        let Some(session) = call.call.session else { return };
        if let Some(open) = self.open.get_mut(&session) {
            open.remove(&call.call.id);
            if open.is_empty() {
                self.open.remove(&session);
            }
        }
    }

    /// Removes calls that ended and were opened until a time, from their months too.
    pub(super) fn prune_calls(&mut self, until: Timestamp, limit: usize) -> u64 {
        let is_old = |call: &&Call| call.end.is_some() && call.opened_at <= until;
        let old: Vec<CallId> =
            self.calls.values().filter(is_old).take(limit).map(|call| call.call.id).collect();
        for id in &old {
            let Some(Call { call, .. }) = self.calls.remove(id) else { continue };
            let request = (call.tenant, call.request_id);
            if let Some(calls) = self.requests.get_mut(&request) {
                calls.remove(id);
                if calls.is_empty() {
                    self.requests.remove(&request);
                }
            }
        }
        if !old.is_empty() {
            self.months = self.recount_months();
        }
        old.len() as u64
    }

    fn month_of(&mut self, call: &Call) -> &mut BudgetState {
        month_in(&mut self.months, call)
    }

    /// Recomputes the months from the calls.
    pub(super) fn recount_months(&self) -> BTreeMap<(TenantId, String), BudgetState> {
        let mut months = BTreeMap::new();
        for call in self.calls.values() {
            month_in(&mut months, call).add(call);
        }
        months
    }
}

/// The month in which a call was opened.
fn month_in<'m>(
    months: &'m mut BTreeMap<(TenantId, String), BudgetState>,
    call: &Call,
) -> &'m mut BudgetState {
    let key = (call.call.tenant.clone(), BudgetState::month_of(call.opened_at));
    let (tenant, month) = key.clone();
    months.entry(key).or_insert_with(|| BudgetState::new(tenant, month, None))
}
