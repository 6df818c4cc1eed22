//! Answers of `echo`, and their delay.

use std::time::Duration;

use longshore_ai::{Code, Echo, FinishReason, Provider, Question, ResponseSchema};
use serde_json::json;
use tokio::time::Instant;

use crate::questions::{question, question_by};

fn slow(millis: u64) -> Echo {
    Echo { model: "parrot".into(), delay: Duration::from_millis(millis) }
}

#[tokio::test(start_paused = true)]
async fn the_prompt_comes_back_after_the_delay() {
    let started = Instant::now();
    let answer = slow(50).ask(&question("Ahoy, sailor!")).await.unwrap();
    assert_eq!(started.elapsed().as_millis(), 50);
    assert_eq!(answer.text, "Ahoy, sailor!");
    assert_eq!(answer.model, "parrot");
    assert_eq!((answer.tokens_in, answer.tokens_out), (4, 4));
    assert_eq!(answer.latency_ms, 50);
    assert_eq!(answer.finish_reason, FinishReason::Stop);
}

#[tokio::test(start_paused = true)]
async fn every_answer_is_marked_as_simulated() {
    assert!(Echo::default().is_simulated());
    assert!(Echo::default().ask(&question("x")).await.unwrap().simulated);
}

#[tokio::test(start_paused = true)]
async fn an_instant_answer_takes_no_time_at_all() {
    let started = Instant::now();
    let answer = Echo::default().ask(&question("x")).await.unwrap();
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert_eq!(answer.latency_ms, 0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_would_be_late_is_a_timeout_at_the_deadline() {
    let started = Instant::now();
    let until = started + Duration::from_millis(30);
    let error = slow(50).ask(&Question { until, ..question("x") }).await.unwrap_err();
    assert_eq!(error.code, Code::Timeout);
    assert_eq!(started.elapsed().as_millis(), 30);
}

#[tokio::test(start_paused = true)]
async fn a_question_whose_time_is_up_is_not_answered() {
    let until = Instant::now();
    tokio::time::advance(Duration::from_secs(1)).await;
    let error = Echo::default().ask(&Question { until, ..question("x") }).await.unwrap_err();
    assert_eq!(error.code, Code::Timeout);
}

#[tokio::test(start_paused = true)]
async fn a_delay_beyond_all_time_is_a_timeout_too() {
    let echo = Echo { delay: Duration::MAX, ..Echo::default() };
    let error = echo.ask(&question("x")).await.unwrap_err();
    assert_eq!(error.code, Code::Timeout);
}

#[tokio::test(start_paused = true)]
async fn max_tokens_cut_the_answer_and_say_so() {
    let question = Question { max_tokens: 2, ..question("ünïcödé and more") };
    let answer = Echo::default().ask(&question).await.unwrap();
    assert_eq!(answer.text, "ünïcödé ");
    assert_eq!(answer.tokens_out, 2);
    assert_eq!(answer.finish_reason, FinishReason::Length);
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_just_max_tokens_is_whole() {
    let question = Question { max_tokens: 2, ..question("12345678") };
    let answer = Echo::default().ask(&question).await.unwrap();
    assert_eq!(answer.text, "12345678");
    assert_eq!(answer.finish_reason, FinishReason::Stop);
}

#[tokio::test(start_paused = true)]
async fn the_system_text_is_counted_as_asked() {
    let question = Question { system: Some("Be brief.".into()), ..question("12345678") };
    let answer = Echo::default().ask(&question).await.unwrap();
    assert_eq!(answer.tokens_in, 3 + 2);
}

#[tokio::test(start_paused = true)]
async fn with_a_schema_the_answer_follows_it() {
    let schema = json!({
        "type": "object",
        "properties": { "verdict": { "enum": ["ok", "bad"] }, "why": { "type": "string" } },
        "required": ["verdict", "why"],
        "additionalProperties": false,
    });
    let answer = Echo::default().ask(&question_by(&schema, "Is this right?")).await.unwrap();
    let value = ResponseSchema::new(&schema).unwrap().read(&answer.text).unwrap();
    assert_eq!(value, json!({ "verdict": "ok", "why": "Is this right?" }));
}
