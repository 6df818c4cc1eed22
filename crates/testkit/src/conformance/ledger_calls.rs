//! Calls: admitted before the request, recorded after it, one row each.

use longshore_accounts::{
    CallAdmission, CallEnd, CallRecord, CallStatus, CostCorrection, NewCall, UsageFilter,
};
use longshore_core::store::Retention;
use longshore_core::{Error, SessionId, UnitId};

use super::helpers::*;
use super::ledger_helpers::*;
use crate::StoreFixture;

pub(super) async fn an_admitted_call_is_open_and_reserved(world: &StoreFixture) {
    let batch = Some(batch_id("b"));
    let session = world.session().await;
    let call = NewCall { batch, unit: Some(UnitId::new()), ..session_call(session) };
    world.admit(&call).await;
    let stored = world.stored_call(call.id).await;
    assert_eq!((stored.call, stored.status, stored.end), (call, CallStatus::Open, None));
    assert_eq!((stored.opened_at, stored.logged_at), (world.now(), None));
    assert_eq!(world.month_sums().await, (0, 0, 100, 1_000));
}

pub(super) async fn a_call_admitted_twice_is_reserved_once(world: &StoreFixture) {
    world.set_budget(Some(token_budget(100))).await;
    let call = call();
    world.admit(&call).await;
    world.admit(&call).await;
    assert_eq!(world.month_sums().await, (0, 0, 100, 1_000));
    assert_eq!(world.calls().await.len(), 1);
}

pub(super) async fn the_same_request_of_another_unit_is_a_duplicate(world: &StoreFixture) {
    let (one, two) = (Some(UnitId::new()), Some(UnitId::new()));
    let first = call_for("r", one);
    world.admit(&first).await;
    let is_duplicate = async |call: &NewCall| match world.try_admit(call).await {
        CallAdmission::Duplicate(of) => of.call.id == first.id,
        _ => false,
    };
    assert!(is_duplicate(&call_for("r", two)).await, "while it is being answered");
    assert!(is_duplicate(&call_for("r", None)).await, "a unit is already making this request");
    world.admit(&call_for("s", two)).await;
    world.admit(&NewCall { tenant: tenant("other"), ..call_for("r", two) }).await;
    world.record(finished_call(&first, successful_end(1, 1))).await;
    assert!(is_duplicate(&call_for("r", two)).await, "after the answer");
    world.admit(&call_for("r", one)).await;
    let calls = world.calls().await;
    assert_eq!(calls.len(), 4, "duplicates leave nothing behind");
}

pub(super) async fn a_request_that_came_to_nothing_may_be_asked_again(world: &StoreFixture) {
    let (first, second) = (call_for("r", Some(UnitId::new())), call_for("r", Some(UnitId::new())));
    world.admit(&first).await;
    let broken = CallEnd { status: CallStatus::Error, ..successful_end(1, 1) };
    world.record(finished_call(&first, broken)).await;
    world.admit(&second).await;
    world.admit(&call_for("free", None)).await;
    world.admit(&call_for("free", None)).await;
}

pub(super) async fn calls_of_one_list_see_those_before_them(world: &StoreFixture) {
    world.set_budget(Some(token_budget(250))).await;
    let first = call_for("r", Some(UnitId::new()));
    let list = vec![first.clone(), call_for("r", Some(UnitId::new())), call(), call()];
    let answers = world.ledger.admit_calls(list).await.unwrap();
    assert_eq!((&answers[0], &answers[2]), (&CallAdmission::Admitted, &CallAdmission::Admitted));
    assert!(matches!(&answers[1], CallAdmission::Duplicate(of) if of.call == first), "{answers:?}");
    let CallAdmission::OverBudget(state) = &answers[3] else { unreachable!("{answers:?}") };
    assert_eq!(budget_sums(state), (0, 0, 200, 2_000));
    assert_eq!(world.calls().await.len(), 2);
}

pub(super) async fn an_end_settles_what_was_reserved(world: &StoreFixture) {
    let call = call();
    world.admit(&call).await;
    world.clock.advance(secs(5));
    world.record(finished_call(&call, successful_end(30, 700))).await;
    let stored = world.stored_call(call.id).await;
    assert_eq!((stored.status, stored.end), (CallStatus::Success, Some(successful_end(30, 700))));
    assert_eq!(stored.logged_at, Some(stored.opened_at + secs(5)));
    assert_eq!(world.month_sums().await, (60, 700, 0, 0));
}

