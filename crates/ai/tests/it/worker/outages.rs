//! Requests of a provider that fails are put off, and use no attempt.

use std::time::Duration;

use longshore::UnitState;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::fixture::{LONG, WorkerFixture, request};
use crate::inference::outages::{Mode, SwitchedProvider};

#[tokio::test(start_paused = true)]
async fn requests_wait_for_the_end_of_an_outage_and_use_no_attempt() {
    let fixture = WorkerFixture::new();
    let provider = SwitchedProvider::install(&fixture.setup, &["acme", "other"], &json!({})).await;
    provider.set(Mode::Fail);
    let mut units = Vec::new();
    for number in 0..50 {
        let request =
            request(&format!("r-{number}"), "p", &json!({ "prompt": format!("question {number}") }));
        units.push(fixture.send("acme", request.to_string()).await);
    }
    let worker = fixture.worker().build().unwrap();
    let control = worker.control();
    let watch = async {
        sleep(Duration::from_secs(20)).await;
        provider.set(Mode::Answer);
        let healed = Instant::now();
        for id in units {
            let unit = fixture.client.wait(id, Some(LONG)).await.unwrap();
            let reply: Value = serde_json::from_slice(unit.result.unwrap().as_bytes()).unwrap();
            assert_eq!((unit.state, unit.attempt), (UnitState::Done, 1));
            assert_eq!(reply["error_code"], Value::Null, "{reply}");
        }
        control.drain();
        healed.elapsed()
    };
    let (ran, recovery) = tokio::join!(worker.run(), watch);
    ran.unwrap();
    eprintln!("50 requests were answered {recovery:?} after an outage of 20 s");
    assert!(recovery < Duration::from_secs(31), "{recovery:?}");
    fixture.is_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_deadline_comes_before_the_next_probe_is_answered_with_the_reason() {
    let fixture = WorkerFixture::new();
    let provider = SwitchedProvider::install(&fixture.setup, &["acme"], &json!({})).await;
    provider.set(Mode::Fail);
    let mut units = Vec::new();
    for number in 0..20 {
        let more = json!({ "prompt": format!("question {number}"), "timeout_ms": 10_000 });
        units.push(fixture.send("acme", request(&format!("r-{number}"), "p", &more).to_string()).await);
    }
    let worker = fixture.worker().build().unwrap();
    let control = worker.control();
    let watch = async {
        for id in units {
            let unit = fixture.client.wait(id, Some(LONG)).await.unwrap();
            let reply: Value = serde_json::from_slice(unit.result.unwrap().as_bytes()).unwrap();
            assert_eq!(reply["error_code"], "PROVIDER_ERROR", "{reply}");
        }
        control.drain();
    };
    let (ran, ()) = tokio::join!(worker.run(), watch);
    ran.unwrap();
}
