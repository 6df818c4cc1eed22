//! `usage`: calls summed by group, listed one by one, as CSV and JSON, and costs recomputed.

use longshore::accounts::{CallEnd, CallRecord, CallStatus, Calls, NewCall};
use longshore::{BatchId, ProfileName, TenantId};
use longshore_sqlite::{SqliteOptions, SqliteStore};
use serde_json::json;

use crate::support::TestDir;

/// A call of a tenant at this cost.
fn call_record(tenant: &str, profile: &str, request: &str, picos: i64) -> CallRecord {
    let (tenant, profile) = (TenantId::new(tenant).unwrap(), ProfileName::new(profile).unwrap());
    let call = NewCall {
        request_id: request.to_owned(),
        worker: "test".to_owned(),
        ..NewCall::new(tenant, profile, "anthropic", "haiku")
    };
    let end = CallEnd {
        tokens_in: 100,
        tokens_out: 10,
        tokens_cached: 40,
        latency_ms: 250,
        attempts: 1,
        cost_picos: picos,
        ..CallEnd::new(CallStatus::Success, "haiku-5")
    };
    CallRecord { call, end: Some(end) }
}

/// Writes calls into the directory's store, as workers do.
fn record_calls_in(dir: &TestDir, calls: Vec<CallRecord>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(&dir.path("longshore.db"), SqliteOptions::default()).unwrap();
        store.record_calls(calls).await.unwrap();
    });
}

/// A test directory with three successful calls of two tenants, one failed, one maybe billed.
fn dir_with_calls() -> TestDir {
    let dir = TestDir::new();
    let mut bad = call_record("acme", "fast", "r-3", 0);
    bad.call.batch = Some(BatchId::new("nightly").unwrap());
    if let Some(end) = &mut bad.end {
        (end.status, end.code) = (CallStatus::Error, Some("RATE_LIMITED".to_owned()));
        (end.tokens_in, end.tokens_out, end.tokens_cached) = (0, 0, 0);
    }
    let mut lost = call_record("other", "slow", "r-4", 5);
    if let Some(end) = &mut lost.end {
        (end.status, end.estimated) = (CallStatus::MaybeBilled, true);
    }
    let calls = vec![
        call_record("acme", "fast", "r-1", 1_000_000_000_007),
        call_record("acme", "slow", "r-2", 3),
        call_record("other", "fast", "r-1", 20_000_000),
        bad,
        lost,
    ];
    record_calls_in(&dir, calls);
    dir
}

#[test]
fn calls_are_summed_by_every_group_and_exactly() {
    let dir = dir_with_calls();
    let by = |group: &str| dir.run(&["usage", "--by", group, "--json"]).ok().json();
    let tenants = by("tenant");
    assert_eq!(tenants["groups"][0]["name"], "acme");
    assert_eq!(tenants["groups"][0]["calls"], 3);
    assert_eq!(tenants["groups"][0]["errors"], 1);
    assert_eq!(tenants["groups"][0]["cost_picos"], 1_000_000_000_010_i64);
    assert_eq!(tenants["groups"][0]["cost_usd"], "1.00000000001");
    assert_eq!(tenants["groups"][1]["maybe_billed"], 1);
    assert_eq!(tenants["total"]["cost_usd"], "1.000020000015");
    assert_eq!(tenants["total"]["calls"], 5);
    for (group, names) in [
        ("model", vec!["haiku-5"]),
        ("batch", vec!["", "nightly"]),
        ("profile", vec!["acme/fast", "acme/slow", "other/fast", "other/slow"]),
    ] {
        let sums = by(group);
        let found: Vec<_> = sums["groups"].as_array().unwrap().iter().map(|g| &g["name"]).collect();
        assert_eq!(json!(found), json!(names), "{group}");
        assert_eq!(sums["total"]["calls"], 5, "{group}");
    }
    assert_eq!(by("day")["groups"].as_array().unwrap().len(), 1);
    let table = dir.run(&["usage"]).ok().out;
    let total = table.lines().last().unwrap();
    assert!(total.starts_with("total") && total.ends_with("$1.000020000015"), "{table}");
}

