//! OpenAI's chat completions, from the wire to a question.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::fields::{Fields, OneOrMore, Said};
use super::refusal::Refusal;
use super::wire::{Asked, Delivery};
use crate::chat::{Chat, Message, Part, Role, Tool, ToolCall, ToolChoice};
use crate::object::Object;

/// Members that do not change what is answered.
const HARMLESS: &[&str] = &[
    "metadata",
    "prediction",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "seed",
    "store",
    "top_logprobs",
    "user",
];

/// Values that say nothing else than what is done anyway.
const USUAL: &[(&str, &[&str])] = &[
    ("n", &["1"]),
    ("logprobs", &["false"]),
    ("frequency_penalty", &["0", "0.0"]),
    ("presence_penalty", &["0", "0.0"]),
    ("logit_bias", &["{}"]),
    ("modalities", &[r#"["text"]"#]),
    ("parallel_tool_calls", &["true"]),
    ("service_tier", &[r#""auto""#, r#""default""#]),
    ("verbosity", &[r#""medium""#]),
];

#[derive(Deserialize)]
struct SaidBy<'a> {
    #[serde(borrow)]
    role: Cow<'a, str>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(default)]
    tool_calls: Option<Vec<Called>>,
    #[serde(default)]
    tool_call_id: Option<String>,
    #[serde(default)]
    audio: Option<IgnoredAny>,
    #[serde(default)]
    function_call: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct PartOf<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    refusal: Option<String>,
    #[serde(default)]
    image_url: Option<ImageUrl>,
}

#[derive(Deserialize)]
struct ImageUrl {
    url: String,
}

#[derive(Deserialize)]
struct Called {
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
struct Offered {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    function: Option<Declared>,
}

#[derive(Deserialize)]
struct Declared {
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    parameters: Option<Value>,
}

#[derive(Deserialize)]
struct Format {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    json_schema: Option<Named>,
}

#[derive(Deserialize)]
struct Named {
    #[serde(default)]
    schema: Option<Value>,
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
}

/// Reads a request.
pub(super) fn read(body: &Object) -> Result<Asked, Refusal> {
    let mut fields = Fields::of(body);
    let model = fields.need("model")?;
    let said: Vec<SaidBy<'_>> = fields.need("messages")?;
    let mut listener = Listener::default();
    for (number, message) in said.into_iter().enumerate() {
        let heard = listener.hear(message);
        heard.map_err(|why| Refusal::of("messages", format!("`messages[{number}]`: {why}")))?;
    }
    let Listener { system, messages, mut left_out } = listener;
    if messages.is_empty() {
        return Err(Refusal::of("messages", "`messages` holds nothing to answer"));
    }
    let older = fields.take("max_tokens")?;
    let chat = Chat {
        messages,
        tools: tools(fields.take("tools")?.unwrap_or_default(), &mut left_out),
        tool_choice: tool_choice(fields.take("tool_choice")?, &mut left_out),
        stop: fields.take::<OneOrMore>("stop")?.map(Vec::from).unwrap_or_default(),
        top_p: fields.take("top_p")?,
    };
    Ok(Asked {
        model,
        system,
        max_tokens: fields.take("max_completion_tokens")?.or(older),
        temperature: fields.take("temperature")?,
        schema: schema(fields.take("response_format")?)?.map(Arc::new),
        chat,
        delivery: delivery(&mut fields)?,
        left_out: {
            left_out.extend(fields.left_out(HARMLESS, USUAL));
            left_out
        },
    })
}

fn delivery(fields: &mut Fields<'_>) -> Result<Delivery, Refusal> {
    let options: Option<StreamOptions> = fields.take("stream_options")?;
    let usage = options.and_then(|options| options.include_usage) == Some(true);
    Ok(match (fields.take("stream")?, usage) {
        (Some(true), true) => Delivery::StreamWithUsage,
        (Some(true), false) => Delivery::Stream,
        _ => Delivery::Whole,
    })
}

/// Hears what was said, message after message.
#[derive(Default)]
struct Listener {
    system: Option<String>,
    messages: Vec<Message>,
    left_out: Vec<Cow<'static, str>>,
}

impl Listener {
    fn hear(&mut self, said: SaidBy<'_>) -> Result<(), String> {
        let parts = self.parts(said.content)?;
        if said.audio.is_some() || said.function_call.is_some() {
            self.left_out.push("`audio` or `function_call` of a message".into());
        }
        match &*said.role {
            "system" | "developer" => self.instruct(&text_of(parts)),
            "user" => self.messages.push(Message { role: Role::User, parts }),
            "assistant" => self.answered(parts, said.tool_calls.unwrap_or_default()),
            "tool" => self.tool_said(said.tool_call_id.unwrap_or_default(), text_of(parts)),
            "function" => self.left_out.push("messages of the role `function`".into()),
            other => return Err(format!("there is no role `{}`", short(other))),
        }
        Ok(())
    }

    fn instruct(&mut self, text: &str) {
        let system = self.system.get_or_insert_default();
        if !system.is_empty() {
            system.push_str("\n\n");
        }
        system.push_str(text);
    }

    fn answered(&mut self, mut parts: Vec<Part>, calls: Vec<Called>) {
        for Called { id, function } in calls {
            match function {
                Some(Function { name, arguments }) => {
                    let input = input(arguments);
                    parts.push(Part::ToolCall(ToolCall { id, name, input }));
                }
                None => self.left_out.push("calls of tools that are no functions".into()),
            }
        }
        self.messages.push(Message { role: Role::Assistant, parts });
    }

    /// Results of calls that were made together belong to one turn.
    fn tool_said(&mut self, id: String, text: String) {
        let result = Part::ToolResult { id, text, failed: false };
        let before = self.messages.last_mut().filter(|message| {
            let last = message.parts.last();
            message.role == Role::User && matches!(last, Some(Part::ToolResult { .. }))
        });
        match before {
            Some(message) => message.parts.push(result),
            None => self.messages.push(Message { role: Role::User, parts: vec![result] }),
        }
    }

    fn parts(&mut self, content: Option<&RawValue>) -> Result<Vec<Part>, String> {
        let Some(content) = content else { return Ok(Vec::new()) };
        match Said::<PartOf<'_>>::read(content).map_err(|error| format!("`content`: {error}"))? {
            Said::Text(text) => Ok(vec![Part::Text(text)]),
            Said::Parts(parts) => parts.into_iter().filter_map(|part| self.part(part)).collect(),
        }
    }

    fn part(&mut self, part: PartOf<'_>) -> Option<Result<Part, String>> {
        match &*part.kind {
            "text" => Some(part.text.map(Part::Text).ok_or_else(|| lacks("text"))),
            "refusal" => part.refusal.map(|text| Ok(Part::Text(text))),
            "image_url" => Some(part.image_url.ok_or_else(|| lacks("image_url")).and_then(image)),
            other => {
                self.left_out.push(format!("parts of the kind `{}`", short(other)).into());
                None
            }
        }
    }
}

fn lacks(what: &str) -> String {
    format!("a part lacks its `{what}`")
}

/// A picture: in the address itself, or for the provider to fetch.
fn image(image: ImageUrl) -> Result<Part, String> {
    let url = image.url;
    if let Some((media_type, data)) =
        url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"))
    {
        return Ok(Part::Image { media_type: media_type.to_owned(), data: data.to_owned() });
    }
    if url.starts_with("http://") || url.starts_with("https://") {
        return Ok(Part::ImageUrl(url));
    }
    Err("an image's address must be http(s):… or data:…;base64,…".to_owned())
}

fn text_of(parts: Vec<Part>) -> String {
    let texts = parts.into_iter().filter_map(|part| match part {
        Part::Text(text) => Some(text),
        _ => None,
    });
    texts.reduce(|all, text| all + "\n" + &text).unwrap_or_default()
}

/// What a tool was given. Models do write what is no JSON; whoever asks next may judge that.
fn input(arguments: String) -> Value {
    if arguments.trim().is_empty() {
        return json!({});
    }
    serde_json::from_str(&arguments).unwrap_or(Value::String(arguments))
}

fn tools(offered: Vec<Offered>, left_out: &mut Vec<Cow<'static, str>>) -> Vec<Tool> {
    let mut tools = Vec::with_capacity(offered.len());
    for Offered { kind, function } in offered {
        match function {
            Some(Declared { name, description, parameters }) if kind == "function" => {
                let input = parameters.unwrap_or_else(|| json!({"type": "object"}));
                tools.push(Tool { name, description, input });
            }
            _ => left_out.push(format!("tools of the type `{}`", short(&kind)).into()),
        }
    }
    tools
}

fn tool_choice(choice: Option<Value>, left_out: &mut Vec<Cow<'static, str>>) -> ToolChoice {
    let Some(choice) = choice else { return ToolChoice::Auto };
    match (choice.as_str(), choice.pointer("/function/name").and_then(Value::as_str)) {
        (Some("auto"), _) => ToolChoice::Auto,
        (Some("none"), _) => ToolChoice::None,
        (Some("required"), _) => ToolChoice::Any,
        (None, Some(name)) => ToolChoice::Named(name.to_owned()),
        _ => {
            left_out.push("this `tool_choice`".into());
            ToolChoice::Auto
        }
    }
}

/// The schema that an answer must follow.
fn schema(format: Option<Format>) -> Result<Option<Value>, Refusal> {
    let Some(format) = format else { return Ok(None) };
    match (&*format.kind, format.json_schema.and_then(|named| named.schema)) {
        ("text", _) => Ok(None),
        ("json_object", _) => Ok(Some(json!({"type": "object"}))),
        ("json_schema", Some(schema)) => Ok(Some(schema)),
        ("json_schema", None) => {
            Err(Refusal::of("response_format", "`response_format` lacks `json_schema.schema`"))
        }
        (other, _) => {
            let words = format!("there is no `response_format` of the type `{}`", short(other));
            Err(Refusal::of("response_format", words))
        }
    }
}

/// The beginning of what a stranger wrote, to be shown.
fn short(text: &str) -> &str {
    &text[..text.floor_char_boundary(40)]
}
