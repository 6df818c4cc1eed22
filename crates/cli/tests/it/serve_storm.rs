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

use crate::serve::Served;
use crate::support::{Place, SOON, eventually, limit, soaked};

const MIB: u64 = 1024 * 1024;

impl Served {
    /// The peak memory of the server process.
    fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    fn say(&self, words: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(words.as_bytes()).unwrap();
        stream
    }

    /// Other clients are answered.
    fn assert_up(&self) {
        assert_eq!(self.ask("GET", "/healthz", None, "").0, 200);
        assert_eq!(self.ask("GET", "/api/v1/queues", None, "").0, 200);
    }

    fn assert_within(&self, what: &str, before: u64, most: u64) {
        let now = self.resident();
        eprintln!("{what}: {} MiB before, {} MiB at most", before / MIB, now / MIB);
        assert!(now < before + most, "{what}: {} MiB more", (now - before) / MIB);
    }
}

/// Raises this process's limit of open files; the server raises its own.
fn widen(count: usize) {
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    assert!(most.is_none_or(|most| most > count as u64 + 200), "{most:?} files are too few");
}

fn started(more: &str) -> (Place, Served) {
    let place = Place::new();
    place.write("longshore.toml", more);
    let served = Served::start(&place, &[]);
    served.assert_up();
    (place, served)
}

#[test]
fn ten_thousand_who_say_nothing_keep_nobody_out() {
    let count = soaked(500, 10_000);
    widen(count);
    // The connection limit is reached: the server closes an idle connection to admit a new one.
    let (_place, served) = started(&format!("[web]\nconnections = {count}\n"));
    let before = served.resident();
    let idle: Vec<TcpStream> = (0..count).map(|_| served.say("")).collect();
    served.assert_up();
    served.assert_within(
        &format!("{count} idle connections"),
        before,
        32 * 1024 * count as u64 + 16 * MIB,
    );
    drop(idle);
    served.assert_up();
    served.stop();
}

#[test]
fn many_who_drip_their_heads_keep_nobody_out_and_are_let_go() {
    let count = soaked(200, 2_000);
    widen(count);
    let (_place, served) =
        started(&format!("[web]\nconnections = {count}\ntime_limit = \"10s\"\n"));
    let before = served.resident();
    let mut drips: Vec<TcpStream> =
        (0..count).map(|_| served.say("GET /healthz HTTP/1.1\r\nhost: localhost\r\n")).collect();
    served.assert_up();
    served.assert_within(
        &format!("{count} slow heads"),
        before,
        64 * 1024 * count as u64 + 16 * MIB,
    );
    // No slow head is ever read to its end.
    let until = Instant::now() + limit(Duration::from_secs(60));
    while !drips.is_empty() && Instant::now() < until {
        drips.retain_mut(|drip| drip.write_all(b"x-drip: 1\r\n").is_ok());
        served.assert_up();
    }
    assert_eq!(drips.len(), 0, "still dripping");
    served.stop();
}

#[test]
fn a_thousand_who_listen_all_hear_of_a_change_and_others_are_answered() {
    let count = soaked(100, 1_000);
    widen(count);
    let (place, served) = started("");
    let before = served.resident();
    let ask = "GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut listening: Vec<TcpStream> = (0..count).map(|_| served.say(ask)).collect();
    for stream in &mut listening {
        hear(stream, ": open");
    }
    place.submit_script("true", &[]);
    for stream in &mut listening {
        hear(stream, "event: changes");
    }
    served.assert_up();
    served.assert_within(
        &format!("{count} who listen"),
        before,
        96 * 1024 * count as u64 + 32 * MIB,
    );
    drop(listening);
    served.stop();
}

/// Reads until these words arrive.
fn hear(stream: &mut TcpStream, words: &str) {
    stream.set_read_timeout(Some(limit(SOON))).unwrap();
    let mut heard = Vec::new();
    while !String::from_utf8_lossy(&heard).contains(words) {
        let mut some = [0; 4096];
        let count = stream.read(&mut some).unwrap_or_else(|error| panic!("no `{words}`: {error}"));
        assert_ne!(count, 0, "hung up before `{words}`");
        heard.extend_from_slice(&some[..count]);
    }
}

#[test]
fn huge_bodies_are_refused_or_streamed_and_never_held() {
    let (place, served) = started("");
    let before = served.resident();
    let many = soaked(2, 8);
    // One unit of a hundred megabytes is refused while it arrives.
    std::thread::scope(|scope| {
        for _ in 0..many {
            scope.spawn(|| {
                let mut stream = served.say(&head("/api/v1/units", "application/json", 100 * MIB));
                let piece = vec![b'x'; 1024 * 1024];
                let took = (0..100).take_while(|_| stream.write_all(&piece).is_ok()).count();
                assert!(took < 100, "it hangs up before all of it has come");
            });
        }
    });
    served.assert_within("huge bodies", before, many as u64 * 24 * MIB + 32 * MIB);
    served.assert_up();
    // The same amount in many units is read as fast as the store accepts it.
    let units = soaked(2_000_u64, 20_000);
    let payload = json!({ "argv": ["true", "x".repeat(soaked(500, 5_000))] });
    let line = json!({ "kind": "exec", "payload": payload }).to_string() + "\n";
    let mut stream = served.say(&head(
        "/api/v1/units/stream",
        "application/x-ndjson",
        units * line.len() as u64,
    ));
    for _ in 0..units {
        stream.write_all(line.as_bytes()).unwrap();
    }
    let mut told = String::new();
    stream.read_to_string(&mut told).unwrap();
    assert!(told.contains(&format!(r#""created":{units}"#)), "{told}");
    served.assert_within("a long stream", before, many as u64 * 24 * MIB + 64 * MIB);
    served.assert_up();
    eventually(limit(SOON), || (place.queue()["counts"]["ready"] == units).then_some(()));
    served.stop();
}

fn head(path: &str, kind: &str, length: u64) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: {kind}\r\ncontent-length: {length}\r\n\r\n"
    )
}
