//! Parses Ollama's answers. Complete ones and lines of a stream have the same form.

use serde::Deserialize;
use serde_json::Value;

use super::super::provider_adapter::{Draft, EventError, Flow, StreamParser};
use crate::chat::{Piece, ToolCall};
use crate::model_api::FinishReason;
use crate::sse::DecodedEvent;

/// An answer, or a part of one. Counts are in the last part, and omitted if zero.
#[derive(Deserialize)]
struct ChatResponse {
    #[serde(default)]
    model: Option<String>,
    response: Option<String>,
    message: Option<ResponseMessage>,
    #[serde(default)]
    done: bool,
    done_reason: Option<String>,
    prompt_eval_count: Option<u64>,
    eval_count: Option<u64>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct ResponseMessage {
    content: Option<String>,
    tool_calls: Option<Vec<Call>>,
}

#[derive(Deserialize)]
struct Call {
    id: Option<String>,
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    #[serde(default)]
    arguments: Value,
}

fn finish(reason: Option<&str>) -> FinishReason {
    match reason {
        Some("stop") | None => FinishReason::Stop,
        Some("length") => FinishReason::Length,
        Some(_) => FinishReason::Other,
    }
}

/// Parses a complete answer.
pub(super) fn answer(body: &[u8]) -> Result<Draft, String> {
    let response: ChatResponse = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    if response.error.is_some() {
        return Err("it is an error".into());
    }
    if response.response.is_none() && response.message.is_none() {
        return Err("it has no message".into());
    }
    if !response.done {
        return Err("it is not done".into());
    }
    let mut parser = LineParser::default();
    parser.add(response, &mut Vec::new());
    Ok(parser.draft)
}

/// Parses an answer from its lines.
#[derive(Default)]
pub(super) struct LineParser {
    draft: Draft,
}

impl LineParser {
    fn add(&mut self, response: ChatResponse, pieces: &mut Vec<Piece>) {
        let (content, calls) = response
            .message
            .map(|message| (message.content, message.tool_calls))
            .unwrap_or_default();
        if let Some(text) = response.response.or(content).filter(|text| !text.is_empty()) {
            self.draft.text.push_str(&text);
            pieces.push(Piece::Text(text));
        }
        for call in calls.unwrap_or_default() {
            let id = call.id.filter(|id| !id.is_empty());
            let id = id.unwrap_or_else(|| format!("call_{}", self.draft.tool_calls.len()));
            let Function { name, arguments } = call.function;
            let call = ToolCall { id, name, input: arguments };
            self.draft.tool_calls.push(call.clone());
            pieces.push(Piece::ToolCall(call));
        }
        self.draft.model = response.model.or(self.draft.model.take());
        if response.done {
            self.draft.finish = Some(finish(response.done_reason.as_deref()));
            self.draft.usage.input = response.prompt_eval_count;
            self.draft.usage.output = response.eval_count;
        }
    }
}

impl StreamParser for LineParser {
    fn take(&mut self, event: &DecodedEvent, pieces: &mut Vec<Piece>) -> Result<Flow, EventError> {
        let response: ChatResponse = serde_json::from_str(&event.data)?;
        if let Some(error) = response.error {
            return Err(EventError::Provider(serde_json::json!({ "error": error })));
        }
        let done = response.done;
        self.add(response, pieces);
        Ok(if done { Flow::Done } else { Flow::More })
    }

    fn draft(self: Box<Self>) -> Draft {
        self.draft
    }
}
