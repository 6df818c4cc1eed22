//! Property tests: any request is answered or rejected with an error of the API's format.

use axum::body::Body;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{ANTHROPIC, GatewayFixture, OPENAI, post};

/// Valid requests that use all of an API, to be corrupted.
fn openai() -> Value {
    let call = json!({"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    json!({
        "model": "plain", "max_tokens": 5, "temperature": 1, "stop": ["a"], "stream": false,
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "x"}]},
            {"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
            ]},
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": "ok"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
        "stream_options": {"include_usage": true},
    })
}

fn anthropic() -> Value {
    json!({
        "model": "plain", "max_tokens": 5, "stop_sequences": ["a"], "stream": false,
        "system": [{"type": "text", "text": "x"}],
        "messages": [
            {"role": "user", "content": [
                {"type": "image", "source": {"type": "url", "url": "https://example.org"}},
            ]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "x"}]},
            ]},
        ],
        "tools": [{"name": "f", "input_schema": {}}],
        "tool_choice": {"type": "tool", "name": "f"},
        "output_config": {"format": {"type": "json_schema", "schema": {}}},
    })
}

/// The paths of all values in a document.
fn places(value: &Value, path: &str, all: &mut Vec<String>) {
    all.push(path.to_owned());
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(key, value)| places(value, &format!("{path}/{key}"), all));
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(at, item)| places(item, &format!("{path}/{at}"), all));
        }
        _ => {}
    }
}

fn spoiled(whole: Value) -> impl Strategy<Value = Value> {
    let mut all = Vec::new();
    places(&whole, "", &mut all);
    let values = prop_oneof![
        Just(json!(null)),
        Just(json!(true)),
        any::<i64>().prop_map(Value::from),
        Just(json!(1e300)),
        ".{0,60}".prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        Just(json!([null, {"type": "text"}, ["x"]])),
    ];
    (proptest::sample::select(all), values).prop_map(move |(place, value)| {
        let mut whole = whole.clone();
        *whole.pointer_mut(&place).unwrap() = value;
        whole
    })
}

pub(super) async fn is_answered_or_refused(path: &str, body: impl Into<Vec<u8>>) {
    let body = body.into();
    let fixture = GatewayFixture::new();
    let mut request = post(path, &json!(null));
    *request.body_mut() = Body::from(body.clone());
    let body = String::from_utf8_lossy(&body);
    let reply = fixture.reply(request).await;
    if reply.status.is_success() {
        return;
    }
    assert!(matches!(reply.status.as_u16(), 400 | 404), "{} to {body}", reply.status);
    assert!(reply.json()["error"]["message"].is_string(), "{} to {body}", reply.body);
}

pub(super) fn wait_for(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.unwrap().block_on(future);
}

#[test]
fn requests_that_are_to_be_spoiled_are_sound() {
    wait_for(async {
        for (path, body) in [(OPENAI, openai()), (ANTHROPIC, anthropic())] {
            let reply = GatewayFixture::new().post(path, body).await;
            assert!(reply.status.is_success(), "{}", reply.body);
        }
    });
}

proptest! {
    #[test]
    fn a_spoiled_request_of_openai_is_answered_or_refused(body in spoiled(openai())) {
        wait_for(is_answered_or_refused(OPENAI, body.to_string()));
    }

    #[test]
    fn a_spoiled_request_of_anthropic_is_answered_or_refused(body in spoiled(anthropic())) {
        wait_for(is_answered_or_refused(ANTHROPIC, body.to_string()));
    }

    #[test]
    fn any_bytes_are_refused(body in ".{0,200}") {
        wait_for(is_answered_or_refused(OPENAI, body.clone()));
        wait_for(is_answered_or_refused(ANTHROPIC, body));
    }
}
