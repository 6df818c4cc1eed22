use std::time::Duration;

use longshore::ledger::CallStatus;
use longshore::{ProfileName, UnitState};
use longshore_ai::contract::{Prompt, Request};
use longshore_ai::worker::Caller;
use serde_json::json;

use super::office::{Office, answered, is_empty, next, said};
use crate::asking::rig::tenant;

const FINE: &str = "[[answer]]\nreply = 'fine'";

#[tokio::test(start_paused = true)]
async fn the_same_request_twice_is_answered_once() {
    let office = Office::new();
    office.rig.scripted("acme", "fast", FINE, json!({})).await;
    let inbox = office.inbox("acme", "r").await;
    let first = office.send("acme", answered("r-1", "fast", &json!({}))).await;
    office.work().await;
    let second = office.send("acme", answered("r-1", "fast", &json!({}))).await;
    office.work().await;
    assert_eq!(said(&next(&inbox).await), "fine");
    assert!(is_empty(&inbox).await);
    assert_eq!(office.unit(first).await.state, UnitState::Done);
    assert_eq!(office.failure(second).await.0, "DUPLICATE_REQUEST");
    assert_eq!(office.books().await, [("r-1".to_owned(), CallStatus::Success)]);
}

#[tokio::test(start_paused = true)]
async fn two_at_the_same_time_are_answered_once_too() {
    let office = Office::new();
    let slow = json!({ "delay": { "secs": 2, "nanos": 0 } });
    office.rig.scripted("acme", "slow", FINE, slow).await;
    let inbox = office.inbox("acme", "r").await;
    for _ in 0..5 {
        office.send("acme", answered("r-1", "slow", &json!({}))).await;
    }
    office.work().await;
    assert_eq!(said(&next(&inbox).await), "fine");
    assert!(is_empty(&inbox).await);
    assert_eq!(office.books().await, [("r-1".to_owned(), CallStatus::Success)]);
}

#[tokio::test(start_paused = true)]
async fn another_tenants_request_of_the_same_id_is_its_own() {
    let office = Office::new();
    for owner in ["acme", "other"] {
        office.rig.scripted(owner, "fast", FINE, json!({})).await;
        let text = super::office::request("r-1", "fast", &json!({ "customer": owner }));
        let id = office.send(owner, text.to_string()).await;
        office.work().await;
        assert_eq!(office.unit(id).await.state, UnitState::Done);
    }
    assert_eq!(office.books().await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_sends_again_gets_the_same_answer() {
    let office = Office::new();
    let counts = "[[answer]]\nreply = 'asked {{ n }} times before'";
    office.rig.scripted("acme", "fast", counts, json!({})).await;
    let caller = Caller::new(office.client.clone(), None).unwrap();
    let prompt = Prompt::Text("hi".to_owned());
    let profile = ProfileName::new("fast").unwrap();
    let request = Request {
        timeout: Duration::from_secs(5),
        ..Request::new("r-1", tenant("acme"), profile, prompt)
    };
    let worker = office.worker().build().unwrap();
    let control = worker.control();
    let asking = async {
        let replies = [
            caller.ask(&request, &*office.clock).await,
            caller.ask(&request, &*office.clock).await,
        ];
        control.drain();
        replies
    };
    let (ran, [first, second]) = tokio::join!(worker.run(), asking);
    ran.unwrap();
    assert_eq!((said(&first), &first), ("asked 0 times before", &second));
    office.is_clean().await;
}
