use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use longshore::accounts::{Budget, CallStatus, Limits as _};
use longshore::store::ReplyQueues;
use longshore::store::{Admin, UnitAction, UnitSelection};
use longshore::{NewUnit, QueueName, Scope, UnitId, UnitState};
use longshore_ai::FinishReason;
use longshore_ai::contract::{Reply, ReplyBody};
use longshore_ai::worker::Inbox;
use longshore_testkit::crash_points::{CrashPoint, CrashTiming};
use serde_json::json;

use super::fixture::{LONG, WorkerFixture, code_or_text, is_empty, next_reply, request, with_reply_queue};
use crate::inference::fixture::tenant;

const FINE: &str = "[[answer]]\nreply = 'fine'";
const WORDS: &str = "once upon a time there was a port";

#[tokio::test(start_paused = true)]
async fn a_request_is_answered_in_its_reply_queue_and_in_its_units_result() {
    let fixture = WorkerFixture::new();
    fixture.setup.scripted("acme", "fast", FINE, json!({})).await;
    let inbox = fixture.inbox("acme", "r").await;
    let id = fixture.send("acme", with_reply_queue("r-1", "fast", &json!({}))).await;
    fixture.work().await;
    let reply = next_reply(&inbox).await;
    assert_eq!(reply.header.request_id.as_deref(), Some("r-1"));
    let ReplyBody::Success(success) = &reply.body else { panic!("{reply:?}") };
    assert_eq!((success.response.as_str(), success.model_used.as_str()), ("fine", "fast"));
    assert_eq!((success.attempts, success.tokens_out, success.simulated), (1, 1, true));
    assert!(is_empty(&inbox).await, "one reply");
    let unit = fixture.unit(id).await;
    assert_eq!(unit.state, UnitState::Done);
    assert_eq!(Reply::parse(unit.result.unwrap().as_bytes()).unwrap(), reply);
    assert_eq!(fixture.call_records().await, [("r-1".to_owned(), CallStatus::Success)]);
}

#[tokio::test(start_paused = true)]
async fn replies_tell_from_the_budgets_warn_at_on_how_much_of_it_is_used() {
    let fixture = WorkerFixture::new();
    let script = "[[answer]]\nreply = 'fine'\ntokens_out = 10";
    fixture.setup.scripted("acme", "fast", script, json!({ "max_tokens": 20 })).await;
    let budget = Some(Budget { tokens: Some(100), cost_picos: None, warn_at: 0.2 });
    fixture.setup.store.put_budget(&Scope::All, &tenant("acme"), budget).await.unwrap();
    let inbox = fixture.inbox("acme", "r").await;
    let mut told = Vec::new();
    for (id, max_tokens) in [("r-1", 20), ("r-2", 20), ("r-3", 20), ("r-4", 500)] {
        let more = json!({ "max_tokens": max_tokens });
        fixture.send("acme", with_reply_queue(id, "fast", &more)).await;
        fixture.work().await;
        let raw = inbox.receive(LONG).await.unwrap().unwrap();
        let reply: serde_json::Value = serde_json::from_slice(raw.as_bytes()).unwrap();
        told.push((reply["status"].as_str().unwrap().to_owned(), reply["budget_used"].as_f64()));
        assert_eq!(Reply::parse(raw.as_bytes()).unwrap().budget_used, reply["budget_used"].as_f64());
    }
    // Each used 11 tokens, one of them for the prompt; the last one does not fit.
    let success = |used| ("success".to_owned(), used);
    let expected = [success(None), success(None), success(Some(0.22)), ("error".to_owned(), Some(0.33))];
    assert_eq!(told, expected);
}

#[tokio::test(start_paused = true)]
async fn metadata_comes_back_as_it_was_written() {
    let fixture = WorkerFixture::new();
    fixture.setup.scripted("acme", "fast", FINE, json!({})).await;
    let inbox = fixture.inbox("acme", "r").await;
    // Numbers that no float holds, an order that no map keeps, spaces.
    let metadata = r#"{ "z": 1.10, "a": 123456789012345678901234567890, "é": [ null ] }"#;
    let text = with_reply_queue("r-1", "fast", &json!({ "metadata": "HERE" }));
    fixture.send("acme", text.replace("\"HERE\"", metadata)).await;
    fixture.work().await;
    let raw = inbox.receive(LONG).await.unwrap().unwrap();
    let raw = String::from_utf8(raw.as_bytes().to_vec()).unwrap();
    assert!(raw.contains(metadata), "{raw}");
}

