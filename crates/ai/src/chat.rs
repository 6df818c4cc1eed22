//! Conversations, in a form that translates to and from every provider's API.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::pricing::estimate_tokens;
use crate::profile::CacheFor;

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
    /// Sampling among this many tokens.
    pub top_k: Option<u32>,
    /// Against tokens by how often they have appeared.
    pub frequency_penalty: Option<f64>,
    /// Against tokens that have appeared.
    pub presence_penalty: Option<f64>,
    /// For answers that repeat, as far as the provider can.
    pub seed: Option<i64>,
    /// How long the model may think.
    pub effort: Option<Effort>,
    /// The model may call one tool at a time.
    pub one_tool_call: bool,
    /// Identifies the end user to the provider.
    pub user: Option<String>,
    /// The system prompt ends with a cache mark.
    pub system_cache: Option<CacheFor>,
}

/// How long a model may think before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// Not at all.
    None,
    /// As briefly as it can.
    Minimal,
    /// Briefly.
    Low,
    /// As is usual.
    Medium,
    /// Long.
    High,
    /// Longer.
    Xhigh,
    /// As long as it can.
    Max,
}

impl Effort {
    /// Its name in OpenAI's API.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
            Self::Max => "max",
        }
    }

    /// The most tokens of thoughts, for APIs that count them.
    pub(crate) fn token_budget(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Minimal => 512,
            Self::Low => 2_048,
            Self::Medium => 8_192,
            Self::High => 16_384,
            Self::Xhigh => 24_576,
            Self::Max => 32_768,
        }
    }

    /// The effort with at least this budget.
    pub(crate) fn of_budget(tokens: u32) -> Self {
        let all = [Self::Minimal, Self::Low, Self::Medium, Self::High, Self::Xhigh];
        all.into_iter().find(|effort| tokens <= effort.token_budget()).unwrap_or(Self::Max)
    }
}

/// What a conversation may contain, and not every provider can express.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// `top_k`.
    TopK,
    /// A penalty for repetitions.
    Penalty,
    /// A seed.
    Seed,
    /// How long the model may think.
    Effort,
    /// One tool must be called.
    NamedTool,
    /// One of several tools must be called.
    AnyTool,
    /// At most one tool call at a time.
    OneToolCall,
    /// PDFs and other documents.
    Document,
    /// Images that the provider fetches.
    ImageUrl,
    /// The end user.
    User,
    /// Marks for the provider's cache.
    CacheMark,
}

impl Feature {
    /// Whether an answer is as good without it: it is dropped where it cannot be expressed, and everything else is
    /// refused.
    pub(crate) fn is_hint(self) -> bool {
        matches!(self, Self::Seed | Self::User | Self::CacheMark)
    }

    /// Its name in messages.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::TopK => "`top_k`",
            Self::Penalty => "`frequency_penalty` and `presence_penalty`",
            Self::Seed => "`seed`",
            Self::Effort => "the effort of thinking",
            Self::NamedTool => "a `tool_choice` with a tool",
            Self::AnyTool => "a `tool_choice` that requires any tool",
            Self::OneToolCall => "one tool call at a time",
            Self::Document => "documents",
            Self::ImageUrl => "images by URL",
            Self::User => "`user`",
            Self::CacheMark => "`cache_control`",
        }
    }
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
    /// An inline document, such as a PDF.
    Document {
        /// Its media type, such as `application/pdf`.
        media_type: String,
        /// Its bytes, in base64.
        data: String,
        /// Its file name.
        name: Option<String>,
    },
    /// The provider should cache everything up to here.
    CacheMark(CacheFor),
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
        /// What of the request it was not told, as text for users.
        dropped: Option<Box<str>>,
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
    /// What it contains that not every provider can express.
    pub fn features(&self) -> Vec<Feature> {
        let part = |part: &Part| match part {
            Part::Document { .. } => Some(Feature::Document),
            Part::ImageUrl(_) => Some(Feature::ImageUrl),
            Part::CacheMark(_) => Some(Feature::CacheMark),
            _ => None,
        };
        let requires_any = self.tool_choice == ToolChoice::Any && self.tools.len() > 1;
        let has_penalty = self.frequency_penalty.or(self.presence_penalty).is_some_and(|by| by != 0.0);
        let settings = [
            (self.top_k.is_some(), Feature::TopK),
            (has_penalty, Feature::Penalty),
            (self.seed.is_some(), Feature::Seed),
            (self.effort.is_some(), Feature::Effort),
            (self.required_tool().is_some(), Feature::NamedTool),
            (requires_any, Feature::AnyTool),
            (self.one_tool_call && !self.tools.is_empty(), Feature::OneToolCall),
            (self.user.is_some(), Feature::User),
            (self.system_cache.is_some(), Feature::CacheMark),
        ];
        let settings = settings.into_iter().filter_map(|(is_set, feature)| is_set.then_some(feature));
        let parts = self.messages.iter().flat_map(|message| &message.parts).filter_map(part);
        let mut all: Vec<Feature> = Vec::new();
        for feature in settings.chain(parts) {
            if !all.contains(&feature) {
                all.push(feature);
            }
        }
        all
    }

    /// The tool that must be called.
    pub(crate) fn required_tool(&self) -> Option<&Tool> {
        match (&self.tool_choice, self.tools.as_slice()) {
            (ToolChoice::Any, [only]) => Some(only),
            (ToolChoice::Named(name), tools) => tools.iter().find(|tool| tool.name == *name),
            _ => None,
        }
    }

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
    /// A page of a PDF has 1,500 to 3,000 tokens, and often some 50 KB.
    const DOCUMENT_BYTES_PER_TOKEN: u64 = 25;

    fn estimate(&self) -> u64 {
        match self {
            Self::Text(text) | Self::ToolResult { text, .. } => estimate_tokens(text),
            Self::Image { .. } | Self::ImageUrl(_) => Self::IMAGE_TOKENS,
            Self::Document { data, .. } => {
                Self::IMAGE_TOKENS + data.len() as u64 / Self::DOCUMENT_BYTES_PER_TOKEN
            }
            Self::CacheMark(_) => 0,
            Self::ToolCall(call) => estimate_tokens(&call.input.to_string()),
        }
    }
}
