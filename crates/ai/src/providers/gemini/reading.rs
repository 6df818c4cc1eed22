//! Gemini's answers, whole and in chunks: the same objects.

use serde::Deserialize;
use serde_json::Value;

use super::super::dialect::{Draft, Fault, Flow, Reading, Usage};
use super::THOUGHT;
use crate::ask::FinishReason;
use crate::chat::{Piece, ToolCall};
use crate::http::Event;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    #[serde(default)]
    candidates: Vec<Candidate>,
    prompt_feedback: Option<Feedback>,
    usage_metadata: Option<Counts>,
    model_version: Option<String>,
    error: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate {
    content: Option<Content>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Content {
    #[serde(default)]
    parts: Vec<Part>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    text: Option<String>,
    #[serde(default)]
    thought: bool,
    function_call: Option<Call>,
    thought_signature: Option<String>,
}

#[derive(Deserialize)]
struct Call {
    id: Option<String>,
    name: String,
    #[serde(default)]
    args: Value,
}

/// The question itself was found unfit.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Feedback {
    block_reason: Option<String>,
}

/// The question's tokens include the cached ones; thoughts are paid like answers.
#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "camelCase")]
struct Counts {
    prompt_token_count: Option<u64>,
    tool_use_prompt_token_count: Option<u64>,
    candidates_token_count: Option<u64>,
    thoughts_token_count: Option<u64>,
    cached_content_token_count: Option<u64>,
}

impl From<Counts> for Usage {
    fn from(counts: Counts) -> Self {
        let input = counts.prompt_token_count;
        let said = counts.candidates_token_count;
        let thought = counts.thoughts_token_count;
        // A question that was blocked has no answer, and its count is left out.
        let output = (input.is_some() || said.is_some())
            .then(|| said.unwrap_or(0).saturating_add(thought.unwrap_or(0)));
        Self {
            input: input
                .map(|all| all.saturating_add(counts.tool_use_prompt_token_count.unwrap_or(0))),
            output,
            cached: counts.cached_content_token_count.unwrap_or(0),
            ..Self::default()
        }
    }
}

fn finish(reason: &str) -> FinishReason {
    match reason {
        "STOP" => FinishReason::Stop,
        "MAX_TOKENS" => FinishReason::Length,
        "SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" | "IMAGE_SAFETY" => {
            FinishReason::ContentFilter
        }
        _ => FinishReason::Other,
    }
}

/// Reads a whole answer.
pub(super) fn whole(body: &[u8]) -> Result<Draft, String> {
    let told: Told = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let mut chunks = Chunks::default();
    chunks.add(told, &mut Vec::new());
    match chunks.draft.finish {
        Some(_) => Ok(chunks.draft),
        None => Err("there is no finished candidate in it".into()),
    }
}

/// Reads an answer from its chunks. Each has the counts so far.
#[derive(Default)]
pub(super) struct Chunks {
    draft: Draft,
}

impl Chunks {
    fn add(&mut self, told: Told, pieces: &mut Vec<Piece>) {
        self.draft.model = told.model_version.or(self.draft.model.take());
        if let Some(counts) = told.usage_metadata {
            self.draft.usage = counts.into();
        }
        if told.prompt_feedback.is_some_and(|feedback| feedback.block_reason.is_some()) {
            self.draft.finish = Some(FinishReason::ContentFilter);
        }
        let Some(candidate) = told.candidates.into_iter().next() else { return };
        for part in candidate.content.map(|content| content.parts).unwrap_or_default() {
            self.part(part, pieces);
        }
        if let Some(reason) = candidate.finish_reason {
            self.draft.finish = Some(finish(&reason));
        }
    }

    fn part(&mut self, part: Part, pieces: &mut Vec<Piece>) {
        if let Some(call) = part.function_call {
            let call = self.call(call, part.thought_signature);
            self.draft.tool_calls.push(call.clone());
            pieces.push(Piece::ToolCall(call));
        } else if let Some(text) = part.text.filter(|text| !part.thought && !text.is_empty()) {
            self.draft.text.push_str(&text);
            pieces.push(Piece::Text(text));
        }
    }

    fn call(&self, call: Call, thought: Option<String>) -> ToolCall {
        let at = self.draft.tool_calls.len();
        let mut id = call.id.unwrap_or_else(|| format!("call_{at}"));
        if let Some(thought) = thought {
            id.push_str(THOUGHT);
            id.push_str(&thought);
        }
        ToolCall { id, name: call.name, input: call.args }
    }
}

impl Reading for Chunks {
    /// No event says that it is the last: the stream is read to its end.
    fn take(&mut self, event: &Event, pieces: &mut Vec<Piece>) -> Result<Flow, Fault> {
        let told: Told = serde_json::from_str(&event.data)?;
        if let Some(error) = told.error {
            return Err(Fault::Told(error));
        }
        self.add(told, pieces);
        Ok(Flow::More)
    }

    fn draft(self: Box<Self>) -> Draft {
        self.draft
    }
}
