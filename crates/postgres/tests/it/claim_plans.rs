//! How many rows the server's plans for a claim handle.

use std::collections::BTreeMap;
use std::time::Duration;

use longshore_core::store::ClaimRequest;
use longshore_core::worker_session::NewSession;
use longshore_core::{
    Enqueue as _, Kind, NewUnit, Payload, Policy, Scope, SessionId, TenantId, WorkerApi as _,
};
use longshore_postgres::{PostgresOptions, PostgresStore};
use longshore_testkit::servers::PrivatePostgres;

/// The server logs the plan of each statement, also of those in functions, with the rows of each node.
const EXPLAIN: [(&str, &str); 5] = [
    ("session_preload_libraries", "auto_explain"),
    ("auto_explain.log_min_duration", "0"),
    ("auto_explain.log_nested_statements", "on"),
    ("auto_explain.log_analyze", "on"),
    ("auto_explain.log_timing", "off"),
];

const TENANTS: usize = 1_000;

/// The rows that all nodes of the plans in `log` returned or discarded.
fn rows_handled(log: &str) -> u64 {
    let number = |line: &str, label: &str| -> Option<u64> {
        let digits: String =
            line.split(label).nth(1)?.trim_start().chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    };
    let (mut rows, mut loops) = (0, 1);
    for line in log.lines() {
        if let (Some(returned), Some(repeats)) = (number(line, "actual rows="), number(line, " loops=")) {
            loops = repeats;
            rows += returned * loops;
        } else if line.contains("Rows Removed by") {
            rows += number(line, ":").unwrap_or(0) * loops;
        }
    }
    rows
}

/// A plan that compares each lane with each stream handles a million rows.
#[tokio::test]
async fn a_claim_among_a_thousand_tenants_handles_each_lane_a_few_times() {
    let server =
        tokio::task::spawn_blocking(|| PrivatePostgres::start_with(&EXPLAIN).unwrap()).await.unwrap();
    let store = PostgresStore::open(&server.url(), PostgresOptions::default()).await.unwrap();
    let kind = Kind::new("work").unwrap();
    let unit = |number: usize| NewUnit {
        tenant: TenantId::new(format!("tenant-{}", number % TENANTS)).unwrap(),
        ..NewUnit::new(kind.clone(), Payload::from(b"{}".as_slice()))
    };
    for start in (0..TENANTS * 2).step_by(500) {
        store.send(&Scope::All, (start..start + 500).map(unit).collect()).await.unwrap();
    }
    let session = SessionId::new();
    let kinds = BTreeMap::from([(kind.clone(), Policy::default())]);
    store
        .open_session(NewSession { kinds, slots: 256, ..NewSession::new(session, "claimer") })
        .await
        .unwrap();
    let mut claimed = 0;
    for round in 0..4 {
        let before = server.log().unwrap().len();
        let request = ClaimRequest {
            free_slots: 256,
            holds_nothing: round == 0,
            ..ClaimRequest::new(session, vec![kind.clone()], 256)
        };
        claimed += store.claim(request).await.unwrap().units.len();
        // The log comes through a pipe, in order.
        let mark = format!("SELECT 'after claim {round}'");
        server.run(&mark).unwrap();
        let plans = loop {
            let log = server.log().unwrap().split_off(before);
            if let Some((plans, _)) = log.split_once(&mark) {
                break plans.to_owned();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        let handled = rows_handled(&plans);
        assert!(handled > 0, "no plan is logged");
        assert!(handled < 100 * TENANTS as u64, "claim {round} handles {handled} rows");
    }
    assert!(claimed > 0);
}
