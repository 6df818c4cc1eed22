use longshore::accounts::CallStatus;
use longshore_ai::Code;
use serde_json::json;

use super::fixture::{InferenceFixture, request};

const DOWN: &str = "[[answer]]\nerror = 'PROVIDER_ERROR'";
const FINE: &str = "[[answer]]\nreply = 'fine'";

#[tokio::test(start_paused = true)]
async fn where_one_cannot_answer_the_next_does_and_the_books_are_truthful() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "first", DOWN, json!({ "fallback": ["second", "third"] })).await;
    fixture.scripted("acme", "second", DOWN, json!({})).await;
    fixture.scripted("acme", "third", FINE, json!({})).await;
    let outcome = fixture.ask("acme", "first", "12345678").await;
    assert_eq!(outcome.result.as_ref().unwrap().model, "third");
    let actual: Vec<_> = outcome
        .records
        .iter()
        .map(|record| (record.call.profile.as_str(), record.end.as_ref().unwrap().status))
        .collect();
    let (error, success) = (CallStatus::Error, CallStatus::Success);
    assert_eq!(actual, [("first", error), ("second", error), ("third", success)]);
    let costs: Vec<i64> =
        outcome.records.iter().map(|record| record.end.as_ref().unwrap().cost_picos).collect();
    assert_eq!((costs[0], costs[1]), (0, 0));
    assert_eq!(costs[2], 2 * 1_000_000 + 10_000_000, "two tokens in, one out");
    assert_eq!(outcome.cost_picos, costs[2]);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_question_or_one_that_may_be_billed_is_not_asked_elsewhere() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "second", FINE, json!({})).await;
    for code in ["INVALID_REQUEST", "TIMEOUT"] {
        let script = format!("[[answer]]\nerror = '{code}'");
        fixture.scripted("acme", "first", &script, json!({ "fallback": ["second"] })).await;
        let error = fixture.ask("acme", "first", code).await.result.unwrap_err();
        assert_eq!(error.code.as_str(), code);
    }
}

#[tokio::test(start_paused = true)]
async fn the_tenants_fallback_comes_last_and_circles_end() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "first", DOWN, json!({ "fallback": ["first", "gone"] })).await;
    fixture.scripted("acme", "last", FINE, json!({})).await;
    fixture.profile("acme", ".tenant", json!({ "fallback": "last" })).await;
    assert_eq!(fixture.ask("acme", "first", "hi").await.result.unwrap().model, "last");
    // The last resort fails, too: its error does not hide the first one.
    fixture.scripted("acme", "last", DOWN, json!({})).await;
    let error = fixture.ask("acme", "first", "hi again").await.result.unwrap_err();
    assert_eq!(error.code, Code::ProviderError);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_was_wished_for_is_the_first_profiles_and_no_other_is_asked_for_it() {
    let fixture = InferenceFixture::new();
    let more = json!({ "fallback": ["second"], "models": { "firsts-own": {} } });
    fixture.scripted("acme", "first", DOWN, more).await;
    fixture.scripted("acme", "second", FINE, json!({})).await;
    let mut request = request("acme", "first", "hi");
    request.question.model = Some("firsts-own".into());
    let outcome = fixture.inference.ask(&request, None).await;
    assert_eq!(outcome.result.unwrap().model, "second");
    let asked: Vec<_> = outcome.records.iter().map(|record| record.call.model.as_str()).collect();
    assert_eq!(asked, ["firsts-own", "second"]);
}
