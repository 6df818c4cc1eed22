//! Parses Gemini's answers. Complete ones and chunks of a stream have the same form.

use serde::Deserialize;
use serde_json::Value;

use super::super::provider_adapter::{Draft, EventError, Flow, StreamParser, Usage};
use super::THOUGHT_SEPARATOR;
use crate::chat::{Piece, ToolCall};
use crate::model_api::FinishReason;
use crate::sse::DecodedEvent;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GenerateResponse {
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

/// The prompt was blocked.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Feedback {
    block_reason: Option<String>,
}

/// The prompt's tokens include the cached ones; thoughts are billed as output.
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
        let answer = counts.candidates_token_count;
        let thought = counts.thoughts_token_count;
        // A blocked prompt has no answer and no count.
        let output = (input.is_some() || answer.is_some())
            .then(|| answer.unwrap_or(0).saturating_add(thought.unwrap_or(0)));
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

/// Parses a complete answer.
pub(super) fn answer(body: &[u8]) -> Result<Draft, String> {
    let response: GenerateResponse =
        serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let mut chunks = ChunkParser::default();
    chunks.add(response, &mut Vec::new());
    match chunks.draft.finish {
        Some(_) => Ok(chunks.draft),
        None => Err("it has no finished candidate".into()),
    }
}

/// Parses an answer from its chunks. Each has the counts so far.
#[derive(Default)]
pub(super) struct ChunkParser {
    draft: Draft,
}

impl ChunkParser {
    fn add(&mut self, response: GenerateResponse, pieces: &mut Vec<Piece>) {
        self.draft.model = response.model_version.or(self.draft.model.take());
        if let Some(counts) = response.usage_metadata {
            self.draft.usage = counts.into();
        }
        if response.prompt_feedback.is_some_and(|feedback| feedback.block_reason.is_some()) {
            self.draft.finish = Some(FinishReason::ContentFilter);
        }
        let Some(candidate) = response.candidates.into_iter().next() else { return };
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
            id.push_str(THOUGHT_SEPARATOR);
            id.push_str(&thought);
        }
        ToolCall { id, name: call.name, input: call.args }
    }
}

impl StreamParser for ChunkParser {
    /// No event is marked as the last: the stream is read to its end.
    fn take(&mut self, event: &DecodedEvent, pieces: &mut Vec<Piece>) -> Result<Flow, EventError> {
        let response: GenerateResponse = serde_json::from_str(&event.data)?;
        if let Some(error) = response.error {
            return Err(EventError::Provider(error));
        }
        self.add(response, pieces);
        Ok(Flow::More)
    }

    fn draft(self: Box<Self>) -> Draft {
        self.draft
    }
}
