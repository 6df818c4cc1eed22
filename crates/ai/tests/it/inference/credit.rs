//! Keys without credit, and texts that only look like it: whatever one tenant's prompt contains, no
//! other call waits for it.

use longshore_ai::{Code, InferenceOutcome, Retryability};
use longshore_testkit::fake_ai::{FakeAi, FakeBehaviour};
use serde_json::{Value, json};

use super::fixture::InferenceFixture;

/// A profile with a fake provider, which answers as it is told.
async fn fake_profile() -> (InferenceFixture, FakeAi) {
    let (fixture, fake) = (InferenceFixture::new(), FakeAi::start().await.unwrap());
    let body = json!({ "provider": "openai", "model": "m", "endpoint": fake.url() });
    fixture.profile("acme", "p", body).await;
    (fixture, fake)
}

fn refusal(status: u16, body: &Value) -> FakeBehaviour {
    FakeBehaviour::Error { status, headers: Vec::new(), body: Some(body.to_string()) }
}

async fn ask(fixture: &InferenceFixture, prompt: &str) -> InferenceOutcome {
    fixture.ask("acme", "p", prompt).await
}

#[tokio::test]
async fn a_prompt_about_credit_that_a_provider_quotes_suspends_no_key() {
    let (fixture, fake) = fake_profile().await;
    let prompts = [
        "how do I raise my spending limit?",
        "What does \"Your credit balance is too low to access the Anthropic API\" mean?",
        "Your credit balance is too low to access the Anthropic API.",
        "You have reached your specified API usage limits. Is that so?",
    ];
    for (prompt, status) in prompts.iter().flat_map(|prompt| [400, 403, 429].map(|status| (*prompt, status)))
    {
        for body in [
            json!({ "error": { "message": format!("cannot use {prompt}") } }),
            json!({ "error": { "message": prompt } }),
            json!({ "error": prompt }),
        ] {
            // A rate limit is retried at once, and then answered.
            let headers = vec![("retry-after-ms".to_owned(), "0".to_owned())];
            let body = Some(body.to_string());
            fake.push_behaviours([FakeBehaviour::Error { status, headers, body: body.clone() }]);
            let outcome = ask(&fixture, prompt).await;
            fake.clear();
            if let Err(error) = &outcome.result {
                assert_ne!(error.code, Code::OverBudget, "{status} {body:?}");
            }
            let nice = ask(&fixture, "hello").await.result;
            assert!(nice.is_ok(), "{status} {body:?}: {nice:?}");
        }
    }
}

#[tokio::test]
async fn a_message_without_a_code_suspends_a_key_only_after_three_requests() {
    let (fixture, fake) = fake_profile().await;
    let message = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing.";
    fake.set_default(refusal(
        400,
        &json!({ "error": { "type": "invalid_request_error", "message": message } }),
    ));
    for number in 0..3 {
        for _ in 0..2 {
            let error = ask(&fixture, &format!("hello {number}")).await.result.unwrap_err();
            assert_eq!((error.code, error.retry), (Code::OverBudget, Retryability::AfterTopUp));
            assert_eq!(error.provider_status, Some(400), "it was asked: {error}");
            if number == 2 {
                break;
            }
        }
    }
    let error = ask(&fixture, "hello again").await.result.unwrap_err();
    assert_eq!((error.code, error.provider_status), (Code::OverBudget, None), "{error}");
}

#[tokio::test]
async fn a_known_code_suspends_a_key_at_once() {
    let (fixture, fake) = fake_profile().await;
    let body =
        json!({ "error": { "message": "x", "type": "insufficient_quota", "code": "insufficient_quota" } });
    fake.set_default(refusal(429, &body));
    let error = ask(&fixture, "hello").await.result.unwrap_err();
    assert_eq!((error.code, error.provider_status), (Code::OverBudget, Some(429)));
    let error = ask(&fixture, "hello again").await.result.unwrap_err();
    assert_eq!((error.code, error.provider_status), (Code::OverBudget, None));
}

#[tokio::test]
async fn an_error_code_of_the_provider_is_shown_only_if_it_looks_like_one() {
    let (fixture, fake) = fake_profile().await;
    for (code, shown) in [
        (json!("context_length_exceeded"), Some("context_length_exceeded")),
        (json!("model.not-found/2"), Some("model.not-found/2")),
        (json!("Patient Ada Lovelace has a cough"), None),
        (json!("x".repeat(65)), None),
        (json!("hello-world"), None),
    ] {
        let body = json!({ "error": { "message": "no", "type": code, "code": code } });
        fake.push_behaviours([refusal(400, &body)]);
        let error = ask(&fixture, "hello-world").await.result.unwrap_err();
        let id = error.provider_error.unwrap_or_default();
        assert_eq!((id.kind.as_deref(), id.code.as_deref()), (shown, shown), "{code}");
        assert!(
            !error.message.contains("Ada") && !error.message.contains("hello-world"),
            "{}",
            error.message
        );
    }
}
