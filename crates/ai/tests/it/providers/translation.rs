//! What not every provider can express: translated, refused by name, or dropped and told.

use std::sync::Arc;

use longshore_ai::{
    ApiOptions, CacheFor, Chat, ChatRole, Code, Effort, Message, OnUnsupported, Part, Profile, ProviderName,
    Question, Tool, ToolChoice,
};
use longshore_testkit::fake_ai::{FakeAi, FakeBehaviour};
use serde_json::{Value, json};

use super::fixture::{ProviderFixture, open_at, question, saying, stream};

fn tool(name: &str) -> Tool {
    Tool { name: name.into(), description: None, input: json!({ "type": "object" }) }
}

/// A conversation with every setting.
fn chat() -> Chat {
    let pdf = Part::Document {
        media_type: "application/pdf".into(),
        data: "JVBERi0=".into(),
        name: Some("a.pdf".into()),
    };
    let parts = vec![Part::Text("sum up".into()), pdf, Part::CacheMark(CacheFor::Hour)];
    Chat {
        messages: vec![Message { role: ChatRole::User, parts }],
        tools: vec![tool("look"), tool("hear")],
        top_k: Some(5),
        frequency_penalty: Some(0.25),
        presence_penalty: Some(0.5),
        seed: Some(7),
        effort: Some(Effort::High),
        one_tool_call: true,
        user: Some("u-1".into()),
        system_cache: Some(CacheFor::Minutes),
        ..Chat::default()
    }
}

fn asking(chat: Chat) -> Question {
    Question {
        system: Some("be brief".into()),
        max_tokens: 4_000,
        chat: Some(Arc::new(chat)),
        ..question("")
    }
}

/// What is sent to a model by a profile that drops what it cannot express; and what it reports.
async fn sent(name: ProviderName, model: &str, chat: Chat) -> (Value, Option<Box<str>>) {
    let fake = FakeAi::start().await.unwrap();
    let on_unsupported = OnUnsupported::Drop;
    let profile = Profile { model: model.into(), on_unsupported, ..Profile::new("p", name) };
    let (provider, question) = (open_at(profile, &fake.url()), asking(chat));
    provider.ask(&question).await.unwrap();
    (fake.requests().pop().unwrap().body, provider.dropped(&question))
}

fn member<'a>(body: &'a Value, path: &str) -> &'a Value {
    body.pointer(path).unwrap_or(&Value::Null)
}

#[tokio::test]
async fn every_setting_reaches_the_providers_that_have_it_and_the_rest_is_told() {
    let (body, dropped) = sent(ProviderName::Openai, "gpt-4o", chat()).await;
    for (path, value) in [
        ("/frequency_penalty", json!(0.25)),
        ("/presence_penalty", json!(0.5)),
        ("/seed", json!(7)),
        ("/reasoning_effort", json!("high")),
        ("/parallel_tool_calls", json!(false)),
        ("/user", json!("u-1")),
        ("/messages/1/content/1/file/file_data", json!("data:application/pdf;base64,JVBERi0=")),
    ] {
        assert_eq!(member(&body, path), &value, "{path} {body}");
    }
    assert_eq!(dropped.as_deref(), Some("`top_k`, `cache_control`"));

    let (body, dropped) = sent(ProviderName::Anthropic, "claude-opus-5", chat()).await;
    for (path, value) in [
        ("/thinking", json!({ "type": "adaptive" })),
        ("/output_config/effort", json!("high")),
        ("/tool_choice", json!({ "type": "auto", "disable_parallel_tool_use": true })),
        ("/metadata/user_id", json!("u-1")),
        ("/system/0/cache_control", json!({ "type": "ephemeral" })),
        ("/messages/0/content/1/source/media_type", json!("application/pdf")),
        ("/messages/0/content/1/cache_control", json!({ "type": "ephemeral", "ttl": "1h" })),
        ("/temperature", Value::Null),
    ] {
        assert_eq!(member(&body, path), &value, "{path} {body}");
    }
    assert_eq!(dropped.as_deref(), Some("`frequency_penalty` and `presence_penalty`, `seed`"));
    // An older model is told how many tokens it may think, fewer than the answer has.
    let (body, _) = sent(ProviderName::Anthropic, "claude-sonnet-4-5", chat()).await;
    assert_eq!(body["thinking"], json!({ "type": "enabled", "budget_tokens": 3_999 }), "{body}");
    assert_eq!((&body["top_k"], body.get("temperature")), (&json!(5), None));

    let (body, dropped) = sent(ProviderName::Gemini, "gemini-2.5-pro", chat()).await;
    let config = &body["generationConfig"];
    for (name, value) in [
        ("topK", json!(5)),
        ("frequencyPenalty", json!(0.25)),
        ("presencePenalty", json!(0.5)),
        ("seed", json!(7)),
        ("thinkingConfig", json!({ "thinkingBudget": 16_384 })),
    ] {
        assert_eq!(config[name], value, "{name} {config}");
    }
    let document = member(&body, "/contents/0/parts/1/inlineData");
    assert_eq!(document, &json!({ "mimeType": "application/pdf", "data": "JVBERi0=" }));
    assert_eq!(dropped.as_deref(), Some("one tool call at a time, `user`, `cache_control`"));
    let (body, _) = sent(ProviderName::Gemini, "gemini-3-pro", chat()).await;
    assert_eq!(body["generationConfig"]["thinkingConfig"], json!({ "thinkingLevel": "high" }));

    let (body, dropped) = sent(ProviderName::Ollama, "llama3", chat()).await;
    for (path, value) in [
        ("/think", json!(true)),
        ("/options/top_k", json!(5)),
        ("/options/seed", json!(7)),
        ("/options/frequency_penalty", json!(0.25)),
    ] {
        assert_eq!(member(&body, path), &value, "{path} {body}");
    }
    assert_eq!(
        dropped.as_deref(),
        Some("one tool call at a time, documents, `user`, `cache_control`"),
        "{body}"
    );
    let (body, _) = sent(ProviderName::Ollama, "gpt-oss:20b", chat()).await;
    assert_eq!(body["think"], "high");
}

