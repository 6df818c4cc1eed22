//! OpenAI's Responses API, as far as gateways use it that translate other formats to it: text, whole or
//! streamed.

use serde_json::{Value, json};

use super::{AnswerEnd, FakeAnswer};

/// A complete answer.
pub(super) fn answer(say: &FakeAnswer, request: &Value, text: &str) -> Value {
    let (status, incomplete) = match say.end {
        AnswerEnd::Stop => ("completed", Value::Null),
        AnswerEnd::Length => ("incomplete", json!({ "reason": "max_output_tokens" })),
        AnswerEnd::Filter => ("incomplete", json!({ "reason": "content_filter" })),
    };
    let mut response = response_object(request, status);
    response["output"] = json!([item("completed", json!([part(text)]))]);
    response["incomplete_details"] = incomplete;
    response["usage"] = usage(say);
    response
}

/// The answer as stream events.
pub(super) fn events(say: &FakeAnswer, request: &Value, halves: [&str; 2]) -> Vec<Value> {
    let text = halves.concat();
    let whole = answer(say, request, &text);
    let in_part = |kind: &str, key: &str, value: Value| {
        let mut event = json!({ "type": kind, "item_id": "msg_1", "output_index": 0, "content_index": 0 });
        event[key] = value;
        event
    };
    let delta = |text: &str| in_part("response.output_text.delta", "delta", json!(text));
    let of_item = |kind: &str, item: Value| json!({ "type": kind, "output_index": 0, "item": item });
    let end = match say.end {
        AnswerEnd::Stop => "response.completed",
        AnswerEnd::Length | AnswerEnd::Filter => "response.incomplete",
    };
    let mut events = vec![
        json!({ "type": "response.created", "response": response_object(request, "in_progress") }),
        of_item("response.output_item.added", item("in_progress", json!([]))),
        in_part("response.content_part.added", "part", part("")),
        delta(halves[0]),
        delta(halves[1]),
        in_part("response.output_text.done", "text", json!(text)),
        in_part("response.content_part.done", "part", part(&text)),
        of_item("response.output_item.done", item("completed", json!([part(&text)]))),
        json!({ "type": end, "response": whole }),
    ];
    for (number, event) in events.iter_mut().enumerate() {
        event["sequence_number"] = json!(number);
    }
    events
}

/// The `response` object, without output.
fn response_object(request: &Value, status: &str) -> Value {
    json!({ "id": "resp_1", "object": "response", "created_at": 1, "status": status,
        "model": request["model"], "output": [], "error": null, "incomplete_details": null,
        "instructions": null, "metadata": {}, "parallel_tool_calls": true, "temperature": 1.0,
        "tool_choice": "auto", "tools": [], "top_p": 1.0, "usage": null })
}

fn item(status: &str, content: Value) -> Value {
    json!({ "type": "message", "id": "msg_1", "status": status, "role": "assistant",
        "content": content })
}

fn part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [] })
}

fn usage(say: &FakeAnswer) -> Value {
    let (Some(all), Some(out)) = (say.tokens_in, say.tokens_out) else { return Value::Null };
    json!({ "input_tokens": all, "input_tokens_details": { "cached_tokens": say.cached },
        "output_tokens": out, "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": all + out })
}
