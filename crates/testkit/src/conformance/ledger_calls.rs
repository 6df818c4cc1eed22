//! Calls: admitted before the request, recorded after it, one row each.

use longshore_accounts::{
    CallAdmission, CallEnd, CallRecord, CallStatus, CostCorrection, MAX_CALL_COST, NewCall, UsageFilter,
};
use longshore_core::store::Retention;
use longshore_core::{Error, SessionId, UnitId};

use super::helpers::*;
use super::ledger_helpers::*;
use crate::StoreFixture;

pub(super) async fn an_admitted_call_is_open_and_reserved(fixture: &StoreFixture) {
    let batch = Some(batch_id("b"));
    let session = fixture.session().await;
    let call = NewCall { batch, unit: Some(UnitId::new()), ..session_call(session) };
    fixture.admit(&call).await;
    let stored = fixture.stored_call(call.id).await;
    assert_eq!((stored.call, stored.status, stored.end), (call, CallStatus::Open, None));
    assert_eq!((stored.opened_at, stored.logged_at), (fixture.now(), None));
    assert_eq!(fixture.month_sums().await, (0, 0, 100, 1_000));
}

pub(super) async fn a_call_admitted_twice_is_reserved_once(fixture: &StoreFixture) {
    fixture.set_budget(Some(token_budget(100))).await;
    let call = call();
    fixture.admit(&call).await;
    fixture.admit(&call).await;
    assert_eq!(fixture.month_sums().await, (0, 0, 100, 1_000));
    assert_eq!(fixture.calls().await.len(), 1);
}

pub(super) async fn the_same_request_of_another_unit_is_a_duplicate(fixture: &StoreFixture) {
    let (one, two) = (Some(UnitId::new()), Some(UnitId::new()));
    let first = call_for("r", one);
    fixture.admit(&first).await;
    let is_duplicate = async |call: &NewCall| match fixture.try_admit(call).await {
        CallAdmission::Duplicate(of) => of.call.id == first.id,
        _ => false,
    };
    assert!(is_duplicate(&call_for("r", two)).await, "while it is being answered");
    assert!(is_duplicate(&call_for("r", None)).await, "a unit is already making this request");
    fixture.admit(&call_for("s", two)).await;
    fixture.admit(&NewCall { tenant: tenant("other"), ..call_for("r", two) }).await;
    fixture.record(finished_call(&first, successful_end(1, 1))).await;
    assert!(is_duplicate(&call_for("r", two)).await, "after the answer");
    fixture.admit(&call_for("r", one)).await;
    let calls = fixture.calls().await;
    assert_eq!(calls.len(), 4, "duplicates leave nothing behind");
}

pub(super) async fn a_request_that_came_to_nothing_may_be_asked_again(fixture: &StoreFixture) {
    let (first, second) = (call_for("r", Some(UnitId::new())), call_for("r", Some(UnitId::new())));
    fixture.admit(&first).await;
    let broken = CallEnd { status: CallStatus::Error, ..successful_end(1, 1) };
    fixture.record(finished_call(&first, broken)).await;
    fixture.admit(&second).await;
    fixture.admit(&call_for("free", None)).await;
    fixture.admit(&call_for("free", None)).await;
}

pub(super) async fn calls_of_one_list_see_those_before_them(fixture: &StoreFixture) {
    fixture.set_budget(Some(token_budget(250))).await;
    let first = call_for("r", Some(UnitId::new()));
    let list = vec![first.clone(), call_for("r", Some(UnitId::new())), call(), call()];
    let answers = fixture.ledger.admit_calls(list).await.unwrap();
    assert_eq!((&answers[0], &answers[2]), (&CallAdmission::Admitted, &CallAdmission::Admitted));
    assert!(matches!(&answers[1], CallAdmission::Duplicate(of) if of.call == first), "{answers:?}");
    let CallAdmission::OverBudget(state) = &answers[3] else { unreachable!("{answers:?}") };
    assert_eq!(budget_sums(state), (0, 0, 200, 2_000));
    assert_eq!(fixture.calls().await.len(), 2);
}