#[test]
fn calls_are_chosen_by_tenant_batch_profile_request_and_time() {
    let dir = dir_with_calls();
    let total = |more: &[&str]| {
        let args = [&["usage", "--json"], more].concat();
        dir.run(&args).ok().json()["total"]["calls"].clone()
    };
    assert_eq!(total(&["--tenant", "acme"]), 3);
    assert_eq!(total(&["--batch", "nightly"]), 1);
    assert_eq!(total(&["--profile", "fast"]), 3);
    assert_eq!(total(&["--since", "1h"]), 5);
    assert_eq!(total(&["--until", "1h"]), 0);
    assert_eq!(total(&["--since", "2020-01-01", "--until", "2020-02-01"]), 0);
    let rows = dir.run(&["usage", "--request", "r-1", "--json"]).ok().json();
    assert_eq!(rows.as_array().unwrap().len(), 2, "one of each tenant: {rows}");
    let own = dir.run(&["usage", "--request", "r-1", "--tenant", "acme", "--json"]).ok().json();
    assert_eq!(
        (&own[0]["cost_usd"], &own[0]["end"]["tokens_cached"]),
        (&json!("1.000000000007"), &json!(40))
    );
    let table = dir.run(&["usage", "--calls"]).ok().out;
    assert!(table.contains("error RATE_LIMITED") && table.contains("~100"), "{table}");
    let page = dir.run(&["usage", "--calls", "--limit", "2", "--json"]).ok();
    assert_eq!(page.json().as_array().unwrap().len(), 2);
    page.says("there are more: --after");
    assert_eq!(TestDir::new().run(&["usage"]).ok().out, "no calls\n");
}

#[test]
fn usage_is_given_to_spreadsheets() {
    let dir = dir_with_calls();
    let sums = dir.run(&["usage", "--by", "tenant", "--csv"]).ok().out;
    let lines: Vec<&str> = sums.lines().collect();
    assert_eq!(
        lines,
        [
            "tenant,calls,open,errors,maybe_billed,estimated,tokens_in,tokens_out,tokens_cached,cost_usd",
            "acme,3,0,1,0,0,200,20,80,1.00000000001",
            "other,2,0,0,1,1,200,20,80,0.000020000005",
        ]
    );
    let calls = dir.run(&["usage", "--calls", "--csv", "--tenant", "other"]).ok().out;
    assert_eq!(calls.lines().count(), 3);
    let columns = |line: &str| line.split(',').count();
    assert!(calls.lines().all(|line| columns(line) == 21), "{calls}");
}

#[test]
fn what_makes_no_sense_for_usage_is_refused() {
    let dir = TestDir::new();
    for (args, words) in [
        (&["usage", "--since", "yesterday"][..], "2026-11-01"),
        (&["usage", "--by", "week"], "tenant, model, day"),
        (&["usage", "--since", "1d", "--until", "7d"], "not before"),
        (&["usage", "--csv", "--json"], "cannot be used with"),
    ] {
        dir.run(args).ends(2).says(words);
    }
}

#[test]
fn costs_are_computed_anew_at_the_prices_of_the_calls_time() {
    let dir = dir_with_calls();
    let house = ["profile", "add", "house", "--template", "--provider", "anthropic", "--model", "haiku"];
    let prices = ["--price-input", "1", "--price-output", "5", "--price-cache-read", "0.1"];
    dir.run(&[&house[..], &prices].concat()).ok();
    for tenant in ["acme", "other"] {
        let add = ["profile", "add", "fast", "--extends", "house"];
        dir.run(&[&add[..], &["--tenant", tenant]].concat()).ok();
    }
    let dry = dir.run(&["usage", "recost", "--dry-run", "--json"]).ok().json();
    // 60 tokens at a millionth of a dollar, 40 at a tenth of that, 10 at five times as much.
    let each = 60_000_000 + 4_000_000 + 50_000_000_i64;
    assert_eq!((&dry["changed"], &dry["right"], &dry["left"]), (&json!(2), &json!(1), &json!(2)));
    assert_eq!(dry["after_picos"], 2 * each);
    let before = dir.run(&["usage", "--json"]).ok().json();
    assert_eq!(before["total"]["cost_usd"], "1.000020000015", "nothing was written");
    dir.run(&["usage", "recost"]).ok();
    let after = dir.run(&["usage", "--by", "profile", "--json"]).ok().json();
    let costs: Vec<_> = after["groups"].as_array().unwrap().iter().map(|g| &g["cost_picos"]).collect();
    assert_eq!(json!(costs), json!([each, 3, each, 5]), "calls without a profile stay");
    let again = dir.run(&["usage", "recost", "--since", "1h", "--json"]).ok().json();
    assert_eq!((&again["changed"], &again["right"]), (&json!(0), &json!(3)));
    dir.run(&["tenant", "add", "acme"]).ok();
    let acme = dir.run(&["tenant", "show", "acme", "--json"]).ok().json();
    assert_eq!(acme["month"]["spent_usd"], "0.000114000003", "the month is corrected too");
}
