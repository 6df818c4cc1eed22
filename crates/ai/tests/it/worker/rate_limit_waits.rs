//! Requests that wait for a limit leave slots to others, and keep their order.

use std::time::Duration;

use longshore::accounts::CallStatus;
use longshore::{UnitId, UnitState};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::fixture::{LONG, WorkerFixture, request};

const FINE: &str = "[[answer]]\nreply = 'fine'";

/// One every two seconds.
fn slow_limit() -> Value {
    json!({ "limits": { "requests": 30, "burst": 0.0001 } })
}

async fn send(fixture: &WorkerFixture, who: &str, count: usize, more: &Value) -> Vec<UnitId> {
    let mut sent = Vec::new();
    for n in 0..count {
        let mut request = request(&format!("{who}-{n:02}"), "p", more);
        request["customer"] = json!(who);
        sent.push(fixture.send(who, request.to_string()).await);
    }
    sent
}

async fn all_done(fixture: &WorkerFixture, units: &[UnitId]) {
    for id in units {
        let unit = fixture.client.wait(*id, Some(LONG)).await.unwrap();
        assert_eq!((unit.state, unit.attempt), (UnitState::Done, 1), "{:?}", unit.failure);
    }
}

/// The requests of a tenant that were asked, in order.
async fn asked(fixture: &WorkerFixture, who: &str) -> Vec<String> {
    let books = fixture.call_records().await;
    assert!(books.iter().all(|(_, status)| *status == CallStatus::Success), "{books:?}");
    books.into_iter().map(|(id, _)| id).filter(|id| id.starts_with(who)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_tenant_far_over_its_limit_leaves_slots_to_others_and_is_served_in_order() {
    let fixture = WorkerFixture::new();
    fixture.setup.scripted("greedy", "p", FINE, slow_limit()).await;
    let busy = json!({ "delay": "100ms" });
    fixture.setup.scripted("other", "p", FINE, busy).await;
    let patient = json!({ "timeout_ms": 600_000 });
    let greedy = send(&fixture, "greedy", 20, &patient).await;
    let worker = fixture.worker().build().unwrap();
    let (control, stats) = (worker.control(), worker.stats());
    let watch = async {
        // It has all eight slots, because no other tenant has work; then two are needed.
        sleep(Duration::from_secs(2)).await;
        assert_eq!((stats.running(), stats.report().snoozed), (6, 2));
        let started = Instant::now();
        let other = send(&fixture, "other", 40, &json!({})).await;
        all_done(&fixture, &other).await;
        assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
        all_done(&fixture, &greedy).await;
        assert_eq!(stats.report().snoozed, 2, "nothing is claimed in vain again and again");
        control.drain();
    };
    let (ran, ()) = tokio::join!(worker.run(), watch);
    assert_eq!(ran.unwrap().interrupted, 0);
    let in_order: Vec<String> = (0..20).map(|n| format!("greedy-{n:02}")).collect();
    assert_eq!(asked(&fixture, "greedy").await, in_order);
    fixture.is_clean().await;
}

#[tokio::test(start_paused = true)]
async fn whoever_is_near_its_deadline_stays_and_is_told() {
    let fixture = WorkerFixture::new();
    fixture.setup.scripted("greedy", "p", FINE, slow_limit()).await;
    let units = send(&fixture, "greedy", 8, &json!({ "timeout_ms": 4_900 })).await;
    fixture.work().await;
    let mut answers = [0, 0];
    for id in units {
        let unit = fixture.unit(id).await;
        assert_eq!(unit.state, UnitState::Done);
        let reply: Value = serde_json::from_slice(unit.result.unwrap().as_bytes()).unwrap();
        match reply["error_code"].as_str() {
            None => answers[0] += 1,
            Some("RATE_LIMITED") => answers[1] += 1,
            Some(other) => panic!("{other}"),
        }
    }
    assert_eq!(answers, [3, 5], "one at once, then one every two seconds");
}

#[tokio::test(start_paused = true)]
async fn tenants_who_share_a_limit_are_served_in_the_order_of_their_turns() {
    let fixture = WorkerFixture::new();
    let template = json!({
        "template": true, "provider": "scripted", "model": "m", "script": FINE,
        "limits": { "requests": 60, "burst": 0.0001 },
    });
    fixture.setup.profile("default", "house", template).await;
    let patient = json!({ "timeout_ms": 600_000 });
    let mut units = Vec::new();
    for who in ["a", "b", "c"] {
        fixture.setup.profile(who, "p", json!({ "extends": "house" })).await;
        units.extend(send(&fixture, who, 20, &patient).await);
    }
    let worker = fixture.worker().build().unwrap();
    let control = worker.control();
    let watch = async {
        all_done(&fixture, &units).await;
        control.drain();
    };
    let (ran, ()) = tokio::join!(worker.run(), watch);
    ran.unwrap();
    let served = asked(&fixture, "").await;
    // The first eight started before the limit was known.
    for turns in served[8..].windows(6).take(40) {
        let count = |who: &str| turns.iter().filter(|id| id.starts_with(who)).count();
        assert_eq!([count("a"), count("b"), count("c")], [2, 2, 2], "{served:?}");
    }
}