pub(super) async fn an_end_settles_what_was_reserved(fixture: &StoreFixture) {
    let call = call();
    fixture.admit(&call).await;
    fixture.clock.advance(secs(5));
    fixture.record(finished_call(&call, successful_end(30, 700))).await;
    let stored = fixture.stored_call(call.id).await;
    assert_eq!((stored.status, stored.end), (CallStatus::Success, Some(successful_end(30, 700))));
    assert_eq!(stored.logged_at, Some(stored.opened_at + secs(5)));
    assert_eq!(fixture.month_sums().await, (60, 700, 0, 0));
}

pub(super) async fn an_end_stays(fixture: &StoreFixture) {
    let call = call();
    fixture.admit(&call).await;
    fixture.record(finished_call(&call, successful_end(30, 700))).await;
    let settled = fixture.stored_call(call.id).await;
    fixture.clock.advance(secs(5));
    fixture.record(finished_call(&call, successful_end(99, 9))).await;
    fixture.record(CallRecord { call: call.clone(), end: None }).await;
    fixture.admit(&call).await;
    assert_eq!(fixture.stored_call(call.id).await, settled);
    assert_eq!(fixture.month_sums().await, (60, 700, 0, 0));
}

pub(super) async fn a_call_may_be_written_without_a_journal(fixture: &StoreFixture) {
    fixture.set_budget(Some(token_budget(10))).await;
    let (over, open) = (call(), call());
    let broken = CallEnd {
        status: CallStatus::Error,
        code: Some("TIMEOUT".to_owned()),
        estimated: true,
        ..successful_end(7, 3)
    };
    let records = vec![finished_call(&over, broken.clone()), CallRecord { call: open.clone(), end: None }];
    fixture.ledger.record_calls(records).await.unwrap();
    let stored = fixture.stored_call(over.id).await;
    assert_eq!((stored.status, stored.end), (CallStatus::Error, Some(broken)));
    assert_eq!(stored.logged_at, Some(stored.opened_at));
    assert_eq!(fixture.stored_call(open.id).await.status, CallStatus::Open);
    assert_eq!(fixture.month_sums().await, (14, 3, 100, 1_000), "counted although it exceeds the budget");
}

pub(super) async fn a_later_word_on_an_open_call_wins(fixture: &StoreFixture) {
    let first = call();
    fixture.admit(&first).await;
    let fallback = NewCall {
        profile: profile_name("second"),
        provider: "ollama".to_owned(),
        model: "tiny".to_owned(),
        reserve_tokens: 40,
        reserve_picos: 0,
        ..first.clone()
    };
    fixture.clock.advance(secs(5));
    fixture.record(CallRecord { call: fallback.clone(), end: None }).await;
    let stored = fixture.stored_call(first.id).await;
    assert_eq!((&stored.call, stored.status), (&fallback, CallStatus::Open));
    assert_eq!(stored.opened_at + secs(5), fixture.now(), "the time of opening stays");
    assert_eq!(fixture.month_sums().await, (0, 0, 40, 0));
    fixture.record(finished_call(&first, successful_end(1, 2))).await;
    assert_eq!(fixture.stored_call(first.id).await.call, first);
    assert_eq!(fixture.month_sums().await, (2, 2, 0, 0));
}

pub(super) async fn a_session_that_has_ended_opens_no_call(fixture: &StoreFixture) {
    let session = SessionId::new();
    let call = session_call(session);
    let refused = fixture.ledger.admit_calls(vec![session_call(session)]).await;
    assert!(matches!(refused, Err(Error::SessionGone(gone)) if gone == session), "{refused:?}");
    assert!(fixture.calls().await.is_empty());
    fixture.record(CallRecord { call: call.clone(), end: None }).await;
    assert_eq!(fixture.stored_call(call.id).await.status, CallStatus::MaybeBilled);
    assert_eq!(fixture.month_sums().await, (100, 1_000, 0, 0));
    let late = session_call(session);
    fixture.record(finished_call(&late, successful_end(1, 1))).await;
    assert_eq!(fixture.stored_call(late.id).await.status, CallStatus::Success, "the recorded end stays");
}

