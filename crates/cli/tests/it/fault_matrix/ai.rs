//! Calls of models: the provider behind a proxy, and a client of the gateway behind a proxy.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use longshore_testkit::fake_ai::FakeBehaviour;
use longshore_testkit::fault_proxy::FaultProxy;
use serde_json::json;

use super::cell::{CellReport, Fault, RECOVERY_LIMIT};
use crate::ai_fixture::AiFixture;
use crate::serve::ServeProcess;
use crate::serve_storm::MIB;
use crate::support::{TestDir, eventually, pick_size};

/// Clients that do not read, of which others must notice nothing.
const SLOW_CLIENTS: usize = 8;

/// Callers of the gateway during the fault, half of them with a fallback profile.
const CALLERS: usize = 100;
const TENANTS: [&str; 3] = ["a", "b", "c"];

/// The callers' timeout: longer than a stall.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// How much longer than without load a call may take on a busy machine.
const MARGIN: Duration = Duration::from_secs(10);

/// How often a caller repeats a question that the gateway lets it repeat: as the official clients in a short outage. In
/// one of twenty seconds they would give up, so these callers go on.
fn max_repeats() -> usize {
    pick_size(2, 10)
}

/// Callers that ask the gateway during the fault are answered: soon where there is a fallback, else after the fault.
/// They behave as the official clients: they repeat a request only if the gateway says so, after the time that it says,
/// and at most [`max_repeats`] times. A caller with a fallback need not. If a question may have been billed, its caller
/// asks it anew by its own choice.
pub fn provider(fault: Fault) -> CellReport {
    let fixture = AiFixture::bare(TestDir::new());
    let dir = &fixture.dir;
    let address = fixture.fake.url().trim_start_matches("http://").to_owned();
    let proxy = FaultProxy::start(address).unwrap();
    let endpoint = format!("http://{}", proxy.address());
    let tokens = TENANTS.map(|tenant| {
        let add = |name: &str, more: &[&str]| {
            dir.run(&[&["--tenant", tenant, "profile", "add", name, "--model", "m"], more].concat()).ok();
        };
        add("spare", &["--provider", "echo"]);
        add("plain", &["--provider", "openai", "--endpoint", &endpoint]);
        add("backed", &["--provider", "openai", "--endpoint", &endpoint, "--fallback", "spare"]);
        dir.run(&["--quiet", "token", "add", "--for", tenant, "--role", "submit"]).ok().out.trim().to_owned()
    });
    let server = ServeProcess::start(dir, &[]);
    let (healed, calls) = std::thread::scope(|scope| {
        let (server, tokens) = (&server, &tokens);
        let injected = scope.spawn(|| {
            match fault {
                // A provider that is restarted answers 503 meanwhile.
                Fault::Restart => {
                    fixture.fake.set_default(FakeBehaviour::error(503));
                    std::thread::sleep(Fault::duration());
                    fixture.fake.set_default(FakeBehaviour::default());
                }
                _ => fault.inject(&proxy),
            }
            Instant::now()
        });
        let pause = Fault::duration() / (CALLERS as u32);
        let callers = (0..CALLERS).map(|number| {
            std::thread::sleep(pause);
            scope.spawn(move || GatewayCall::make(server, &tokens[number % TENANTS.len()], number))
        });
        let callers: Vec<_> = callers.collect();
        let calls: Vec<GatewayCall> = callers.into_iter().map(|caller| caller.join().unwrap()).collect();
        (injected.join().unwrap(), calls)
    });
    let recovery = calls.iter().map(|call| call.answered.saturating_duration_since(healed)).max().unwrap();
    let slowest = |backed: bool| {
        let those = calls.iter().filter(|call| call.backed == backed);
        those.map(|call| call.answered - call.began).max().unwrap_or_default().as_secs_f64()
    };
    let sum = |count: fn(&GatewayCall) -> usize| calls.iter().map(count).sum::<usize>();
    let notes = format!(
        "{} callers answered, within {:.1} s with a fallback and {:.1} s without; {} repeats, {} of them maybe billed",
        calls.len(),
        slowest(true),
        slowest(false),
        sum(|call| call.repeats),
        sum(|call| call.maybe_billed)
    );
    let longest_call = match fault {
        // The provider rejects a call, or breaks its connection.
        Fault::Cut | Fault::Restart => Duration::ZERO,
        // It answers late, connection included.
        Fault::Latency | Fault::Slow => Fault::latency() * 4,
        // It is silent, and the call may have been billed.
        _ => CALL_TIMEOUT,
    };
    assert!(slowest(true) < (longest_call + MARGIN).as_secs_f64(), "{notes}");
    assert!(recovery < longest_call + 2 * MARGIN, "{recovery:?}: {notes}");
    server.stop();
    dir.run(&["verify"]).ok();
    CellReport { recovery, notes, skipped: None }
}

