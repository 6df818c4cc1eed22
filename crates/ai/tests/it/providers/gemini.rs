//! Tests for Gemini only.

use std::sync::Arc;
use std::time::Duration;

use longshore_ai::{ApiOptions, Code, FinishReason, Part, ProviderName};
use longshore_testkit::fake_ai::FakeBehaviour;
use serde_json::{Value, json};

use super::fixture::{KEY, ProviderFixture, question};
use crate::conversation::conversation;

async fn fixture(wire: ApiOptions) -> ProviderFixture {
    ProviderFixture::with(ProviderName::Gemini, wire).await
}

fn body(body: &Value) -> FakeBehaviour {
    FakeBehaviour::Error { status: 200, headers: Vec::new(), body: Some(body.to_string()) }
}

#[tokio::test]
async fn a_question_goes_to_its_model() {
    let wire = ApiOptions { sampling: Some(true), ..ApiOptions::default() };
    let mut asked = question("hi");
    asked.system = Some("be brief".into());
    asked.schema = Some(Arc::new(json!({ "type": "integer" })));
    let fixture = fixture(wire).await;
    let sent = fixture.sent(&asked).await;
    assert_eq!(sent.path, "/v1beta/models/fake-1:generateContent");
    assert_eq!(sent.header("x-goog-api-key"), KEY);
    assert_eq!(
        sent.body,
        json!({
            "contents": [{ "role": "user", "parts": [{ "text": "hi" }] }],
            "systemInstruction": { "parts": [{ "text": "be brief" }] },
            "generationConfig": { "maxOutputTokens": 1024, "temperature": 0.0,
                "responseMimeType": "application/json",
                "responseJsonSchema": { "type": "integer" } },
        })
    );
    fixture.stream(FakeBehaviour::answer("x")).await.0.unwrap();
    let path = fixture.fake.requests().pop().unwrap().path;
    assert_eq!(path, "/v1beta/models/fake-1:streamGenerateContent?alt=sse");
}

#[tokio::test]
async fn a_models_name_leads_nowhere_else() {
    let fixture = fixture(ApiOptions::default()).await;
    for model in ["../v1/files", "a?b", "a#b", "a:b", "/etc", "a b", "é"] {
        let mut asked = question("hi");
        asked.model = Some(model.into());
        let error = fixture.provider.ask(&asked).await.unwrap_err();
        assert_eq!(error.code, Code::InvalidRequest, "{model}");
    }
    assert!(fixture.fake.requests().is_empty());
    let mut asked = question("hi");
    asked.model = Some("tunedModels/mine-1.5".into());
    let path = fixture.sent(&asked).await.path;
    assert_eq!(path, "/v1beta/tunedModels/mine-1.5:generateContent");
}

#[tokio::test]
async fn a_question_that_is_blocked_has_an_empty_answer() {
    let blocked = body(&json!({ "promptFeedback": { "blockReason": "SAFETY" },
        "usageMetadata": { "promptTokenCount": 9, "totalTokenCount": 9 } }));
    let fixture = fixture(ApiOptions::default()).await;
    for answer in [fixture.ask(blocked.clone()).await, fixture.stream(blocked).await.0] {
        let answer = answer.unwrap();
        assert_eq!((answer.text.as_str(), answer.finish_reason), ("", FinishReason::ContentFilter));
        assert_eq!((answer.tokens_in, answer.tokens_out, answer.estimated), (9, 0, false));
    }
    let error = fixture.ask(body(&json!({ "candidates": [] }))).await.unwrap_err();
    assert!(error.message.contains("no finished candidate"), "{error}");
}

#[tokio::test]
async fn thoughts_are_paid_and_not_shown_and_cached_tokens_are_among_the_questions() {
    let parts = json!([{ "text": "hm", "thought": true }, { "text": "yes" }]);
    let act = body(&json!({
        "candidates": [{ "content": { "parts": parts }, "finishReason": "STOP" }],
        "usageMetadata": { "promptTokenCount": 100, "cachedContentTokenCount": 60,
            "candidatesTokenCount": 3, "thoughtsTokenCount": 40 } }));
    let answer = fixture(ApiOptions::default()).await.ask(act).await.unwrap();
    assert_eq!((answer.text.as_str(), answer.model.as_str()), ("yes", "fake-1"));
    assert_eq!((answer.tokens_in, answer.tokens_cached, answer.tokens_out), (100, 60, 43));
}

#[tokio::test]
async fn a_conversation_is_sent_in_contents() {
    let sent = fixture(ApiOptions::default()).await.sent(&conversation()).await;
    assert_eq!(
        sent.body["contents"],
        json!([
            { "role": "user", "parts": [{ "text": "what is this?" },
                { "inlineData": { "mimeType": "image/png", "data": "AAAA" } },
                { "fileData": { "fileUri": "https://example.org/a.png" } }] },
            { "role": "model", "parts": [{ "text": "let me look" },
                { "functionCall": { "name": "look", "args": { "at": 1 } } }] },
            { "role": "user", "parts": [
                { "functionResponse": { "name": "look", "response": { "error": "dark" } } },
                { "text": "and now?" }] },
        ])
    );
    assert_eq!(sent.body["generationConfig"]["stopSequences"], json!(["END"]));
    let tool = json!({ "name": "look", "description": "looks",
        "parametersJsonSchema": { "type": "object" } });
    assert_eq!(sent.body["tools"], json!([{ "functionDeclarations": [tool] }]));
    let choice = json!({ "mode": "ANY", "allowedFunctionNames": ["look"] });
    assert_eq!(sent.body["toolConfig"], json!({ "functionCallingConfig": choice }));
}

#[tokio::test]
async fn what_the_model_thought_goes_back_with_the_call() {
    let call = json!({ "functionCall": { "name": "look", "args": {} }, "thoughtSignature": "c2ln" });
    let fixture = fixture(ApiOptions::default()).await;
    let act = body(&json!({ "candidates": [{ "content": { "parts": [call] },
        "finishReason": "STOP" }] }));
    let answer = fixture.ask(act).await.unwrap();
    let mut asked = conversation();
    let mut chat = (**asked.chat.as_ref().unwrap()).clone();
    chat.messages[1].parts = answer.tool_calls.into_iter().map(Part::ToolCall).collect();
    asked.chat = Some(Arc::new(chat));
    let sent = fixture.sent(&asked).await;
    assert_eq!(sent.body["contents"][1]["parts"][0]["thoughtSignature"], "c2ln");
}

#[tokio::test]
async fn the_wait_may_be_in_the_body() {
    let details = json!([{ "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s" }]);
    let words = json!({ "error": { "code": 429, "status": "RESOURCE_EXHAUSTED", "message": "quota",
        "details": details } });
    let act = FakeBehaviour::Error { status: 429, headers: vec![], body: Some(words.to_string()) };
    let error = fixture(ApiOptions::default()).await.ask(act).await.unwrap_err();
    assert_eq!((error.code, error.retry_after), (Code::RateLimited, Some(Duration::from_secs(34))));
}
