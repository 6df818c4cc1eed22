//! Encodes answers for OpenAI's responses API.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::error::GatewayError;
use super::openai_response::{OpenAi, arguments};
use super::request::{Delivery, ParsedRequest};
use super::response::{ApiFormat, EventEncoder, ResponseMeta};
use super::responses_request;
use crate::chat::ToolCall;
use crate::model_api::{Answer, FinishReason};
use crate::profile::ProviderName;
use crate::raw_json::RawObject;
use crate::sse;

/// OpenAI's responses API.
pub(super) struct Responses;

impl ApiFormat for Responses {
    fn provider(&self) -> Option<ProviderName> {
        None
    }

    fn parse(&self, body: &RawObject) -> Result<ParsedRequest, GatewayError> {
        responses_request::parse(body)
    }

    fn encode(&self, meta: &ResponseMeta, answer: &Answer) -> Vec<u8> {
        let text = (!answer.text.is_empty()).then(|| message(meta, 0, &answer.text, "completed"));
        let first_call = u32::from(text.is_some());
        let calls = answer.tool_calls.iter().zip(first_call..);
        let calls = calls.map(|(call, at)| function_call(meta, at, call, &arguments(call), "completed"));
        response(meta, text.into_iter().chain(calls).collect(), Some(answer)).to_string().into()
    }

    fn events(&self, _delivery: Delivery) -> Box<dyn EventEncoder> {
        Box::new(ResponsesEvents { sequence: 0, output: Vec::new(), open_text: None })
    }

    fn error(&self, error: &GatewayError, request_id: &str) -> (StatusCode, Value) {
        OpenAi.error(error, request_id)
    }
}

/// The response with its output; without an answer, it is in progress.
fn response(meta: &ResponseMeta, output: Vec<Value>, answer: Option<&Answer>) -> Value {
    let reason = answer.and_then(|answer| match answer.finish_reason {
        FinishReason::Length => Some("max_output_tokens"),
        FinishReason::ContentFilter => Some("content_filter"),
        FinishReason::Stop | FinishReason::Other => None,
    });
    let status = match (answer, reason) {
        (None, _) => "in_progress",
        (Some(_), None) => "completed",
        (Some(_), Some(_)) => "incomplete",
    };
    let model = answer.map_or(&meta.model, |answer| &answer.model);
    let mut response = json!({
        "id": meta.echo["id"],
        "object": "response",
        "created_at": meta.created,
        "status": status,
        "error": null,
        "incomplete_details": reason.map(|reason| json!({"reason": reason})),
        "instructions": null,
        "max_output_tokens": null,
        "metadata": {},
        "model": model,
        "output": output,
        "parallel_tool_calls": true,
        "previous_response_id": null,
        "reasoning": {"effort": null, "summary": null},
        "store": false,
        "temperature": null,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": null,
        "truncation": "disabled",
        "usage": answer.map(usage),
    });
    for (name, value) in meta.echo.as_object().into_iter().flatten() {
        response[name] = value.clone();
    }
    response
}

fn usage(answer: &Answer) -> Value {
    json!({
        "input_tokens": answer.tokens_in,
        "input_tokens_details": {"cached_tokens": answer.tokens_cached},
        "output_tokens": answer.tokens_out,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": answer.tokens_in + answer.tokens_out,
    })
}

/// The id of an item, by the response's id and the item's place.
fn item_id(meta: &ResponseMeta, kind: &str, at: u32) -> String {
    let id = meta.echo["id"].as_str().unwrap_or_default().trim_start_matches("resp_");
    format!("{kind}_{id}_{at}")
}

fn message(meta: &ResponseMeta, at: u32, text: &str, status: &str) -> Value {
    let content = if status == "completed" { json!([output_text(text)]) } else { json!([]) };
    let id = item_id(meta, "msg", at);
    json!({"type": "message", "id": id, "status": status, "role": "assistant", "content": content})
}

