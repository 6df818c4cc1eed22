//! OpenAI's API: parsed requests and complete answers.

use axum::http::StatusCode;
use longshore_ai::{ChatRole, Part, ToolChoice};
use serde_json::{Value, json};

use super::{GatewayFixture, OPENAI};

#[tokio::test]
async fn a_whole_answer_has_everything_that_the_wire_promises() {
    let fixture = GatewayFixture::new();
    let body = json!({"model": "plain", "messages": [{"role": "user", "content": "Hello"}]});
    let reply = fixture.post(OPENAI, body).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.body);
    let id = reply.header("x-request-id").unwrap();
    let answer = json!({
        "id": format!("chatcmpl-{id}"),
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "fake-1-really",
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": "Hello", "refusal": null},
            "finish_reason": "stop",
        }],
        "usage": {
            "prompt_tokens": 20, "completion_tokens": 4, "total_tokens": 24,
            "prompt_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 5},
        },
    });
    assert_eq!(reply.json(), answer);
    assert_eq!(fixture.asked().question.request_id, id);
    assert_eq!(*fixture.fake.notes.lock().unwrap(), 1);
}

#[tokio::test]
async fn a_conversation_is_understood() {
    let fixture = GatewayFixture::new();
    let picture = "data:image/png;base64,AAAA";
    let body = json!({
        "model": "plain/other/model",
        "messages": [
            {"role": "developer", "content": "Be brief."},
            {"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
            {"role": "user", "name": "ann", "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": picture, "detail": "low"}},
                {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
            ]},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{\"x\":1}"}},
                {"id": "b", "type": "function", "function": {"name": "look", "arguments": ""}},
            ]},
            {"role": "tool", "tool_call_id": "a", "content": "a cat"},
            {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "a dog"}]},
        ],
        "max_tokens": 5, "max_completion_tokens": 9, "temperature": 0.5, "top_p": 0.9, "stop": "END",
        "n": 1, "user": "u-1", "seed": 3, "metadata": {"a": "b"}, "logprobs": false,
    });
    assert_eq!(fixture.post(OPENAI, body).await.status, StatusCode::OK);
    let question = fixture.asked().question;
    assert_eq!(question.model.as_deref(), Some("other/model"));
    assert_eq!(question.system.as_deref(), Some("Be brief.\n\nBe kind."));
    assert_eq!((question.max_tokens, question.temperature), (9, 0.5));
    let chat = question.chat.unwrap();
    assert_eq!((chat.stop.as_slice(), chat.top_p), (&["END".to_owned()][..], Some(0.9)));
    let [user, assistant, tools] = chat.messages.as_slice() else { panic!("{chat:?}") };
    assert_eq!(user.role, ChatRole::User);
    assert_eq!(user.parts[1], Part::Image { media_type: "image/png".into(), data: "AAAA".into() });
    assert_eq!(user.parts[2], Part::ImageUrl("https://example.org/a.png".into()));
    let inputs = assistant.parts.iter().map(|part| match part {
        Part::ToolCall(call) => call.input.clone(),
        other => panic!("{other:?}"),
    });
    assert_eq!(inputs.collect::<Vec<_>>(), [json!({"x": 1}), json!({})]);
    let result = |id: &str, text: &str| {
        let (id, text) = (id.to_owned(), text.to_owned());
        Part::ToolResult { id, text, failed: false }
    };
    assert_eq!(tools.parts, [result("a", "a cat"), result("b", "a dog")]);
}

#[tokio::test]
async fn what_a_request_does_not_say_the_profile_says() {
    let fixture = GatewayFixture::new();
    let body = json!({"model": "plain", "messages": [{"role": "user", "content": "Hello"}]});
    fixture.post(OPENAI, body).await;
    let question = fixture.asked().question;
    assert_eq!((question.max_tokens, question.temperature, question.model), (77, 1.0, None));
}

fn weather(choice: &Value) -> Value {
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let function = json!({"name": "weather", "description": "Of a city", "parameters": parameters});
    json!({
        "model": "tools",
        "messages": [{"role": "user", "content": "How is Oslo?"}],
        "tools": [{"type": "function", "function": function}],
        "tool_choice": choice,
    })
}

#[tokio::test]
async fn tools_are_offered_and_called() {
    let fixture = GatewayFixture::new();
    for (choice, expected) in [
        (json!("auto"), ToolChoice::Auto),
        (json!("none"), ToolChoice::None),
        (json!("required"), ToolChoice::Any),
        (json!(null), ToolChoice::Auto),
        (json!({"type": "function", "function": {"name": "weather"}}), ToolChoice::Named("weather".into())),
    ] {
        let reply = fixture.post(OPENAI, weather(&choice)).await.json();
        let chat = fixture.asked().question.chat.unwrap();
        assert_eq!(chat.tool_choice, expected);
        assert_eq!(chat.tools[0].input["properties"]["city"]["type"], "string");
        let choice = &reply["choices"][0];
        assert_eq!(choice["finish_reason"], "tool_calls");
        let function = json!({"name": "weather", "arguments": "{\"city\":\"Oslo\"}"});
        let call = json!({"id": "call_1", "type": "function", "function": function});
        assert_eq!(choice["message"]["tool_calls"], json!([call]));
    }
}

#[tokio::test]
async fn answers_follow_a_schema_if_one_is_given() {
    let fixture = GatewayFixture::new();
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    for (format, expected) in [
        (json!({"type": "json_schema", "json_schema": {"name": "p", "schema": schema}}), Some(schema)),
        (json!({"type": "json_object"}), Some(json!({"type": "object"}))),
        (json!({"type": "text"}), None),
    ] {
        let messages = [json!({"role": "user", "content": "Who?"})];
        let body = json!({"model": "json", "messages": messages, "response_format": format});
        let reply = fixture.post(OPENAI, body).await.json();
        assert_eq!(fixture.asked().question.schema.as_deref(), expected.as_ref());
        assert_eq!(reply["choices"][0]["message"]["content"], r#"{"name":"Ann","age":7}"#);
    }
}

#[tokio::test]
async fn an_answer_that_was_cut_says_so() {
    let body = json!({"model": "cut", "messages": [{"role": "user", "content": "A tale"}]});
    let reply = GatewayFixture::new().post(OPENAI, body).await.json();
    assert_eq!(reply["choices"][0]["finish_reason"], "length");
}
