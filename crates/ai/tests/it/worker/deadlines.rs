use std::time::Duration;

use longshore::accounts::CallStatus;
use longshore::{ProfileName, UnitState};
use longshore_ai::Code;
use longshore_ai::contract::{Prompt, Reply, ReplyBody, Request};
use longshore_ai::worker::RequestClient;
use serde_json::json;
use tokio::time::Instant;

use super::fixture::{WorkerFixture, code_or_text, is_empty, next_reply, with_reply_queue};
use crate::inference::fixture::tenant;

fn request(id: &str, profile: &str, timeout: Duration) -> Request {
    let prompt = Prompt::Text(id.to_owned());
    let profile = ProfileName::new(profile).unwrap();
    Request { timeout, ..Request::new(id, tenant("acme"), profile, prompt) }
}

fn code(reply: &Reply) -> Option<Code> {
    match &reply.body {
        ReplyBody::Error(failure) => Some(failure.code),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn by_its_deadline_the_caller_knows_that_time_is_up() {
    let fixture = WorkerFixture::new();
    fixture.setup.scripted("acme", "slow", "[[answer]]\nhang = true", json!({})).await;
    let caller = RequestClient::new(fixture.client.clone(), None).unwrap();
    let timeout = Duration::from_secs(5);
    // Both with a worker and without one.
    let worker = fixture.worker().build().unwrap();
    let control = worker.control();
    let asking = async {
        let started = Instant::now();
        let reply = caller.ask(&request("heard", "slow", timeout), &*fixture.clock).await;
        control.drain();
        (reply, started.elapsed())
    };
    let (ran, (reply, took)) = tokio::join!(worker.run(), asking);
    ran.unwrap();
    assert_eq!(code(&reply), Some(Code::Timeout));
    assert!(took <= timeout + Duration::from_secs(1), "{took:?} of paused time");
    let started = Instant::now();
    let reply = caller.ask(&request("unheard", "slow", timeout), &*fixture.clock).await;
    assert_eq!(code(&reply), Some(Code::ProviderError), "it was not sent");
    assert!(started.elapsed() <= timeout + Duration::from_secs(1));
    assert_eq!(fixture.call_records().await, [("heard".to_owned(), CallStatus::MaybeBilled)]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waited_too_long_is_not_asked() {
    let fixture = WorkerFixture::new();
    fixture.setup.scripted("acme", "fast", "[[answer]]\nreply = 'late'", json!({})).await;
    let inbox = fixture.inbox("acme", "r").await;
    fixture.send("acme", with_reply_queue("r-1", "fast", &json!({ "timeout_ms": 1000 }))).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    fixture.work().await;
    assert_eq!(code_or_text(&next_reply(&inbox).await), "PROVIDER_ERROR", "it was not sent");
    let calls = fixture.setup.calls().await;
    assert_eq!(calls[0].end.as_ref().unwrap().attempts, 0);
}

#[tokio::test(start_paused = true)]
async fn a_late_reply_is_never_taken_for_anothers() {
    let fixture = WorkerFixture::new();
    let script = "[[answer]]\nmatch = 'slow'\nreply = 'to slow'\ndelay = '3s'\n\
                  [[answer]]\nreply = 'to {{ prompt }}'\ndelay = '1s'";
    fixture.setup.scripted("acme", "mixed", script, json!({})).await;
    let caller = RequestClient::new(fixture.client.clone(), None).unwrap();
    let worker = fixture.worker().build().unwrap();
    let control = worker.control();
    let ask = async |id: &str, seconds| {
        let request = request(id, "mixed", Duration::from_secs(seconds));
        caller.ask(&request, &*fixture.clock).await
    };
    let asking = async {
        let slow = ask("slow", 2).await;
        let mut others = Vec::new();
        for id in ["a", "b", "c"] {
            others.push((id, ask(id, 2).await));
        }
        control.drain();
        (slow, others)
    };
    let (ran, (slow, others)) = tokio::join!(worker.run(), asking);
    ran.unwrap();
    assert_eq!(code(&slow), Some(Code::Timeout));
    for (id, reply) in others {
        assert_eq!(reply.header.request_id.as_deref(), Some(id));
        assert_eq!(code_or_text(&reply), format!("to {id}"));
    }
    fixture.is_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_finishes_what_is_in_flight_and_leaves_the_rest() {
    let fixture = WorkerFixture::new();
    let script = "[[answer]]\nreply = 'fine'\ndelay = '5s'";
    fixture.setup.scripted("acme", "slow", script, json!({})).await;
    let inbox = fixture.inbox("acme", "r").await;
    let mut ids = Vec::new();
    for n in 0..20 {
        ids.push(fixture.send("acme", with_reply_queue(&format!("r-{n}"), "slow", &json!({}))).await);
    }
    let worker = fixture.worker().slots(4).build().unwrap();
    let control = worker.control();
    let operator = async {
        while fixture.setup.calls().await.len() < 4 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        control.drain();
    };
    let (report, ()) = tokio::join!(worker.run(), operator);
    let report = report.unwrap();
    assert_eq!((report.done, report.interrupted, report.left), (4, 0, 0));
    for _ in 0..4 {
        assert_eq!(code_or_text(&next_reply(&inbox).await), "fine");
    }
    assert!(is_empty(&inbox).await);
    let mut ready = 0;
    for id in ids {
        ready += u32::from(fixture.unit(id).await.state == UnitState::Ready);
    }
    assert_eq!(ready, 16);
    fixture.is_clean().await;
}
