use std::time::Duration;

use longshore_ai::{Code, Piece};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::rig::{Rig, errand};

/// Fails twice, then answers.
const THIRD: &str =
    "[[answer]]\nwhen = 'n < 2'\nerror = 'PROVIDER_ERROR'\n\n[[answer]]\nreply = 'at last'";

#[tokio::test(start_paused = true)]
async fn a_provider_that_fails_is_asked_again_and_the_books_say_how_often() {
    let rig = Rig::new();
    rig.scripted("acme", "shaky", THIRD, json!({})).await;
    let settled = rig.ask("acme", "shaky", "hi").await;
    assert_eq!((settled.result.unwrap().text.as_str(), settled.attempts), ("at last", 3));
    assert_eq!(settled.records.len(), 1);
    assert_eq!(settled.records[0].end.as_ref().unwrap().attempts, 3);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_work_is_asked_once() {
    let rig = Rig::new();
    for code in ["INVALID_REQUEST", "PROVIDER_AUTH", "TIMEOUT"] {
        rig.scripted("acme", "bad", &format!("[[answer]]\nerror = '{code}'"), json!({})).await;
        let settled = rig.ask("acme", "bad", code).await;
        assert_eq!(settled.result.unwrap_err().code.as_str(), code);
        assert_eq!(settled.attempts, 1, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_goes_on_beyond_the_deadline() {
    let rig = Rig::new();
    let slow = "[[answer]]\nerror = 'RATE_LIMITED'\nretry_after = '30s'";
    rig.scripted("acme", "slow", slow, json!({})).await;
    let begun = Instant::now();
    let mut errand = errand("acme", "slow", "hi");
    errand.question.until = begun + Duration::from_secs(45);
    let settled = rig.desk.ask(&errand, None).await;
    assert_eq!(settled.result.unwrap_err().code, Code::RateLimited);
    assert!(Instant::now() <= errand.question.until, "a third try would end too late");
    assert_eq!(settled.attempts, 2);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_has_begun_is_not_asked_for_anew() {
    let rig = Rig::new();
    rig.scripted("acme", "fast", "[[answer]]\nreply = 'all of it'", json!({})).await;
    let (sender, mut pieces) = mpsc::channel(8);
    let settled = rig.desk.ask(&errand("acme", "fast", "hi"), Some(&sender)).await;
    drop(sender);
    let mut heard = String::new();
    assert_eq!(pieces.recv().await, Some(Piece::Begun { model: "fast".into() }));
    while let Some(Piece::Text(text)) = pieces.recv().await {
        heard.push_str(&text);
    }
    assert_eq!((heard.as_str(), settled.result.unwrap().text.as_str()), ("all of it", "all of it"));
}
