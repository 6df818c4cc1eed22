//! Floods of clients against a real `serve`: it stays up, answers other clients, and its memory is
//! bounded.
//!
//! Small by default; with `LONGSHORE_SOAK` ten thousand idle connections, a thousand listeners, a
//! hundred megabytes of body. Prints the memory used: `--no-capture` shows it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use crate::serve::ServeProcess;
use crate::support::{TIMEOUT, TestDir, eventually, peak_memory, pick_size, stretch};

pub const MIB: u64 = 1024 * 1024;

impl ServeProcess {
    /// The peak memory of the server process.
    pub fn peak_memory(&self) -> u64 {
        peak_memory(self.child.id())
    }

    pub fn connect(&self, words: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(words.as_bytes()).unwrap();
        stream
    }

    /// Other clients are answered.
    fn assert_answers(&self) {
        assert_eq!(self.send("GET", "/healthz", None, "").0, 200);
        assert_eq!(self.send("GET", "/api/v1/queues", None, "").0, 200);
    }

    pub fn assert_growth_below(&self, what: &str, before: u64, most: u64) {
        let now = self.peak_memory();
        eprintln!("{what}: {} MiB before, {} MiB at most", before / MIB, now / MIB);
        assert!(now < before + most, "{what}: {} MiB more", (now - before) / MIB);
    }
}

/// Raises this process's limit of open files; the server raises its own.
fn raise_file_limit(count: usize) {
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    assert!(most.is_none_or(|most| most > count as u64 + 200), "{most:?} files are too few");
}

fn start_server(more: &str) -> (TestDir, ServeProcess) {
    let dir = TestDir::new();
    dir.write("longshore.toml", more);
    let server = ServeProcess::start(&dir, &[]);
    server.assert_answers();
    (dir, server)
}

#[test]
fn ten_thousand_who_say_nothing_keep_nobody_out() {
    let count = pick_size(500, 10_000);
    raise_file_limit(count);
    // The connection limit is reached: the server closes an idle connection to admit a new one.
    let (_place, server) = start_server(&format!("[web]\nconnections = {count}\n"));
    let before = server.peak_memory();
    let idle: Vec<TcpStream> = (0..count).map(|_| server.connect("")).collect();
    server.assert_answers();
    server.assert_growth_below(
        &format!("{count} idle connections"),
        before,
        32 * 1024 * count as u64 + 16 * MIB,
    );
    drop(idle);
    server.assert_answers();
    server.stop();
}

#[test]
fn many_who_drip_their_heads_keep_nobody_out_and_are_let_go() {
    let count = pick_size(200, 2_000);
    raise_file_limit(count);
    let (_place, server) = start_server(&format!("[web]\nconnections = {count}\ntime_limit = \"10s\"\n"));
    let before = server.peak_memory();
    let mut drips: Vec<TcpStream> =
        (0..count).map(|_| server.connect("GET /healthz HTTP/1.1\r\nhost: localhost\r\n")).collect();
    server.assert_answers();
    server.assert_growth_below(&format!("{count} slow heads"), before, 64 * 1024 * count as u64 + 16 * MIB);
    // No slow head is ever read to its end.
    let until = Instant::now() + stretch(Duration::from_secs(60));
    while !drips.is_empty() && Instant::now() < until {
        drips.retain_mut(|drip| drip.write_all(b"x-drip: 1\r\n").is_ok());
        server.assert_answers();
    }
    assert_eq!(drips.len(), 0, "slow connections still open");
    server.stop();
}

#[test]
fn a_thousand_who_listen_all_hear_of_a_change_and_others_are_answered() {
    let count = pick_size(100, 1_000);
    raise_file_limit(count);
    // The listeners and the other client have one token.
    let (dir, server) = start_server(&format!("[web]\nrequests_per_token = {}\n", count + 10));
    let before = server.peak_memory();
    let ask = format!("GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\n{}\r\n", server.authorization());
    let mut listening: Vec<TcpStream> = (0..count).map(|_| server.connect(&ask)).collect();
    for stream in &mut listening {
        read_until(stream, ": open");
    }
    dir.submit_script("true", &[]);
    for stream in &mut listening {
        read_until(stream, "event: changes");
    }
    server.assert_answers();
    server.assert_growth_below(&format!("{count} who listen"), before, 96 * 1024 * count as u64 + 32 * MIB);
    drop(listening);
    server.stop();
}

/// Reads until these words arrive.
fn read_until(stream: &mut TcpStream, words: &str) {
    stream.set_read_timeout(Some(stretch(TIMEOUT))).unwrap();
    let mut received = Vec::new();
    while !String::from_utf8_lossy(&received).contains(words) {
        let mut some = [0; 4096];
        let count = stream.read(&mut some).unwrap_or_else(|error| panic!("no `{words}`: {error}"));
        assert_ne!(count, 0, "closed before `{words}`");
        received.extend_from_slice(&some[..count]);
    }
}

#[test]
fn huge_bodies_are_refused_or_streamed_and_never_held() {
    let (dir, server) = start_server("");
    let before = server.peak_memory();
    let many = pick_size(2, 8);
    // One unit of a hundred megabytes is refused while it arrives.
    std::thread::scope(|scope| {
        for _ in 0..many {
            scope.spawn(|| {
                let mut stream =
                    server.connect(&request_head(&server, "/api/v1/units", "application/json", 100 * MIB));
                let piece = vec![b'x'; 1024 * 1024];
                let took = (0..100).take_while(|_| stream.write_all(&piece).is_ok()).count();
                assert!(took < 100, "the server closes before the whole body arrives");
            });
        }
    });
    server.assert_growth_below("huge bodies", before, many as u64 * 24 * MIB + 32 * MIB);
    server.assert_answers();
    // The same amount in many units is read as fast as the store accepts it.
    let units = pick_size(2_000_u64, 20_000);
    let payload = json!({ "argv": ["true", "x".repeat(pick_size(500, 5_000))] });
    let line = json!({ "kind": "exec", "payload": payload }).to_string() + "\n";
    let mut stream = server.connect(&request_head(
        &server,
        "/api/v1/units/stream",
        "application/x-ndjson",
        units * line.len() as u64,
    ));
    for _ in 0..units {
        stream.write_all(line.as_bytes()).unwrap();
    }
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.contains(&format!(r#""created":{units}"#)), "{response}");
    server.assert_growth_below("a long stream", before, many as u64 * 24 * MIB + 64 * MIB);
    server.assert_answers();
    eventually(stretch(TIMEOUT), || (dir.queue()["counts"]["ready"] == units).then_some(()));
    server.stop();
}

fn request_head(server: &ServeProcess, path: &str, kind: &str, length: u64) -> String {
    let authorization = server.authorization();
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{authorization}\
         content-type: {kind}\r\ncontent-length: {length}\r\n\r\n"
    )
}
