//! The gateway's own HTTP server.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use longshore::TenantId;
use longshore_ai::gateway::{Gateway, SingleTenant};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::fake_backend::FakeBackend;
use super::{ANTHROPIC, GatewayFixture, OPENAI, TOKEN};

/// A gateway with a listener, and its client.
struct GatewayServer {
    fake: Arc<FakeBackend>,
    end: Arc<Notify>,
    gateway: JoinSet<()>,
    _client: JoinSet<()>,
    client: SendRequest<Body>,
}

impl GatewayServer {
    async fn new() -> Self {
        let (fake, end) = (Arc::new(FakeBackend::default()), Arc::new(Notify::new()));
        let authenticator = SingleTenant { tenant: TenantId::default(), token: Some(TOKEN.into()) };
        let gateway = Gateway::new(Arc::clone(&fake) as _, Arc::new(authenticator));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (client, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        let (mut serving, mut asking) = (JoinSet::new(), JoinSet::new());
        let shutdown = Arc::clone(&end);
        serving.spawn(async move { gateway.serve(listener, shutdown.notified()).await });
        asking.spawn(async move { connection.await.unwrap() });
        Self { fake, end, gateway: serving, _client: asking, client }
    }

    async fn ask(&mut self, request: Request<Body>) -> (StatusCode, String) {
        self.client.ready().await.unwrap();
        let (head, body) = self.client.send_request(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        (head.status, String::from_utf8(body).unwrap())
    }
}

fn request(method: Method, path: &str, body: Value) -> Request<Body> {
    let request = Request::builder().method(method).uri(path).header("host", "here");
    let request = request.header("x-api-key", TOKEN).header("x-request-id", "r-1");
    request.body(body.to_string().into()).unwrap()
}

fn hello(profile: &str) -> Value {
    let messages = [json!({ "role": "user", "content": "Hello" })];
    json!({ "model": profile, "max_tokens": 9, "messages": messages })
}

#[tokio::test]
async fn everything_is_where_the_router_has_it() {
    let (mut server, fixture) = (GatewayServer::new().await, GatewayFixture::new());
    for (method, path, status) in [
        (Method::POST, OPENAI, StatusCode::OK),
        (Method::POST, ANTHROPIC, StatusCode::OK),
        (Method::POST, "/v1/messages/count_tokens", StatusCode::OK),
        (Method::GET, "/v1/models", StatusCode::OK),
        (Method::GET, "/v1/models/plain", StatusCode::OK),
        (Method::GET, OPENAI, StatusCode::METHOD_NOT_ALLOWED),
        (Method::POST, "/v1/audio/speech", StatusCode::NOT_FOUND),
    ] {
        let request = || request(method.clone(), path, hello("raw"));
        let (answered, body) = server.ask(request()).await;
        let routed = fixture.reply(request()).await;
        assert_eq!((answered, routed.status), (status, status), "{path}");
        // Some answers contain their creation time.
        assert_eq!(body.len(), routed.body.len(), "{path}: {body}");
    }
}

#[tokio::test]
async fn a_request_with_two_hosts_is_rejected() {
    let mut server = GatewayServer::new().await;
    let mut twice = request(Method::GET, "/v1/models", Value::Null);
    twice.headers_mut().append("host", "there".parse().unwrap());
    let (status, body) = server.ask(twice).await;
    assert_eq!((status, body.as_str()), (StatusCode::BAD_REQUEST, "the request has two `Host` headers"));
    assert_eq!(server.ask(request(Method::GET, "/v1/models", Value::Null)).await.0, StatusCode::OK);
}

#[tokio::test]
async fn whoever_waits_for_an_answer_gets_it_after_the_gateway_was_told_to_end() {
    let mut server = GatewayServer::new().await;
    let (fake, end) = (Arc::clone(&server.fake), Arc::clone(&server.end));
    let asking = server.ask(request(Method::POST, OPENAI, hello("held")));
    let ending = async {
        fake.started.notified().await;
        end.notify_one();
        fake.release.notify_one();
    };
    let ((status, body), ()) = tokio::join!(asking, ending);
    assert_eq!(status, StatusCode::OK, "{body}");
    // Although the client keeps its connection open.
    server.gateway.join_next().await.unwrap().unwrap();
    server.client.ready().await.unwrap_err();
}
