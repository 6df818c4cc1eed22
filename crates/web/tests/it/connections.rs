//! Real connections: limits on untrusted clients, and graceful shutdown.

use std::time::Duration;

use longshore::{NewUnit, Scope};
use longshore_web::{AuthMode, ConnectionLimits};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::fixture::{TestSite, kind};

struct TestServer {
    address: std::net::SocketAddr,
    end: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

#[expect(clippy::disallowed_methods, reason = "the test waits for it")]
async fn serve(site: &TestSite, limits: ConnectionLimits) -> TestServer {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (end, ended) = oneshot::channel();
    let web = site.web(AuthMode::NoAuth).limits(limits);
    let serving = tokio::spawn(web.serve(listener, None, async {
        let _ = ended.await;
    }));
    TestServer { address, end, serving }
}

impl TestServer {
    async fn say(&self, words: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(words.as_bytes()).await.unwrap();
        stream
    }

    /// Sends a request and reads until the server closes the connection.
    async fn hear(&self, words: &str) -> String {
        let mut stream = self.say(words).await;
        let mut heard = Vec::new();
        // The server may close the connection without a response while the client sends.
        let hearing = stream.read_to_end(&mut heard);
        let ended = tokio::time::timeout(Duration::from_secs(20), hearing).await;
        let _ = ended.unwrap_or_else(|_| panic!("still open after: {words:.60}"));
        String::from_utf8_lossy(&heard).into_owned()
    }

    async fn stop(self) {
        self.end.send(()).unwrap();
        self.serving.await.unwrap();
    }
}

const CLOSE: &str = "host: localhost\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn health_is_told_to_anybody() {
    let site = TestSite::in_memory(AuthMode::TokenRequired);
    let server = serve(&site, ConnectionLimits::default()).await;
    let alive = server.hear(&format!("GET /healthz HTTP/1.1\r\n{CLOSE}")).await;
    assert!(alive.starts_with("HTTP/1.1 200") && alive.ends_with("ok\n"), "{alive}");
    let ready = server.hear(&format!("GET /readyz HTTP/1.1\r\n{CLOSE}")).await;
    assert!(ready.ends_with("ready\n"), "{ready}");
    assert!(ready.contains("x-content-type-options: nosniff"), "{ready}");
    server.stop().await;
}

#[tokio::test]
async fn who_takes_too_much_is_refused_and_who_is_too_slow_is_let_go() {
    let site = TestSite::in_memory(AuthMode::NoAuth);
    let time = Duration::from_millis(300);
    let server = serve(&site, ConnectionLimits { body: 1_000, time, ..ConnectionLimits::default() }).await;
    let json = "content-type: application/json\r\n";
    let long = format!("\"{}\"", "x".repeat(2_000));
    let response = server
        .hear(&format!("POST /api/v1/units HTTP/1.1\r\n{json}content-length: 2002\r\n{CLOSE}{long}"))
        .await;
    assert!(response.starts_with("HTTP/1.1 413"), "{response}");
    let response =
        server.hear(&format!("POST /api/v1/units HTTP/1.1\r\n{json}content-length: 9\r\n{CLOSE}{{")).await;
    assert!(response.starts_with("HTTP/1.1 408"), "{response}");
    let response = server.hear("GET /api/v1/queues HTTP/1.1\r\nhost: loc").await;
    assert!(!response.contains("200"), "{response}");
    let head = format!("x-long: {}\r\n", "x".repeat(1_000_000));
    let response = server.hear(&format!("GET /healthz HTTP/1.1\r\n{head}{CLOSE}")).await;
    assert!(!response.contains("200 OK"), "{response}");
    let response = server.hear(&format!("GET /healthz HTTP/1.1\r\n{CLOSE}")).await;
    assert!(response.contains("200 OK"), "it goes on for others: {response}");
    server.stop().await;
}

