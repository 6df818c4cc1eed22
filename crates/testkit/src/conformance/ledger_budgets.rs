//! Monthly budgets: exact under concurrent calls, counted by calendar month.

use std::sync::Arc;

use longshore_accounts::{Budget, CallAdmission, CallRecord, NewCall};
use longshore_core::{Error, Timestamp};
use tokio::task::JoinSet;

use super::helpers::*;
use super::ledger_helpers::*;
use crate::StoreFixture;

fn ten_token_call() -> NewCall {
    NewCall { reserve_tokens: 10, ..call() }
}

pub(super) async fn a_budget_is_used_up_exactly_however_many_call(fixture: &StoreFixture) {
    fixture.set_budget(Some(token_budget(1_000))).await;
    let mut callers = JoinSet::new();
    for _ in 0..32 {
        let ledger = Arc::clone(&fixture.ledger);
        callers.spawn(async move {
            let mut admitted = 0;
            for _ in 0..10 {
                let answers = ledger.admit_calls(vec![ten_token_call()]).await.unwrap();
                admitted += usize::from(!matches!(answers[0], CallAdmission::OverBudget(_)));
            }
            admitted
        });
    }
    let admitted: usize = callers.join_all().await.into_iter().sum();
    assert_eq!(admitted, 100, "the budget is used up exactly");
    assert_eq!(fixture.month_sums().await, (0, 0, 1_000, 100_000));
}

pub(super) async fn calls_that_end_make_room_for_others(fixture: &StoreFixture) {
    fixture.set_budget(Some(token_budget(1_000))).await;
    let mut callers = JoinSet::new();
    for _ in 0..32 {
        let ledger = Arc::clone(&fixture.ledger);
        callers.spawn(async move {
            loop {
                let call = ten_token_call();
                let answers = ledger.admit_calls(vec![call.clone()]).await.unwrap();
                if matches!(answers[0], CallAdmission::OverBudget(_)) {
                    return;
                }
                let record = CallRecord { call, end: Some(successful_end(3, 1)) };
                ledger.record_calls(vec![record]).await.unwrap();
            }
        });
    }
    callers.join_all().await;
    let (spent, picos, reserved, _) = fixture.month_sums().await;
    assert_eq!((reserved, spent), (0, 996), "six tokens each, until ten do not fit");
    assert_eq!(picos, 166);
}

pub(super) async fn money_is_a_budget_too(fixture: &StoreFixture) {
    let budget = Budget { tokens: None, cost_picos: Some(2_500), warn_at: 1.0 };
    assert_eq!(fixture.set_budget(Some(budget)).await.budget, Some(budget));
    fixture.admit(&call()).await;
    fixture.admit(&call()).await;
    assert!(matches!(fixture.try_admit(&call()).await, CallAdmission::OverBudget(_)));
    fixture.admit(&NewCall { reserve_picos: 499, ..call() }).await;
    fixture.admit(&NewCall { tenant: tenant("other"), ..call() }).await;
}

pub(super) async fn callers_are_warned_near_the_end_of_a_budget(fixture: &StoreFixture) {
    fixture.set_budget(Some(Budget { warn_at: 0.5, ..token_budget(400) })).await;
    fixture.record(finished_call(&call(), successful_end(50, 1))).await;
    let large = NewCall { reserve_tokens: 200, ..call() };
    assert_eq!(fixture.try_admit(&large).await, CallAdmission::Admitted, "reservations are not used");
    fixture.record(finished_call(&large, successful_end(50, 1))).await;
    assert_eq!(fixture.try_admit(&call()).await, CallAdmission::NearBudget(0.5));
    let month = fixture.ledger.budget(&tenant_scope("acme"), &acme()).await.unwrap();
    assert_eq!(month.budget.unwrap().warn_at, 0.5);
    assert_eq!((month.month.as_str(), month.tenant), ("2026-01", acme()));
}

pub(super) async fn a_call_is_counted_in_the_month_it_was_opened_in(fixture: &StoreFixture) {
    fixture.clock.set(Timestamp::parse("2026-01-31T23:59:59.999999Z").unwrap());
    fixture.set_budget(Some(token_budget(100))).await;
    let session = fixture.session().await;
    let (old, lost) = (NewCall { reserve_tokens: 60, ..call() }, session_call(session));
    let lost = NewCall { reserve_tokens: 40, ..lost };
    fixture.admit(&old).await;
    fixture.admit(&lost).await;
    assert!(matches!(fixture.try_admit(&call()).await, CallAdmission::OverBudget(_)));
    fixture.clock.set(Timestamp::parse("2026-02-01T00:00:00Z").unwrap());
    assert_eq!(fixture.month_sums().await, (0, 0, 0, 0), "a new month is empty");
    let new = call();
    fixture.admit(&new).await;
    fixture.record(finished_call(&old, successful_end(5, 9))).await;
    fixture.kill(session).await;
    assert_eq!(fixture.month_sums().await, (0, 0, 100, 1_000), "the previous month does not count");
    fixture.record(finished_call(&new, successful_end(50, 8))).await;
    assert_eq!(fixture.month_sums().await, (100, 8, 0, 0));
    fixture.clock.set(Timestamp::parse("2026-01-31T00:00:00Z").unwrap());
    assert_eq!(fixture.month_sums().await, (50, 1_009, 0, 0));
}

pub(super) async fn a_lifted_budget_leaves_the_month_counted(fixture: &StoreFixture) {
    fixture.admit(&call()).await;
    let set = fixture.set_budget(Some(token_budget(100))).await;
    assert_eq!((set.budget, budget_sums(&set)), (Some(token_budget(100)), (0, 0, 100, 1_000)));
    assert!(matches!(fixture.try_admit(&call()).await, CallAdmission::OverBudget(_)));
    let lifted = fixture.set_budget(None).await;
    assert_eq!((lifted.budget, budget_sums(&lifted)), (None, (0, 0, 100, 1_000)));
    fixture.admit(&call()).await;
    assert_eq!(fixture.month_sums().await, (0, 0, 200, 2_000));
}

pub(super) async fn a_budget_is_not_its_tenants_to_lift(fixture: &StoreFixture) {
    fixture.set_budget(Some(token_budget(1))).await;
    for scope in [tenant_scope("acme"), tenant_scope("other")] {
        let answer = fixture.ledger.put_budget(&scope, &acme(), None).await;
        assert!(matches!(answer, Err(Error::NotFound { .. })), "{answer:?}");
    }
    let stored = fixture.ledger.budget(&ALL, &acme()).await.unwrap();
    assert_eq!(stored.budget, Some(token_budget(1)));
    for warn_at in [-0.1, 1.1, f64::NAN] {
        let bad = Some(Budget { warn_at, ..token_budget(1) });
        let answer = fixture.ledger.put_budget(&ALL, &acme(), bad).await;
        assert!(matches!(answer, Err(Error::Invalid(_))), "{answer:?}");
    }
}

pub(super) async fn a_month_beyond_all_counting_holds_nobody_up(fixture: &StoreFixture) {
    let dear = || NewCall { reserve_picos: i64::MAX / 2 + 1, ..call() };
    let calls = [dear(), dear(), dear()];
    for call in &calls {
        fixture.admit(call).await;
    }
    for call in &calls {
        fixture.record(finished_call(call, successful_end(1, 1))).await;
    }
    let (spent, _, reserved, _) = fixture.month_sums().await;
    assert_eq!((spent, reserved), (6, 0));
}
