//! The gateway through its router, with a backend that answers by the profile's name.

mod anthropic;
mod arbitrary_requests;
mod connections;
mod endpoints;
mod errors;
mod fake_backend;
mod fuzz;
mod models;
mod openai;
mod passthrough;
mod responses;
mod streaming;
mod with_inference;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::Response;
use http_body_util::BodyExt;
use longshore::{TenantId, Timestamp};
use longshore_ai::InferenceRequest;
use longshore_ai::gateway::{Gateway, InferenceBackend, SingleTenant};
use serde_json::Value;
use tower::ServiceExt;

use fake_backend::FakeBackend;

const OPENAI: &str = "/v1/chat/completions";
const ANTHROPIC: &str = "/v1/messages";
const TOKEN: &str = "a-token";

/// A gateway with a fixed clock, and its fake backend.
struct GatewayFixture {
    fake: Arc<FakeBackend>,
    router: Router,
}

/// A response.
struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

struct FixedClock;

impl longshore::Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(1_700_000_000_000_000)
    }
}

impl GatewayFixture {
    fn new() -> Self {
        let fake = Arc::new(FakeBackend::default());
        let authenticator = SingleTenant { tenant: TenantId::default(), token: Some(TOKEN.into()) };
        let gateway = Gateway::new(Arc::clone(&fake) as _, Arc::new(authenticator));
        Self { fake, router: gateway.clock(Arc::new(FixedClock)).router() }
    }

    /// A gateway with another backend; the fake is not used.
    fn with_backend(backend: Arc<dyn InferenceBackend>) -> Self {
        let authenticator = SingleTenant { tenant: TenantId::default(), token: Some(TOKEN.into()) };
        let gateway = Gateway::new(backend, Arc::new(authenticator));
        Self { fake: Arc::default(), router: gateway.clock(Arc::new(FixedClock)).router() }
    }

    async fn send(&self, request: Request<Body>) -> Response {
        self.router.clone().oneshot(request).await.unwrap()
    }

    async fn reply(&self, request: Request<Body>) -> Reply {
        let (parts, body) = self.send(request).await.into_parts();
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        let body = String::from_utf8(body).unwrap();
        Reply { status: parts.status, headers: parts.headers, body }
    }

    async fn post(&self, path: &str, body: Value) -> Reply {
        self.reply(post(path, &body)).await
    }

    /// The last question.
    fn asked(&self) -> InferenceRequest {
        self.fake.asked.lock().unwrap().last().cloned().expect("nothing was asked")
    }
}

fn post(path: &str, body: &Value) -> Request<Body> {
    let request = Request::post(path).header("authorization", format!("Bearer {TOKEN}"));
    request.body(body.to_string().into()).unwrap()
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect(&self.body)
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The events of a stream: the name, if it has one, and the data.
    fn events(&self) -> Vec<(Option<&str>, &str)> {
        assert_eq!(self.header("content-type"), Some("text/event-stream; charset=utf-8"));
        let events = self.body.split("\n\n").filter(|event| !event.is_empty());
        let split = |event: &'_ str| -> (Option<usize>, usize) {
            (event.find("event: "), event.find("data: ").expect("an event without data"))
        };
        events
            .map(|event| {
                let (name, data) = split(event);
                let name = name.map(|at| event[at + 7..].lines().next().unwrap());
                (name, &event[data + 6..])
            })
            .collect()
    }
}