/// A question to the gateway, repeated until it is answered.
struct GatewayCall {
    backed: bool,
    began: Instant,
    answered: Instant,
    repeats: usize,
    maybe_billed: usize,
}

impl GatewayCall {
    fn make(server: &ServeProcess, token: &str, number: usize) -> Self {
        let backed = (number / TENANTS.len()).is_multiple_of(2);
        let message = json!({ "role": "user", "content": format!("question {number}") });
        let model = if backed { "backed" } else { "plain" };
        let body = json!({ "model": model, "messages": [message] }).to_string();
        let headers = format!(
            "authorization: Bearer {token}\r\nx-longshore-timeout-ms: {}\r\n",
            CALL_TIMEOUT.as_millis()
        );
        let began = Instant::now();
        let (mut repeats, mut in_a_row, mut maybe_billed) = (0, 0, 0);
        loop {
            let (head, body) = server.exchange("POST", "/v1/chat/completions", &headers, &body);
            let status = &head[9..12];
            let header = |name: &str| {
                let mut lines = head.lines().filter_map(|line| line.split_once(": "));
                lines.find(|(key, _)| *key == name).map(|(_, value)| value)
            };
            match (status, header("x-should-retry")) {
                ("200", _) => {
                    return Self { backed, began, answered: Instant::now(), repeats, maybe_billed };
                }
                ("503", Some("true")) if !backed && in_a_row < max_repeats() => {
                    in_a_row += 1;
                    let after = header("retry-after-ms").map_or(1000, |millis| millis.parse().unwrap());
                    std::thread::sleep(Duration::from_millis(after));
                }
                ("502" | "504", Some("false")) => {
                    maybe_billed += 1;
                    in_a_row = 0;
                }
                _ => panic!(
                    "question {number} after {:?} and {in_a_row} repeats: {head}\n{body}",
                    began.elapsed()
                ),
            }
            assert!(began.elapsed() < RECOVERY_LIMIT, "{head}\n{body}");
            repeats += 1;
        }
    }
}

/// A client that is slow or gone delays no other client, and leaves nothing behind.
pub fn gateway_client(fault: Fault) -> CellReport {
    let dir = TestDir::new();
    dir.run(&["profile", "add", "echo", "--provider", "echo", "--model", "m"]).ok();
    let server = ServeProcess::start(&dir, &[]);
    let proxy = FaultProxy::start(server.address.clone()).unwrap();
    let before = server.peak_memory();
    let slowest = std::thread::scope(|scope| {
        let held: Vec<TcpStream> =
            (0..SLOW_CLIENTS).map(|_| ask_stream(&server, &proxy.address().to_string(), 200_000)).collect();
        let injected = scope.spawn(|| fault.inject(&proxy));
        let mut slowest = Duration::ZERO;
        while !injected.is_finished() {
            let began = Instant::now();
            assert_eq!(read_status(ask_stream(&server, &server.address, 10)), Some(200));
            slowest = slowest.max(began.elapsed());
            // Fewer than `[web] requests_per_second`.
            std::thread::sleep(Duration::from_millis(50));
        }
        drop(held);
        slowest
    });
    let healed = Instant::now();
    let address = proxy.address().to_string();
    eventually(RECOVERY_LIMIT, || {
        (read_status(ask_stream(&server, &address, 10)) == Some(200)).then_some(())
    });
    server.assert_growth_below("slow clients", before, 96 * MIB);
    let recovery = healed.elapsed();
    server.stop();
    dir.run(&["verify"]).ok();
    let notes = format!("other clients answered within {:.1} s", slowest.as_secs_f64());
    assert!(slowest < Duration::from_secs(10), "{notes}");
    CellReport { recovery, notes, skipped: None }
}

/// Sends a question of this many bytes, to be answered as a stream.
fn ask_stream(server: &ServeProcess, address: &str, size: usize) -> TcpStream {
    let message = json!({ "role": "user", "content": "x".repeat(size) });
    let body = json!({ "model": "echo", "stream": true, "messages": [message] }).to_string();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(RECOVERY_LIMIT)).unwrap();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{}\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        server.authorization(),
        body.len()
    );
    // The proxy may have cut the connection.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
    stream
}

/// Reads a response to its end.
fn read_status(mut stream: TcpStream) -> Option<u16> {
    let mut response = Vec::new();
    stream.read_to_end(&mut response).ok()?;
    std::str::from_utf8(response.get(9..12)?).ok()?.parse().ok()
}
