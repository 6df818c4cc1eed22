//! The ledger in memory: profiles, keys, calls, months, buckets and reply queues.
//!
//! Calls change only by [`Books::put`], which keeps months and indexes in step.

mod budgets;
mod calls;
mod keys;
mod parking;
mod profiles;
mod replies;
mod tokens;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use longshore_core::ledger::bucket::Level;
use longshore_core::ledger::{
    Budget, BudgetState, Call, Deed, KeyRecord, ProfileRecord, TokenHash, TokenRecord,
};
use longshore_core::{
    BatchId, CallId, KeyName, ProfileName, QueueName, SessionId, TenantId, TokenId,
};

pub(super) use calls::check_calls;

/// Everything the ledger knows.
#[derive(Default)]
pub(super) struct Books {
    profiles: BTreeMap<(TenantId, ProfileName), ProfileRecord>,
    keys: BTreeMap<(TenantId, KeyName, u32), KeyRecord>,
    calls: BTreeMap<CallId, Call>,
    /// Calls by what their callers recognise them by.
    requests: BTreeMap<(TenantId, String), BTreeSet<CallId>>,
    /// Calls under way, by who makes them.
    pub(super) open: BTreeMap<SessionId, BTreeSet<CallId>>,
    budgets: BTreeMap<TenantId, Budget>,
    /// What each month has taken, without its budget.
    pub(super) months: BTreeMap<(TenantId, String), BudgetState>,
    buckets: BTreeMap<String, Level>,
    replies: BTreeMap<(TenantId, QueueName), SessionId>,
    lots: BTreeMap<BatchId, parking::Lot>,
    tokens: BTreeMap<TokenId, (TokenHash, TokenRecord)>,
    deeds: VecDeque<Deed>,
    /// The number of the newest entry of the audit log, whether it is still there or not.
    last_deed: u64,
}

impl Books {
    /// Writes a call in the place of what was known of it.
    fn put(&mut self, call: Call) {
        if let Some(before) = self.calls.remove(&call.call.id) {
            self.month_of(&before).discount(&before);
            self.forget_open(&before);
        }
        self.month_of(&call).count(&call);
        let request = (call.call.tenant.clone(), call.call.request_id.clone());
        self.requests.entry(request).or_default().insert(call.call.id);
        if let (Some(session), None) = (call.call.session, &call.end) {
            self.open.entry(session).or_default().insert(call.call.id);
        }
        self.calls.insert(call.call.id, call);
    }

    fn forget_open(&mut self, call: &Call) {
        let Some(session) = call.call.session else { return };
        if let Some(open) = self.open.get_mut(&session) {
            open.remove(&call.call.id);
            if open.is_empty() {
                self.open.remove(&session);
            }
        }
    }

    fn month_of(&mut self, call: &Call) -> &mut BudgetState {
        month_in(&mut self.months, call)
    }

    /// The months as the calls say.
    pub(super) fn recounted(&self) -> BTreeMap<(TenantId, String), BudgetState> {
        let mut months = BTreeMap::new();
        for call in self.calls.values() {
            month_in(&mut months, call).count(call);
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
