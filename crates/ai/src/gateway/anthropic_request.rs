//! Parses requests of Anthropic's messages API.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::error::GatewayError;
use super::fields::{CacheControl, Content, Extras, Fields, checked_schema, short};
use super::request::{Delivery, ParsedRequest};
use crate::chat::{Chat, ChatRole, Effort, Message, Part, Tool, ToolCall, ToolChoice};
use crate::profile::CacheFor;
use crate::raw_json::RawObject;

/// Fields that do not change the answer and are ignored.
const IGNORED_FIELDS: &[&str] = &["cache_control"];

/// Fields that cost nothing beside the tokens that are reserved: thoughts are part of the answer's
/// maximum. All others are refused where a budget bounds the call or its key is lent: `speed` and
/// `inference_geo` multiply the price, and what is not known may have any price.
const PRICED_FIELDS: &[&str] = &["cache_control"];

/// Values that ask for the default behaviour.
const DEFAULT_VALUES: &[(&str, &[&str])] =
    &[("service_tier", &[r#""auto""#, r#""standard_only""#]), ("speed", &[r#""standard""#])];

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
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    cache_control: Option<CacheControl>,
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
    #[serde(default)]
    cache_control: Option<IgnoredAny>,
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
struct Thinking {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    budget_tokens: Option<u32>,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    user_id: Option<String>,
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
    let mut extras = Extras { choices: 1, ..Extras::default() };
    let model = fields.require("model")?;
    let messages = messages(fields.require("messages")?, &mut extras)?;
    let system = fields.take::<&RawValue>("system")?.map(|raw| system(raw, &mut extras)).transpose()?;
    let (system, system_cache) = system.unwrap_or_default();
    let choice: Option<Choice> = fields.take("tool_choice")?;
    let output: Option<OutputConfig> = fields.take("output_config")?;
    let (effort, format) = output.map(|output| (output.effort, output.format)).unwrap_or_default();
    let effort = effort_of(effort, fields.take("thinking")?, &mut extras);
    let chat = Chat {
        messages,
        tools: tools(fields.take("tools")?.unwrap_or_default(), &mut extras),
        one_tool_call: choice.as_ref().is_some_and(|choice| choice.disable_parallel_tool_use == Some(true)),
        tool_choice: tool_choice(choice, &mut extras),
        stop: fields.take("stop_sequences")?.unwrap_or_default(),
        top_p: fields.take("top_p")?,
        top_k: fields.take("top_k")?,
        effort,
        user: fields.take("metadata")?.and_then(|metadata: Metadata| metadata.user_id),
        system_cache,
        ..Chat::default()
    };
    let schema = schema(format)?.map(Arc::new);
    let max_tokens = fields.take("max_tokens")?;
    if max_tokens == Some(0) {
        extras.unsupported("`max_tokens` of 0");
    }
    let stream = fields.take("stream")? == Some(true);
    Ok(ParsedRequest {
        model,
        system: (!system.is_empty()).then_some(system),
        max_tokens,
        temperature: fields.take("temperature")?,
        schema,
        chat,
        embeddings: None,
        echo: Value::Null,
        delivery: if stream { Delivery::StreamWithUsage } else { Delivery::Complete },
        extras: {
            extras.remaining(&fields, IGNORED_FIELDS, PRICED_FIELDS, DEFAULT_VALUES);
            extras
        },
    })
}

fn messages(input: Vec<InputMessage<'_>>, extras: &mut Extras) -> Result<Vec<Message>, GatewayError> {
    if input.is_empty() {
        return Err(GatewayError::of("messages", "`messages` must not be empty"));
    }
    let messages = input.into_iter().enumerate().map(|(number, input)| {
        let parsed = message(&input, extras);
        parsed.map_err(|why| GatewayError::of("messages", format!("messages.{number}: {why}")))
    });
    messages.collect()
}

fn message(input: &InputMessage<'_>, extras: &mut Extras) -> Result<Message, String> {
    let role = match &*input.role {
        "user" => ChatRole::User,
        "assistant" => ChatRole::Assistant,
        other => return Err(format!("there is no role `{}`", short(other))),
    };
    let content = Content::<Block<'_>>::parse(input.content);
    let parts = match content.map_err(|error| format!("content: {error}"))? {
        Content::Text(text) => vec![Part::Text(text)],
        Content::Parts(blocks) => parts(blocks, extras)?,
    };
    Ok(Message { role, parts })
}

fn parts(blocks: Vec<Block<'_>>, extras: &mut Extras) -> Result<Vec<Part>, String> {
    let mut parts = Vec::with_capacity(blocks.len());
    for mut block in blocks {
        let mark = block.cache_control.take();
        parts.extend(part(block, extras).transpose()?);
        parts.extend(mark.map(|mark| Part::CacheMark(mark.cache_for())));
    }
    Ok(parts)
}

fn part(block: Block<'_>, extras: &mut Extras) -> Option<Result<Part, String>> {
    let part = match &*block.kind {
        "text" => block.text.map(Part::Text).ok_or_else(|| lacks("text")),
        "tool_use" => tool_use(block),
        "tool_result" => tool_result(block, extras),
        // Another model cannot use a model's earlier thinking.
        "thinking" | "redacted_thinking" => return None,
        "image" => match block.source.and_then(image) {
            Some(image) => {
                if let Part::Image { media_type, .. } = &image {
                    extras.image_type(media_type);
                }
                Ok(image)
            }
            None => {
                extras.unpriced("images that are neither base64 nor a URL");
                return None;
            }
        },
        "document" if block.source.as_ref().is_some_and(|source| source.data.is_some()) => {
            extras.unpriced_part("documents");
            document(block)
        }
        other => {
            extras.unpriced(format!("blocks of the type `{}`", short(other)));
            return None;
        }
    };
    Some(part)
}

fn tool_use(block: Block<'_>) -> Result<Part, String> {
    let (Some(id), Some(name)) = (block.id, block.name) else { return Err(lacks("id or name")) };
    let input = block.input.unwrap_or_else(|| json!({}));
    Ok(Part::ToolCall(ToolCall { id, name, input }))
}

fn tool_result(block: Block<'_>, extras: &mut Extras) -> Result<Part, String> {
    let id = block.tool_use_id.ok_or_else(|| lacks("tool_use_id"))?;
    let content = block.content.map(Content::<Block<'_>>::parse).transpose();
    let text = match content.map_err(|error| format!("content: {error}"))? {
        None => String::new(),
        Some(Content::Text(text)) => text,
        Some(Content::Parts(blocks)) => text_of(blocks, "tool results", extras)?.0,
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

/// An inline document. A plain text is part of the message.
fn document(block: Block<'_>) -> Result<Part, String> {
    let source = block.source.ok_or_else(|| lacks("source"))?;
    let data = source.data.unwrap_or_default();
    Ok(match &*source.kind {
        "text" => Part::Text(data),
        _ => {
            let media_type = source.media_type.ok_or_else(|| lacks("media_type"))?;
            Part::Document { media_type, data, name: block.title }
        }
    })
}

fn lacks(what: &str) -> String {
    format!("a block lacks its `{what}`")
}

/// The text of blocks in a place that has only text in a translation.
/// Also returns their last cache mark.
fn text_of(
    blocks: Vec<Block<'_>>,
    place: &str,
    extras: &mut Extras,
) -> Result<(String, Option<CacheFor>), String> {
    let (mut texts, mut cache) = (Vec::new(), None);
    for block in blocks {
        cache = block.cache_control.as_ref().map(CacheControl::cache_for).or(cache);
        if !["text", "image"].contains(&&*block.kind) {
            extras.unpriced(format!("{place} other than text and images"));
            continue;
        }
        match part(block, extras).transpose()? {
            Some(Part::Text(text)) => texts.push(text),
            Some(_) => extras.lost_image(place),
            None => {}
        }
    }
    Ok((texts.join("\n"), cache))
}

fn system(raw: &RawValue, extras: &mut Extras) -> Result<(String, Option<CacheFor>), GatewayError> {
    let invalid = |why: String| GatewayError::of("system", format!("system: {why}"));
    match Content::<Block<'_>>::parse(raw).map_err(|error| invalid(error.to_string()))? {
        Content::Text(text) => Ok((text, None)),
        Content::Parts(blocks) => text_of(blocks, "system prompts", extras).map_err(invalid),
    }
}

fn tools(offered: Vec<ToolDefinition>, extras: &mut Extras) -> Vec<Tool> {
    let mut tools = Vec::with_capacity(offered.len());
    for ToolDefinition { kind, name, description, input_schema, cache_control } in offered {
        if cache_control.is_some() {
            extras.ignored("`cache_control` of a tool");
        }
        match kind.as_deref() {
            None | Some("custom") => {
                let input = input_schema.unwrap_or_else(|| json!({"type": "object"}));
                tools.push(Tool { name, description, input });
            }
            Some(other) => extras.unpriced(format!("tools of the type `{}`", short(other))),
        }
    }
    tools
}

fn tool_choice(choice: Option<Choice>, extras: &mut Extras) -> ToolChoice {
    let Some(choice) = choice else { return ToolChoice::Auto };
    match (&*choice.kind, choice.name) {
        ("auto", _) => ToolChoice::Auto,
        ("none", _) => ToolChoice::None,
        ("any", _) => ToolChoice::Any,
        ("tool", Some(name)) => ToolChoice::Named(name),
        _ => {
            extras.unsupported("this `tool_choice`");
            ToolChoice::Auto
        }
    }
}

/// How long the model may think. By default a model that thinks does so with high effort.
fn effort_of(effort: Option<String>, thinking: Option<Thinking>, extras: &mut Extras) -> Option<Effort> {
    let named = super::fields::effort("`output_config.effort`", effort, extras);
    let Some(thinking) = thinking else { return named };
    match (&*thinking.kind, thinking.budget_tokens) {
        ("disabled", _) => Some(Effort::None),
        ("enabled", Some(tokens)) => Some(Effort::of_budget(tokens)),
        ("adaptive", _) => named.or(Some(Effort::High)),
        _ => {
            extras.unsupported("this `thinking`");
            named
        }
    }
}

/// The schema that the answer must follow.
fn schema(format: Option<ResponseFormat>) -> Result<Option<Value>, GatewayError> {
    match format {
        None => Ok(None),
        Some(ResponseFormat { kind, schema: Some(schema) }) if kind == "json_schema" => {
            checked_schema("output_config", schema).map(Some)
        }
        Some(_) => {
            let message = "output_config.format must be of the type `json_schema`, with a `schema`";
            Err(GatewayError::of("output_config", message))
        }
    }
}
