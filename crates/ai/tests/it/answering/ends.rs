use std::time::Duration;

use longshore::ledger::CallStatus;
use longshore::{ProfileName, UnitState};
use longshore_ai::Code;
use longshore_ai::contract::{Prompt, Reply, Request, Said};
use longshore_ai::worker::Caller;
use serde_json::json;
use tokio::time::Instant;

use super::office::{Office, answered, is_empty, next, said};
use crate::asking::rig::tenant;

fn request(id: &str, profile: &str, timeout: Duration) -> Request {
    let prompt = Prompt::Text(id.to_owned());
    let profile = ProfileName::new(profile).unwrap();
    Request { timeout, ..Request::new(id, tenant("acme"), profile, prompt) }
}

fn code(reply: &Reply) -> Option<Code> {
    match &reply.said {
        Said::Error(failure) => Some(failure.code),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn by_its_deadline_the_caller_knows_that_time_is_up() {
    let office = Office::new();
    office.rig.scripted("acme", "slow", "[[answer]]\nhang = true", json!({})).await;
    let caller = Caller::new(office.client.clone(), None).unwrap();
    let timeout = Duration::from_secs(5);
    // Whether somebody answers or nobody does.
    let worker = office.worker().build().unwrap();
    let control = worker.control();
    let asking = async {
        let begun = Instant::now();
        let reply = caller.ask(&request("heard", "slow", timeout), &*office.clock).await;
        control.drain();
        (reply, begun.elapsed())
    };
    let (ran, (reply, took)) = tokio::join!(worker.run(), asking);
    ran.unwrap();
    assert_eq!(code(&reply), Some(Code::Timeout));
    assert!(took <= timeout + Duration::from_secs(1), "{took:?} of paused time");
    let begun = Instant::now();
    let reply = caller.ask(&request("unheard", "slow", timeout), &*office.clock).await;
    assert_eq!(code(&reply), Some(Code::Timeout));
    assert!(begun.elapsed() <= timeout + Duration::from_secs(1));
    assert_eq!(office.books().await, [("heard".to_owned(), CallStatus::MaybeBilled)]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waited_too_long_is_not_asked() {
    let office = Office::new();
    office.rig.scripted("acme", "fast", "[[answer]]\nreply = 'late'", json!({})).await;
    let inbox = office.inbox("acme", "r").await;
    office.send("acme", answered("r-1", "fast", &json!({ "timeout_ms": 1000 }))).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    office.work().await;
    assert_eq!(said(&next(&inbox).await), "TIMEOUT");
    let calls = office.rig.calls().await;
    assert_eq!(calls[0].end.as_ref().unwrap().attempts, 0);
}

#[tokio::test(start_paused = true)]
async fn a_late_reply_is_never_taken_for_anothers() {
    let office = Office::new();
    let script = "[[answer]]\nmatch = 'slow'\nreply = 'to slow'\ndelay = '3s'\n\
                  [[answer]]\nreply = 'to {{ prompt }}'\ndelay = '1s'";
    office.rig.scripted("acme", "mixed", script, json!({})).await;
    let caller = Caller::new(office.client.clone(), None).unwrap();
    let worker = office.worker().build().unwrap();
    let control = worker.control();
    let ask = async |id: &str, seconds| {
        let request = request(id, "mixed", Duration::from_secs(seconds));
        caller.ask(&request, &*office.clock).await
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
        assert_eq!(reply.heading.request_id.as_deref(), Some(id));
        assert_eq!(said(&reply), format!("to {id}"));
    }
    office.is_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_finishes_what_is_in_flight_and_leaves_the_rest() {
    let office = Office::new();
    let script = "[[answer]]\nreply = 'fine'\ndelay = '5s'";
    office.rig.scripted("acme", "slow", script, json!({})).await;
    let inbox = office.inbox("acme", "r").await;
    let mut ids = Vec::new();
    for n in 0..20 {
        ids.push(office.send("acme", answered(&format!("r-{n}"), "slow", &json!({}))).await);
    }
    let worker = office.worker().slots(4).build().unwrap();
    let control = worker.control();
    let operator = async {
        while office.rig.calls().await.len() < 4 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        control.drain();
    };
    let (report, ()) = tokio::join!(worker.run(), operator);
    let report = report.unwrap();
    assert_eq!((report.done, report.interrupted, report.left), (4, 0, 0));
    for _ in 0..4 {
        assert_eq!(said(&next(&inbox).await), "fine");
    }
    assert!(is_empty(&inbox).await);
    let mut ready = 0;
    for id in ids {
        ready += u32::from(office.unit(id).await.state == UnitState::Ready);
    }
    assert_eq!(ready, 16);
    office.is_clean().await;
}
