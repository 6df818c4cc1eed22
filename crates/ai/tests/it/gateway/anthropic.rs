//! Anthropic's API: parsed requests and complete answers.

use axum::http::StatusCode;
use longshore_ai::{ChatRole, Part, ToolChoice};
use serde_json::{Value, json};

use super::{ANTHROPIC, GatewayFixture};

fn hello(model: &str) -> Value {
    json!({"model": model, "max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}]})
}

#[tokio::test]
async fn a_whole_answer_has_everything_that_the_wire_promises() {
    let fixture = GatewayFixture::new();
    let reply = fixture.post(ANTHROPIC, hello("plain")).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.body);
    let id = reply.header("request-id").unwrap();
    assert_eq!(Some(id), reply.header("x-request-id"));
    let answer = json!({
        "id": format!("msg_{id}"),
        "type": "message",
        "role": "assistant",
        "model": "fake-1-really",
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": null,
        // Of the question's 20 tokens, 10 were read from or written to a cache.
        "usage": {
            "input_tokens": 10, "output_tokens": 4,
            "cache_read_input_tokens": 5, "cache_creation_input_tokens": 5,
            "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 2},
        },
    });
    assert_eq!(reply.json(), answer);
    assert_eq!(*fixture.fake.notes.lock().unwrap(), 1);
}

#[tokio::test]
async fn a_conversation_is_understood() {
    let fixture = GatewayFixture::new();
    let source = json!({"type": "base64", "media_type": "image/png", "data": "AAAA"});
    let body = json!({
        "model": "plain",
        "max_tokens": 9,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [
                {"type": "image", "source": source},
                {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
            ]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "a", "name": "look", "input": {"x": 1}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "dark", "is_error": true},
                {"type": "text", "text": "And now?"},
            ]},
        ],
        "stop_sequences": ["END"], "temperature": 0.5, "metadata": {"user_id": "u"},
        "thinking": {"type": "disabled"}, "tool_choice": {"type": "any"},
        "tools": [{"name": "look", "input_schema": {"type": "object"}}],
        "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
    });
    let reply = fixture.post(ANTHROPIC, body).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.body);
    let question = fixture.asked().question;
    assert_eq!(question.system.as_deref(), Some("Be brief."));
    assert_eq!((question.max_tokens, question.temperature), (9, 0.5));
    assert_eq!(question.schema.as_deref(), Some(&json!({"type": "object"})));
    let chat = question.chat.unwrap();
    assert_eq!((chat.tools.len(), &chat.tool_choice), (1, &ToolChoice::Any));
    let [user, assistant, result] = chat.messages.as_slice() else { panic!("{chat:?}") };
    assert_eq!((user.role, assistant.role), (ChatRole::User, ChatRole::Assistant));
    assert_eq!(user.parts[0], Part::Image { media_type: "image/png".into(), data: "AAAA".into() });
    assert_eq!(user.parts[1], Part::ImageUrl("https://example.org/a.png".into()));
    assert_eq!(assistant.parts.len(), 2, "what was thought is left out");
    let (id, text) = ("a".to_owned(), "dark".to_owned());
    assert_eq!(result.parts[0], Part::ToolResult { id, text, failed: true });
}

#[tokio::test]
async fn tools_are_called() {
    let fixture = GatewayFixture::new();
    let mut body = hello("tools");
    body["tools"] = json!([{"name": "weather", "input_schema": {"type": "object"}}]);
    let reply = fixture.post(ANTHROPIC, body).await.json();
    assert_eq!(reply["stop_reason"], "tool_use");
    let call = json!({"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Oslo"}});
    assert_eq!(reply["content"][1], call);
}

#[tokio::test]
async fn an_answer_must_have_a_length() {
    let body = json!({"model": "plain", "messages": [{"role": "user", "content": "Hello"}]});
    let reply = GatewayFixture::new().post(ANTHROPIC, body).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    let error = &reply.json()["error"];
    assert_eq!(*error, json!({"type": "invalid_request_error", "message": "`max_tokens` is missing"}));
}

#[tokio::test]
async fn tokens_that_no_provider_counts_are_estimated() {
    let fixture = GatewayFixture::new();
    let body = json!({"model": "plain", "system": "Be brief.", "messages": [
        {"role": "user", "content": "x".repeat(400)},
    ]});
    let reply = fixture.post("/v1/messages/count_tokens", body).await;
    assert_eq!(reply.json(), json!({"input_tokens": 103 + 3 + 2 * 4}));
    let none = fixture.post("/v1/messages/count_tokens", hello("nobody")).await;
    assert_eq!(none.status, StatusCode::NOT_FOUND);
    assert!(fixture.fake.asked.lock().unwrap().is_empty());
}