fn output_text(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

fn function_call(meta: &ResponseMeta, at: u32, call: &ToolCall, arguments: &str, status: &str) -> Value {
    let id = item_id(meta, "fc", at);
    json!({
        "type": "function_call", "id": id, "call_id": call.id, "name": call.name, "arguments": arguments,
        "status": status,
    })
}

/// Encodes an answer as events; each is numbered.
struct ResponsesEvents {
    sequence: u64,
    /// The items that are complete.
    output: Vec<Value>,
    /// The text of the message that is open.
    open_text: Option<String>,
}

impl EventEncoder for ResponsesEvents {
    fn start(&mut self, meta: &ResponseMeta, out: &mut Vec<u8>) {
        let response = response(meta, Vec::new(), None);
        self.event("response.created", json!({"response": response}), out);
        self.event("response.in_progress", json!({"response": response}), out);
    }

    fn text(&mut self, meta: &ResponseMeta, text: &str, out: &mut Vec<u8>) {
        let at = self.index();
        if self.open_text.is_none() {
            let item = message(meta, at, "", "in_progress");
            self.event("response.output_item.added", json!({"output_index": at, "item": item}), out);
            self.part_event("response.content_part.added", meta, json!({"part": output_text("")}), out);
        }
        self.open_text.get_or_insert_default().push_str(text);
        self.part_event("response.output_text.delta", meta, json!({"delta": text, "logprobs": []}), out);
    }

    fn call(&mut self, meta: &ResponseMeta, call: &ToolCall, _number: u32, out: &mut Vec<u8>) {
        self.close_text(meta, out);
        let (at, arguments) = (self.index(), arguments(call));
        let id = item_id(meta, "fc", at);
        let item = function_call(meta, at, call, "", "in_progress");
        self.event("response.output_item.added", json!({"output_index": at, "item": item}), out);
        let delta = json!({"item_id": id, "output_index": at, "delta": arguments});
        self.event("response.function_call_arguments.delta", delta, out);
        let done = json!({"item_id": id, "output_index": at, "name": call.name, "arguments": arguments});
        self.event("response.function_call_arguments.done", done, out);
        self.end_item(function_call(meta, at, call, &arguments, "completed"), out);
    }

    fn raw(&mut self, _event: &str, _out: &mut Vec<u8>) {}

    fn finish(&mut self, meta: &ResponseMeta, answer: &Answer, out: &mut Vec<u8>) {
        self.close_text(meta, out);
        let response = response(meta, std::mem::take(&mut self.output), Some(answer));
        let name = match response["status"] == "completed" {
            true => "response.completed",
            false => "response.incomplete",
        };
        self.event(name, json!({"response": response}), out);
    }

    fn fail(&mut self, meta: &ResponseMeta, error: &GatewayError, out: &mut Vec<u8>) {
        let (_, body) = OpenAi.error(error, &meta.id);
        let error = body["error"].clone();
        let body = json!({
            "code": error["code"], "message": error["message"], "param": error["param"], "error": error,
        });
        self.event("error", body, out);
    }
}

impl ResponsesEvents {
    /// The place of the open item, or of the next one.
    fn index(&self) -> u32 {
        u32::try_from(self.output.len()).unwrap_or(u32::MAX)
    }

    fn event(&mut self, name: &str, mut body: Value, out: &mut Vec<u8>) {
        (body["type"], body["sequence_number"]) = (json!(name), json!(self.sequence));
        self.sequence += 1;
        sse::name(out, name);
        sse::data(out, &body);
    }

    /// An event of the open message's text.
    fn part_event(&mut self, name: &str, meta: &ResponseMeta, mut body: Value, out: &mut Vec<u8>) {
        let at = self.index();
        body["item_id"] = json!(item_id(meta, "msg", at));
        (body["output_index"], body["content_index"]) = (json!(at), json!(0));
        self.event(name, body, out);
    }

    fn close_text(&mut self, meta: &ResponseMeta, out: &mut Vec<u8>) {
        let Some(text) = self.open_text.take() else { return };
        self.part_event("response.output_text.done", meta, json!({"text": text, "logprobs": []}), out);
        self.part_event("response.content_part.done", meta, json!({"part": output_text(&text)}), out);
        self.end_item(message(meta, self.index(), &text, "completed"), out);
    }

    fn end_item(&mut self, item: Value, out: &mut Vec<u8>) {
        let body = json!({"output_index": self.index(), "item": item});
        self.event("response.output_item.done", body, out);
        self.output.push(item);
    }
}
