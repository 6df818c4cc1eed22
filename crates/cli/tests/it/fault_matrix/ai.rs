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
use crate::support::{CliOutput, TestDir, eventually};

const QUESTIONS: usize = 8;

/// Questions that are asked during the fault are answered, and each is counted once.
pub fn provider(fault: Fault) -> CellReport {
    let fixture = AiFixture::bare(TestDir::new());
    let address = fixture.fake.url().trim_start_matches("http://").to_owned();
    let proxy = FaultProxy::start(address).unwrap();
    let endpoint = format!("http://{}", proxy.address());
    let add = ["profile", "add", "fake", "--provider", "openai", "--model", "m", "--endpoint", &endpoint];
    fixture.dir.run(&add).ok();
    let ask = ["ai", "ask", "--profile", "fake", "--timeout", "120s", "hello"];
    fixture.dir.run(&ask).ok();
    let asked = std::thread::scope(|scope| {
        let injected = scope.spawn(|| match fault {
            // A provider that is restarted answers 503 meanwhile.
            Fault::Restart => {
                fixture.fake.set_default(FakeBehaviour::error(503));
                std::thread::sleep(Fault::duration());
                fixture.fake.set_default(FakeBehaviour::default());
            }
            _ => fault.inject(&proxy),
        });
        let asked: Vec<_> = (0..QUESTIONS).map(|_| fixture.dir.command(&ask).spawn().unwrap()).collect();
        injected.join().unwrap();
        asked
    });
    let healed = Instant::now();
    let answered = asked.into_iter().map(CliOutput::of).filter(|run| run.code == 0).count();
    let recovery = healed.elapsed();
    fixture.dir.run(&ask).ok();
    assert_eq!(answered, QUESTIONS, "questions failed");
    fixture.dir.run(&["verify"]).ok();
    CellReport { recovery, notes: format!("{answered} of {QUESTIONS} answered") }
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
            (0..QUESTIONS).map(|_| ask_stream(&server, &proxy.address().to_string(), 200_000)).collect();
        let injected = scope.spawn(|| fault.inject(&proxy));
        let mut slowest = Duration::ZERO;
        while !injected.is_finished() {
            let began = Instant::now();
            assert_eq!(read_status(ask_stream(&server, &server.address, 10)), Some(200));
            slowest = slowest.max(began.elapsed());
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
    assert!(slowest < Duration::from_secs(30), "{notes}");
    CellReport { recovery, notes }
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