#[tokio::test(start_paused = true)]
async fn what_the_request_does_not_say_the_profile_does() {
    let fixture = WorkerFixture::new();
    let models = json!({ "cockatoo": {} });
    let body = json!({ "provider": "echo", "model": "parrot", "models": models, "max_tokens": 3 });
    fixture.setup.profile("acme", "parrot", body).await;
    let long = json!({ "prompt": "a rather long prompt that takes more than three tokens" });
    let plain = fixture.send("acme", request("r-1", "parrot", &long).to_string()).await;
    let mut more = long.clone();
    more["max_tokens"] = json!(500);
    more["model_override"] = json!("cockatoo");
    let other = fixture.send("acme", request("r-2", "parrot", &more).to_string()).await;
    fixture.work().await;
    let mut actual = Vec::new();
    for id in [plain, other] {
        let result = fixture.unit(id).await.result.unwrap();
        let ReplyBody::Success(success) = Reply::parse(result.as_bytes()).unwrap().body else { panic!() };
        actual.push((success.model_used, success.finish_reason));
    }
    let cut = ("parrot".to_owned(), FinishReason::Length);
    assert_eq!(actual, [cut, ("cockatoo".to_owned(), FinishReason::Stop)]);
}

#[tokio::test(start_paused = true)]
async fn parts_are_numbered_in_order_and_the_last_reply_goes_on_counting() {
    let fixture = WorkerFixture::new();
    let script = format!("[[answer]]\nreply = '{WORDS}'");
    fixture.setup.scripted("acme", "fast", &script, json!({})).await;
    let inbox = fixture.inbox("acme", "r").await;
    fixture.send("acme", with_reply_queue("r-1", "fast", &json!({ "stream": true }))).await;
    fixture.work().await;
    let (mut text, mut seq) = (String::new(), 0);
    let last = loop {
        let reply = next_reply(&inbox).await;
        seq += 1;
        assert_eq!(reply.seq, Some(seq));
        match &reply.body {
            ReplyBody::Partial(piece) => text.push_str(piece),
            _ => break reply,
        }
    };
    assert!(seq > 1, "there were parts");
    assert_eq!((code_or_text(&last), text.as_str()), (WORDS, WORDS));
    assert!(is_empty(&inbox).await);
}

#[tokio::test(start_paused = true)]
async fn no_provider_is_asked_if_the_reply_queue_is_not_open() {
    let fixture = WorkerFixture::new();
    fixture.setup.scripted("acme", "fast", FINE, json!({})).await;
    // Another tenant's queue of the same name is not the request's.
    let theirs = fixture.inbox("evil", "r").await;
    let id = fixture.send("acme", with_reply_queue("r-1", "fast", &json!({}))).await;
    fixture.work().await;
    let (code, message) = fixture.failure(id).await;
    assert_eq!((code.as_str(), message.as_str()), ("REPLY_QUEUE_GONE", "reply queue `acme/r` is not open"));
    assert!(fixture.call_records().await.is_empty() && is_empty(&theirs).await);
}

#[tokio::test(start_paused = true)]
async fn a_reply_is_read_again_until_it_is_acknowledged() {
    let fixture = WorkerFixture::new();
    fixture.setup.scripted("acme", "fast", FINE, json!({})).await;
    let inbox = fixture.inbox("acme", "r").await;
    for id in ["r-1", "r-2"] {
        fixture.send("acme", with_reply_queue(id, "fast", &json!({}))).await;
        fixture.work().await;
    }
    let first = inbox.read(1, Duration::ZERO).await.unwrap();
    // Another process, after a crash of the first.
    let store = &fixture.setup.store;
    let find = || Inbox::find(Arc::clone(store) as _, Arc::clone(store) as _, tenant("acme"), "r");
    let other = find().await.unwrap();
    assert_eq!(other.read(9, Duration::ZERO).await.unwrap(), first);
    let ids = [first[0].id];
    assert_eq!(other.acknowledge(&ids).await.unwrap(), 1);
    assert_eq!(other.acknowledge(&ids).await.unwrap(), 0);
    let second = Reply::parse(inbox.receive(Duration::ZERO).await.unwrap().unwrap().as_bytes()).unwrap();
    assert_eq!(second.header.request_id.as_deref(), Some("r-2"));
    assert!(is_empty(&inbox).await);
    inbox.close().await.unwrap();
    assert!(matches!(find().await, Err(longshore::Error::NotFound { .. })));
    let read = other.read(1, Duration::from_secs(9)).await;
    assert!(matches!(read, Err(longshore::Error::NotFound { .. })), "{read:?}");
}

#[tokio::test(start_paused = true)]
async fn a_reply_whose_queue_is_gone_is_kept_and_delivered_when_a_reader_opens_it_again() {
    let fixture = WorkerFixture::new();
    let once = "[[answer]]\nwhen = 'n == 0'\nreply = 'the first'\n[[answer]]\nreply = 'again'";
    let slow = json!({ "delay": "2s" });
    fixture.setup.scripted("acme", "fast", once, slow).await;
    let inbox = fixture.inbox("acme", "r").await;
    let id = fixture.send("acme", with_reply_queue("r-1", "fast", &json!({}))).await;
    let close_early = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        inbox.close().await.unwrap();
    };
    tokio::join!(fixture.work(), close_early);
    assert_eq!(fixture.failure(id).await.0, "REPLY_QUEUE_GONE");
    assert_eq!(fixture.call_records().await, [("r-1".to_owned(), CallStatus::Success)]);
    let inbox = fixture.inbox("acme", "r").await;
    let store = &fixture.setup.store;
    let units = UnitSelection::Ids(vec![id]);
    assert_eq!(store.apply_unit_action(&Scope::All, units, UnitAction::Retry).await.unwrap().changed, 1);
    fixture.work().await;
    assert_eq!(code_or_text(&next_reply(&inbox).await), "the first");
    assert!(is_empty(&inbox).await);
    assert_eq!(fixture.call_records().await.len(), 1, "no provider was asked again");
}

