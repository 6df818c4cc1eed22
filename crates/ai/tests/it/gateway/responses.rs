//! OpenAI's responses API: parsed requests, complete answers and events.

use axum::http::StatusCode;
use longshore_ai::{ChatRole, Effort, Part, ToolChoice};
use serde_json::{Value, json};

use super::GatewayFixture;

const RESPONSES: &str = "/v1/responses";

#[tokio::test]
async fn a_complete_answer_has_everything_that_the_api_promises() {
    let fixture = GatewayFixture::new();
    let body = json!({ "model": "plain", "input": "Hello", "instructions": "Be brief.", "temperature": 0.5 });
    let reply = fixture.post(RESPONSES, body).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.body);
    let response = reply.json();
    for (name, value) in [
        ("object", json!("response")),
        ("created_at", json!(1_700_000_000)),
        ("status", json!("completed")),
        ("model", json!("fake-1-really")),
        ("instructions", json!("Be brief.")),
        ("temperature", json!(0.5)),
        ("store", json!(false)),
        ("error", Value::Null),
        ("incomplete_details", Value::Null),
    ] {
        assert_eq!(response[name], value, "{name}: {response}");
    }
    assert_eq!(response["usage"]["total_tokens"], 24);
    let [message] = response["output"].as_array().unwrap().as_slice() else { panic!("{response}") };
    assert_eq!((&message["type"], &message["role"]), (&json!("message"), &json!("assistant")));
    let part = json!({ "type": "output_text", "text": "Hello", "annotations": [], "logprobs": [] });
    assert_eq!(message["content"], json!([part]));
    let again = fixture.post(RESPONSES, json!({ "model": "cut", "input": "Hello" })).await.json();
    assert_eq!(again["status"], "incomplete");
    assert_eq!(again["incomplete_details"]["reason"], "max_output_tokens");
    assert_ne!(again["id"], response["id"]);
}

#[tokio::test]
async fn a_conversation_of_items_is_understood() {
    let fixture = GatewayFixture::new();
    let body = json!({
        "model": "plain/other",
        "instructions": "Be brief.",
        "input": [
            { "role": "developer", "content": "Be kind." },
            { "role": "user", "content": [
                { "type": "input_text", "text": "What is this?" },
                { "type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low" },
                { "type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0=" },
            ] },
            { "type": "reasoning", "id": "rs_1", "summary": [] },
            { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "Let me see." }] },
            { "type": "function_call", "call_id": "a", "name": "look", "arguments": "{\"x\":1}" },
            { "type": "function_call", "call_id": "b", "name": "look", "arguments": "" },
            { "type": "function_call_output", "call_id": "a", "output": "a cat" },
            { "type": "function_call_output", "call_id": "b", "output": [{ "type": "input_text", "text": "a dog" }] },
        ],
        "tools": [{ "type": "function", "name": "look", "parameters": { "type": "object" }, "strict": true }],
        "tool_choice": { "type": "function", "name": "look" },
        "text": { "format": { "type": "json_schema", "name": "a", "schema": { "type": "object" } } },
        "reasoning": { "effort": "low" }, "max_output_tokens": 9, "top_p": 0.9, "user": "u", "store": false,
        "include": ["reasoning.encrypted_content"], "truncation": "disabled", "metadata": {},
    });
    let reply = fixture.post(RESPONSES, body).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.body);
    let question = fixture.asked().question;
    assert_eq!(question.model.as_deref(), Some("other"));
    assert_eq!(question.system.as_deref(), Some("Be brief.\n\nBe kind."));
    assert_eq!((question.max_tokens, question.schema.is_some()), (9, true));
    let chat = question.chat.unwrap();
    assert_eq!((chat.effort, &chat.tool_choice), (Some(Effort::Low), &ToolChoice::Named("look".into())));
    let [user, assistant, results] = chat.messages.as_slice() else { panic!("{chat:?}") };
    assert_eq!((user.parts.len(), assistant.role, assistant.parts.len()), (3, ChatRole::Assistant, 3));
    assert!(matches!(&user.parts[2], Part::Document { name: Some(name), .. } if name == "a.pdf"));
    let result = |id: &str, text: &str| {
        let (id, text) = (id.to_owned(), text.to_owned());
        Part::ToolResult { id, text, failed: false }
    };
    assert_eq!(results.parts, [result("a", "a cat"), result("b", "a dog")]);
}

#[tokio::test]
async fn events_are_numbered_and_build_the_response() {
    let fixture = GatewayFixture::new();
    let tool = json!({ "type": "function", "name": "weather", "parameters": { "type": "object" } });
    let body = json!({ "model": "tools", "input": "How is Oslo?", "stream": true, "tools": [tool] });
    let reply = fixture.post(RESPONSES, body).await;
    let events: Vec<Value> = reply
        .events()
        .into_iter()
        .map(|(name, data)| {
            let event: Value = serde_json::from_str(data).unwrap();
            assert_eq!(Some(event["type"].as_str().unwrap()), name);
            event
        })
        .collect();
    let numbers: Vec<u64> = events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    let names: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let texts = names.iter().filter(|name| **name == "response.output_text.delta").count();
    let mut expected = vec![
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ];
    expected.extend(vec!["response.output_text.delta"; texts]);
    expected.extend([
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]);
    assert_eq!(names, expected);
    let last = &events[events.len() - 1]["response"];
    let [message, call] = last["output"].as_array().unwrap().as_slice() else { panic!("{last}") };
    assert_eq!(message["content"][0]["text"], "Let me look.");
    assert_eq!((&call["name"], &call["arguments"]), (&json!("weather"), &json!("{\"city\":\"Oslo\"}")));
    assert_eq!((&last["id"], &last["status"]), (&events[0]["response"]["id"], &json!("completed")));
    // An error after the first piece is an event that clients raise.
    let broken = fixture.post(RESPONSES, json!({ "model": "broken", "input": "x", "stream": true })).await;
    let (name, data) = *broken.events().last().unwrap();
    let event: Value = serde_json::from_str(data).unwrap();
    assert_eq!((name, &event["error"]["code"]), (Some("error"), &json!("provider_error")));
}

#[tokio::test]
async fn what_is_not_kept_or_not_known_is_refused_by_name() {
    let fixture = GatewayFixture::new();
    for (field, value, named) in [
        ("previous_response_id", json!("resp_1"), "`previous_response_id`: responses are not kept"),
        ("input", json!([{ "type": "item_reference", "id": "msg_1" }]), "`input[0]`: responses are not kept"),
        ("input", json!([]), "must not be empty"),
        ("input", json!([{ "role": "robot", "content": "x" }]), "no role `robot`"),
        ("tools", json!([{ "type": "web_search" }]), "`web_search`"),
        ("background", json!(true), "`background`"),
        ("truncation", json!("auto"), "`truncation`"),
        ("include", json!(["message.output_text.logprobs"]), "`include`"),
        ("text", json!({ "format": { "type": "grammar" } }), "`text.format`"),
        ("text", json!({ "verbosity": "low" }), "`text.verbosity`"),
    ] {
        let mut body = json!({ "model": "plain", "input": "x" });
        body[field] = value;
        let reply = fixture.post(RESPONSES, body).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{field}: {}", reply.body);
        let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(named), "{message}");
    }
    assert!(fixture.fake.asked.lock().unwrap().is_empty());
}
