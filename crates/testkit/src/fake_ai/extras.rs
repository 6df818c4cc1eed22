//! Embeddings and token counts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Response;
use hyper::header::CONTENT_TYPE;
use serde_json::{Value, json};

use super::respond;
use super::response_body::{BodyStep, FakeBody};

/// The tokens of every request.
const TOKENS: u64 = 26;

/// The answer to a request for embeddings or for a token count; `None` for any other path.
pub(super) fn answer(path: &str, request: &Value) -> Option<Response<FakeBody>> {
    let path = path.split('?').next().unwrap_or(path);
    let body = match path {
        "/v1/embeddings" => openai(request),
        "/api/embed" => {
            let vectors: Vec<Value> = texts(&request["input"]).iter().map(|text| vector(text)).collect();
            json!({ "model": request["model"], "embeddings": vectors, "prompt_eval_count": TOKENS })
        }
        "/v1/messages/count_tokens" => json!({ "input_tokens": TOKENS }),
        _ if path.ends_with(":batchEmbedContents") => {
            let requests = request["requests"].as_array().map(Vec::as_slice).unwrap_or_default();
            let text =
                |one: &Value| one["content"]["parts"][0]["text"].as_str().unwrap_or_default().to_owned();
            let vectors: Vec<Value> =
                requests.iter().map(|one| json!({ "values": vector(&text(one)) })).collect();
            json!({ "embeddings": vectors })
        }
        _ if path.ends_with(":countTokens") => json!({ "totalTokens": TOKENS }),
        _ => return None,
    };
    let head = Response::builder().header(CONTENT_TYPE, "application/json");
    Some(respond(head, vec![BodyStep::bytes(body.to_string())]))
}

fn openai(request: &Value) -> Value {
    let write = |text: &String| match request["encoding_format"].as_str() {
        Some("base64") => {
            let numbers = [text.len() as f32, 0.5];
            json!(STANDARD.encode(numbers.iter().flat_map(|one| one.to_le_bytes()).collect::<Vec<u8>>()))
        }
        _ => vector(text),
    };
    let texts = texts(&request["input"]);
    let data: Vec<Value> = texts
        .iter()
        .enumerate()
        .map(|(index, text)| json!({ "object": "embedding", "index": index, "embedding": write(text) }))
        .collect();
    let usage = json!({ "prompt_tokens": TOKENS, "total_tokens": TOKENS });
    json!({ "object": "list", "data": data, "model": request["model"], "usage": usage })
}

/// The length of the text, and a half.
fn vector(text: &str) -> Value {
    json!([text.len() as f32, 0.5])
}

fn texts(input: &Value) -> Vec<String> {
    match input {
        Value::Array(texts) => {
            texts.iter().map(|text| text.as_str().unwrap_or_default().to_owned()).collect()
        }
        text => vec![text.as_str().unwrap_or_default().to_owned()],
    }
}
