use std::time::Duration;

use longshore::accounts::CallStatus;
use longshore::{ProfileName, UnitState};
use longshore_ai::contract::{Prompt, Request};
use longshore_ai::worker::RequestClient;
use serde_json::json;

use super::fixture::{WorkerFixture, code_or_text, is_empty, next_reply, request, with_reply_queue};
use crate::inference::fixture::tenant;

const FINE: &str = "[[answer]]\nreply = 'fine'";

#[tokio::test(start_paused = true)]
async fn the_same_request_twice_is_answered_once() {
    let fixture = WorkerFixture::new();
    fixture.setup.scripted("acme", "fast", FINE, json!({})).await;
    let inbox = fixture.inbox("acme", "r").await;
    let first = fixture.send("acme", with_reply_queue("r-1", "fast", &json!({}))).await;
    fixture.work().await;
    let second = fixture.send("acme", with_reply_queue("r-1", "fast", &json!({}))).await;
    fixture.work().await;
    assert_eq!(code_or_text(&next_reply(&inbox).await), "fine");
    assert!(is_empty(&inbox).await);
    assert_eq!(fixture.unit(first).await.state, UnitState::Done);
    assert_eq!(fixture.failure(second).await.0, "DUPLICATE_REQUEST");
    assert_eq!(fixture.call_records().await, [("r-1".to_owned(), CallStatus::Success)]);
}

#[tokio::test(start_paused = true)]
async fn a_repeat_without_a_reply_queue_reads_that_it_is_one() {
    let fixture = WorkerFixture::new();
    fixture.setup.scripted("acme", "fast", FINE, json!({})).await;
    let send = || fixture.send("acme", request("r-1", "fast", &json!({})).to_string());
    let first = send().await;
    fixture.work().await;
    let second = send().await;
    fixture.work().await;
    let (code, message) = fixture.error_reply(second).await;
    assert_eq!(code, "DUPLICATE_REQUEST");
    assert_eq!(message, format!("request `r-1` is or was answered by unit {first}"));
}

#[tokio::test(start_paused = true)]
async fn two_at_the_same_time_are_answered_once_too() {
    let fixture = WorkerFixture::new();
    let slow = json!({ "delay": "2s" });
    fixture.setup.scripted("acme", "slow", FINE, slow).await;
    let inbox = fixture.inbox("acme", "r").await;
    for _ in 0..5 {
        fixture.send("acme", with_reply_queue("r-1", "slow", &json!({}))).await;
    }
    fixture.work().await;
    assert_eq!(code_or_text(&next_reply(&inbox).await), "fine");
    assert!(is_empty(&inbox).await);
    assert_eq!(fixture.call_records().await, [("r-1".to_owned(), CallStatus::Success)]);
}

#[tokio::test(start_paused = true)]
async fn another_tenants_request_of_the_same_id_is_its_own() {
    let fixture = WorkerFixture::new();
    for owner in ["acme", "other"] {
        fixture.setup.scripted(owner, "fast", FINE, json!({})).await;
        let text = super::fixture::request("r-1", "fast", &json!({ "customer": owner }));
        let id = fixture.send(owner, text.to_string()).await;
        fixture.work().await;
        assert_eq!(fixture.unit(id).await.state, UnitState::Done);
    }
    assert_eq!(fixture.call_records().await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_sends_again_gets_the_same_answer() {
    let fixture = WorkerFixture::new();
    let counts = "[[answer]]\nreply = 'asked {{ n }} times before'";
    fixture.setup.scripted("acme", "fast", counts, json!({})).await;
    let caller = RequestClient::new(fixture.client.clone(), None).unwrap();
    let prompt = Prompt::Text("hi".to_owned());
    let profile = ProfileName::new("fast").unwrap();
    let request =
        Request { timeout: Duration::from_secs(5), ..Request::new("r-1", tenant("acme"), profile, prompt) };
    let worker = fixture.worker().build().unwrap();
    let control = worker.control();
    let asking = async {
        let replies =
            [caller.ask(&request, &*fixture.clock).await, caller.ask(&request, &*fixture.clock).await];
        control.drain();
        replies
    };
    let (ran, [first, second]) = tokio::join!(worker.run(), asking);
    ran.unwrap();
    assert_eq!((code_or_text(&first), &first), ("asked 0 times before", &second));
    fixture.is_clean().await;
}