pub(super) async fn numbers_that_cannot_be_added_up_are_refused(fixture: &StoreFixture) {
    let refused = |answer: Result<(), Error>| {
        assert!(matches!(answer, Err(Error::Invalid(_))), "{answer:?}");
    };
    for bad in [NewCall { reserve_tokens: u64::MAX, ..call() }, NewCall { reserve_picos: -1, ..call() }] {
        refused(fixture.ledger.admit_calls(vec![call(), bad]).await.map(drop));
    }
    for bad in [
        CallEnd { tokens_out: u64::MAX, ..successful_end(1, 1) },
        CallEnd { cost_picos: -1, ..successful_end(1, 1) },
        CallEnd { latency_ms: u64::MAX, ..successful_end(1, 1) },
        CallEnd { status: CallStatus::Open, ..successful_end(1, 1) },
    ] {
        let records = vec![finished_call(&call(), successful_end(1, 1)), finished_call(&call(), bad)];
        refused(fixture.ledger.record_calls(records).await);
    }
    assert!(fixture.calls().await.is_empty(), "an invalid list writes nothing");
}

pub(super) async fn a_text_that_is_too_long_is_refused(fixture: &StoreFixture) {
    let (fits, long) = ("x".repeat(1024), "x".repeat(1025));
    let refused = |answer: Result<(), Error>| {
        assert!(matches!(answer, Err(Error::TooLarge { limit: 1024, .. })), "{answer:?}");
    };
    for bad in [
        NewCall { model: long.clone(), ..call() },
        NewCall { request_id: long.clone(), ..call() },
        NewCall { provider: long.clone(), ..call() },
        NewCall { worker: long.clone(), ..call() },
    ] {
        refused(fixture.ledger.admit_calls(vec![bad]).await.map(drop));
    }
    for bad in [
        CallEnd { model: long.clone(), ..successful_end(1, 1) },
        CallEnd { code: Some(long.clone()), ..successful_end(1, 1) },
        CallEnd { tier: Some(long), ..successful_end(1, 1) },
    ] {
        refused(fixture.ledger.record_calls(vec![finished_call(&call(), bad)]).await);
    }
    assert!(fixture.calls().await.is_empty());
    fixture.admit(&NewCall { model: fits.clone(), request_id: fits, ..call() }).await;
}

pub(super) async fn a_clamped_record_is_stored_with_the_others_of_its_write(fixture: &StoreFixture) {
    let long = || "x".repeat(2_000);
    let beyond = NewCall {
        request_id: long(),
        model: long(),
        worker: long(),
        reserve_tokens: u64::MAX,
        reserve_picos: i64::MIN,
        ..call()
    };
    let end = CallEnd {
        code: Some(long()),
        model: long(),
        tier: Some(long()),
        tokens_in: 1 << 41,
        tokens_out: u64::MAX,
        tokens_cached: u64::MAX,
        tokens_cache_write: u64::MAX,
        tokens_cache_write_long: u64::MAX,
        latency_ms: u64::MAX,
        cost_picos: i64::MAX,
        ..successful_end(1, 1)
    };
    let others = [call(), call()];
    let [first, last] = others.each_ref().map(|call| finished_call(call, successful_end(1, 1)));
    let records = vec![first, finished_call(&beyond, end).clamped(), last];
    fixture.ledger.record_calls(records).await.unwrap();
    assert_eq!(fixture.calls().await.len(), 3);
    let stored = fixture.stored_call(beyond.id).await.end.unwrap();
    assert_eq!((stored.tokens_in, stored.tokens_out, stored.cost_picos), (1 << 40, 1 << 40, MAX_CALL_COST));
    assert!(stored.estimated);
    assert_eq!((stored.model.len(), stored.status), (1024, CallStatus::Success));
}