#[tokio::test]
async fn a_profile_refuses_by_name_what_changes_the_answer_unless_it_is_told_to_drop_it() {
    let fixture = ProviderFixture::of(ProviderName::Ollama).await;
    let error = fixture.provider.ask(&asking(chat())).await.unwrap_err();
    assert_eq!(error.code, Code::InvalidRequest);
    assert_eq!(error.message, "provider ollama does not support: one tool call at a time, documents");
    assert!(fixture.fake.requests().is_empty());
    // What does not change it is never a reason.
    let hints = Chat { messages: chat().messages[..0].to_vec(), user: Some("u".into()), ..Chat::default() };
    fixture.provider.ask(&asking(hints)).await.unwrap();
}

#[tokio::test]
async fn ollama_calls_a_required_tool_by_the_schema_of_its_input() {
    let fixture = ProviderFixture::with(ProviderName::Ollama, ApiOptions::default()).await;
    let messages = vec![Message { role: ChatRole::User, parts: vec![Part::Text("where?".into())] }];
    let named = |tool_choice| {
        let tools = vec![tool("look"), tool("hear")];
        asking(Chat { messages: messages.clone(), tools, tool_choice, ..Chat::default() })
    };
    let required = named(ToolChoice::Named("look".into()));
    fixture.fake.set_default(FakeBehaviour::Answer(saying(r#"{"at": 2}"#)));
    let answer = fixture.provider.ask(&required).await.unwrap();
    let body = fixture.fake.requests().pop().unwrap().body;
    assert_eq!((&body["format"], body.get("tools")), (&json!({ "type": "object" }), None), "{body}");
    let [call] = answer.tool_calls.as_slice() else { panic!("{answer:?}") };
    assert_eq!((call.name.as_str(), &call.input, answer.text.as_str()), ("look", &json!({ "at": 2 }), ""));
    let (streamed, pieces) = stream(&*fixture.provider, &required).await;
    assert_eq!((streamed.unwrap().tool_calls.len(), pieces.len()), (1, 1), "{pieces:?}");
    // One of several cannot be required, and none is offered if none may be called.
    let error = fixture.provider.ask(&named(ToolChoice::Any)).await.unwrap_err();
    assert!(error.message.contains("any tool"), "{error}");
    fixture.provider.ask(&named(ToolChoice::None)).await.unwrap();
    assert_eq!(fixture.fake.requests().pop().unwrap().body.get("tools"), None);
}
