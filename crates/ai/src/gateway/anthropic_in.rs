//! Anthropic's messages, from the wire to a question.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::fields::{Fields, Said};
use super::refusal::Refusal;
use super::wire::{Asked, Delivery};
use crate::chat::{Chat, Message, Part, Role, Tool, ToolCall, ToolChoice};
use crate::object::Object;

/// Members that do not change what is answered.
const HARMLESS: &[&str] = &["metadata", "cache_control", "inference_geo"];

/// Values that say nothing else than what is done anyway.
const USUAL: &[(&str, &[&str])] = &[
    ("service_tier", &[r#""auto""#, r#""standard_only""#]),
    ("speed", &[r#""standard""#]),
    ("thinking", &[r#"{"type":"disabled"}"#]),
];

#[derive(Deserialize)]
struct SaidBy<'a> {
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
struct Offered {
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
    format: Option<Format>,
}

#[derive(Deserialize)]
struct Format {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    schema: Option<Value>,
}

type LeftOut = Vec<Cow<'static, str>>;

/// Reads a request whose answer is wanted.
pub(super) fn read(body: &Object) -> Result<Asked, Refusal> {
    let asked = read_uncounted(body)?;
    if asked.max_tokens.is_none() {
        return Err(Refusal::of("max_tokens", "`max_tokens` is missing"));
    }
    Ok(asked)
}

/// Reads a request that may leave open how long its answer is.
pub(super) fn read_uncounted(body: &Object) -> Result<Asked, Refusal> {
    let mut fields = Fields::of(body);
    let mut left_out = LeftOut::new();
    let model = fields.need("model")?;
    let messages = messages(fields.need("messages")?, &mut left_out)?;
    let system = fields.take::<&RawValue>("system")?.map(system).transpose()?;
    let chat = Chat {
        messages,
        tools: tools(fields.take("tools")?.unwrap_or_default(), &mut left_out),
        tool_choice: tool_choice(fields.take("tool_choice")?, &mut left_out),
        stop: fields.take("stop_sequences")?.unwrap_or_default(),
        top_p: fields.take("top_p")?,
    };
    let schema = schema(fields.take("output_config")?, &mut left_out)?.map(Arc::new);
    let max_tokens = fields.take("max_tokens")?;
    if max_tokens == Some(0) {
        left_out.push("`max_tokens` of 0".into());
    }
    let stream = fields.take("stream")? == Some(true);
    Ok(Asked {
        model,
        system: system.filter(|system| !system.is_empty()),
        max_tokens,
        temperature: fields.take("temperature")?,
        schema,
        chat,
        delivery: if stream { Delivery::StreamWithUsage } else { Delivery::Whole },
        left_out: {
            left_out.extend(fields.left_out(HARMLESS, USUAL));
            left_out
        },
    })
}

fn messages(said: Vec<SaidBy<'_>>, left_out: &mut LeftOut) -> Result<Vec<Message>, Refusal> {
    if said.is_empty() {
        return Err(Refusal::of("messages", "`messages` holds nothing to answer"));
    }
    let heard = said.into_iter().enumerate().map(|(number, said)| {
        let heard = message(&said, left_out);
        heard.map_err(|why| Refusal::of("messages", format!("messages.{number}: {why}")))
    });
    heard.collect()
}

fn message(said: &SaidBy<'_>, left_out: &mut LeftOut) -> Result<Message, String> {
    let role = match &*said.role {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        other => return Err(format!("there is no role `{}`", short(other))),
    };
    let said = Said::<Block<'_>>::read(said.content);
    let parts = match said.map_err(|error| format!("content: {error}"))? {
        Said::Text(text) => vec![Part::Text(text)],
        Said::Parts(blocks) => {
            let parts = blocks.into_iter().filter_map(|block| part(block, left_out));
            parts.collect::<Result<_, _>>()?
        }
    };
    Ok(Message { role, parts })
}

fn part(block: Block<'_>, left_out: &mut LeftOut) -> Option<Result<Part, String>> {
    let part = match &*block.kind {
        "text" => block.text.map(Part::Text).ok_or_else(|| lacks("text")),
        "tool_use" => tool_use(block),
        "tool_result" => tool_result(block, left_out),
        // What a model thought before is of no use to another.
        "thinking" | "redacted_thinking" => return None,
        "image" => match block.source.and_then(image) {
            Some(image) => Ok(image),
            None => return leave_out("images from elsewhere than base64 or a URL", left_out),
        },
        other => {
            left_out.push(format!("blocks of the type `{}`", short(other)).into());
            return None;
        }
    };
    Some(part)
}

fn leave_out<T>(what: &'static str, left_out: &mut LeftOut) -> Option<T> {
    left_out.push(what.into());
    None
}

fn tool_use(block: Block<'_>) -> Result<Part, String> {
    let (Some(id), Some(name)) = (block.id, block.name) else { return Err(lacks("id or name")) };
    let input = block.input.unwrap_or_else(|| json!({}));
    Ok(Part::ToolCall(ToolCall { id, name, input }))
}

fn tool_result(block: Block<'_>, left_out: &mut LeftOut) -> Result<Part, String> {
    let id = block.tool_use_id.ok_or_else(|| lacks("tool_use_id"))?;
    let said = block.content.map(Said::<Block<'_>>::read).transpose();
    let text = match said.map_err(|error| format!("content: {error}"))? {
        None => String::new(),
        Some(Said::Text(text)) => text,
        Some(Said::Parts(blocks)) => {
            if blocks.iter().any(|block| block.kind != "text") {
                left_out.push("what tools said beside text".into());
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

fn system(raw: &RawValue) -> Result<String, Refusal> {
    let said = Said::<Block<'_>>::read(raw);
    match said.map_err(|error| Refusal::of("system", format!("system: {error}")))? {
        Said::Text(text) => Ok(text),
        Said::Parts(blocks) => Ok(text_of(blocks)),
    }
}

fn tools(offered: Vec<Offered>, left_out: &mut LeftOut) -> Vec<Tool> {
    let mut tools = Vec::with_capacity(offered.len());
    for Offered { kind, name, description, input_schema } in offered {
        match kind.as_deref() {
            None | Some("custom") => {
                let input = input_schema.unwrap_or_else(|| json!({"type": "object"}));
                tools.push(Tool { name, description, input });
            }
            Some(other) => left_out.push(format!("tools of the type `{}`", short(other)).into()),
        }
    }
    tools
}

fn tool_choice(choice: Option<Choice>, left_out: &mut LeftOut) -> ToolChoice {
    let Some(choice) = choice else { return ToolChoice::Auto };
    if choice.disable_parallel_tool_use == Some(true) {
        left_out.push("`disable_parallel_tool_use`".into());
    }
    match (&*choice.kind, choice.name) {
        ("auto", _) => ToolChoice::Auto,
        ("none", _) => ToolChoice::None,
        ("any", _) => ToolChoice::Any,
        ("tool", Some(name)) => ToolChoice::Named(name),
        _ => {
            left_out.push("this `tool_choice`".into());
            ToolChoice::Auto
        }
    }
}

/// The schema that an answer must follow.
fn schema(config: Option<OutputConfig>, left_out: &mut LeftOut) -> Result<Option<Value>, Refusal> {
    let Some(config) = config else { return Ok(None) };
    if config.effort.is_some() {
        left_out.push("`output_config.effort`".into());
    }
    match config.format {
        None => Ok(None),
        Some(Format { kind, schema: Some(schema) }) if kind == "json_schema" => Ok(Some(schema)),
        Some(_) => {
            let words = "output_config.format must be of the type `json_schema`, with a `schema`";
            Err(Refusal::of("output_config", words))
        }
    }
}

/// The beginning of what a stranger wrote, to be shown.
fn short(text: &str) -> &str {
    &text[..text.floor_char_boundary(40)]
}
