//! Tests for OpenAI and compatible servers only.

use std::sync::Arc;
use std::time::Duration;

use longshore_ai::{ApiOptions, Code, FinishReason, Profile, ProviderName, Question, Retryability};
use longshore_testkit::fake_ai::{FakeAnswer, FakeBehaviour};
use serde_json::{Value, json};

use super::fixture::{KEY, ProviderFixture, open_at, question, saying, stream};
use crate::conversation::conversation;

async fn fixture(wire: ApiOptions) -> ProviderFixture {
    ProviderFixture::with(ProviderName::Openai, wire).await
}

fn body(body: &Value) -> FakeBehaviour {
    FakeBehaviour::Error { status: 200, headers: Vec::new(), body: Some(body.to_string()) }
}

#[tokio::test]
async fn a_plain_question_says_no_more_than_it_must() {
    let fixture = fixture(ApiOptions::default()).await;
    let mut asked = question("hi");
    asked.system = Some("be brief".into());
    let sent = fixture.sent(&asked).await;
    assert_eq!(sent.path, "/v1/chat/completions");
    assert_eq!(
        sent.body,
        json!({ "model": "fake-1", "max_completion_tokens": 1024, "temperature": 0.0, "messages": [
            { "role": "system", "content": "be brief" }, { "role": "user", "content": "hi" }] })
    );
    assert_eq!(sent.header("authorization"), format!("Bearer {KEY}"));
    stream(&*fixture.provider, &asked).await.0.unwrap();
    let streamed = fixture.fake.requests().pop().unwrap().body;
    assert_eq!(streamed["stream"], json!(true));
    assert_eq!(streamed["stream_options"], json!({ "include_usage": true }));
}

#[tokio::test]
async fn older_servers_are_told_in_their_words() {
    let wire =
        ApiOptions { old_max_tokens: true, sampling: Some(true), no_schema: true, ..ApiOptions::default() };
    let mut asked = question("hi");
    asked.schema = Some(Arc::new(json!({ "type": "integer" })));
    let sent = fixture(wire).await.sent(&asked).await;
    assert_eq!((&sent.body["max_tokens"], &sent.body["temperature"]), (&json!(1024), &json!(0.0)));
    assert_eq!(sent.body.get("max_completion_tokens"), None);
    assert_eq!(sent.body.get("response_format"), None);
    let system = sent.body["messages"][0]["content"].as_str().unwrap();
    assert!(system.ends_with("{\"type\":\"integer\"}"), "{system}");
}

#[tokio::test]
async fn an_address_may_have_the_version_in_it() {
    let fixture = fixture(ApiOptions::default()).await;
    let profile = || Profile { model: "m".into(), ..Profile::new("p", ProviderName::Openai) };
    for (at, path) in [
        ("", "/v1/chat/completions"),
        ("/", "/v1/chat/completions"),
        ("/v1", "/v1/chat/completions"),
        ("/openai/v1/", "/openai/v1/chat/completions"),
        ("/proxy", "/proxy/v1/chat/completions"),
    ] {
        let provider = open_at(profile(), &format!("{}{at}", fixture.fake.url()));
        provider.ask(&question("hi")).await.unwrap();
        assert_eq!(fixture.fake.requests().pop().unwrap().path, path, "{at}");
    }
}

#[tokio::test]
async fn a_schema_is_strict_where_it_can_be() {
    let fixture = fixture(ApiOptions::default()).await;
    let mut schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } },
        "required": ["n"], "additionalProperties": false });
    for strict in [true, false] {
        let mut asked = question("hi");
        asked.schema = Some(Arc::new(schema.clone()));
        let sent = fixture.sent(&asked).await;
        let named = json!({ "name": "answer", "strict": strict, "schema": schema });
        let format = json!({ "type": "json_schema", "json_schema": named });
        assert_eq!(sent.body["response_format"], format);
        schema["required"] = json!([]);
    }
}

#[tokio::test]
async fn a_conversation_is_sent_in_messages() {
    let sent = fixture(ApiOptions::default()).await.sent(&conversation()).await;
    let url = |url: &str| json!({ "type": "image_url", "image_url": { "url": url } });
    assert_eq!(
        sent.body["messages"],
        json!([
            { "role": "system", "content": "be brief" },
            { "role": "user", "content": [{ "type": "text", "text": "what is this?" },
                url("data:image/png;base64,AAAA"), url("https://example.org/a.png")] },
            { "role": "assistant", "content": "let me look", "tool_calls": [{ "id": "c1",
                "type": "function", "function": { "name": "look", "arguments": "{\"at\":1}" } }] },
            { "role": "tool", "tool_call_id": "c1", "content": "dark" },
            { "role": "user", "content": [{ "type": "text", "text": "and now?" }] },
        ])
    );
    assert_eq!(sent.body["stop"], json!(["END"]));
    let choice = json!({ "type": "function", "function": { "name": "look" } });
    assert_eq!(sent.body["tool_choice"], choice);
    let function = json!({ "name": "look", "description": "looks", "parameters": { "type": "object" } });
    assert_eq!(sent.body["tools"], json!([{ "type": "function", "function": function }]));
}

