//! Conversations, in a form that translates to and from every provider's API.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::pricing::estimate_tokens;

/// A conversation that the model continues.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Chat {
    /// The messages, oldest first. The system prompt is in [`crate::Question::system`].
    pub messages: Vec<Message>,
    /// The tools that the model may call.
    pub tools: Vec<Tool>,
    /// Whether it must call one.
    pub tool_choice: ToolChoice,
    /// Stop sequences.
    pub stop: Vec<String>,
    /// Nucleus sampling, besides the temperature.
    pub top_p: Option<f64>,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// The author.
    pub role: ChatRole,
    /// The content.
    pub parts: Vec<Part>,
}

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChatRole {
    /// The user, or the tools that were called.
    User,
    /// The model.
    Assistant,
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// Text.
    Text(String),
    /// An inline image.
    Image {
        /// Its media type, such as `image/png`.
        media_type: String,
        /// Its bytes, in base64.
        data: String,
    },
    /// An image that the provider fetches.
    ImageUrl(String),
    /// A tool call by the model.
    ToolCall(ToolCall),
    /// The result of a tool call.
    ToolResult {
        /// The call's id.
        id: String,
        /// The result.
        text: String,
        /// Whether the call failed.
        failed: bool,
    },
}

/// A tool that the model may call.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: Option<String>,
    /// The JSON Schema of its input.
    pub input: Value,
}

/// Whether the model must call a tool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ToolChoice {
    /// It decides.
    #[default]
    Auto,
    /// It must not.
    None,
    /// It must call one.
    Any,
    /// It must call this one.
    Named(String),
}

/// A tool call by the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Identifies the call in its result.
    pub id: String,
    /// The tool.
    pub name: String,
    /// Its input.
    pub input: Value,
}

/// A piece of a streamed answer.
#[derive(Debug, Clone, PartialEq)]
pub enum AnswerPiece {
    /// The answer starts: names the model, before the first piece. After a fallback it is not the
    /// requested one.
    Started {
        /// The model that answers.
        model: String,
    },
    /// More text.
    Text(String),
    /// A complete tool call.
    ToolCall(ToolCall),
    /// The provider's own event, if the request was passed through. Replaces all other pieces,
    /// including those at the end.
    Raw(String),
}

impl Chat {
    /// The user's last text; empty if there is none.
    pub(crate) fn last_user_text(&self) -> &str {
        let users = self.messages.iter().rev().filter(|message| message.role == ChatRole::User);
        let mut texts = users.flat_map(|message| message.parts.iter().rev());
        let text = texts.find_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            _ => None,
        });
        text.unwrap_or_default()
    }

    /// Estimated tokens.
    pub fn estimate(&self) -> u64 {
        let parts = self.messages.iter().flat_map(|message| &message.parts).map(Part::estimate);
        let tools = self.tools.iter().map(|tool| estimate_tokens(&tool.input.to_string()));
        parts.chain(tools).sum::<u64>().max(1)
    }

    /// The name of the tool that a call called: some APIs name a result by it.
    pub(crate) fn tool_name(&self, id: &str) -> Option<&str> {
        let mut parts = self.messages.iter().flat_map(|message| &message.parts);
        parts.find_map(|part| match part {
            Part::ToolCall(call) if call.id == id => Some(call.name.as_str()),
            _ => None,
        })
    }
}

impl Part {
    /// Tokens of an image: what providers count for a large one.
    const IMAGE_TOKENS: u64 = 1600;

    fn estimate(&self) -> u64 {
        match self {
            Self::Text(text) | Self::ToolResult { text, .. } => estimate_tokens(text),
            Self::Image { .. } | Self::ImageUrl(_) => Self::IMAGE_TOKENS,
            Self::ToolCall(call) => estimate_tokens(&call.input.to_string()),
        }
    }
}
