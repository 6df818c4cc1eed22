//! Calls: admit, record, list and summarise.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use async_trait::async_trait;
use longshore_accounts::budget::BudgetDecision;
use longshore_accounts::{
    Call, CallAdmission, CallRecord, Calls, CostCorrection, NewCall, Usage, UsageBy, UsageFilter, page_cursor,
};
use longshore_core::store::Page;
use longshore_core::{Error, Result, Scope, SessionId, Timestamp};

use super::LedgerState;
use crate::memory::MemoryStore;
use crate::memory::state::State;

/// Rejects the list if any record is invalid.
pub(in crate::memory) fn check_calls(records: &[CallRecord]) -> Result<()> {
    records.iter().try_for_each(CallRecord::check)
}

#[async_trait]
impl Calls for MemoryStore {
    async fn admit_calls(&self, calls: Vec<NewCall>) -> Result<Vec<CallAdmission>> {
        calls.iter().try_for_each(NewCall::check)?;
        self.write(|state, now| {
            let mut sessions = calls.iter().filter_map(|call| call.session);
            if let Some(gone) = sessions.find(|session| !state.sessions.contains_key(session)) {
                return Err(Error::SessionGone(gone));
            }
            Ok(calls.into_iter().map(|call| state.ledger.admit(call, now)).collect())
        })
    }

    async fn record_calls(&self, records: Vec<CallRecord>) -> Result<()> {
        check_calls(&records)?;
        self.write(|state, now| state.settle_calls(records, now));
        Ok(())
    }

    async fn calls(
        &self,
        scope: &Scope,
        filter: &UsageFilter,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Call>> {
        let after = after.map(page_cursor::call).transpose()?;
        Ok(self.read(|state, _| {
            let sort_key = |call: &Call| (call.opened_at, call.call.id);
            let rest = |call: &&Call| after.is_none_or(|after| sort_key(call) < after);
            let mut matching: Vec<&Call> = state.ledger.matching(scope, filter).filter(rest).collect();
            matching.sort_by_key(|call| Reverse(sort_key(call)));
            Page::first(matching.into_iter().cloned(), limit, page_cursor::after_call)
        }))
    }

    async fn usage(&self, scope: &Scope, filter: &UsageFilter, by: UsageBy) -> Result<Vec<Usage>> {
        Ok(self.read(|state, _| {
            let mut groups: BTreeMap<String, Usage> = BTreeMap::new();
            for call in state.ledger.matching(scope, filter) {
                let name = by.group(call);
                let fresh = || Usage { name: name.clone(), ..Usage::default() };
                groups.entry(name.clone()).or_insert_with(fresh).add(call);
            }
            groups.into_values().collect()
        }))
    }

    async fn correct_costs(&self, scope: &Scope, recosts: Vec<CostCorrection>) -> Result<()> {
        recosts.iter().try_for_each(CostCorrection::check)?;
        self.write(|state, _| {
            for recost in &recosts {
                state.ledger.with_price(scope, recost)?;
            }
            for recost in &recosts {
                let with_price = state.ledger.with_price(scope, recost)?;
                state.ledger.put(with_price);
            }
            Ok(())
        })
    }
}

impl State {
    /// Records the results of calls, which the caller has checked.
    pub(in crate::memory) fn settle_calls(&mut self, records: Vec<CallRecord>, now: Timestamp) {
        for CallRecord { call, end } in records {
            let found = self.ledger.calls.get(&call.id);
            if found.is_some_and(|found| found.end.is_some()) {
                continue;
            }
            let opened_at = found.map_or(now, |found| found.opened_at);
            let call = found.map_or_else(|| call.clone(), |found| merge_call(&found.call, &call));
            let gone = call.session.is_some_and(|session| !self.sessions.contains_key(&session));
            let end = end.or_else(|| gone.then(|| call.lost_end()));
            self.ledger.put(Call::new(CallRecord { call, end }, opened_at, now));
        }
    }
}

/// Applies a later report of a call; its request, tenant, batch, unit and session stay as they
/// were.
fn merge_call(first: &NewCall, later: &NewCall) -> NewCall {
    NewCall {
        request_id: first.request_id.clone(),
        tenant: first.tenant.clone(),
        batch: first.batch.clone(),
        unit: first.unit,
        session: first.session,
        ..later.clone()
    }
}

impl LedgerState {
    fn admit(&mut self, call: NewCall, now: Timestamp) -> CallAdmission {
        if self.calls.contains_key(&call.id) {
            return CallAdmission::Admitted;
        }
        if let Some(found) = self.find_duplicate(&call) {
            return CallAdmission::Duplicate(Box::new(found.clone()));
        }
        let month = self.month(&call.tenant, now);
        let admission = match month.admit(call.reserve_tokens, call.reserve_picos) {
            BudgetDecision::Exceeded => return CallAdmission::OverBudget(month),
            BudgetDecision::NearLimit(part) => CallAdmission::NearBudget(part),
            BudgetDecision::Within => CallAdmission::Admitted,
        };
        self.put(Call::new(CallRecord { call, end: None }, now, now));
        admission
    }

    fn find_duplicate(&self, new: &NewCall) -> Option<&Call> {
        let ids = self.requests.get(&(new.tenant.clone(), new.request_id.clone()))?;
        let found = ids.iter().filter_map(|id| self.calls.get(id));
        let found = found.filter(|call| call.is_duplicated_by(new));
        found.max_by_key(|call| (call.opened_at, call.call.id))
    }

    fn matching<'b>(&'b self, scope: &'b Scope, filter: &'b UsageFilter) -> impl Iterator<Item = &'b Call> {
        let visible = self.calls.values().filter(|call| scope.covers(&call.call.tenant));
        visible.filter(|call| filter.matches(call))
    }

    /// The call with a corrected cost.
    fn with_price(&self, scope: &Scope, recost: &CostCorrection) -> Result<Call> {
        let found = self.calls.get(&recost.id).filter(|call| scope.covers(&call.call.tenant));
        let mut call = found.ok_or_else(|| Error::not_found("call", recost.id))?.clone();
        let end = call.end.as_mut().ok_or_else(|| recost.open_call_error())?;
        end.cost_picos = recost.cost_picos;
        Ok(call)
    }

    /// Ends the open calls of a session that is gone: they may have been billed.
    pub(in crate::memory) fn end_open_calls(&mut self, session: SessionId, now: Timestamp) {
        for id in self.open.get(&session).cloned().unwrap_or_default() {
            let Some(found) = self.calls.get(&id) else { continue };
            let end = Some(found.call.lost_end());
            let record = CallRecord { call: found.call.clone(), end };
            self.put(Call::new(record, found.opened_at, now));
        }
    }
}