pub(super) async fn an_end_stays(world: &StoreFixture) {
    let call = call();
    world.admit(&call).await;
    world.record(finished_call(&call, successful_end(30, 700))).await;
    let settled = world.stored_call(call.id).await;
    world.clock.advance(secs(5));
    world.record(finished_call(&call, successful_end(99, 9))).await;
    world.record(CallRecord { call: call.clone(), end: None }).await;
    world.admit(&call).await;
    assert_eq!(world.stored_call(call.id).await, settled);
    assert_eq!(world.month_sums().await, (60, 700, 0, 0));
}

pub(super) async fn a_call_may_be_written_without_a_journal(world: &StoreFixture) {
    world.set_budget(Some(token_budget(10))).await;
    let (over, open) = (call(), call());
    let broken = CallEnd {
        status: CallStatus::Error,
        code: Some("TIMEOUT".to_owned()),
        estimated: true,
        ..successful_end(7, 3)
    };
    let records = vec![finished_call(&over, broken.clone()), CallRecord { call: open.clone(), end: None }];
    world.ledger.record_calls(records).await.unwrap();
    let stored = world.stored_call(over.id).await;
    assert_eq!((stored.status, stored.end), (CallStatus::Error, Some(broken)));
    assert_eq!(stored.logged_at, Some(stored.opened_at));
    assert_eq!(world.stored_call(open.id).await.status, CallStatus::Open);
    assert_eq!(world.month_sums().await, (14, 3, 100, 1_000), "counted although it exceeds the budget");
}

pub(super) async fn a_later_word_on_an_open_call_wins(world: &StoreFixture) {
    let first = call();
    world.admit(&first).await;
    let fallback = NewCall {
        profile: profile_name("second"),
        provider: "ollama".to_owned(),
        model: "tiny".to_owned(),
        reserve_tokens: 40,
        reserve_picos: 0,
        ..first.clone()
    };
    world.clock.advance(secs(5));
    world.record(CallRecord { call: fallback.clone(), end: None }).await;
    let stored = world.stored_call(first.id).await;
    assert_eq!((&stored.call, stored.status), (&fallback, CallStatus::Open));
    assert_eq!(stored.opened_at + secs(5), world.now(), "the time of opening stays");
    assert_eq!(world.month_sums().await, (0, 0, 40, 0));
    world.record(finished_call(&first, successful_end(1, 2))).await;
    assert_eq!(world.stored_call(first.id).await.call, first);
    assert_eq!(world.month_sums().await, (2, 2, 0, 0));
}

pub(super) async fn a_session_that_has_ended_opens_no_call(world: &StoreFixture) {
    let session = SessionId::new();
    let call = session_call(session);
    let refused = world.ledger.admit_calls(vec![session_call(session)]).await;
    assert!(matches!(refused, Err(Error::SessionGone(gone)) if gone == session), "{refused:?}");
    assert!(world.calls().await.is_empty());
    world.record(CallRecord { call: call.clone(), end: None }).await;
    assert_eq!(world.stored_call(call.id).await.status, CallStatus::MaybeBilled);
    assert_eq!(world.month_sums().await, (100, 1_000, 0, 0));
    let late = session_call(session);
    world.record(finished_call(&late, successful_end(1, 1))).await;
    assert_eq!(world.stored_call(late.id).await.status, CallStatus::Success, "the recorded end stays");
}

pub(super) async fn numbers_that_cannot_be_added_up_are_refused(world: &StoreFixture) {
    let refused = |answer: Result<(), Error>| {
        assert!(matches!(answer, Err(Error::Invalid(_))), "{answer:?}");
    };
    for bad in [NewCall { reserve_tokens: u64::MAX, ..call() }, NewCall { reserve_picos: -1, ..call() }] {
        refused(world.ledger.admit_calls(vec![call(), bad]).await.map(drop));
    }
    for bad in [
        CallEnd { tokens_out: u64::MAX, ..successful_end(1, 1) },
        CallEnd { cost_picos: -1, ..successful_end(1, 1) },
        CallEnd { latency_ms: u64::MAX, ..successful_end(1, 1) },
        CallEnd { status: CallStatus::Open, ..successful_end(1, 1) },
    ] {
        let records = vec![finished_call(&call(), successful_end(1, 1)), finished_call(&call(), bad)];
        refused(world.ledger.record_calls(records).await);
    }
    assert!(world.calls().await.is_empty(), "an invalid list writes nothing");
}

pub(super) async fn a_text_that_is_too_long_is_refused(world: &StoreFixture) {
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
        refused(world.ledger.admit_calls(vec![bad]).await.map(drop));
    }
    for bad in [
        CallEnd { model: long.clone(), ..successful_end(1, 1) },
        CallEnd { code: Some(long.clone()), ..successful_end(1, 1) },
        CallEnd { tier: Some(long), ..successful_end(1, 1) },
    ] {
        refused(world.ledger.record_calls(vec![finished_call(&call(), bad)]).await);
    }
    assert!(world.calls().await.is_empty());
    world.admit(&NewCall { model: fits.clone(), request_id: fits, ..call() }).await;
}