#[tokio::test(start_paused = true)]
async fn no_reply_is_delivered_to_another_reader_of_a_queue_with_the_same_name() {
    let fixture = WorkerFixture::new();
    fixture.setup.scripted("acme", "fast", FINE, json!({ "delay": "2s" })).await;
    let inbox = fixture.inbox("acme", "r").await;
    let id = fixture.send("acme", with_reply_queue("r-1", "fast", &json!({ "stream": true }))).await;
    let reopened = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        inbox.close().await.unwrap();
        fixture.inbox("acme", "r").await
    };
    let ((), other) = tokio::join!(fixture.work(), reopened);
    assert!(is_empty(&other).await);
    assert_eq!(fixture.failure(id).await.0, "REPLY_QUEUE_GONE");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_opens_the_queue_of_a_dead_one_gets_no_reply_of_a_worker_that_died_too() {
    let fixture = WorkerFixture::new();
    fixture.setup.scripted("acme", "fast", FINE, json!({})).await;
    let inbox = fixture.inbox("acme", "r").await;
    let id = fixture.send("acme", with_reply_queue("r-1", "fast", &json!({}))).await;
    let wire = CrashPoint::at(0, CrashTiming::Before, &["send_reply"]);
    let worker = fixture.worker_with(&wire).build().unwrap();
    tokio::select! {
        () = wire.reached.notified() => {}
        ran = worker.run() => panic!("{ran:?}"),
    }
    inbox.close().await.unwrap();
    let other = fixture.inbox("acme", "r").await;
    let reading = async {
        while fixture.unit(id).await.failure.is_none() {
            assert!(other.receive(Duration::from_secs(1)).await.unwrap().is_none());
        }
    };
    tokio::join!(fixture.work_until_done(id), reading);
    assert_eq!(fixture.failure(id).await.0, "REPLY_QUEUE_GONE");
}

#[tokio::test(start_paused = true)]
async fn any_number_of_queues_without_a_name_are_opened_at_once() {
    let fixture = WorkerFixture::new();
    let store = &fixture.setup.store;
    let open = || {
        let (store, ledger) = (Arc::clone(store) as _, Arc::clone(store) as _);
        Inbox::open_unnamed(store, ledger, tenant("acme"), Duration::from_secs(60))
    };
    let opened = futures_util::future::join_all((0..100).map(|_| open())).await;
    let names: HashSet<_> = opened.into_iter().map(|inbox| inbox.unwrap().queue().clone()).collect();
    assert_eq!(names.len(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_reply_queue_is_gone_with_who_read_it() {
    let fixture = WorkerFixture::new();
    let inbox = fixture.inbox("acme", "r").await;
    let queue = QueueName::new("acme/r").unwrap();
    let kind = longshore::Kind::new("reply").unwrap();
    let new = NewUnit::new(kind, b"{}".as_slice());
    let new = NewUnit { tenant: tenant("acme"), queue, ..new };
    let new = || NewUnit { id: UnitId::new(), ..new.clone() };
    let reply = || fixture.setup.store.send_reply(&Scope::All, new(), None);
    assert!(reply().await.unwrap().is_some());
    inbox.close().await.unwrap();
    assert!(reply().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_follow_its_schema_is_handed_over_and_says_so() {
    let fixture = WorkerFixture::new();
    let script = "[[answer]]\nmatch = 'good'\nreply = '{\"n\": 7}'\n[[answer]]\nreply = '{}'";
    fixture.setup.scripted("acme", "fast", script, json!({})).await;
    let schema = json!({ "type": "object", "required": ["n"] });
    let mut actual = Vec::new();
    for (id, prompt) in [("r-1", "good"), ("r-2", "bad")] {
        let asked = json!({ "prompt": prompt, "response_schema": schema });
        let unit = fixture.send("acme", request(id, "fast", &asked).to_string()).await;
        fixture.work().await;
        let result = fixture.unit(unit).await.result.unwrap();
        let ReplyBody::Success(success) = Reply::parse(result.as_bytes()).unwrap().body else { panic!() };
        actual.push((success.response, success.schema_error, success.attempts));
    }
    assert_eq!(actual[0], ("{\"n\": 7}".to_owned(), None, 1));
    let (response, error, attempts) = &actual[1];
    assert_eq!((response.as_str(), *attempts), ("{}", 2), "asked once more");
    assert!(error.as_ref().is_some_and(|why| why.contains("\"n\"")), "{error:?}");
}
