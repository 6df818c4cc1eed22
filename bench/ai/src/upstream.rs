//! The upstream of all gateways: answers every request with the same completion, immediately or after a delay.

use std::convert::Infallible;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response};

use crate::child::serve;

/// The answer to every request.
pub(crate) const ANSWER: &str = concat!(
    r#"{"id":"chatcmpl-BxQ2vZ0Jm1b0bP9c8yq3w2x1","object":"chat.completion","created":1763200000,"#,
    r#""model":"fake-1","choices":[{"index":0,"message":{"role":"assistant","content":"The quick brown "#,
    r#"fox jumps over the lazy dog.","refusal":null},"logprobs":null,"finish_reason":"stop"}],"#,
    r#""usage":{"prompt_tokens":61,"completion_tokens":10,"total_tokens":71,"#,
    r#""prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0}},"service_tier":"default","#,
    r#""system_fingerprint":"fp_0123456789"}"#
);

/// The base path of an upstream that answers after `delay_ms`.
pub(crate) fn base(delay_ms: u64) -> String {
    format!("/after/{delay_ms}/v1")
}

/// Answers until the parent process closes the standard input.
pub(crate) async fn run() -> Result<()> {
    serve(answer).await
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let delay = request.uri().path().split('/').nth(2).and_then(|ms| ms.parse().ok());
    // The next request can follow only when this one was read completely.
    let _ = request.into_body().collect().await;
    if let Some(delay) = delay.filter(|ms| *ms > 0) {
        tokio::time::sleep(Duration::from_millis(delay)).await;
    }
    let mut response = Response::new(Full::from(ANSWER));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}
