//! What the most expensive provider would bill for a request.

use serde_json::Value;

use super::FakeAnswer;

/// The tokens of a request's question and of its answers, at the worst: a token per byte of text in
/// every member, the documented most per image, and answers as long as permitted.
pub fn billed_tokens(request: &Value) -> (u64, u64) {
    let limits = ["max_completion_tokens", "max_tokens"].map(|name| request[name].as_u64());
    let each = limits.into_iter().flatten().max().unwrap_or(4_096);
    let anthropic = request["max_completion_tokens"].is_null();
    let image = if anthropic { 4_784 } else { 48_169 };
    let tools = if request["tools"].is_null() { 0 } else { 735 };
    (text_tokens(request, image) + tools, each * request["n"].as_u64().unwrap_or(1))
}

fn text_tokens(value: &Value, image: u64) -> u64 {
    match value {
        Value::String(text) => text.len() as u64,
        Value::Array(values) => values.iter().map(|value| text_tokens(value, image)).sum(),
        Value::Object(fields)
            if ["image", "image_url"].iter().any(|kind| fields.get("type") == Some(&(*kind).into())) =>
        {
            image
        }
        // A role and its separators.
        Value::Object(fields) => fields.values().map(|value| text_tokens(value, image)).sum::<u64>() + 8,
        _ => 1,
    }
}

impl FakeAnswer {
    /// The answer to a request, with its tokens.
    pub(super) fn counted(self, request: &Value) -> Self {
        if !self.metered {
            return self;
        }
        let (tokens_in, tokens_out) = billed_tokens(request);
        Self { tokens_in: Some(tokens_in), tokens_out: Some(tokens_out), ..self }
    }
}
