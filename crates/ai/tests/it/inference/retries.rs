use std::time::Duration;

use longshore_ai::{AnswerPiece, Code};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::fixture::{InferenceFixture, request};

/// Fails twice, then answers.
const THIRD: &str = "[[answer]]\nwhen = 'n < 2'\nerror = 'PROVIDER_ERROR'\n\n[[answer]]\nreply = 'at last'";

#[tokio::test(start_paused = true)]
async fn a_provider_that_fails_is_asked_again_and_the_books_say_how_often() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "shaky", THIRD, json!({})).await;
    let outcome = fixture.ask("acme", "shaky", "hi").await;
    assert_eq!((outcome.result.unwrap().text.as_str(), outcome.attempts), ("at last", 3));
    assert_eq!(outcome.records.len(), 1);
    assert_eq!(outcome.records[0].end.as_ref().unwrap().attempts, 3);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_work_is_asked_once() {
    let fixture = InferenceFixture::new();
    for code in ["INVALID_REQUEST", "PROVIDER_AUTH", "TIMEOUT"] {
        fixture.scripted("acme", "bad", &format!("[[answer]]\nerror = '{code}'"), json!({})).await;
        let outcome = fixture.ask("acme", "bad", code).await;
        assert_eq!(outcome.result.unwrap_err().code.as_str(), code);
        assert_eq!(outcome.attempts, 1, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_goes_on_beyond_the_deadline() {
    let fixture = InferenceFixture::new();
    let slow = "[[answer]]\nerror = 'RATE_LIMITED'\nretry_after = '30s'";
    fixture.scripted("acme", "slow", slow, json!({})).await;
    let started = Instant::now();
    let mut request = request("acme", "slow", "hi");
    request.question.until = started + Duration::from_secs(45);
    let outcome = fixture.inference.ask(&request, None).await;
    assert_eq!(outcome.result.unwrap_err().code, Code::RateLimited);
    assert!(Instant::now() <= request.question.until, "a third try would end too late");
    assert_eq!(outcome.attempts, 2);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_has_begun_is_not_asked_for_anew() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "fast", "[[answer]]\nreply = 'all of it'", json!({})).await;
    let (sender, mut pieces) = mpsc::channel(8);
    let outcome = fixture.inference.ask(&request("acme", "fast", "hi"), Some(&sender)).await;
    drop(sender);
    let mut heard = String::new();
    assert_eq!(pieces.recv().await, Some(AnswerPiece::Started { model: "fast".into(), dropped: None }));
    while let Some(AnswerPiece::Text(text)) = pieces.recv().await {
        heard.push_str(&text);
    }
    assert_eq!((heard.as_str(), outcome.result.unwrap().text.as_str()), ("all of it", "all of it"));
}

#[tokio::test(start_paused = true)]
async fn a_profile_sets_its_attempts_and_the_wait_between_them() {
    let fixture = InferenceFixture::new();
    let failing = "[[answer]]\nerror = 'PROVIDER_ERROR'";
    let retry = json!({ "retry": { "attempts": 3, "base": "4s" } });
    fixture.scripted("acme", "slow", failing, retry).await;
    let begin = Instant::now();
    assert_eq!(fixture.ask("acme", "slow", "hi").await.attempts, 3);
    let took = begin.elapsed().as_secs_f64();
    assert!((6.0..=12.0).contains(&took), "half to all of 4 s and 8 s: {took}");
    fixture.scripted("acme", "once", failing, json!({ "retry": { "attempts": 1 } })).await;
    assert_eq!(fixture.ask("acme", "once", "hi").await.attempts, 1);
}

/// A port on which nothing listens.
async fn closed_port() -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().port()
}

fn nowhere(port: u16, more: &serde_json::Value) -> serde_json::Value {
    let mut body = json!({
        "provider": "openai", "model": "m", "endpoint": format!("http://127.0.0.1:{port}"),
        "retry": { "attempts": 4, "base": "100ms" },
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[tokio::test]
async fn a_refused_connection_is_tried_again_with_a_growing_wait() {
    let fixture = InferenceFixture::new();
    fixture.profile("acme", "away", nowhere(closed_port().await, &json!({}))).await;
    let begin = Instant::now();
    let outcome = fixture.ask("acme", "away", "hi").await;
    let error = outcome.result.unwrap_err();
    assert_eq!((error.code, outcome.attempts), (Code::ProviderError, 4), "{error}");
    assert!(begin.elapsed() >= Duration::from_millis(50 + 100 + 200), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn a_fallback_is_asked_when_a_connection_was_refused_twice() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "spare", "[[answer]]\nreply = 'here'", json!({})).await;
    let away = nowhere(closed_port().await, &json!({ "fallback": ["spare"] }));
    fixture.profile("acme", "away", away).await;
    let outcome = fixture.ask("acme", "away", "hi").await;
    assert_eq!((outcome.result.unwrap().text.as_str(), outcome.attempts), ("here", 3));
}
