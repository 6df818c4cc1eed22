//! Requests passed through gateway, inference and provider.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use longshore_ai::gateway::{Gateway, SingleTenant};
use longshore_testkit::fake_ai::FakeAi;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::fixture::{InferenceFixture, tenant};

/// Requests something that only OpenAI's API has.
async fn ask_for_two(fixture: &InferenceFixture, profile: &str) -> (u16, Value) {
    let authenticator = SingleTenant { tenant: tenant("acme"), token: None };
    let router = Gateway::new(Arc::new(fixture.inference.clone()), Arc::new(authenticator)).router();
    let messages = json!([{ "role": "user", "content": "hi" }]);
    let body = json!({ "model": profile, "n": 2, "messages": messages }).to_string();
    let request = Request::post("http://localhost/v1/chat/completions").body(Body::from(body)).unwrap();
    let response = router.oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

#[tokio::test]
async fn the_same_wire_gets_it_as_it_came_and_the_books_what_it_took() {
    let (fixture, fake) = (InferenceFixture::new(), FakeAi::start().await.unwrap());
    let body = json!({ "provider": "openai", "model": "m", "endpoint": fake.url() });
    fixture.profile("acme", "p", body).await;
    let (status, answer) = ask_for_two(&fixture, "p").await;
    assert_eq!((status, &answer["id"]), (200, &json!("chatcmpl-1")));
    assert_eq!(fake.requests()[0].body["n"], json!(2));
    let end = fixture.calls().await.pop().unwrap().end.unwrap();
    assert_eq!((end.tokens_in, end.tokens_out), (11, 7));
}

#[tokio::test]
async fn a_profile_of_another_kind_refuses_what_it_cannot_do() {
    let fixture = InferenceFixture::new();
    fixture.profile("acme", "p", json!({ "provider": "echo" })).await;
    let (status, answer) = ask_for_two(&fixture, "p").await;
    assert_eq!(status, 400);
    assert!(answer["error"]["message"].as_str().unwrap().contains("`n`"), "{answer}");
}
