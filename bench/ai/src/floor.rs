//! The floor: a proxy with only the work that every gateway must do. It reads the model from the request,
//! forwards the request over a pooled connection, and reads the token usage from the answer.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;

use crate::child::serve;
use crate::upstream;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

#[derive(Deserialize)]
struct Asked<'a> {
    model: &'a str,
}

#[derive(Deserialize)]
struct Answered {
    usage: Usage,
}

#[derive(Deserialize)]
struct Usage {
    total_tokens: u64,
}

struct Proxy {
    client: Client<HttpConnector, Full<Bytes>>,
    upstream: String,
    tokens: AtomicU64,
}

/// Forwards requests to the upstream at this address.
pub(crate) async fn run(upstream: String) -> Result<()> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let proxy = Arc::new(Proxy { client, upstream, tokens: AtomicU64::new(0) });
    serve(move |request| {
        let proxy = Arc::clone(&proxy);
        async move { Ok::<_, Infallible>(proxy.answer(request).await.unwrap_or_else(|_| failed())) }
    })
    .await
}

impl Proxy {
    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>> {
        let body = request.into_body().collect().await?.to_bytes();
        let delay = if serde_json::from_slice::<Asked<'_>>(&body)?.model == "slow" { 50 } else { 0 };
        let address = format!("{}{}/chat/completions", self.upstream, upstream::base(delay));
        let request = Request::post(address).header(CONTENT_TYPE, JSON).body(Full::from(body))?;
        let body = self.client.request(request).await?.into_body().collect().await?.to_bytes();
        let answered: Answered = serde_json::from_slice(&body)?;
        self.tokens.fetch_add(answered.usage.total_tokens, Ordering::Relaxed);
        let mut response = Response::new(Full::from(body));
        response.headers_mut().insert(CONTENT_TYPE, JSON);
        Ok(response)
    }
}

fn failed() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}
