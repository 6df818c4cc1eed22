//! Parses requests of OpenAI's responses API. Each has the whole conversation: responses are not kept.

use std::borrow::Cow;
use std::sync::Arc;

use longshore::CallId;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::error::GatewayError;
use super::fields::{Content, Fields, checked_schema, effort, short};
use super::openai_request::{Conversation, File, document, image};
use super::request::{Delivery, ParsedRequest};
use crate::chat::{Chat, ChatRole, Message, Part, Tool, ToolCall, ToolChoice};
use crate::providers::tool_input;
use crate::raw_json::RawObject;

/// Fields that do not change the answer and are ignored.
const IGNORED_FIELDS: &[&str] = &[
    "metadata",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "store",
    "stream_options",
];

/// Values that ask for the default behaviour.
const DEFAULT_VALUES: &[(&str, &[&str])] = &[
    ("background", &["false"]),
    ("include", &["[]", r#"["reasoning.encrypted_content"]"#]),
    ("metadata", &["{}"]),
    ("service_tier", &[r#""auto""#, r#""default""#]),
    ("store", &["false"]),
    ("top_logprobs", &["0"]),
    ("truncation", &[r#""disabled""#]),
];

/// What a response repeats of its request, if the request has it.
const ECHOED: [&str; 10] = [
    "instructions",
    "max_output_tokens",
    "metadata",
    "parallel_tool_calls",
    "reasoning",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_p",
];

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    role: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(default)]
    call_id: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    arguments: Option<String>,
    #[serde(borrow, default)]
    output: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ContentPart<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    refusal: Option<String>,
    #[serde(default)]
    image_url: Option<String>,
    #[serde(flatten)]
    file: File,
}

#[derive(Deserialize)]
struct ToolDefinition {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    parameters: Option<Value>,
}

#[derive(Deserialize)]
struct TextOptions {
    #[serde(default)]
    format: Option<TextFormat>,
    #[serde(default)]
    verbosity: Option<String>,
}

#[derive(Deserialize)]
struct TextFormat {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    schema: Option<Value>,
}

#[derive(Deserialize)]
struct Reasoning {
    #[serde(default)]
    effort: Option<String>,
    #[serde(default)]
    summary: Option<Value>,
}

/// Parses a request.
pub(super) fn parse(body: &RawObject) -> Result<ParsedRequest, GatewayError> {
    let echo = echo(body);
    let mut fields = Fields::of(body);
    for kept in ["previous_response_id", "conversation"] {
        if fields.take::<Value>(kept)?.is_some() {
            let message = format!("`{kept}`: responses are not kept; send the whole conversation as `input`");
            return Err(GatewayError::of(kept, message));
        }
    }
    let model = fields.require("model")?;
    let mut conversation = Conversation::default();
    if let Some(instructions) = fields.take::<String>("instructions")? {
        conversation.add_system(&instructions);
    }
    add_input(&mut conversation, fields.require("input")?)?;
    let Conversation { system, messages, mut extras, .. } = conversation;
    if messages.is_empty() {
        return Err(GatewayError::of("input", "`input` must not be empty"));
    }
    extras.choices = 1;
    let reasoning: Option<Reasoning> = fields.take("reasoning")?;
    let (named, summary) =
        reasoning.map(|reasoning| (reasoning.effort, reasoning.summary)).unwrap_or_default();
    if summary.is_some() {
        extras.ignored("`reasoning.summary`");
    }
    let mut tools = Vec::new();
    for ToolDefinition { kind, name, description, parameters } in
        fields.take::<Vec<ToolDefinition>>("tools")?.unwrap_or_default()
    {
        match name {
            Some(name) if kind == "function" => {
                let input = parameters.unwrap_or_else(|| json!({"type": "object"}));
                tools.push(Tool { name, description, input });
            }
            _ => extras.unpriced(format!("tools of the type `{}`", short(&kind))),
        }
    }
    let choice: Option<Value> = fields.take("tool_choice")?;
    let tool_choice = match choice.as_ref().map(|choice| (choice.as_str(), choice["name"].as_str())) {
        None | Some((Some("auto"), _)) => ToolChoice::Auto,
        Some((Some("none"), _)) => ToolChoice::None,
        Some((Some("required"), _)) => ToolChoice::Any,
        Some((None, Some(name))) => ToolChoice::Named(name.to_owned()),
        Some(_) => {
            extras.unsupported("this `tool_choice`");
            ToolChoice::Auto
        }
    };
    let text: Option<TextOptions> = fields.take("text")?;
    if text.as_ref().and_then(|text| text.verbosity.as_deref()).is_some_and(|verbosity| verbosity != "medium")
    {
        extras.unsupported("`text.verbosity`");
    }
    let chat = Chat {
        messages,
        tools,
        tool_choice,
        top_p: fields.take("top_p")?,
        effort: effort("`reasoning.effort`", named, &mut extras),
        one_tool_call: fields.take("parallel_tool_calls")? == Some(false),
        user: fields.take("user")?,
        ..Chat::default()
    };
    let stream = fields.take("stream")? == Some(true);
    Ok(ParsedRequest {
        model,
        system,
        max_tokens: fields.take("max_output_tokens")?,
        temperature: fields.take("temperature")?,
        schema: schema(text.and_then(|text| text.format))?.map(Arc::new),
        chat,
        embeddings: None,
        delivery: if stream { Delivery::StreamWithUsage } else { Delivery::Complete },
        echo,
        extras: {
            extras.remaining(&fields, IGNORED_FIELDS, IGNORED_FIELDS, DEFAULT_VALUES);
            extras
        },
    })
}

/// The fields that a response repeats, and its own id.
fn echo(body: &RawObject) -> Value {
    let repeated = ECHOED.into_iter().filter_map(|name| Some((name.to_owned(), body.field(name)?)));
    let mut echo: Map<String, Value> = repeated.filter(|(_, value)| !value.is_null()).collect();
    echo.insert("id".to_owned(), json!(format!("resp_{}", CallId::new()).replace('-', "")));
    Value::Object(echo)
}

/// Adds a text, or a list of items.
fn add_input(conversation: &mut Conversation, input: &RawValue) -> Result<(), GatewayError> {
    let invalid = |why: String| GatewayError::of("input", why);
    let items =
        match Content::<Item<'_>>::parse(input).map_err(|error| invalid(format!("`input`: {error}")))? {
            Content::Text(text) => {
                let parts = vec![Part::Text(text)];
                conversation.messages.push(Message { role: ChatRole::User, parts });
                return Ok(());
            }
            Content::Parts(items) => items,
        };
    for (number, item) in items.into_iter().enumerate() {
        add(conversation, item).map_err(|why| invalid(format!("`input[{number}]`: {why}")))?;
    }
    Ok(())
}

fn add(conversation: &mut Conversation, item: Item<'_>) -> Result<(), String> {
    let lacks = |what: &str| format!("the item lacks its `{what}`");
    match item.kind.as_deref().unwrap_or("message") {
        "message" => {
            let role = item.role.ok_or_else(|| lacks("role"))?;
            let parts = parts(conversation, item.content.ok_or_else(|| lacks("content"))?)?;
            match &*role {
                "user" => conversation.messages.push(Message { role: ChatRole::User, parts }),
                "assistant" => parts.into_iter().for_each(|part| add_assistant(conversation, part)),
                "system" | "developer" => {
                    let text = conversation.text_of(parts, &role);
                    conversation.add_system(&text);
                }
                other => return Err(format!("there is no role `{}`", short(other))),
            }
        }
        "function_call" => {
            let id = item.call_id.ok_or_else(|| lacks("call_id"))?;
            let name = item.name.ok_or_else(|| lacks("name"))?;
            let input = tool_input(&item.arguments.unwrap_or_default());
            add_assistant(conversation, Part::ToolCall(ToolCall { id, name, input }));
        }
        "function_call_output" => {
            let id = item.call_id.ok_or_else(|| lacks("call_id"))?;
            let parts = parts(conversation, item.output.ok_or_else(|| lacks("output"))?)?;
            let text = conversation.text_of(parts, "tool");
            conversation.add_tool_result(id, text);
        }
        // Another model cannot use a model's earlier thoughts.
        "reasoning" => conversation.extras.ignored("items of the type `reasoning`"),
        "item_reference" => {
            return Err("responses are not kept; send the item itself (`store: false`)".to_owned());
        }
        other => conversation.extras.unpriced(format!("items of the type `{}`", short(other))),
    }
    Ok(())
}

/// The model's items that follow each other are one message.
fn add_assistant(conversation: &mut Conversation, part: Part) {
    match conversation.messages.last_mut().filter(|last| last.role == ChatRole::Assistant) {
        Some(last) => last.parts.push(part),
        None => conversation.messages.push(Message { role: ChatRole::Assistant, parts: vec![part] }),
    }
}

fn parts(conversation: &mut Conversation, content: &RawValue) -> Result<Vec<Part>, String> {
    match Content::<ContentPart<'_>>::parse(content).map_err(|error| format!("`content`: {error}"))? {
        Content::Text(text) => Ok(vec![Part::Text(text)]),
        Content::Parts(parts) => {
            parts.into_iter().filter_map(|part| self::part(conversation, part).transpose()).collect()
        }
    }
}

fn part(conversation: &mut Conversation, part: ContentPart<'_>) -> Result<Option<Part>, String> {
    let lacks = |what: &str| format!("a part lacks its `{what}`");
    Ok(Some(match (&*part.kind, part.image_url) {
        ("input_text" | "output_text" | "text", _) => Part::Text(part.text.ok_or_else(|| lacks("text"))?),
        ("refusal", _) => Part::Text(part.refusal.ok_or_else(|| lacks("refusal"))?),
        ("input_image", Some(url)) => {
            let image = image(url)?;
            if let Part::Image { media_type, .. } = &image {
                conversation.extras.image_type(media_type);
            }
            image
        }
        ("input_file", _) if part.file.is_inline() => {
            conversation.extras.unpriced_part("documents");
            document(part.file)?
        }
        (other, _) => {
            conversation.extras.unpriced(format!("this part of the kind `{}`", short(other)));
            return Ok(None);
        }
    }))
}

/// The schema that the answer must follow.
fn schema(format: Option<TextFormat>) -> Result<Option<Value>, GatewayError> {
    let Some(format) = format else { return Ok(None) };
    match (&*format.kind, format.schema) {
        ("text", _) => Ok(None),
        ("json_object", _) => Ok(Some(json!({"type": "object"}))),
        ("json_schema", Some(schema)) => checked_schema("text", schema).map(Some),
        _ => Err(GatewayError::of(
            "text",
            "`text.format` must be `text`, `json_object` or `json_schema` with a `schema`",
        )),
    }
}