pub(super) async fn calls_are_pruned_long_after_their_month(fixture: &StoreFixture) {
    let days = |days: u64| secs(days * 24 * 3600);
    let [first, second, open, newest] = std::array::from_fn(|_| call());
    for ended in [&first, &second] {
        fixture.record(finished_call(ended, successful_end(10, 500))).await;
        fixture.clock.advance(secs(1));
    }
    fixture.admit(&open).await;
    fixture.clock.advance(days(20));
    let retention = Retention { calls: days(1), ..Retention::default() };
    assert_eq!(fixture.store.prune(retention, 100).await.unwrap().calls, 0, "budgets count their month");
    fixture.clock.advance(days(20));
    fixture.record(finished_call(&newest, successful_end(10, 500))).await;
    assert_eq!(fixture.store.prune(Retention::default(), 100).await.unwrap().calls, 0);
    let pruned = fixture.store.prune(retention, 1).await.unwrap();
    assert_eq!((pruned.calls, pruned.more), (1, true), "a bounded amount, the oldest first");
    let ids = async || fixture.calls().await.iter().map(|stored| stored.call.id).collect::<Vec<_>>();
    assert_eq!(ids().await, [newest.id, open.id, second.id]);
    let pruned = fixture.store.prune(retention, 100).await.unwrap();
    assert_eq!((pruned.calls, pruned.more), (1, false));
    assert_eq!(ids().await, [newest.id, open.id], "an open call stays");
    assert_eq!(fixture.month_sums().await, (20, 500, 0, 0));
}

pub(super) async fn calls_are_listed_newest_first_in_pages(fixture: &StoreFixture) {
    let mut expected = Vec::new();
    for at in 0..7 {
        let call = call();
        fixture.admit(&call).await;
        expected.insert(0, call.id);
        if at % 2 == 0 {
            fixture.clock.advance(secs(1));
        }
    }
    let (mut after, mut seen) = (None, Vec::new());
    loop {
        let filter = UsageFilter::default();
        let page = fixture.ledger.calls(&ALL, &filter, after.as_deref(), 3).await.unwrap();
        assert!(page.items.len() <= 3);
        seen.extend(page.items.iter().map(|stored| stored.call.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, expected);
    let bad = fixture.ledger.calls(&ALL, &UsageFilter::default(), Some("nonsense"), 3).await;
    assert!(matches!(bad, Err(Error::Invalid(_))), "{bad:?}");
}

pub(super) async fn another_tenants_calls_do_not_exist(fixture: &StoreFixture) {
    let ours = call();
    fixture.admit(&ours).await;
    fixture.record(finished_call(&ours, successful_end(1, 5))).await;
    let other = tenant_scope("other");
    for tenant in [None, Some(acme())] {
        let filter = UsageFilter { tenant, ..UsageFilter::default() };
        assert!(fixture.ledger.calls(&other, &filter, None, 10).await.unwrap().items.is_empty());
    }
    let recost = vec![CostCorrection { id: ours.id, cost_picos: 0 }];
    let answer = fixture.ledger.correct_costs(&other, recost).await;
    assert!(matches!(answer, Err(Error::NotFound { .. })), "{answer:?}");
    let answer = fixture.ledger.budget(&other, &acme()).await;
    assert!(matches!(answer, Err(Error::NotFound { .. })), "{answer:?}");
    let own = UsageFilter::default();
    assert_eq!(fixture.ledger.calls(&tenant_scope("acme"), &own, None, 10).await.unwrap().items.len(), 1);
}

pub(super) async fn a_corrected_price_corrects_its_month(fixture: &StoreFixture) {
    let (one, two, open) = (call(), call(), call());
    for call in [&one, &two, &open] {
        fixture.admit(call).await;
    }
    fixture.record(finished_call(&one, successful_end(1, 500))).await;
    fixture.record(finished_call(&two, successful_end(1, 600))).await;
    let corrected = |id| CostCorrection { id, cost_picos: 50 };
    for bad in [open.id, longshore_core::CallId::new()] {
        let answer = fixture.ledger.correct_costs(&ALL, vec![corrected(one.id), corrected(bad)]).await;
        assert!(matches!(answer, Err(Error::Invalid(_) | Error::NotFound { .. })), "{answer:?}");
    }
    assert_eq!(fixture.month_sums().await, (4, 1_100, 100, 1_000), "all or nothing");
    for _ in 0..2 {
        fixture.ledger.correct_costs(&tenant_scope("acme"), vec![corrected(one.id)]).await.unwrap();
    }
    assert_eq!(fixture.stored_call(one.id).await.end, Some(successful_end(1, 50)));
    assert_eq!(fixture.month_sums().await, (4, 650, 100, 1_000));
}
