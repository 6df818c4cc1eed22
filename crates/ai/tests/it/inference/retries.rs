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
    assert_eq!(pieces.recv().await, Some(AnswerPiece::Started { model: "fast".into() }));
    while let Some(AnswerPiece::Text(text)) = pieces.recv().await {
        heard.push_str(&text);
    }
    assert_eq!((heard.as_str(), outcome.result.unwrap().text.as_str()), ("all of it", "all of it"));
}