#[tokio::test]
async fn cached_tokens_are_among_the_questions() {
    let act = || {
        FakeBehaviour::Answer(FakeAnswer { tokens_in: Some(100), cached: 60, cache_write: 30, ..saying("x") })
    };
    let fixture = fixture(ApiOptions::default()).await;
    for answer in [fixture.ask(act()).await, fixture.stream(act()).await.0] {
        let answer = answer.unwrap();
        assert_eq!((answer.tokens_in, answer.tokens_cached), (100, 60));
        assert_eq!((answer.tokens_cache_write, answer.tier), (30, None));
    }
}

#[tokio::test]
async fn the_tier_that_was_served_and_a_refusal_are_told() {
    let message = json!({ "role": "assistant", "content": null, "refusal": "I will not" });
    let act = body(&json!({ "model": "m", "service_tier": "flex", "usage": null,
        "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }] }));
    let answer = fixture(ApiOptions::default()).await.ask(act).await.unwrap();
    assert_eq!((answer.text.as_str(), answer.tier.as_deref()), ("I will not", Some("flex")));
    assert_eq!((answer.finish_reason, answer.estimated), (FinishReason::ContentFilter, true));
}

#[tokio::test]
async fn an_error_that_calls_itself_an_answer_is_an_error() {
    let fixture = fixture(ApiOptions::default()).await;
    let error = json!({ "error": { "message": "upstream failed", "code": 502 } });
    let error = fixture.ask(body(&error)).await.unwrap_err();
    assert_eq!((error.code, error.retry), (Code::ProviderError, Retryability::Never));
    assert!(error.message.ends_with("(502): upstream failed"), "{error}");
    let error = fixture.ask(body(&json!({ "choices": [] }))).await.unwrap_err();
    assert!(error.message.contains("it has no choice"), "{error}");
}

#[tokio::test]
async fn the_providers_own_type_and_code_of_an_error_survive() {
    let long = json!({ "error": { "type": "invalid_request_error", "code": "context_length_exceeded",
        "message": "too long", "param": "messages" } });
    let act = FakeBehaviour::Error { status: 400, headers: vec![], body: Some(long.to_string()) };
    let error = fixture(ApiOptions::default()).await.ask(act).await.unwrap_err();
    assert_eq!(error.code, Code::InvalidRequest);
    let id = error.provider_error.as_deref().unwrap();
    assert_eq!(id.kind.as_deref(), Some("invalid_request_error"));
    assert_eq!(id.code.as_deref(), Some("context_length_exceeded"));
    let message = "the provider said 400 (invalid_request_error, context_length_exceeded): too long";
    assert_eq!(error.message, message);
}

#[tokio::test]
async fn temperature_is_sent_by_default_to_models_that_take_it() {
    let fixture = fixture(ApiOptions::default()).await;
    for (model, sent) in [("gpt-4o", Some(0.5)), ("any-other", Some(0.5)), ("gpt-5", None), ("o3", None)] {
        let asked = Question { temperature: 0.5, model: Some(model.to_owned()), ..question("hi") };
        let body = fixture.sent(&asked).await.body;
        assert_eq!(body.get("temperature").and_then(serde_json::Value::as_f64), sent, "{model}");
    }
}

#[tokio::test]
async fn money_that_is_spent_is_not_waited_for() {
    let spent = json!({ "error": { "type": "insufficient_quota", "message": "quota",
        "code": "credit_balance_exhausted" } });
    let act = FakeBehaviour::Error { status: 429, headers: vec![], body: Some(spent.to_string()) };
    let error = fixture(ApiOptions::default()).await.ask(act).await.unwrap_err();
    assert_eq!((error.code, error.retry), (Code::OverBudget, Retryability::AfterTopUp));
    assert_eq!(error.provider_status, Some(429));
}

#[tokio::test]
async fn limits_are_read_from_answers_and_refusals() {
    let fixture = fixture(ApiOptions::default()).await;
    let headers = vec![
        ("x-ratelimit-remaining-tokens".to_owned(), "149984".to_owned()),
        ("x-ratelimit-reset-tokens".to_owned(), "6m0s".to_owned()),
    ];
    let answer = fixture
        .ask(FakeBehaviour::Answer(FakeAnswer { headers: headers.clone(), ..saying("x") }))
        .await
        .unwrap();
    let refusal = fixture.ask(FakeBehaviour::Error { status: 429, headers, body: None }).await.unwrap_err();
    assert_eq!(refusal.headroom.as_deref(), Some(&answer.headroom));
    let tokens = answer.headroom.tokens.unwrap();
    assert_eq!((tokens.left, tokens.reset), (149_984, Some(Duration::from_secs(360))));
}

#[tokio::test]
async fn headers_of_the_profile_take_the_place_of_the_usual_ones_and_stay_secret() {
    let headers = [("api-key", "other-secret-1"), ("User-Agent", "me/1")];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let fixture = fixture(ApiOptions { headers: headers.into(), ..ApiOptions::default() }).await;
    let sent = fixture.sent(&question("hi")).await;
    assert_eq!((sent.header("api-key"), sent.header("user-agent")), ("other-secret-1", "me/1"));
    let words = Some("I know other-secret-1".to_owned());
    let error = fixture.ask(FakeBehaviour::Error { status: 400, headers: vec![], body: words }).await;
    assert!(error.unwrap_err().message.ends_with("I know [secret]"));
}
