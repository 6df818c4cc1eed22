//! Helpers of the ledger cases.

use longshore_accounts::{
    Budget, BudgetState, Call, CallAdmission, CallEnd, CallMode, CallRecord, CallStatus, NewCall, UsageFilter,
};
use longshore_core::{CallId, NewUnit, ProfileName, SessionId, TenantId, UnitId};

use super::helpers::*;
use crate::StoreFixture;

pub(super) fn profile_name(name: &str) -> ProfileName {
    ProfileName::new(name).unwrap()
}

/// A call of tenant `acme` without unit and session; reserves 100 tokens and 1,000 picos.
pub(super) fn call() -> NewCall {
    let call = NewCall::new(tenant("acme"), profile_name("main"), "echo", "small");
    NewCall { worker: "case".to_owned(), reserve_tokens: 100, reserve_picos: 1_000, ..call }
}

/// A call of a session.
pub(super) fn session_call(session: SessionId) -> NewCall {
    NewCall { session: Some(session), ..call() }
}

/// A call with this request id, of a unit if given.
pub(super) fn call_for(request_id: &str, unit: Option<UnitId>) -> NewCall {
    NewCall { request_id: request_id.to_owned(), unit, ..call() }
}

/// A successful end with `tokens` input and as many output tokens.
pub(super) fn successful_end(tokens: u64, cost_picos: i64) -> CallEnd {
    CallEnd {
        status: CallStatus::Success,
        code: None,
        model: "small-2026".to_owned(),
        tokens_in: tokens,
        tokens_out: tokens,
        tokens_cached: 1,
        tokens_cache_write: 2,
        tokens_cache_write_long: 1,
        latency_ms: 30,
        attempts: 1,
        cost_picos,
        estimated: false,
        mode: CallMode::Batch,
        tier: Some("priority".to_owned()),
    }
}

pub(super) fn finished_call(call: &NewCall, end: CallEnd) -> CallRecord {
    CallRecord { call: call.clone(), end: Some(end) }
}

pub(super) fn token_budget(most: u64) -> Budget {
    Budget { tokens: Some(most), cost_picos: None, warn_at: 1.0 }
}

/// Spent tokens and picos, then reserved tokens and picos.
pub(super) fn budget_sums(month: &BudgetState) -> (u64, i64, u64, i64) {
    (month.spent_tokens, month.spent_picos, month.reserved_tokens, month.reserved_picos)
}

impl StoreFixture {
    /// Admits one call and returns the answer.
    pub(super) async fn try_admit(&self, call: &NewCall) -> CallAdmission {
        self.ledger.admit_calls(vec![call.clone()]).await.unwrap().remove(0)
    }

    /// Admits one call, which must succeed.
    pub(super) async fn admit(&self, call: &NewCall) {
        let answer = self.try_admit(call).await;
        let taken = matches!(answer, CallAdmission::Admitted | CallAdmission::NearBudget(_));
        assert!(taken, "{answer:?}");
    }

    pub(super) async fn record(&self, record: CallRecord) {
        self.ledger.record_calls(vec![record]).await.unwrap();
    }

    /// All calls, newest first.
    pub(super) async fn calls(&self) -> Vec<Call> {
        let page = self.ledger.calls(&ALL, &UsageFilter::default(), None, 1_000).await.unwrap();
        assert_eq!(page.next, None);
        page.items
    }

    /// One call, which must exist.
    pub(super) async fn stored_call(&self, id: CallId) -> Call {
        let calls = self.calls().await;
        calls.into_iter().find(|stored| stored.call.id == id).unwrap()
    }

    /// What tenant `acme` has spent and reserved this month.
    pub(super) async fn month_sums(&self) -> (u64, i64, u64, i64) {
        budget_sums(&self.ledger.budget(&ALL, &tenant("acme")).await.unwrap())
    }

    pub(super) async fn set_budget(&self, budget: Option<Budget>) -> BudgetState {
        self.ledger.put_budget(&ALL, &tenant("acme"), budget).await.unwrap()
    }

    /// Claims a unit and returns its session, its lease and a call for it.
    pub(super) async fn claim_unit_for_call(
        &self,
    ) -> (SessionId, longshore_core::worker_session::Lease, NewCall) {
        let session = self.session().await;
        let id = self.send(NewUnit { tenant: acme(), ..unit() }).await;
        let held = self.claim_one(session).await;
        (session, held.lease, NewCall { unit: Some(id), ..session_call(session) })
    }
}

pub(super) fn acme() -> TenantId {
    tenant("acme")
}
