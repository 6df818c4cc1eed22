//! Tests for Ollama only.

use std::sync::Arc;

use longshore_ai::{ApiOptions, Code, Part, ProviderName, Question, Retryability, ToolChoice};
use longshore_testkit::fake_ai::{FakeAnswer, FakeBehaviour};
use serde_json::json;

use super::fixture::{ProviderFixture, question, saying, stream};
use crate::conversation::conversation;

async fn fixture(wire: ApiOptions) -> ProviderFixture {
    ProviderFixture::with(ProviderName::Ollama, wire).await
}

#[tokio::test]
async fn a_question_says_that_it_is_not_to_be_cut_and_not_streamed() {
    let wire = ApiOptions { num_ctx: Some(8192), sampling: Some(true), ..ApiOptions::default() };
    let mut asked = question("hi");
    asked.system = Some("be brief".into());
    asked.schema = Some(Arc::new(json!({ "type": "integer" })));
    let sent = fixture(wire).await.sent(&asked).await;
    assert_eq!(sent.path, "/api/chat");
    assert_eq!(
        sent.body,
        json!({ "model": "fake-1", "stream": false, "truncate": false, "shift": false,
            "format": { "type": "integer" },
            "options": { "num_predict": 1024, "num_ctx": 8192, "temperature": 0.0 },
            "messages": [{ "role": "system", "content": "be brief" },
                { "role": "user", "content": "hi" }] })
    );
}

#[tokio::test]
async fn plain_questions_are_generated_where_the_profile_wants_it() {
    let fixture = fixture(ApiOptions { generate: true, ..ApiOptions::default() }).await;
    let mut asked = question("hi");
    asked.system = Some("be brief".into());
    let sent = fixture.sent(&asked).await;
    assert_eq!(sent.path, "/api/generate");
    assert_eq!((&sent.body["prompt"], &sent.body["system"]), (&json!("hi"), &json!("be brief")));
    assert_eq!(sent.body.get("messages"), None);
    let (streamed, pieces) = stream(&*fixture.provider, &question("one two")).await;
    assert_eq!((streamed.unwrap().text.as_str(), pieces.len()), ("one two", 2));
    let asked = fixture.sent(&inline_conversation()).await;
    assert_eq!(asked.path, "/api/chat", "a conversation cannot be generated");
}

#[tokio::test]
async fn a_question_that_was_cut_in_silence_is_an_error() {
    // About 1,500 tokens.
    let long = question(&"many words ".repeat(546));
    for (num_ctx, read, cut) in [
        (Some(1024), 514, true),   // half of the context is left
        (Some(512), 512, true),    // no more than the context, of a question three times as long
        (Some(1024), 1020, false), // a question that is just about as long: no text is quite as we think
        (Some(4096), 700, false),  // there was room for all of it
        (None, 400, false),        // shorter than any server's context
    ] {
        let fixture = fixture(ApiOptions { num_ctx, ..ApiOptions::default() }).await;
        fixture.fake.set_default(FakeBehaviour::Answer(FakeAnswer { tokens_in: Some(read), ..saying("ok") }));
        let answers = [fixture.provider.ask(&long).await, stream(&*fixture.provider, &long).await.0];
        for answer in answers {
            assert_eq!(answer.is_err(), cut, "{num_ctx:?} {read}");
            let Err(error) = answer else { continue };
            assert_eq!((error.code, error.retry), (Code::InvalidRequest, Retryability::Never));
            assert!(error.message.starts_with("the server truncated the question: it read"), "{error}");
        }
    }
    let very_long = question(&"many words ".repeat(4000));
    let fixture = fixture(ApiOptions::default()).await;
    let act = FakeBehaviour::Answer(FakeAnswer { tokens_in: Some(2050), ..saying("ok") });
    fixture.fake.push_behaviours([act]);
    assert_eq!(fixture.provider.ask(&very_long).await.unwrap_err().code, Code::InvalidRequest);
}

#[tokio::test]
async fn a_conversation_is_sent_in_messages() {
    let sent = fixture(ApiOptions::default()).await.sent(&inline_conversation()).await;
    assert_eq!(
        sent.body["messages"],
        json!([
            { "role": "system", "content": "be brief" },
            { "role": "user", "content": "what is this?",
                "images": ["AAAA"] },
            { "role": "assistant", "content": "let me look", "tool_calls": [
                { "function": { "name": "look", "arguments": { "at": 1 } } }] },
            { "role": "tool", "tool_name": "look", "content": "dark" },
            { "role": "user", "content": "and now?" },
        ])
    );
    assert_eq!(sent.body["options"]["stop"], json!(["END"]));
    let function = json!({ "name": "look", "description": "looks", "parameters": { "type": "object" } });
    assert_eq!(sent.body["tools"], json!([{ "type": "function", "function": function }]));
}

/// Without what Ollama cannot express: images by URL, and a tool that must be called beside text.
fn inline_conversation() -> Question {
    let question = conversation();
    let mut chat = (**question.chat.as_ref().unwrap()).clone();
    chat.messages[0].parts.retain(|part| !matches!(part, Part::ImageUrl(_)));
    chat.tool_choice = ToolChoice::Auto;
    Question { chat: Some(Arc::new(chat)), ..question }
}

#[tokio::test]
async fn a_full_queue_is_tried_later() {
    let words = json!({ "error": "server busy, please try again.  maximum pending requests exceeded" });
    let act = FakeBehaviour::Error { status: 503, headers: vec![], body: Some(words.to_string()) };
    let error = fixture(ApiOptions::default()).await.ask(act).await.unwrap_err();
    assert_eq!((error.code, error.retry), (Code::ProviderError, Retryability::Later));
    let words = "the provider said 503: server busy, please try again. maximum pending requests exceeded";
    assert_eq!(error.message, words);
}

#[tokio::test]
async fn health_tells_of_a_model_that_is_not_there() {
    let fixture = fixture(ApiOptions::default()).await;
    let until = question("").until;
    assert_eq!(fixture.provider.health(until).await.unwrap(), "answers, has 1 models");
    let body = Some(json!({ "models": [] }).to_string());
    fixture.fake.push_behaviours([FakeBehaviour::Error { status: 200, headers: vec![], body }]);
    let error = fixture.provider.health(until).await.unwrap_err();
    assert_eq!(error.message, "answers, but has not pulled `fake-1`");
}
