//! The most tokens that a question can have, which a budget reserves. The estimate of
//! [`super::estimate_tokens`] is right on average; budgets need a bound that no text exceeds.
//!
//! A tokenizer splits text into pieces of at least one byte of UTF-8, so a text has at most as many
//! tokens as bytes, in every script. Most texts have far fewer: what a call did not use is free
//! again when it ends. A request that is passed through counts with all bytes of its JSON, whatever
//! members it has, except the data of inline images.

use crate::chat::{Chat, Part};
use crate::model_api::Question;

/// The most tokens of an image, unless the provider documents less. The most expensive known
/// counts are those of small OpenAI models: 48,169 tokens for eight tiles.
pub(crate) const MAX_IMAGE_TOKENS: u64 = 50_000;

/// What chat templates add to a question: roles, separators, the date, a default system prompt.
const TEMPLATE_TOKENS: u64 = 256;

/// What they add to a message.
const MESSAGE_TOKENS: u64 = 16;

/// What providers add to a question with tools or a schema: Anthropic documents up to 735 tokens.
const TOOLS_TOKENS: u64 = 1_000;

/// What they add to a tool.
const TOOL_TOKENS: u64 = 32;

impl Question {
    /// The most tokens that it can have; an image has at most `image_tokens`.
    pub fn token_bound(&self, image_tokens: u64) -> u64 {
        let chat = self.chat.as_deref();
        let asked = match (&self.raw, chat) {
            (Some(raw), chat) => bytes(raw.body.len()).saturating_sub(chat.map_or(0, Chat::image_bytes)),
            (None, Some(chat)) => chat.text_bytes(),
            (None, None) => bytes(self.prompt.len()),
        };
        let schema = self.schema.as_ref().map_or(0, |schema| bytes(schema.to_string().len()) + TOOLS_TOKENS);
        // A request that is passed through contains its own system prompt, and images that only its
        // API has.
        let (has_system, images) = self.raw.as_ref().map_or((false, 0), |raw| (raw.has_system, raw.images));
        let system = self.system.as_ref().filter(|_| !has_system).map_or(0, |system| bytes(system.len()));
        let added = chat.map_or(MESSAGE_TOKENS, |chat| chat.template_tokens(image_tokens));
        asked + system + schema + added + u64::from(images) * image_tokens + TEMPLATE_TOKENS
    }
}

impl Chat {
    fn parts(&self) -> impl Iterator<Item = &Part> {
        self.messages.iter().flat_map(|message| &message.parts)
    }

    /// The bytes of inline images.
    fn image_bytes(&self) -> u64 {
        let images = self.parts().filter_map(|part| match part {
            Part::Image { data, .. } => Some(bytes(data.len())),
            _ => None,
        });
        images.sum()
    }

    fn text_bytes(&self) -> u64 {
        let parts = self.parts().map(|part| match part {
            Part::Text(text) | Part::ToolResult { text, .. } | Part::ImageUrl(text) => bytes(text.len()),
            Part::Image { .. } | Part::CacheMark(_) => 0,
            Part::Document { data, .. } => bytes(data.len()),
            Part::ToolCall(call) => bytes(call.id.len() + call.name.len() + call.input.to_string().len()),
        });
        let tools = self.tools.iter().map(|tool| {
            let description = tool.description.as_ref().map_or(0, String::len);
            bytes(tool.name.len() + description + tool.input.to_string().len())
        });
        parts.chain(tools).sum()
    }

    /// What chat templates, tools and images add to the text.
    fn template_tokens(&self, image_tokens: u64) -> u64 {
        let is_image = |part: &&Part| matches!(part, Part::Image { .. } | Part::ImageUrl(_));
        let images = bytes(self.parts().filter(is_image).count()) * image_tokens;
        let tools = if self.tools.is_empty() { 0 } else { TOOLS_TOKENS };
        let tools = tools + bytes(self.tools.len()) * TOOL_TOKENS;
        images + tools + bytes(self.messages.len() + 1) * MESSAGE_TOKENS
    }
}

fn bytes(count: usize) -> u64 {
    count as u64
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::Instant;

    use super::*;
    use crate::chat::{ChatRole, Message};

    fn question(prompt: &str) -> Question {
        Question::new("r", prompt, Instant::now())
    }

    fn chat(parts: Vec<Part>) -> Question {
        let messages = vec![Message { role: ChatRole::User, parts }];
        Question { chat: Some(Arc::new(Chat { messages, ..Chat::default() })), ..question("") }
    }

    #[test]
    fn no_script_has_more_tokens_than_are_reserved() {
        // Worst known counts of byte-level tokenizers: a rare ideograph or emoji has a token per byte.
        for (text, tokens) in [("𠜎𠜱𠝹𠱓", 16), ("🏴󠁧󠁢󠁳󠁣󠁴󠁿", 28), ("漢字", 6), ("x q z", 5), ("", 0)]
        {
            assert!(question(text).token_bound(0) >= tokens, "{text}");
            assert!(chat(vec![Part::Text(text.to_owned())]).token_bound(0) >= tokens, "{text}");
        }
    }

    #[test]
    fn an_image_counts_by_what_it_may_cost_and_not_by_its_bytes() {
        let data = "A".repeat(1_000_000);
        let inline = chat(vec![Part::Image { media_type: "image/png".into(), data }]);
        let bound = inline.token_bound(MAX_IMAGE_TOKENS);
        assert!((MAX_IMAGE_TOKENS..MAX_IMAGE_TOKENS + 1_000).contains(&bound), "{bound}");
        let linked = chat(vec![Part::ImageUrl("https://x.example/a.png".into()); 3]);
        assert!(linked.token_bound(MAX_IMAGE_TOKENS) >= 3 * MAX_IMAGE_TOKENS);
    }

    #[test]
    fn a_schema_and_a_system_prompt_count() {
        let plain = question("hi").token_bound(0);
        let schema = Some(Arc::new(serde_json::json!({ "type": "object" })));
        assert!(Question { schema, ..question("hi") }.token_bound(0) >= plain + TOOLS_TOKENS);
        let system = Some("x".repeat(500));
        assert_eq!(Question { system, ..question("hi") }.token_bound(0), plain + 500);
    }
}
