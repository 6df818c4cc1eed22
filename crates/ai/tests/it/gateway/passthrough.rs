//! Requests that are passed through to a provider with the same API.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::fake_backend::{ANTHROPIC_EVENTS, OPENAI_EVENTS};
use super::{ANTHROPIC, GatewayFixture, OPENAI};

fn hello(model: &str) -> Value {
    let messages = [json!({"role": "user", "content": "Hello"})];
    json!({"model": model, "max_tokens": 9, "messages": messages, "unheard_of": {"b": [1], "a": null}})
}

#[tokio::test]
async fn what_only_the_wire_knows_goes_there_and_back() {
    let fixture = GatewayFixture::new();
    for (path, profile) in [(OPENAI, "raw"), (ANTHROPIC, "claude")] {
        let reply = fixture.post(path, hello(profile)).await;
        assert_eq!(reply.json(), hello("real-model"), "{profile}");
    }
}

#[tokio::test]
async fn the_other_wire_is_translated_and_refuses_what_would_be_lost() {
    let fixture = GatewayFixture::new();
    for (path, profile) in [(ANTHROPIC, "raw"), (OPENAI, "claude")] {
        let reply = fixture.post(path, hello(profile)).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{profile}");
        let mut body = hello(profile);
        body.as_object_mut().unwrap().remove("unheard_of");
        let reply = fixture.post(path, body).await;
        assert_eq!(reply.status, StatusCode::OK, "{profile}");
        assert!(reply.body.contains("translated"));
    }
}

#[tokio::test]
async fn a_streams_events_are_handed_on_as_they_came() {
    let fixture = GatewayFixture::new();
    let mut body = hello("raw");
    body["stream"] = true.into();
    let reply = fixture.post(OPENAI, body.clone()).await;
    // The usage was only requested for the ledger.
    assert_eq!(reply.events(), [(None, OPENAI_EVENTS[0]), (None, "[DONE]")]);
    body["stream_options"] = json!({"include_usage": true});
    let reply = fixture.post(OPENAI, body).await;
    assert_eq!(reply.events(), OPENAI_EVENTS.iter().map(|event| (None, *event)).collect::<Vec<_>>());

    let mut body = hello("claude");
    body["stream"] = true.into();
    let reply = fixture.post(ANTHROPIC, body).await;
    let names = ["message_start", "ping", "message_stop"].map(Some);
    let events: Vec<_> = names.into_iter().zip(ANTHROPIC_EVENTS.iter().copied()).collect();
    assert_eq!(reply.events(), events);
}
