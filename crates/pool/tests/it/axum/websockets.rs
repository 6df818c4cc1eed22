//! Calls streamed over WebSockets, over a real network.

use axum::Router;
use axum::extract::Path;
use axum::extract::ws::WebSocketUpgrade;
use axum::response::Response;
use axum::routing::get;
use futures_util::{SinkExt, StreamExt};
use longshore_pool::axum::{Pools, WorkerPools, progress_ws};
use longshore_pool::{CallOptions, Operations, PoolCall, WorkerPool};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::helpers::{eventually, exactly};

fn operations() -> Operations {
    Operations::stateless()
        .add_with("climb", |(), call: &PoolCall, (): ()| {
            call.progress(&1);
            call.progress(&2);
            Ok::<_, String>("top")
        })
        .add_with("watch", |(), call: &PoolCall, (): ()| {
            call.progress("watching");
            while !call.is_cancelled() {
                std::thread::yield_now();
            }
            Err::<(), _>("hunter2")
        })
}

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// A server that runs until this is dropped.
struct TestServer {
    pool: WorkerPool,
    address: std::net::SocketAddr,
    _server: JoinSet<()>,
}

async fn serve() -> TestServer {
    let pool = WorkerPool::threads("climbers", operations(), exactly(1)).await.unwrap();
    let call =
        async |workers: WorkerPools, Path(operation): Path<String>, upgrade: WebSocketUpgrade| -> Response {
            progress_ws(upgrade, &workers, &operation, &(), CallOptions::default().cancel_on_drop())
        };
    let app = Router::new().route("/{operation}", get(call)).with_state(Pools::new().add(pool.clone()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut server = JoinSet::new();
    server.spawn(async move { axum::serve(listener, app).await.unwrap() });
    TestServer { pool, address, _server: server }
}

impl TestServer {
    async fn open(&self, operation: &str) -> Socket {
        connect_async(format!("ws://{}/{operation}", self.address)).await.unwrap().0
    }
}

async fn receive(socket: &mut Socket) -> Value {
    match socket.next().await.unwrap().unwrap() {
        Message::Text(text) => serde_json::from_str(&text).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn progress_and_result_come_as_messages_and_then_it_is_closed() {
    let served = serve().await;
    let mut socket = served.open("climb").await;
    assert_eq!(receive(&mut socket).await, json!({"event": "progress", "data": 1}));
    assert_eq!(receive(&mut socket).await, json!({"event": "progress", "data": 2}));
    assert_eq!(receive(&mut socket).await, json!({"event": "done", "data": "top"}));
    assert!(matches!(socket.next().await, Some(Ok(Message::Close(Some(_))))));
}

#[tokio::test]
async fn a_word_takes_the_call_back() {
    let served = serve().await;
    let mut socket = served.open("watch").await;
    assert_eq!(receive(&mut socket).await["data"], "watching");
    socket.send(Message::text("cancel")).await.unwrap();
    let last = receive(&mut socket).await;
    assert_eq!((&last["event"], &last["data"]["kind"]), (&"error".into(), &"cancelled".into()));
    eventually("it has stopped", || served.pool.stats().busy == 0).await;
}

#[tokio::test]
async fn the_other_side_goes_away_and_takes_its_call_back() {
    let served = serve().await;
    let mut socket = served.open("watch").await;
    receive(&mut socket).await;
    assert_eq!(served.pool.stats().busy, 1);
    // Without a close frame.
    drop(socket);
    eventually("it has stopped", || served.pool.stats().busy == 0).await;
}

#[tokio::test]
async fn a_call_that_is_refused_says_so_on_the_socket() {
    let served = serve().await;
    let mut socket = served.open("unheard_of").await;
    let last = receive(&mut socket).await;
    assert_eq!((&last["event"], &last["data"]["status"]), (&"error".into(), &404.into()));
}
