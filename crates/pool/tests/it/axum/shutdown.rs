//! Graceful shutdown, with real connections.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use longshore_pool::axum::{Pools, WorkerPools};
use longshore_pool::{CallError, WorkerPool};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::gate::{Gate, gated};
use crate::helpers::eventually;

struct TestServer {
    pool: WorkerPool,
    gate: Gate,
    address: SocketAddr,
    signal: CancellationToken,
    server: JoinSet<std::io::Result<()>>,
}

async fn serve(limit: Duration) -> TestServer {
    let (pool, gate) = gated(|_| ()).await;
    let wait = async |workers: WorkerPools| -> Result<String, CallError> {
        let _: u64 = workers.call("gate", &1_u64).await?;
        // A request may call its pool more than once.
        let twice: u64 = workers.call("double", &21_u64).await?;
        Ok(twice.to_string())
    };
    let pools = Pools::new().add(pool.clone());
    let app = Router::new().route("/", get(wait)).with_state(pools.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let signal = CancellationToken::new();
    let asked = signal.clone().cancelled_owned();
    let mut server = JoinSet::new();
    server.spawn(async move {
        let server = |stop| axum::serve(listener, app).with_graceful_shutdown(stop);
        pools.serve(asked, limit, server).await
    });
    TestServer { pool, gate, address, signal, server }
}

/// Sends a request; the response is read later.
async fn request(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
    stream
}

async fn answer(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

async fn refuses(address: SocketAddr) {
    while TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn no_more_connections_then_requests_then_pools() {
    let mut served = serve(Duration::from_secs(60)).await;
    let stream = request(served.address).await;
    served.gate.wait_for(1).await;
    served.signal.cancel();
    refuses(served.address).await;
    // The request is still in its first call, and the pool still accepts others.
    served.pool.call::<_, ()>("noop", &()).await.unwrap();
    served.gate.open();
    let answer = answer(stream).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("42"), "{answer}");
    served.server.join_next().await.unwrap().unwrap().unwrap();
    let stats = served.pool.stats();
    assert_eq!((stats.workers, stats.ended.get("closing")), (0, Some(&2)));
}

#[tokio::test]
async fn requests_that_take_too_long_are_told_so_before_the_end() {
    let mut served = serve(Duration::ZERO).await;
    let stream = request(served.address).await;
    served.gate.wait_for(1).await;
    // This call waits for a worker, behind the calls that are held at the gate.
    let max = 8;
    let mut others = Vec::new();
    for _ in 1..max {
        others.push(request(served.address).await);
    }
    served.gate.wait_for(max).await;
    let waiting = request(served.address).await;
    eventually("one waits", || served.pool.stats().queue_depth == 1).await;
    served.signal.cancel();
    let response = answer(waiting).await;
    assert!(response.starts_with("HTTP/1.1 503") && response.contains("shutting_down"), "{response}");
    served.server.join_next().await.unwrap().unwrap().unwrap();
    served.gate.open();
    drop((stream, others));
}
