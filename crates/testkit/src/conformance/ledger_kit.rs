//! Short words for what cases of the ledger do.

use longshore_core::ledger::{
    Admission, Budget, BudgetState, Call, CallEnd, CallMode, CallRecord, CallStatus, NewCall,
    UsageFilter,
};
use longshore_core::{CallId, NewUnit, ProfileName, SessionId, TenantId, UnitId};

use super::kit::*;
use crate::World;

pub(super) fn profile_name(name: &str) -> ProfileName {
    ProfileName::new(name).unwrap()
}

/// A call of no unit and no session, by tenant `acme`: may use 100 tokens and cost 1,000.
pub(super) fn call() -> NewCall {
    let id = CallId::new();
    NewCall {
        id,
        request_id: id.to_string(),
        tenant: tenant("acme"),
        profile: profile_name("main"),
        provider: "echo".to_owned(),
        model: "small".to_owned(),
        unit: None,
        batch: None,
        session: None,
        worker: "case".to_owned(),
        reserve_tokens: 100,
        reserve_picos: 1_000,
    }
}

/// The same, of a session.
pub(super) fn call_of(session: SessionId) -> NewCall {
    NewCall { session: Some(session), ..call() }
}

/// A question that units ask.
pub(super) fn asked(request_id: &str, unit: Option<UnitId>) -> NewCall {
    NewCall { request_id: request_id.to_owned(), unit, ..call() }
}

/// A good end: so many tokens in, as many again out.
pub(super) fn answered(tokens: u64, cost_picos: i64) -> CallEnd {
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

pub(super) fn ended(call: &NewCall, end: CallEnd) -> CallRecord {
    CallRecord { call: call.clone(), end: Some(end) }
}

pub(super) fn tokens(most: u64) -> Budget {
    Budget { tokens: Some(most), cost_picos: None, warn_at: 1.0 }
}

/// Spent tokens and picos, then reserved tokens and picos.
pub(super) fn sums(month: &BudgetState) -> (u64, i64, u64, i64) {
    (month.spent_tokens, month.spent_picos, month.reserved_tokens, month.reserved_picos)
}

impl World {
    /// Admits one call, whatever the answer.
    pub(super) async fn try_admit(&self, call: &NewCall) -> Admission {
        self.ledger.admit_calls(vec![call.clone()]).await.unwrap().remove(0)
    }

    /// Admits one call that must be taken.
    pub(super) async fn admit(&self, call: &NewCall) {
        let answer = self.try_admit(call).await;
        let taken = matches!(answer, Admission::Admitted | Admission::NearBudget(_));
        assert!(taken, "{answer:?}");
    }

    pub(super) async fn record(&self, record: CallRecord) {
        self.ledger.record_calls(vec![record]).await.unwrap();
    }

    /// Everything that is kept, newest first.
    pub(super) async fn calls(&self) -> Vec<Call> {
        let page = self.ledger.calls(&ALL, &UsageFilter::default(), None, 1_000).await.unwrap();
        assert_eq!(page.next, None);
        page.items
    }

    /// One call that must be there.
    pub(super) async fn kept(&self, id: CallId) -> Call {
        let calls = self.calls().await;
        calls.into_iter().find(|kept| kept.call.id == id).unwrap()
    }

    /// What `acme` has used and reserved this month.
    pub(super) async fn month(&self) -> (u64, i64, u64, i64) {
        sums(&self.ledger.budget(&ALL, &tenant("acme")).await.unwrap())
    }

    pub(super) async fn set_budget(&self, budget: Option<Budget>) -> BudgetState {
        self.ledger.put_budget(&ALL, &tenant("acme"), budget).await.unwrap()
    }

    /// A unit in the hands of a worker that is about to make a call.
    pub(super) async fn asking(&self) -> (SessionId, longshore_core::session::Lease, NewCall) {
        let session = self.session().await;
        let id = self.send(NewUnit { tenant: acme(), ..unit() }).await;
        let held = self.take(session).await;
        (session, held.lease, NewCall { unit: Some(id), ..call_of(session) })
    }
}

pub(super) fn acme() -> TenantId {
    tenant("acme")
}