#[tokio::test]
async fn a_stop_ends_those_who_listen_and_those_who_wait() {
    let site = TestSite::in_memory(AuthMode::NoAuth);
    let data = site.populate("acme").await;
    let server = serve(&site, ConnectionLimits::default()).await;
    let mut listening = server.say("GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    let mut first = [0; 15];
    listening.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    let wait = format!("GET /api/v1/units/{}?wait=300 HTTP/1.1\r\n{CLOSE}", data.unit);
    let mut waiting = server.say(&wait).await;
    let idle = server.say("").await;
    server.stop().await;
    let mut response = String::new();
    waiting.read_to_string(&mut response).await.unwrap();
    // The connection may not have been accepted before the stop.
    assert!(response.is_empty() || response.starts_with("HTTP/1.1 503"), "{response}");
    let mut rest = Vec::new();
    listening.read_to_end(&mut rest).await.unwrap();
    drop(idle);
}

/// `large` with `LONGSHORE_SOAK`, else `small`.
fn soaked(small: usize, large: usize) -> usize {
    if std::env::var_os("LONGSHORE_SOAK").is_some() { large } else { small }
}

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[tokio::test]
async fn many_who_say_nothing_keep_nobody_out_and_take_little() {
    let site = TestSite::in_memory(AuthMode::NoAuth);
    let server =
        serve(&site, ConnectionLimits { time: Duration::from_secs(120), ..ConnectionLimits::default() })
            .await;
    let count = soaked(400, 9_000);
    let before = resident();
    let mut idle = Vec::with_capacity(count);
    for at in 0..count {
        // Some send nothing at all, others never finish their head.
        let words = if at % 2 == 0 { "" } else { "GET / HTTP/1.1\r\nhost: loc" };
        idle.push(server.say(words).await);
    }
    let response = server.hear(&format!("GET /healthz HTTP/1.1\r\n{CLOSE}")).await;
    assert!(response.contains("200 OK"), "{response}");
    let each = resident().saturating_sub(before) / count;
    assert!(each < 64 * 1024, "{each} bytes for each who is idle");
    drop(idle);
    server.stop().await;
}

#[tokio::test]
async fn who_drips_a_head_is_let_go_when_the_time_is_over() {
    let site = TestSite::in_memory(AuthMode::NoAuth);
    let time = Duration::from_millis(500);
    let server = serve(&site, ConnectionLimits { time, ..ConnectionLimits::default() }).await;
    let mut stream = server.say("GET / HTTP/1.1\r\n").await;
    let dripping = async {
        // Until the server closes the connection.
        while stream.write_all(b"x-drip: 1\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), dripping).await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn a_huge_body_is_refused_before_it_has_come() {
    let site = TestSite::in_memory(AuthMode::NoAuth);
    let server = serve(&site, ConnectionLimits::default()).await;
    let before = resident();
    let head = "POST /api/v1/units HTTP/1.1\r\ncontent-type: application/json\r\n\
        content-length: 104857600\r\n";
    let mut stream = server.say(&format!("{head}{CLOSE}\"")).await;
    let piece = vec![b'x'; 1024 * 1024];
    let mut sent = 0;
    while sent < 100 && stream.write_all(&piece).await.is_ok() {
        sent += 1;
    }
    assert!(sent < 100, "it hangs up before all of it has come");
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 * 1024 * 1024, "{grown} bytes");
    let response = server.hear(&format!("GET /healthz HTTP/1.1\r\n{CLOSE}")).await;
    assert!(response.contains("200 OK"), "{response}");
    server.stop().await;
}

#[tokio::test]
async fn many_who_listen_all_hear_of_a_change() {
    let site = TestSite::on_disk(AuthMode::NoAuth);
    let server = serve(&site, ConnectionLimits::default()).await;
    let ask = "GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut listening = Vec::new();
    for _ in 0..soaked(100, 1_000) {
        let mut stream = server.say(ask).await;
        hear_until(&mut stream, ": open").await;
        listening.push(stream);
    }
    site.populate("acme").await;
    for stream in &mut listening {
        hear_until(stream, "event: changes").await;
    }
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_never_reads_holds_a_share_of_the_memory_until_it_is_let_go() {
    const MIB: usize = 1024 * 1024;
    let site = TestSite::in_memory(AuthMode::NoAuth);
    let unit = NewUnit::new(kind("k"), json!("x".repeat(8 * MIB)));
    let id = unit.id;
    site.store.send(&Scope::All, vec![unit]).await.unwrap();
    let (time, body_memory) = (Duration::from_secs(2), 32 * MIB);
    let server = serve(&site, ConnectionLimits { time, body_memory, ..ConnectionLimits::default() }).await;
    let ask = format!("GET /api/v1/units/{id} HTTP/1.1\r\n{CLOSE}");
    let socket = TcpSocket::new_v4().unwrap();
    // Smaller than the response, which then stays with the server.
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stalled = socket.connect(server.address).await.unwrap();
    stalled.write_all(ask.as_bytes()).await.unwrap();
    let status_becomes = async |status: &str| {
        let waiting = async {
            while !server.hear(&ask).await.starts_with(&format!("HTTP/1.1 {status}")) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap();
    };
    stalled.readable().await.unwrap();
    status_becomes("429").await;
    status_becomes("200").await;
    let mut rest = Vec::new();
    let _ = stalled.read_to_end(&mut rest).await;
    assert!(rest.len() < 8 * MIB, "the connection was closed before its end");
    server.stop().await;
}

async fn hear_until(stream: &mut TcpStream, words: &str) {
    let mut heard = Vec::new();
    let hearing = async {
        while !String::from_utf8_lossy(&heard).contains(words) {
            let mut some = [0; 1024];
            let count = stream.read(&mut some).await.unwrap();
            assert_ne!(count, 0, "hung up before `{words}`");
            heard.extend_from_slice(&some[..count]);
        }
    };
    tokio::time::timeout(Duration::from_secs(60), hearing).await.unwrap();
}
