//! Health checks: by free requests, and by a call of one token.

use std::time::Duration;

use longshore::ProfileName;
use longshore::accounts::CallStatus;
use longshore_ai::{AskError, Code, HealthCheck};
use longshore_testkit::fake_ai::{FakeAi, FakeBehaviour};
use serde_json::json;
use tokio::time::Instant;

use super::fixture::{InferenceFixture, tenant};

async fn with_model(model: &str) -> (InferenceFixture, FakeAi) {
    let (fixture, fake) = (InferenceFixture::new(), FakeAi::start().await.unwrap());
    fixture.scripted("acme", "spare", "[[answer]]\nreply = 'spare'", json!({})).await;
    let body = json!({
        "provider": "openai", "model": model, "endpoint": fake.url(), "fallback": ["spare"],
        "prices": { "input": 1, "output": 1 }, "retry": { "base": "1ms" },
    });
    fixture.profile("acme", "p", body).await;
    (fixture, fake)
}

async fn health(fixture: &InferenceFixture, check: HealthCheck) -> Result<String, AskError> {
    let (profile, until) = (ProfileName::new("p").unwrap(), Instant::now() + Duration::from_secs(30));
    fixture.inference.health(&tenant("acme"), Some(&profile), until, check).await
}

#[tokio::test]
async fn a_model_is_asked_for_one_token_which_is_billed() {
    let (fixture, fake) = with_model("fake-1").await;
    let says = health(&fixture, HealthCheck::Call).await.unwrap();
    assert!(says.contains("has 1 models; `fake-1` answered in"), "{says}");
    let requests = fake.requests();
    let asked: Vec<_> = requests.iter().map(|request| request.path.as_str()).collect();
    assert_eq!(asked, ["/v1/models", "/v1/chat/completions"]);
    assert_eq!(requests[1].body["max_completion_tokens"], 1);
    let calls = fixture.calls().await;
    assert_eq!((calls.len(), calls[0].status), (1, CallStatus::Success));
}

#[tokio::test]
async fn without_a_call_the_list_of_models_decides() {
    let (fixture, fake) = with_model("fake-1").await;
    health(&fixture, HealthCheck::NoCall).await.unwrap();
    assert_eq!(fake.requests().len(), 1);
    let (fixture, fake) = with_model("gone").await;
    let error = health(&fixture, HealthCheck::NoCall).await.unwrap_err();
    assert!(error.message.contains("not `gone` among them"), "{}", error.message);
    assert_eq!(fake.requests().len(), 1);
    assert!(fixture.calls().await.is_empty());
}

#[tokio::test]
async fn a_model_that_cannot_answer_is_not_healthy_whatever_the_list_and_the_fallback_say() {
    let (fixture, fake) = with_model("fake-1").await;
    fake.push_behaviours([FakeBehaviour::default(), FakeBehaviour::error(404)]);
    let error = health(&fixture, HealthCheck::Call).await.unwrap_err();
    assert_eq!((error.code, error.provider_status), (Code::InvalidRequest, Some(404)));
    // A compatible server that lists no models.
    fake.push_behaviours([FakeBehaviour::error(404), FakeBehaviour::default()]);
    health(&fixture, HealthCheck::Call).await.unwrap();
    // A rejected key is not tried with a call.
    let before = fake.requests().len();
    fake.push_behaviours([FakeBehaviour::error(401)]);
    assert_eq!(health(&fixture, HealthCheck::Call).await.unwrap_err().code, Code::ProviderAuth);
    assert_eq!(fake.requests().len(), before + 1);
}
