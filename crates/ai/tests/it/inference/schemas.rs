use std::sync::Arc;

use longshore_ai::{BillingStatus, Code, Retryability};
use serde_json::json;

use super::fixture::{InferenceFixture, request};

fn schema() -> Arc<serde_json::Value> {
    Arc::new(json!({
        "type": "object", "required": ["sum"], "properties": { "sum": { "type": "integer" } },
    }))
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_another_form_has_one_chance_to_be_mended() {
    let fixture = InferenceFixture::new();
    // The second question is the whole conversation: scripts see its last text.
    let script = "[[answer]]\nwhen = 'n == 0'\nreply = 'seven'\n\n[[answer]]\nreply = '{\"sum\": 7}'";
    fixture.scripted("acme", "fast", script, json!({})).await;
    let mut request = request("acme", "fast", "3 + 4");
    request.question.schema = Some(schema());
    let outcome = fixture.inference.ask(&request, None).await;
    let answer = outcome.result.unwrap();
    assert_eq!((answer.text.as_str(), outcome.attempts), ("{\"sum\": 7}", 2));
    assert_eq!((outcome.schema_error, outcome.records.len()), (None, 2), "each is a call");
    assert!(answer.tokens_in > 4, "both were paid: {}", answer.tokens_in);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_wrong_after_its_correction_is_an_error_with_the_answer_in_it() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "fast", "[[answer]]\nreply = 'seven'", json!({})).await;
    let mut request = request("acme", "fast", "3 + 4");
    request.question.schema = Some(schema());
    let outcome = fixture.inference.ask(&request, None).await;
    assert_eq!((outcome.records.len(), outcome.attempts), (2, 2));
    let error = outcome.into_valid().unwrap_err();
    assert_eq!((error.code, error.retry), (Code::ProviderError, Retryability::Never));
    assert!(error.message.contains("(a correction was asked for)"), "{error}");
    assert!(matches!(error.billing, BillingStatus::Partial(answer) if answer.text == "seven"));
}

/// A reference to itself is followed twice at each level of the answer.
#[tokio::test]
async fn a_check_that_does_not_end_delays_neither_the_answer_nor_other_checks() {
    let fixture = InferenceFixture::new();
    let deep = format!("{}7{}", "{\"x\":".repeat(60), "}".repeat(60));
    let script = format!("[[answer]]\nwhen = 'n < 2'\nreply = '{deep}'\n\n[[answer]]\nreply = 'seven'");
    fixture.scripted("acme", "fast", &script, json!({})).await;
    let itself = json!({ "$ref": "#" });
    let twice = json!({ "allOf": [itself, itself] });
    let mut asked = request("acme", "fast", "3 + 4");
    asked.question.schema = Some(Arc::new(json!({ "properties": { "x": twice } })));
    asked.question.until = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    let outcome = fixture.inference.ask(&asked, None).await;
    assert_eq!((outcome.result.unwrap().text, outcome.attempts), (deep, 1), "it is not corrected");
    asked.question.schema = Some(schema());
    fixture.inference.ask(&asked, None).await;
    assert_eq!(fixture.inference.ask(&asked, None).await.attempts, 2, "others are checked and corrected");
}
