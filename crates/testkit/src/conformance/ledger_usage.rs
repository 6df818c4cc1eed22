//! Usage: the sums of calls, by each grouping.

use longshore_accounts::{CallEnd, CallStatus, NewCall, Usage, UsageBy, UsageFilter};

use super::helpers::*;
use super::ledger_helpers::*;
use crate::StoreFixture;

/// Records five calls of two tenants on two days: succeeded, failed, lost, estimated and open.
async fn history(fixture: &StoreFixture) {
    let session = fixture.session().await;
    let first = NewCall { batch: Some(batch_id("b")), ..call() };
    fixture.record(finished_call(&first, successful_end(10, 100))).await;
    let broken =
        CallEnd { status: CallStatus::Error, model: String::new(), estimated: true, ..successful_end(5, 7) };
    fixture.record(finished_call(&NewCall { profile: profile_name("b"), ..call() }, broken)).await;
    fixture.clock.advance(secs(86_400));
    let theirs = NewCall { tenant: tenant("other"), ..call() };
    fixture.record(finished_call(&theirs, successful_end(1, i64::MAX / 2))).await;
    fixture.admit(&session_call(session)).await;
    fixture.kill(session).await;
    fixture.admit(&NewCall { model: "large".to_owned(), ..call() }).await;
}

async fn usage(fixture: &StoreFixture, by: UsageBy) -> Vec<Usage> {
    fixture.ledger.usage(&ALL, &UsageFilter::default(), by).await.unwrap()
}

fn summary(usage: &[Usage]) -> Vec<(&str, u64, u64)> {
    usage.iter().map(|sum| (sum.name.as_str(), sum.calls, sum.tokens_in)).collect()
}

pub(super) async fn usage_is_summed_by_each_group(fixture: &StoreFixture) {
    history(fixture).await;
    let by_tenant = usage(fixture, UsageBy::Tenant).await;
    let ours = Usage {
        name: "acme".to_owned(),
        calls: 4,
        open: 1,
        errors: 1,
        maybe_billed: 1,
        estimated: 2,
        tokens_in: 115,
        tokens_out: 15,
        tokens_cached: 2,
        cost_picos: 1_107,
    };
    let theirs = Usage {
        name: "other".to_owned(),
        calls: 1,
        tokens_in: 1,
        tokens_out: 1,
        tokens_cached: 1,
        cost_picos: i64::MAX / 2,
        ..Usage::default()
    };
    assert_eq!(by_tenant, [ours, theirs]);
    let expected = [("large", 1, 0), ("small", 2, 105), ("small-2026", 2, 11)];
    assert_eq!(summary(&usage(fixture, UsageBy::Model).await), expected);
    let expected = [("2026-01-01", 2, 15), ("2026-01-02", 3, 101)];
    assert_eq!(summary(&usage(fixture, UsageBy::Day).await), expected);
    let expected = [("", 4, 106), ("b", 1, 10)];
    assert_eq!(summary(&usage(fixture, UsageBy::Batch).await), expected);
    let expected = [("acme/b", 1, 5), ("acme/main", 3, 110), ("other/main", 1, 1)];
    assert_eq!(summary(&usage(fixture, UsageBy::Profile).await), expected);
}

pub(super) async fn usage_and_calls_are_filtered_alike(fixture: &StoreFixture) {
    history(fixture).await;
    let of_request = fixture.calls().await[0].call.request_id.clone();
    let night = fixture.now();
    let any = UsageFilter::default;
    for (filter, expected) in [
        (any(), 5),
        (UsageFilter { tenant: Some(acme()), ..any() }, 4),
        (UsageFilter { request_id: Some(of_request), ..any() }, 1),
        (UsageFilter { request_id: Some("none".to_owned()), ..any() }, 0),
        (UsageFilter { batch: Some(batch_id("b")), ..any() }, 1),
        (UsageFilter { profile: Some(profile_name("b")), ..any() }, 1),
        (UsageFilter { since: Some(night), ..any() }, 3),
        (UsageFilter { until: Some(night), ..any() }, 2),
        (UsageFilter { since: Some(night), tenant: Some(acme()), ..any() }, 2),
    ] {
        let listed = fixture.ledger.calls(&ALL, &filter, None, 10).await.unwrap().items;
        assert_eq!(listed.len(), expected, "{filter:?}");
        let sums = fixture.ledger.usage(&ALL, &filter, UsageBy::Tenant).await.unwrap();
        assert_eq!(sums.iter().map(|sum| sum.calls).sum::<u64>(), expected as u64, "{filter:?}");
    }
    let own = fixture.ledger.usage(&tenant_scope("other"), &any(), UsageBy::Tenant).await.unwrap();
    assert_eq!(summary(&own), [("other", 1, 1)], "a tenant sees its own");
}

pub(super) async fn sums_of_costs_saturate(fixture: &StoreFixture) {
    for _ in 0..3 {
        let dear = NewCall { tenant: tenant(&format!("t{}", fixture.calls().await.len())), ..call() };
        fixture.record(finished_call(&dear, successful_end(1, i64::MAX / 2))).await;
    }
    assert_eq!(usage(fixture, UsageBy::Tenant).await.len(), 3);
    let costs: Vec<i64> = usage(fixture, UsageBy::Day).await.iter().map(|usage| usage.cost_picos).collect();
    assert_eq!(costs, [i64::MAX], "one tenant's calls hide no others");
}
