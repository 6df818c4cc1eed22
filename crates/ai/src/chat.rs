//! Whole conversations, in words that every provider's wire can be translated to and from.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cost::estimate_tokens;

/// A conversation that is to be carried on.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Chat {
    /// What was said, the oldest first. What the model is told about its role is not here but in
    /// [`crate::Question::system`].
    pub messages: Vec<Message>,
    /// What the model may call.
    pub tools: Vec<Tool>,
    /// Whether it must.
    pub tool_choice: ToolChoice,
    /// Where the answer ends, should the model say one of these.
    pub stop: Vec<String>,
    /// Sampling beside the temperature.
    pub top_p: Option<f64>,
}

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Whose.
    pub role: Role,
    /// What was said.
    pub parts: Vec<Part>,
}

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Who asks, and the tools that were called.
    User,
    /// The model.
    Assistant,
}

/// A part of what was said.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// Words.
    Text(String),
    /// A picture: `image/png` and such, and its bytes in base64.
    Image {
        /// Its kind.
        media_type: String,
        /// Its bytes, in base64.
        data: String,
    },
    /// A picture that the provider fetches by itself.
    ImageUrl(String),
    /// The model wants a tool called.
    ToolCall(ToolCall),
    /// What the tool said.
    ToolResult {
        /// To which call.
        id: String,
        /// What it said.
        text: String,
        /// It failed.
        failed: bool,
    },
}

/// Something the model may call.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it is good for.
    pub description: Option<String>,
    /// The JSON Schema of what it takes.
    pub input: Value,
}

/// Whether the model must call a tool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ToolChoice {
    /// As it likes.
    #[default]
    Auto,
    /// It must not.
    None,
    /// It must call one.
    Any,
    /// It must call this one.
    Named(String),
}

/// A tool that the model wants called.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Recognises the call in the result.
    pub id: String,
    /// Which tool.
    pub name: String,
    /// What it is given.
    pub input: Value,
}

/// A piece of an answer on its way.
#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    /// An answer begins: the desk says whose, before its first piece. After a fallback it is not the
    /// model that was asked for.
    Begun {
        /// Which model answers.
        model: String,
    },
    /// Some more of the text.
    Text(String),
    /// A whole call of a tool, once all of it has come.
    ToolCall(ToolCall),
    /// An event's data as it came over the wire, where the question was asked raw: in the place of
    /// the others, the wire's last events included.
    Raw(String),
}

impl Chat {
    /// The last text that the user said; nothing if there is none.
    pub(crate) fn last_words(&self) -> &str {
        let said = self.messages.iter().rev().filter(|message| message.role == Role::User);
        let mut texts = said.flat_map(|message| message.parts.iter().rev());
        let text = texts.find_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            _ => None,
        });
        text.unwrap_or_default()
    }

    /// About how many tokens it has.
    pub fn estimate(&self) -> u64 {
        let parts = self.messages.iter().flat_map(|message| &message.parts).map(Part::estimate);
        let tools = self.tools.iter().map(|tool| estimate_tokens(&tool.input.to_string()));
        parts.chain(tools).sum::<u64>().max(1)
    }

    /// The name of the tool that a call called: some wires name a result by it.
    pub(crate) fn called(&self, id: &str) -> Option<&str> {
        let mut parts = self.messages.iter().flat_map(|message| &message.parts);
        parts.find_map(|part| match part {
            Part::ToolCall(call) if call.id == id => Some(call.name.as_str()),
            _ => None,
        })
    }
}

impl Part {
    /// A picture counts as much as providers say that a large one does.
    const PICTURE: u64 = 1600;

    fn estimate(&self) -> u64 {
        match self {
            Self::Text(text) | Self::ToolResult { text, .. } => estimate_tokens(text),
            Self::Image { .. } | Self::ImageUrl(_) => Self::PICTURE,
            Self::ToolCall(call) => estimate_tokens(&call.input.to_string()),
        }
    }
}
