//! OpenAI's embeddings API.

use std::sync::Arc;

use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::GatewayError;
use super::fields::{Extras, Fields};
use super::openai_response::OpenAi;
use super::request::{Delivery, ParsedRequest};
use super::response::{ApiFormat, EventEncoder, ResponseMeta};
use crate::chat::Chat;
use crate::embedding::{EmbeddingInput, to_base64};
use crate::model_api::Answer;
use crate::profile::ProviderName;
use crate::raw_json::RawObject;

/// OpenAI's embeddings API.
pub(super) struct Embeddings;

/// The most texts of a request, as in OpenAI's API.
const MAX_INPUTS: usize = 2_048;

#[derive(Deserialize)]
#[serde(untagged, expecting = "a text, texts, tokens, or lists of tokens")]
enum Input {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    TokenLists(Vec<Vec<u32>>),
}

impl ApiFormat for Embeddings {
    fn provider(&self) -> Option<ProviderName> {
        Some(ProviderName::Openai)
    }

    fn parse(&self, body: &RawObject) -> Result<ParsedRequest, GatewayError> {
        let mut fields = Fields::of(body);
        let mut extras = Extras { choices: 1, ..Extras::default() };
        let model = fields.require("model")?;
        let (texts, tokens) = match fields.require("input")? {
            Input::Text(text) => (vec![text], 0),
            Input::Texts(texts) => (texts, 0),
            Input::Tokens(tokens) => (Vec::new(), tokens.len()),
            Input::TokenLists(lists) if lists.len() > MAX_INPUTS => return Err(too_many()),
            Input::TokenLists(lists) => (Vec::new(), lists.iter().map(Vec::len).sum()),
        };
        if texts.len() > MAX_INPUTS {
            return Err(too_many());
        }
        if texts.iter().any(String::is_empty) || texts.is_empty() && tokens == 0 {
            return Err(GatewayError::of("input", "`input` must not be empty"));
        }
        if tokens > 0 {
            extras.unsupported("`input` of tokens");
        }
        let encoding: Option<String> = fields.take("encoding_format")?;
        let base64 = match encoding.as_deref() {
            None | Some("float") => false,
            Some("base64") => true,
            Some(_) => {
                return Err(GatewayError::of("encoding_format", "`encoding_format` is `float` or `base64`"));
            }
        };
        let dimensions = fields.take("dimensions")?;
        extras.remaining(&fields, &["user"], &["user"], &[]);
        Ok(ParsedRequest {
            model,
            system: None,
            max_tokens: Some(0),
            temperature: None,
            schema: None,
            chat: Chat::default(),
            embeddings: Some(Arc::new(EmbeddingInput { texts, dimensions, tokens: tokens as u64 })),
            delivery: Delivery::Complete,
            echo: json!({ "base64": base64 }),
            extras,
        })
    }

    fn encode(&self, meta: &ResponseMeta, answer: &Answer) -> Vec<u8> {
        let base64 = meta.echo["base64"] == true;
        let write = |vector: &Vec<f32>| if base64 { json!(to_base64(vector)) } else { json!(vector) };
        let data: Vec<Value> = answer
            .embeddings
            .iter()
            .enumerate()
            .map(|(index, vector)| json!({"object": "embedding", "index": index, "embedding": write(vector)}))
            .collect();
        let usage = json!({"prompt_tokens": answer.tokens_in, "total_tokens": answer.tokens_in});
        json!({"object": "list", "data": data, "model": answer.model, "usage": usage}).to_string().into()
    }

    fn events(&self, delivery: Delivery) -> Box<dyn EventEncoder> {
        OpenAi.events(delivery)
    }

    fn error(&self, error: &GatewayError, request_id: &str) -> (StatusCode, Value) {
        OpenAi.error(error, request_id)
    }
}

fn too_many() -> GatewayError {
    GatewayError::of("input", format!("`input` has more than {MAX_INPUTS} texts"))
}
