//! Parses requests of Anthropic's messages API.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::error::GatewayError;
use super::fields::{Content, Fields};
use super::request::{Delivery, ParsedRequest};
use crate::chat::{Chat, ChatRole, Message, Part, Tool, ToolCall, ToolChoice};
use crate::raw_json::RawObject;

/// Fields that do not change the answer and are ignored.
const IGNORED_FIELDS: &[&str] = &["metadata", "cache_control", "inference_geo"];

/// Values that ask for the default behaviour.
const DEFAULT_VALUES: &[(&str, &[&str])] = &[
    ("service_tier", &[r#""auto""#, r#""standard_only""#]),
    ("speed", &[r#""standard""#]),
    ("thinking", &[r#"{"type":"disabled"}"#]),
];

#[derive(Deserialize)]
struct InputMessage<'a> {
    #[serde(borrow)]
    role: Cow<'a, str>,
    #[serde(borrow)]
    content: &'a RawValue,
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    source: Option<Source>,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    input: Option<Value>,
    #[serde(default)]
    tool_use_id: Option<String>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(default)]
    is_error: Option<bool>,
}

#[derive(Deserialize)]
struct Source {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    media_type: Option<String>,
    #[serde(default)]
    data: Option<String>,
    #[serde(default)]
    url: Option<String>,
}

#[derive(Deserialize)]
struct ToolDefinition {
    #[serde(default, rename = "type")]
    kind: Option<String>,
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    input_schema: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    disable_parallel_tool_use: Option<bool>,
}

#[derive(Deserialize)]
struct OutputConfig {
    #[serde(default)]
    effort: Option<String>,
    #[serde(default)]
    format: Option<ResponseFormat>,
}

#[derive(Deserialize)]
struct ResponseFormat {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    schema: Option<Value>,
}

type Unsupported = Vec<Cow<'static, str>>;

/// Parses a request for an answer.
pub(super) fn parse(body: &RawObject) -> Result<ParsedRequest, GatewayError> {
    let parsed = parse_for_count(body)?;
    if parsed.max_tokens.is_none() {
        return Err(GatewayError::of("max_tokens", "`max_tokens` is missing"));
    }
    Ok(parsed)
}

/// Parses a request for a token count, which may omit `max_tokens`.
pub(super) fn parse_for_count(body: &RawObject) -> Result<ParsedRequest, GatewayError> {
    let mut fields = Fields::of(body);
    let mut unsupported = Unsupported::new();
    let model = fields.require("model")?;
    let messages = messages(fields.require("messages")?, &mut unsupported)?;
    let system = fields.take::<&RawValue>("system")?.map(system).transpose()?;
    let chat = Chat {
        messages,
        tools: tools(fields.take("tools")?.unwrap_or_default(), &mut unsupported),
        tool_choice: tool_choice(fields.take("tool_choice")?, &mut unsupported),
        stop: fields.take("stop_sequences")?.unwrap_or_default(),
        top_p: fields.take("top_p")?,
    };
    let schema = schema(fields.take("output_config")?, &mut unsupported)?.map(Arc::new);
    let max_tokens = fields.take("max_tokens")?;
    if max_tokens == Some(0) {
        unsupported.push("`max_tokens` of 0".into());
    }
    let stream = fields.take("stream")? == Some(true);
    Ok(ParsedRequest {
        model,
        system: system.filter(|system| !system.is_empty()),
        max_tokens,
        temperature: fields.take("temperature")?,
        schema,
        chat,
        delivery: if stream { Delivery::StreamWithUsage } else { Delivery::Complete },
        unsupported: {
            unsupported.extend(fields.unsupported(IGNORED_FIELDS, DEFAULT_VALUES));
            unsupported
        },
    })
}

fn messages(
    said: Vec<InputMessage<'_>>,
    unsupported: &mut Unsupported,
) -> Result<Vec<Message>, GatewayError> {
    if said.is_empty() {
        return Err(GatewayError::of("messages", "`messages` must not be empty"));
    }
    let messages = said.into_iter().enumerate().map(|(number, said)| {
        let parsed = message(&said, unsupported);
        parsed.map_err(|why| GatewayError::of("messages", format!("messages.{number}: {why}")))
    });
    messages.collect()
}

fn message(said: &InputMessage<'_>, unsupported: &mut Unsupported) -> Result<Message, String> {
    let role = match &*said.role {
        "user" => ChatRole::User,
        "assistant" => ChatRole::Assistant,
        other => return Err(format!("there is no role `{}`", short(other))),
    };
    let said = Content::<Block<'_>>::parse(said.content);
    let parts = match said.map_err(|error| format!("content: {error}"))? {
        Content::Text(text) => vec![Part::Text(text)],
        Content::Parts(blocks) => {
            let parts = blocks.into_iter().filter_map(|block| part(block, unsupported));
            parts.collect::<Result<_, _>>()?
        }
    };
    Ok(Message { role, parts })
}

fn part(block: Block<'_>, unsupported: &mut Unsupported) -> Option<Result<Part, String>> {
    let part = match &*block.kind {
        "text" => block.text.map(Part::Text).ok_or_else(|| lacks("text")),
        "tool_use" => tool_use(block),
        "tool_result" => tool_result(block, unsupported),
        // Another model cannot use a model's earlier thinking.
        "thinking" | "redacted_thinking" => return None,
        "image" => match block.source.and_then(image) {
            Some(image) => Ok(image),
            None => {
                return skip_unsupported("images that are neither base64 nor a URL", unsupported);
            }
        },
        other => {
            unsupported.push(format!("blocks of the type `{}`", short(other)).into());
            return None;
        }
    };
    Some(part)
}

fn skip_unsupported<T>(what: &'static str, unsupported: &mut Unsupported) -> Option<T> {
    unsupported.push(what.into());
    None
}

fn tool_use(block: Block<'_>) -> Result<Part, String> {
    let (Some(id), Some(name)) = (block.id, block.name) else { return Err(lacks("id or name")) };
    let input = block.input.unwrap_or_else(|| json!({}));
    Ok(Part::ToolCall(ToolCall { id, name, input }))
}

fn tool_result(block: Block<'_>, unsupported: &mut Unsupported) -> Result<Part, String> {
    let id = block.tool_use_id.ok_or_else(|| lacks("tool_use_id"))?;
    let said = block.content.map(Content::<Block<'_>>::parse).transpose();
    let text = match said.map_err(|error| format!("content: {error}"))? {
        None => String::new(),
        Some(Content::Text(text)) => text,
        Some(Content::Parts(blocks)) => {
            if blocks.iter().any(|block| block.kind != "text") {
                unsupported.push("tool results other than text".into());
            }
            text_of(blocks)
        }
    };
    Ok(Part::ToolResult { id, text, failed: block.is_error == Some(true) })
}

fn image(source: Source) -> Option<Part> {
    match (&*source.kind, source.media_type, source.data, source.url) {
        ("base64", Some(media_type), Some(data), _) => Some(Part::Image { media_type, data }),
        ("url", _, _, Some(url)) => Some(Part::ImageUrl(url)),
        _ => None,
    }
}

fn lacks(what: &str) -> String {
    format!("a block lacks its `{what}`")
}

fn text_of(blocks: Vec<Block<'_>>) -> String {
    let texts = blocks.into_iter().filter_map(|block| block.text);
    texts.reduce(|all, text| all + "\n" + &text).unwrap_or_default()
}

fn system(raw: &RawValue) -> Result<String, GatewayError> {
    let said = Content::<Block<'_>>::parse(raw);
    match said.map_err(|error| GatewayError::of("system", format!("system: {error}")))? {
        Content::Text(text) => Ok(text),
        Content::Parts(blocks) => Ok(text_of(blocks)),
    }
}

fn tools(offered: Vec<ToolDefinition>, unsupported: &mut Unsupported) -> Vec<Tool> {
    let mut tools = Vec::with_capacity(offered.len());
    for ToolDefinition { kind, name, description, input_schema } in offered {
        match kind.as_deref() {
            None | Some("custom") => {
                let input = input_schema.unwrap_or_else(|| json!({"type": "object"}));
                tools.push(Tool { name, description, input });
            }
            Some(other) => unsupported.push(format!("tools of the type `{}`", short(other)).into()),
        }
    }
    tools
}

fn tool_choice(choice: Option<Choice>, unsupported: &mut Unsupported) -> ToolChoice {
    let Some(choice) = choice else { return ToolChoice::Auto };
    if choice.disable_parallel_tool_use == Some(true) {
        unsupported.push("`disable_parallel_tool_use`".into());
    }
    match (&*choice.kind, choice.name) {
        ("auto", _) => ToolChoice::Auto,
        ("none", _) => ToolChoice::None,
        ("any", _) => ToolChoice::Any,
        ("tool", Some(name)) => ToolChoice::Named(name),
        _ => {
            unsupported.push("this `tool_choice`".into());
            ToolChoice::Auto
        }
    }
}

/// The schema that the answer must follow.
fn schema(
    config: Option<OutputConfig>,
    unsupported: &mut Unsupported,
) -> Result<Option<Value>, GatewayError> {
    let Some(config) = config else { return Ok(None) };
    if config.effort.is_some() {
        unsupported.push("`output_config.effort`".into());
    }
    match config.format {
        None => Ok(None),
        Some(ResponseFormat { kind, schema: Some(schema) }) if kind == "json_schema" => Ok(Some(schema)),
        Some(_) => {
            let message = "output_config.format must be of the type `json_schema`, with a `schema`";
            Err(GatewayError::of("output_config", message))
        }
    }
}

/// The beginning of a client's text, for error messages.
fn short(text: &str) -> &str {
    &text[..text.floor_char_boundary(40)]
}
