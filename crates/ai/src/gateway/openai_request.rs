//! Parses requests of OpenAI's chat completions API.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::error::GatewayError;
use super::fields::{CacheControl, Content, Extras, Fields, StringOrList, checked_schema, effort, short};
use super::request::{Delivery, ParsedRequest};
use crate::chat::{Chat, ChatRole, Message, Part, Tool, ToolCall, ToolChoice};
use crate::profile::CacheFor;
use crate::providers::tool_input;
use crate::raw_json::RawObject;

/// Fields that do not change the answer and are ignored.
const IGNORED_FIELDS: &[&str] = &[
    "metadata",
    "prediction",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "store",
    "top_logprobs",
];

/// Fields that cost nothing beside the tokens that are reserved. All others are refused where a
/// budget bounds the call or its key is lent: `web_search_options` has a price per search,
/// `prediction` adds tokens beyond the answer's maximum, and what is not known may have any price.
const PRICED_FIELDS: &[&str] = &[
    "function_call",
    "functions",
    "logit_bias",
    "logprobs",
    "metadata",
    "min_p",
    "prompt_cache_key",
    "repetition_penalty",
    "safety_identifier",
    "store",
    "top_logprobs",
    "verbosity",
];

/// Values that ask for the default behaviour.
const DEFAULT_VALUES: &[(&str, &[&str])] = &[
    ("logprobs", &["false"]),
    ("logit_bias", &["{}"]),
    ("metadata", &["{}"]),
    ("modalities", &[r#"["text"]"#]),
    ("service_tier", &[r#""auto""#, r#""default""#]),
    ("store", &["false"]),
    ("verbosity", &[r#""medium""#]),
];

#[derive(Deserialize)]
struct InputMessage<'a> {
    #[serde(borrow)]
    role: Cow<'a, str>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(default)]
    tool_calls: Option<Vec<AssistantToolCall>>,
    #[serde(default)]
    tool_call_id: Option<String>,
    #[serde(default)]
    audio: Option<IgnoredAny>,
    #[serde(default)]
    function_call: Option<IgnoredAny>,
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
    image_url: Option<ImageUrl>,
    #[serde(default)]
    file: Option<File>,
    #[serde(default)]
    cache_control: Option<CacheControl>,
}

#[derive(Deserialize)]
pub(super) struct File {
    #[serde(default)]
    filename: Option<String>,
    #[serde(default)]
    file_data: Option<String>,
}

impl File {
    pub(super) fn is_inline(&self) -> bool {
        self.file_data.is_some()
    }
}

#[derive(Deserialize)]
struct ImageUrl {
    url: String,
}

#[derive(Deserialize)]
struct AssistantToolCall {
    id: String,
    #[serde(default)]
    function: Option<Function>,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    #[serde(default)]
    arguments: String,
}

#[derive(Deserialize)]
struct ToolDefinition {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    function: Option<FunctionDefinition>,
}

#[derive(Deserialize)]
struct FunctionDefinition {
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    parameters: Option<Value>,
}

#[derive(Deserialize)]
struct ResponseFormat {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    json_schema: Option<SchemaFormat>,
}

#[derive(Deserialize)]
struct SchemaFormat {
    #[serde(default)]
    schema: Option<Value>,
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
}

/// Parses a request.
pub(super) fn parse(body: &RawObject) -> Result<ParsedRequest, GatewayError> {
    let mut fields = Fields::of(body);
    let model = fields.require("model")?;
    let input: Vec<InputMessage<'_>> = fields.require("messages")?;
    let mut conversation = Conversation::default();
    for (number, message) in input.into_iter().enumerate() {
        let added = conversation.add(message);
        added.map_err(|why| GatewayError::of("messages", format!("`messages[{number}]`: {why}")))?;
    }
    let Conversation { system, system_cache, messages, mut extras } = conversation;
    if messages.is_empty() {
        return Err(GatewayError::of("messages", "`messages` must not be empty"));
    }
    let older = fields.take("max_tokens")?;
    let chat = Chat {
        messages,
        tools: tools(fields.take("tools")?.unwrap_or_default(), &mut extras),
        tool_choice: tool_choice(fields.take("tool_choice")?, &mut extras),
        stop: fields.take::<StringOrList>("stop")?.map(Vec::from).unwrap_or_default(),
        top_p: fields.take("top_p")?,
        top_k: fields.take("top_k")?,
        frequency_penalty: fields.take("frequency_penalty")?,
        presence_penalty: fields.take("presence_penalty")?,
        seed: fields.take("seed")?,
        effort: effort("`reasoning_effort`", fields.take("reasoning_effort")?, &mut extras),
        one_tool_call: fields.take("parallel_tool_calls")? == Some(false),
        user: fields.take("user")?,
        system_cache,
    };
    extras.choices = choices(&mut fields)?;
    if extras.choices > 1 {
        extras.unsupported("`n`");
    }
    Ok(ParsedRequest {
        model,
        system,
        max_tokens: fields.take("max_completion_tokens")?.or(older),
        temperature: fields.take("temperature")?,
        schema: schema(fields.take("response_format")?)?.map(Arc::new),
        chat,
        embeddings: None,
        delivery: delivery(&mut fields)?,
        echo: Value::Null,
        extras: {
            extras.remaining(&fields, IGNORED_FIELDS, PRICED_FIELDS, DEFAULT_VALUES);
            extras
        },
    })
}

/// The most answers to one request, as in OpenAI's API.
const MAX_CHOICES: u32 = 128;

/// How many answers are asked for.
pub(super) fn choices(fields: &mut Fields<'_>) -> Result<u32, GatewayError> {
    match fields.take("n")?.unwrap_or(1) {
        choices @ 1..=MAX_CHOICES => Ok(choices),
        _ => Err(GatewayError::of("n", format!("`n` must be from 1 to {MAX_CHOICES}"))),
    }
}

pub(super) fn delivery(fields: &mut Fields<'_>) -> Result<Delivery, GatewayError> {
    let options: Option<StreamOptions> = fields.take("stream_options")?;
    let usage = options.and_then(|options| options.include_usage) == Some(true);
    Ok(match (fields.take("stream")?, usage) {
        (Some(true), true) => Delivery::StreamWithUsage,
        (Some(true), false) => Delivery::Stream,
        _ => Delivery::Complete,
    })
}

/// Collects a conversation, message by message.
#[derive(Default)]
pub(super) struct Conversation {
    pub(super) system: Option<String>,
    system_cache: Option<CacheFor>,
    pub(super) messages: Vec<Message>,
    pub(super) extras: Extras,
}

impl Conversation {
    fn add(&mut self, input: InputMessage<'_>) -> Result<(), String> {
        let parts = self.parts(input.content)?;
        if input.audio.is_some() {
            self.extras.unpriced("`audio` of a message");
        }
        if input.function_call.is_some() {
            self.extras.unsupported("`function_call` of a message");
        }
        match &*input.role {
            "system" | "developer" => {
                let text = self.text_of(parts, &input.role);
                self.add_system(&text);
            }
            "user" => self.messages.push(Message { role: ChatRole::User, parts }),
            "assistant" => self.add_assistant(parts, input.tool_calls.unwrap_or_default()),
            "tool" => {
                let text = self.text_of(parts, &input.role);
                self.add_tool_result(input.tool_call_id.unwrap_or_default(), text);
            }
            "function" => {
                self.text_of(parts, &input.role);
                self.extras.unsupported("messages of the role `function`");
            }
            other => return Err(format!("there is no role `{}`", short(other))),
        }
        Ok(())
    }

    /// The text of a message that has only text in a translation.
    pub(super) fn text_of(&mut self, parts: Vec<Part>, role: &str) -> String {
        let mut texts = Vec::new();
        for part in parts {
            match part {
                Part::Text(text) => texts.push(text),
                Part::CacheMark(cache) if matches!(role, "system" | "developer") => {
                    self.system_cache = Some(cache);
                }
                Part::CacheMark(_) => self.extras.ignored("`cache_control`"),
                _ => self.extras.lost_image(&format!("messages of the role `{role}`")),
            }
        }
        texts.join("\n")
    }

    pub(super) fn add_system(&mut self, text: &str) {
        let system = self.system.get_or_insert_default();
        if !system.is_empty() {
            system.push_str("\n\n");
        }
        system.push_str(text);
    }

    fn add_assistant(&mut self, mut parts: Vec<Part>, calls: Vec<AssistantToolCall>) {
        for AssistantToolCall { id, function } in calls {
            match function {
                Some(Function { name, arguments }) => {
                    let input = tool_input(&arguments);
                    parts.push(Part::ToolCall(ToolCall { id, name, input }));
                }
                None => self.extras.unsupported("calls of tools other than functions"),
            }
        }
        self.messages.push(Message { role: ChatRole::Assistant, parts });
    }

    /// Results of calls that were made together belong to one message.
    pub(super) fn add_tool_result(&mut self, id: String, text: String) {
        let result = Part::ToolResult { id, text, failed: false };
        let before = self.messages.last_mut().filter(|message| {
            let last = message.parts.last();
            message.role == ChatRole::User && matches!(last, Some(Part::ToolResult { .. }))
        });
        match before {
            Some(message) => message.parts.push(result),
            None => self.messages.push(Message { role: ChatRole::User, parts: vec![result] }),
        }
    }

    fn parts(&mut self, content: Option<&RawValue>) -> Result<Vec<Part>, String> {
        let Some(content) = content else { return Ok(Vec::new()) };
        match Content::<ContentPart<'_>>::parse(content).map_err(|error| format!("`content`: {error}"))? {
            Content::Text(text) => Ok(vec![Part::Text(text)]),
            Content::Parts(parts) => {
                let mut all = Vec::with_capacity(parts.len());
                for mut part in parts {
                    let mark = part.cache_control.take();
                    all.extend(self.part(part).transpose()?);
                    all.extend(mark.map(|mark| Part::CacheMark(mark.cache_for())));
                }
                Ok(all)
            }
        }
    }

    fn part(&mut self, part: ContentPart<'_>) -> Option<Result<Part, String>> {
        match &*part.kind {
            "text" => Some(part.text.map(Part::Text).ok_or_else(|| lacks("text"))),
            "refusal" => part.refusal.map(|text| Ok(Part::Text(text))),
            "image_url" => {
                let image = part.image_url.ok_or_else(|| lacks("image_url")).and_then(|one| image(one.url));
                if let Ok(Part::Image { media_type, .. }) = &image {
                    self.extras.image_type(media_type);
                }
                Some(image)
            }
            "file" if part.file.as_ref().is_some_and(File::is_inline) => {
                self.extras.unpriced_part("documents");
                part.file.map(document)
            }
            other => {
                self.extras.unpriced(format!("parts of the kind `{}`", short(other)));
                None
            }
        }
    }
}

fn lacks(what: &str) -> String {
    format!("a part lacks its `{what}`")
}

/// An image: inline, or a URL for the provider to fetch.
pub(super) fn image(url: String) -> Result<Part, String> {
    if let Some((media_type, data)) = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")) {
        return Ok(Part::Image { media_type: media_type.to_owned(), data: data.to_owned() });
    }
    if url.starts_with("http://") || url.starts_with("https://") {
        return Ok(Part::ImageUrl(url));
    }
    Err("an image's URL must be http(s):… or data:…;base64,…".to_owned())
}

/// A document: inline, as a data URL.
pub(super) fn document(file: File) -> Result<Part, String> {
    let data = file.file_data.unwrap_or_default();
    let (media_type, data) = data
        .strip_prefix("data:")
        .and_then(|rest| rest.split_once(";base64,"))
        .ok_or("a file's `file_data` must be data:…;base64,…")?;
    Ok(Part::Document { media_type: media_type.to_owned(), data: data.to_owned(), name: file.filename })
}

fn tools(offered: Vec<ToolDefinition>, extras: &mut Extras) -> Vec<Tool> {
    let mut tools = Vec::with_capacity(offered.len());
    for ToolDefinition { kind, function } in offered {
        match function {
            Some(FunctionDefinition { name, description, parameters }) if kind == "function" => {
                let input = parameters.unwrap_or_else(|| json!({"type": "object"}));
                tools.push(Tool { name, description, input });
            }
            _ if kind == "custom" => extras.unsupported("tools of the type `custom`"),
            _ => extras.unpriced(format!("tools of the type `{}`", short(&kind))),
        }
    }
    tools
}

fn tool_choice(choice: Option<Value>, extras: &mut Extras) -> ToolChoice {
    let Some(choice) = choice else { return ToolChoice::Auto };
    match (choice.as_str(), choice.pointer("/function/name").and_then(Value::as_str)) {
        (Some("auto"), _) => ToolChoice::Auto,
        (Some("none"), _) => ToolChoice::None,
        (Some("required"), _) => ToolChoice::Any,
        (None, Some(name)) => ToolChoice::Named(name.to_owned()),
        _ => {
            extras.unsupported("this `tool_choice`");
            ToolChoice::Auto
        }
    }
}

/// The schema that the answer must follow.
fn schema(format: Option<ResponseFormat>) -> Result<Option<Value>, GatewayError> {
    let Some(format) = format else { return Ok(None) };
    match (&*format.kind, format.json_schema.and_then(|named| named.schema)) {
        ("text", _) => Ok(None),
        ("json_object", _) => Ok(Some(json!({"type": "object"}))),
        ("json_schema", Some(schema)) => checked_schema("response_format", schema).map(Some),
        ("json_schema", None) => {
            Err(GatewayError::of("response_format", "`response_format` lacks `json_schema.schema`"))
        }
        (other, _) => {
            let message = format!("there is no `response_format` of the type `{}`", short(other));
            Err(GatewayError::of("response_format", message))
        }
    }
}
