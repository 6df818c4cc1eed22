//! OpenAI's older completions API: a text that the model continues. It is asked as a chat of one message.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::error::GatewayError;
use super::fields::{Extras, Fields, StringOrList};
use super::openai_request::{choices, delivery};
use super::openai_response::{OpenAi, finish_reason, usage};
use super::request::{Delivery, ParsedRequest};
use super::response::{ApiFormat, EventEncoder, ResponseMeta};
use crate::chat::{Chat, ChatRole, Message, Part, ToolCall};
use crate::model_api::Answer;
use crate::profile::ProviderName;
use crate::raw_json::RawObject;
use crate::sse;

/// OpenAI's older completions API.
pub(super) struct Completions;

/// The API's own default, which is short.
const DEFAULT_MAX_TOKENS: u32 = 16;

/// Values that ask for the default behaviour.
const DEFAULT_VALUES: &[(&str, &[&str])] =
    &[("best_of", &["1"]), ("echo", &["false"]), ("logit_bias", &["{}"]), ("suffix", &[r#""""#])];

impl ApiFormat for Completions {
    fn provider(&self) -> Option<ProviderName> {
        None
    }

    fn parse(&self, body: &RawObject) -> Result<ParsedRequest, GatewayError> {
        let mut fields = Fields::of(body);
        let mut extras = Extras { choices: choices(&mut fields)?, ..Extras::default() };
        if extras.choices > 1 {
            extras.unsupported("`n`");
        }
        let model = fields.require("model")?;
        let mut prompts = Vec::from(fields.require::<StringOrList>("prompt")?);
        let prompt = match (prompts.pop(), prompts.is_empty()) {
            (Some(prompt), true) => prompt,
            (None, _) => return Err(GatewayError::of("prompt", "`prompt` must not be empty")),
            (Some(_), false) => {
                return Err(GatewayError::of("prompt", "only one `prompt` can be asked in a request"));
            }
        };
        let chat = Chat {
            messages: vec![Message { role: ChatRole::User, parts: vec![Part::Text(prompt)] }],
            stop: fields.take::<StringOrList>("stop")?.map(Vec::from).unwrap_or_default(),
            top_p: fields.take("top_p")?,
            frequency_penalty: fields.take("frequency_penalty")?,
            presence_penalty: fields.take("presence_penalty")?,
            seed: fields.take("seed")?,
            user: fields.take("user")?,
            ..Chat::default()
        };
        Ok(ParsedRequest {
            model,
            system: None,
            max_tokens: fields.take("max_tokens")?.or(Some(DEFAULT_MAX_TOKENS)),
            temperature: fields.take("temperature")?,
            schema: None,
            chat,
            embeddings: None,
            delivery: delivery(&mut fields)?,
            echo: Value::Null,
            extras: {
                extras.remaining(&fields, &[], &[], DEFAULT_VALUES);
                extras
            },
        })
    }

    fn encode(&self, meta: &ResponseMeta, answer: &Answer) -> Vec<u8> {
        let mut completion = completion(meta, &answer.text, Some(finish_reason(answer)));
        completion["model"] = json!(answer.model);
        completion["usage"] = json!(usage(answer));
        completion.to_string().into()
    }

    fn events(&self, delivery: Delivery) -> Box<dyn EventEncoder> {
        Box::new(CompletionEvents { delivery })
    }

    fn error(&self, error: &GatewayError, request_id: &str) -> (StatusCode, Value) {
        OpenAi.error(error, request_id)
    }
}

fn completion(meta: &ResponseMeta, text: &str, finish_reason: Option<&str>) -> Value {
    let choice = json!({"index": 0, "text": text, "logprobs": null, "finish_reason": finish_reason});
    json!({
        "id": format!("cmpl-{}", meta.id),
        "object": "text_completion",
        "created": meta.created,
        "model": meta.model,
        "choices": [choice],
    })
}

/// Encodes a completion as chunks.
struct CompletionEvents {
    delivery: Delivery,
}

impl EventEncoder for CompletionEvents {
    fn start(&mut self, _meta: &ResponseMeta, _out: &mut Vec<u8>) {}

    fn text(&mut self, meta: &ResponseMeta, text: &str, out: &mut Vec<u8>) {
        sse::data(out, &completion(meta, text, None));
    }

    fn call(&mut self, _meta: &ResponseMeta, _call: &ToolCall, _number: u32, _out: &mut Vec<u8>) {}

    fn raw(&mut self, _event: &str, _out: &mut Vec<u8>) {}

    fn finish(&mut self, meta: &ResponseMeta, answer: &Answer, out: &mut Vec<u8>) {
        sse::data(out, &completion(meta, "", Some(finish_reason(answer))));
        if self.delivery == Delivery::StreamWithUsage {
            let mut last = completion(meta, "", None);
            (last["choices"], last["usage"]) = (json!([]), json!(usage(answer)));
            sse::data(out, &last);
        }
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        sse::line(out, "[DONE]");
    }

    fn fail(&mut self, meta: &ResponseMeta, error: &GatewayError, out: &mut Vec<u8>) {
        let (_, body) = OpenAi.error(error, &meta.id);
        sse::data(out, &body);
    }
}