pub(super) async fn calls_are_pruned_long_after_their_month(world: &StoreFixture) {
    let days = |days: u64| secs(days * 24 * 3600);
    let [first, second, open, newest] = std::array::from_fn(|_| call());
    for ended in [&first, &second] {
        world.record(finished_call(ended, successful_end(10, 500))).await;
        world.clock.advance(secs(1));
    }
    world.admit(&open).await;
    world.clock.advance(days(20));
    let retention = Retention { calls: days(1), ..Retention::default() };
    assert_eq!(world.store.prune(retention, 100).await.unwrap().calls, 0, "budgets count their month");
    world.clock.advance(days(20));
    world.record(finished_call(&newest, successful_end(10, 500))).await;
    assert_eq!(world.store.prune(Retention::default(), 100).await.unwrap().calls, 0);
    let pruned = world.store.prune(retention, 1).await.unwrap();
    assert_eq!((pruned.calls, pruned.more), (1, true), "a bounded amount, the oldest first");
    let ids = async || world.calls().await.iter().map(|stored| stored.call.id).collect::<Vec<_>>();
    assert_eq!(ids().await, [newest.id, open.id, second.id]);
    let pruned = world.store.prune(retention, 100).await.unwrap();
    assert_eq!((pruned.calls, pruned.more), (1, false));
    assert_eq!(ids().await, [newest.id, open.id], "an open call stays");
    assert_eq!(world.month_sums().await, (20, 500, 0, 0));
}

pub(super) async fn calls_are_listed_newest_first_in_pages(world: &StoreFixture) {
    let mut expected = Vec::new();
    for at in 0..7 {
        let call = call();
        world.admit(&call).await;
        expected.insert(0, call.id);
        if at % 2 == 0 {
            world.clock.advance(secs(1));
        }
    }
    let (mut after, mut seen) = (None, Vec::new());
    loop {
        let filter = UsageFilter::default();
        let page = world.ledger.calls(&ALL, &filter, after.as_deref(), 3).await.unwrap();
        assert!(page.items.len() <= 3);
        seen.extend(page.items.iter().map(|stored| stored.call.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, expected);
    let bad = world.ledger.calls(&ALL, &UsageFilter::default(), Some("nonsense"), 3).await;
    assert!(matches!(bad, Err(Error::Invalid(_))), "{bad:?}");
}

pub(super) async fn another_tenants_calls_do_not_exist(world: &StoreFixture) {
    let ours = call();
    world.admit(&ours).await;
    world.record(finished_call(&ours, successful_end(1, 5))).await;
    let other = tenant_scope("other");
    for tenant in [None, Some(acme())] {
        let filter = UsageFilter { tenant, ..UsageFilter::default() };
        assert!(world.ledger.calls(&other, &filter, None, 10).await.unwrap().items.is_empty());
    }
    let recost = vec![CostCorrection { id: ours.id, cost_picos: 0 }];
    let answer = world.ledger.correct_costs(&other, recost).await;
    assert!(matches!(answer, Err(Error::NotFound { .. })), "{answer:?}");
    let answer = world.ledger.budget(&other, &acme()).await;
    assert!(matches!(answer, Err(Error::NotFound { .. })), "{answer:?}");
    let own = UsageFilter::default();
    assert_eq!(world.ledger.calls(&tenant_scope("acme"), &own, None, 10).await.unwrap().items.len(), 1);
}

pub(super) async fn a_corrected_price_corrects_its_month(world: &StoreFixture) {
    let (one, two, open) = (call(), call(), call());
    for call in [&one, &two, &open] {
        world.admit(call).await;
    }
    world.record(finished_call(&one, successful_end(1, 500))).await;
    world.record(finished_call(&two, successful_end(1, 600))).await;
    let corrected = |id| CostCorrection { id, cost_picos: 50 };
    for bad in [open.id, longshore_core::CallId::new()] {
        let answer = world.ledger.correct_costs(&ALL, vec![corrected(one.id), corrected(bad)]).await;
        assert!(matches!(answer, Err(Error::Invalid(_) | Error::NotFound { .. })), "{answer:?}");
    }
    assert_eq!(world.month_sums().await, (4, 1_100, 100, 1_000), "all or nothing");
    for _ in 0..2 {
        world.ledger.correct_costs(&tenant_scope("acme"), vec![corrected(one.id)]).await.unwrap();
    }
    assert_eq!(world.stored_call(one.id).await.end, Some(successful_end(1, 50)));
    assert_eq!(world.month_sums().await, (4, 650, 100, 1_000));
}
