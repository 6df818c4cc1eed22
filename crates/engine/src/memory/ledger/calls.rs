//! Calls: admitted, settled, listed and summed up.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use async_trait::async_trait;
use longshore_core::ledger::budget::Verdict;
use longshore_core::ledger::{
    Admission, Call, CallRecord, Calls, NewCall, Recost, Usage, UsageBy, UsageFilter, cursor,
};
use longshore_core::store::Page;
use longshore_core::{Error, Result, Scope, SessionId, Timestamp};

use super::Books;
use crate::memory::MemoryStore;
use crate::memory::inspect::page;
use crate::memory::state::State;

/// Refuses a list of which something could not be written.
pub(in crate::memory) fn check_calls(records: &[CallRecord]) -> Result<()> {
    records.iter().try_for_each(CallRecord::check)
}

#[async_trait]
impl Calls for MemoryStore {
    async fn admit_calls(&self, calls: Vec<NewCall>) -> Result<Vec<Admission>> {
        calls.iter().try_for_each(NewCall::check)?;
        self.write(|state, now| {
            let mut sessions = calls.iter().filter_map(|call| call.session);
            if let Some(gone) = sessions.find(|session| !state.sessions.contains_key(session)) {
                return Err(Error::SessionGone(gone));
            }
            Ok(calls.into_iter().map(|call| state.books.admit(call, now)).collect())
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
        let after = after.map(cursor::call).transpose()?;
        Ok(self.read(|state, _| {
            let place = |call: &Call| (call.opened_at, call.call.id);
            let rest = |call: &&Call| after.is_none_or(|after| place(call) < after);
            let mut meant: Vec<&Call> = state.books.meant(scope, filter).filter(rest).collect();
            meant.sort_by_key(|call| Reverse(place(call)));
            page(meant.into_iter().cloned(), limit, cursor::after_call)
        }))
    }

    async fn usage(&self, scope: &Scope, filter: &UsageFilter, by: UsageBy) -> Result<Vec<Usage>> {
        self.read(|state, _| {
            let mut groups: BTreeMap<String, Usage> = BTreeMap::new();
            for call in state.books.meant(scope, filter) {
                let name = by.group(call);
                let fresh = || Usage { name: name.clone(), ..Usage::default() };
                groups.entry(name.clone()).or_insert_with(fresh).add(call)?;
            }
            Ok(groups.into_values().collect())
        })
    }

    async fn recost(&self, scope: &Scope, recosts: Vec<Recost>) -> Result<()> {
        recosts.iter().try_for_each(Recost::check)?;
        self.write(|state, _| {
            for recost in &recosts {
                state.books.priced(scope, recost)?;
            }
            for recost in &recosts {
                let priced = state.books.priced(scope, recost)?;
                state.books.put(priced);
            }
            Ok(())
        })
    }
}

impl State {
    /// Writes what calls came to. Check them first.
    pub(in crate::memory) fn settle_calls(&mut self, records: Vec<CallRecord>, now: Timestamp) {
        for CallRecord { call, end } in records {
            let found = self.books.calls.get(&call.id);
            if found.is_some_and(|found| found.end.is_some()) {
                continue;
            }
            let opened_at = found.map_or(now, |found| found.opened_at);
            let call = found.map_or_else(|| call.clone(), |found| amended(&found.call, &call));
            let gone = call.session.is_some_and(|session| !self.sessions.contains_key(&session));
            let end = end.or_else(|| gone.then(|| call.maybe_billed()));
            self.books.put(Call::new(CallRecord { call, end }, opened_at, now));
        }
    }
}

/// A later word on a call: who asks for what stays as it was.
fn amended(first: &NewCall, later: &NewCall) -> NewCall {
    NewCall {
        request_id: first.request_id.clone(),
        tenant: first.tenant.clone(),
        batch: first.batch.clone(),
        unit: first.unit,
        session: first.session,
        ..later.clone()
    }
}

impl Books {
    fn admit(&mut self, call: NewCall, now: Timestamp) -> Admission {
        if self.calls.contains_key(&call.id) {
            return Admission::Admitted;
        }
        if let Some(found) = self.duplicated_by(&call) {
            return Admission::Duplicate(Box::new(found.clone()));
        }
        let month = self.month(&call.tenant, now);
        let admission = match month.admit(call.reserve_tokens, call.reserve_picos) {
            Verdict::Over => return Admission::OverBudget(month),
            Verdict::FitsNearly(part) => Admission::NearBudget(part),
            Verdict::Fits => Admission::Admitted,
        };
        self.put(Call::new(CallRecord { call, end: None }, now, now));
        admission
    }

    fn duplicated_by(&self, new: &NewCall) -> Option<&Call> {
        let ids = self.requests.get(&(new.tenant.clone(), new.request_id.clone()))?;
        let found = ids.iter().rev().filter_map(|id| self.calls.get(id));
        found.filter(|call| call.is_duplicated_by(new)).max_by_key(|call| call.opened_at)
    }

    fn meant<'b>(
        &'b self,
        scope: &'b Scope,
        filter: &'b UsageFilter,
    ) -> impl Iterator<Item = &'b Call> {
        let seen = self.calls.values().filter(|call| scope.covers(&call.call.tenant));
        seen.filter(|call| filter.matches(call))
    }

    /// A call with its price corrected.
    fn priced(&self, scope: &Scope, recost: &Recost) -> Result<Call> {
        let found = self.calls.get(&recost.id).filter(|call| scope.covers(&call.call.tenant));
        let mut call = found.ok_or_else(|| Error::not_found("call", recost.id))?.clone();
        let end = call.end.as_mut().ok_or_else(|| recost.is_open())?;
        end.cost_picos = recost.cost_picos;
        Ok(call)
    }

    /// Whoever made these calls is gone: they may have been billed.
    pub(in crate::memory) fn give_up(&mut self, session: SessionId, now: Timestamp) {
        for id in self.open.get(&session).cloned().unwrap_or_default() {
            let Some(found) = self.calls.get(&id) else { continue };
            let end = Some(found.call.maybe_billed());
            let record = CallRecord { call: found.call.clone(), end };
            self.put(Call::new(record, found.opened_at, now));
        }
    }
}
