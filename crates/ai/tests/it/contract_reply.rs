//! Replies: their fields, and that they survive a round trip.

use std::time::Duration;

use longshore_ai::contract::{Reply, ReplyBody, Request};
use longshore_ai::{Answer, AskError, Code, FinishReason, ProviderErrorId, Retryability};
use serde_json::{Value, json};

use crate::contract_request::with;

fn request() -> Request {
    let request = with(json!({ "version": "1.2", "metadata": { "row": 7 } }));
    Request::parse(request.to_string().as_bytes()).unwrap()
}

fn answer() -> Answer {
    Answer {
        text: "2".into(),
        model: "m".into(),
        tokens_in: 10,
        tokens_out: 1,
        tokens_cached: 4,
        latency_ms: 12,
        finish_reason: FinishReason::Length,
        ..Answer::default()
    }
}

fn json(reply: &Reply) -> Value {
    serde_json::from_slice(&reply.to_json().unwrap()).unwrap()
}

#[test]
fn a_success_says_all_that_the_contract_promises() {
    let reply = Reply::success(request().header(), &answer(), 2);
    let expected = json!({
        "version": "1.2", "request_id": "r-1", "status": "success", "metadata": { "row": 7 },
        "response": "2", "model_used": "m", "tokens_in": 10, "tokens_out": 1, "tokens_cached": 4,
        "latency_ms": 12, "finish_reason": "length", "attempts": 2,
    });
    assert_eq!(json(&reply), expected);
    assert_eq!(Reply::parse(&reply.to_json().unwrap()).unwrap(), reply);
    let ReplyBody::Success(success) = reply.body else { panic!("a success") };
    assert_eq!(Answer::from(success), answer());
}

#[test]
fn an_error_says_all_that_the_contract_promises() {
    let error = AskError {
        retry_after: Some(Duration::from_millis(1500)),
        provider_status: Some(429),
        provider_error: Some(Box::new(ProviderErrorId {
            kind: Some("tokens".into()),
            code: Some("rate_limit_exceeded".into()),
        })),
        retry: Retryability::Later,
        ..AskError::new(Code::RateLimited, "too many requests")
    };
    let reply = Reply::error(request().header(), &error, 5);
    let expected = json!({
        "version": "1.2", "request_id": "r-1", "status": "error", "metadata": { "row": 7 },
        "error_code": "RATE_LIMITED", "error_message": "too many requests", "attempts": 5,
        "provider_status": 429, "retry_after_ms": 1500,
        "provider_error_type": "tokens", "provider_error_code": "rate_limit_exceeded",
    });
    assert_eq!(json(&reply), expected);
    assert_eq!(Reply::parse(&reply.to_json().unwrap()).unwrap(), reply);
    let ReplyBody::Error(failure) = reply.body else { panic!("an error") };
    assert_eq!(AskError::from(failure), error);
}

#[test]
fn pieces_are_numbered_and_the_last_reply_has_the_last_number() {
    let header = request().header();
    let first = Reply::partial(header.clone(), 1, "He");
    assert_eq!(
        json(&first),
        json!({ "version": "1.2", "request_id": "r-1", "status": "partial", "seq": 1,
            "response": "He", "metadata": { "row": 7 } })
    );
    assert_eq!(Reply::parse(&first.to_json().unwrap()).unwrap(), first);
    let last = Reply::success(header.clone(), &answer(), 1).numbered_after(2);
    assert_eq!((json(&last)["seq"].clone(), json(&last)["status"].clone()), (3.into(), "success".into()));
    let error = AskError::new(Code::Timeout, "no answer in time");
    assert_eq!(json(&Reply::error(header, &error, 1).numbered_after(0))["seq"], 1);
}

#[test]
fn what_a_later_version_adds_does_not_confuse() {
    let error = json!({
        "version": "1.9", "request_id": "r", "status": "error", "error_code": "MOON_PHASE",
        "error_message": "x", "attempts": 0, "new": true,
    });
    let reply = Reply::parse(error.to_string().as_bytes()).unwrap();
    assert!(matches!(reply.body, ReplyBody::Error(failure) if failure.code == Code::Internal));
    let success = json!({
        "version": "1.9", "request_id": "r", "status": "success", "response": "", "model_used": "m",
        "tokens_in": 0, "tokens_out": 0, "latency_ms": 0, "finish_reason": "bored", "metadata": {},
    });
    let reply = Reply::parse(success.to_string().as_bytes()).unwrap();
    let ReplyBody::Success(success) = reply.body else { panic!("a success") };
    assert_eq!(success.finish_reason, FinishReason::Other);
}

#[test]
fn a_reply_that_is_none_is_refused_without_being_repeated() {
    let cases = [
        (json!({}), "the reply violates the contract"),
        (json!("SECRET"), "the reply violates the contract"),
        (json!({ "version": "2.0", "request_id": "r", "status": "error" }), "version 2.0"),
        (json!({ "version": "1.0", "request_id": "r", "status": "error" }), "has no `error_code`"),
        (json!({ "version": "1.0", "request_id": "r", "status": "SECRET" }), "the reply violates"),
        (json!({ "version": "1.0", "request_id": "r", "status": "partial" }), "has no `seq`"),
    ];
    for (reply, expected) in cases {
        let error = Reply::parse(reply.to_string().as_bytes()).unwrap_err();
        assert!(error.0.contains(expected) && !error.0.contains("SECRET"), "{reply}: {error}");
    }
    assert!(Reply::parse(b"{").unwrap_err().0.starts_with("the reply is not JSON"));
}
