//! Ollama's answers, whole and line by line: the same objects.

use serde::Deserialize;
use serde_json::Value;

use super::super::dialect::{Draft, Fault, Flow, Reading};
use crate::ask::FinishReason;
use crate::chat::{Piece, ToolCall};
use crate::http::Event;

/// An answer, or a part of one. Counts are in the last, and left out where they are nothing.
#[derive(Deserialize)]
struct Told {
    #[serde(default)]
    model: Option<String>,
    response: Option<String>,
    message: Option<Said>,
    #[serde(default)]
    done: bool,
    done_reason: Option<String>,
    prompt_eval_count: Option<u64>,
    eval_count: Option<u64>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Said {
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

/// Reads a whole answer.
pub(super) fn whole(body: &[u8]) -> Result<Draft, String> {
    let told: Told = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    if told.error.is_some() {
        return Err("it is an error".into());
    }
    if told.response.is_none() && told.message.is_none() {
        return Err("there is no message in it".into());
    }
    if !told.done {
        return Err("it is not done".into());
    }
    let mut parts = Parts::default();
    parts.add(told, &mut Vec::new());
    Ok(parts.draft)
}

/// Reads an answer from its lines.
#[derive(Default)]
pub(super) struct Parts {
    draft: Draft,
}

impl Parts {
    fn add(&mut self, told: Told, pieces: &mut Vec<Piece>) {
        let (content, calls) =
            told.message.map(|said| (said.content, said.tool_calls)).unwrap_or_default();
        if let Some(text) = told.response.or(content).filter(|text| !text.is_empty()) {
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
        self.draft.model = told.model.or(self.draft.model.take());
        if told.done {
            self.draft.finish = Some(finish(told.done_reason.as_deref()));
            self.draft.usage.input = told.prompt_eval_count;
            self.draft.usage.output = told.eval_count;
        }
    }
}

impl Reading for Parts {
    fn take(&mut self, event: &Event, pieces: &mut Vec<Piece>) -> Result<Flow, Fault> {
        let told: Told = serde_json::from_str(&event.data)?;
        if let Some(error) = told.error {
            return Err(Fault::Told(serde_json::json!({ "error": error })));
        }
        let done = told.done;
        self.add(told, pieces);
        Ok(if done { Flow::Done } else { Flow::More })
    }

    fn draft(self: Box<Self>) -> Draft {
        self.draft
    }
}
