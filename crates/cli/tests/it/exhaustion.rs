//! One tenant with a bound tries to use up a real `serve`: whatever it sends, the server's memory stays
//! bounded and another tenant is served.
//!
//! Small by default; with `LONGSHORE_SOAK` it lasts longer, and prints the other tenant's response times
//! beside those of a calm server: `--no-capture` shows them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::serve::ServeProcess;
use crate::serve_storm::MIB;
use crate::support::{TestDir, pick_size};

const API: &str = "/api/v1";

/// A server with two tenants, of which one is bounded, and their tokens.
struct TwoTenants {
    _dir: TestDir,
    server: ServeProcess,
    greedy: String,
    calm: String,
}

impl TwoTenants {
    fn start() -> Self {
        let dir = TestDir::new();
        let config = "[web]\nshared_pools = [\"shared\"]\naudited_per_minute = 2\n[pools.shared]\nmax = 10\n";
        dir.write("longshore.toml", config);
        dir.run(&["tenant", "add", "greedy", "--max-units", "1000", "--max-bytes", "1MiB"]).ok();
        let profile = ["profile", "add", "echo", "--provider", "echo", "--model", "m", "--tenant", "greedy"];
        dir.run(&profile).ok();
        let token = |tenant: &str| {
            let added = dir.run(&["token", "add", "--for", tenant, "--role", "operate", "--json"]).ok();
            added.json()["secret"].as_str().unwrap().to_owned()
        };
        let (greedy, calm) = (token("greedy"), token("calm"));
        let server = ServeProcess::start(&dir, &[]);
        Self { _dir: dir, server, greedy, calm }
    }

    /// Sends a request of the greedy tenant. Without a status, the server closed the connection before the
    /// whole request was written.
    fn greedy(&self, method: &str, path: &str, body: &str) -> Option<u16> {
        let mut stream = self.server.connect(&format!(
            "{method} {API}{path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             authorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.greedy,
            body.len()
        ));
        let _ = stream.write_all(body.as_bytes());
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response);
        std::str::from_utf8(response.get(9..12)?).ok()?.parse().ok()
    }

    /// What is too large is refused as a mistake, or for now while its other requests use its share.
    fn refuses(&self, method: &str, path: &str, body: &str) {
        let status = self.greedy(method, path, body);
        assert!(status.is_none_or(|status| [400, 413, 429].contains(&status)), "{path}: {status:?}");
    }

    /// The response times of the calm tenant: it sends a unit, lists its units, and lists its queues.
    fn response_times(&self, rounds: usize) -> Vec<Duration> {
        let unit = json!({ "kind": "k", "payload": 1 }).to_string();
        let requests =
            [("POST", "/units", unit.as_str()), ("GET", "/units?limit=10", ""), ("GET", "/queues", "")];
        let mut times = Vec::new();
        for (method, path, body) in (0..rounds).flat_map(|_| requests) {
            let began = Instant::now();
            let (status, answer) = self.server.send(method, &format!("{API}{path}"), Some(&self.calm), body);
            assert!(status < 300, "{path}: {answer}");
            times.push(began.elapsed());
        }
        times.sort();
        times
    }
}

/// The attempt number `nth` of the greedy tenant.
fn attempt(site: &TwoTenants, nth: usize, held: &mut Vec<TcpStream>) {
    let long = "x".repeat(100_000);
    let text = |value: serde_json::Value| value.to_string();
    match nth % 14 {
        // The bytes of its bound, over and over.
        0 => drop(site.greedy("POST", "/units", &text(json!({ "kind": "k", "payload": long })))),
        // A new queue with each unit, refused or not.
        1 => drop(site.greedy("POST", "/units", &text(json!({ "kind": "k", "queue": format!("q{nth}") })))),
        // Names, keys and resources beside the payload.
        2 => {
            let resources: serde_json::Map<_, _> =
                (0..1_000).map(|at| (format!("{at}-{}", &long[..100]), json!(1))).collect();
            let unit = json!({ "kind": "k", "weight": { "resources": resources } });
            site.refuses("POST", "/units", &text(unit));
            let key = json!({ "kind": "k", "key": long });
            site.refuses("POST", "/units", &text(key));
        }
        3 => {
            let notes = json!({ "id": format!("b{nth}"), "notes": long });
            site.refuses("POST", "/batches", &text(notes));
            let batch = json!({ "id": format!("b{nth}"), "notes": &long[..4_000] });
            let _ = site.greedy("POST", "/batches", &text(batch));
        }
        4 => {
            let ids: Vec<String> =
                (0..50_000).map(|at| format!("00000000-0000-7000-8000-{at:012}")).collect();
            let unit = json!({ "kind": "k", "after": { "units": ids } });
            site.refuses("POST", "/units", &text(unit));
        }
        // Streams that it never reads.
        5 => held.push(site.server.connect(&format!(
            "GET {API}/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\r\n",
            site.greedy
        ))),
        // Bodies that it never ends.
        6 => held.push(site.server.connect(&format!(
            "POST {API}/units HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: 16000000\r\n\r\n{{",
            site.greedy
        ))),
        7 => drop(site.greedy("POST", "/pools/shared/permits", &text(json!({ "ttl_seconds": 60 })))),
        // What it may not do is refused, and leaves no entry.
        8 => drop(site.greedy("POST", "/workers/00000000-0000-7000-8000-000000000000/stop", "")),
        // Answers of the gateway that it never reads.
        9 => {
            let message = json!({ "role": "user", "content": "x".repeat(1_000_000) });
            let body = text(json!({ "model": "echo", "stream": true, "messages": [message] }));
            let mut stream = site.server.connect(&format!(
                "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\
                 content-type: application/json\r\ncontent-length: {}\r\n\r\n",
                site.greedy,
                body.len()
            ));
            // Written in part if the server refuses it.
            let _ = stream.write_all(body.as_bytes());
            held.push(stream);
        }
        // Changes that the audit log records, with and without effect.
        11 => {
            for change in ["pause", "resume", "resume"] {
                let _ = site.greedy("POST", &format!("/queues/default/{change}"), "");
            }
            for change in ["/batches/greedy%2Fb3/seal", "/batches/greedy%2Fb3/cancel"] {
                let _ = site.greedy("POST", change, "");
            }
        }
        // Logouts of sessions that do not exist.
        12 => {
            let head = "POST /logout HTTP/1.1\r\nhost: localhost\r\norigin: http://localhost\r\n";
            let cookie = format!("cookie: longshore_session={nth}\r\ncontent-length: 0\r\n\r\n");
            held.push(site.server.connect(&format!("{head}{cookie}")));
        }
        // Schedules can only be listed over HTTP.
        10 => drop(site.greedy("GET", "/cron?limit=1000", "")),
        _ => drop(site.greedy("GET", "/units?limit=1000", "")),
    }
}

#[test]
fn one_tenant_cannot_use_up_the_server() {
    let site = TwoTenants::start();
    let rounds = pick_size(5, 200);
    let (calm, began) = (site.response_times(rounds), Instant::now());
    let before = site.server.peak_memory();
    let over = AtomicBool::new(false);
    let meanwhile = std::thread::scope(|scope| {
        for attacker in 0..4 {
            let (site, over) = (&site, &over);
            scope.spawn(move || {
                let mut held = Vec::new();
                for nth in (attacker..pick_size(96, 4_000)).step_by(4) {
                    attempt(site, nth, &mut held);
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        let times = site.response_times(rounds);
        over.store(pick_size(0, 1) == 1, Ordering::Relaxed);
        times
    });
    let at = |times: &[Duration], share: f64| times[((times.len() - 1) as f64 * share) as usize];
    for (name, share) in [("median", 0.5), ("p99", 0.99)] {
        eprintln!(
            "{name}: calm {:?}, beside the greedy tenant {:?}",
            at(&calm, share),
            at(&meanwhile, share)
        );
    }
    site.server.assert_growth_below("a tenant that tries everything", before, 256 * MIB);
    let (status, log) = site.server.send("GET", &format!("{API}/audit?limit=1000"), Some(&site.greedy), "");
    assert_eq!(status, 200);
    let log: serde_json::Value = serde_json::from_str(&log).unwrap();
    let has_action = |entry: &serde_json::Value, actions: &[&str]| {
        actions.iter().any(|action| entry["action"] == **action)
    };
    let by_http = ["batch.open", "batch.seal", "batch.cancel", "queue.pause", "queue.resume"];
    let by_command = ["profile.set", "tenant.set", "token.add"];
    let entries = log["items"].as_array().unwrap();
    let (http, rest): (Vec<_>, Vec<_>) = entries.iter().partition(|entry| has_action(entry, &by_http));
    assert!(rest.iter().all(|entry| has_action(entry, &by_command)), "units and permits have none: {log}");
    // Two per minute, after those of ten minutes at once.
    let max = 20 + began.elapsed().as_secs() as usize / 30;
    assert!(!http.is_empty() && http.len() <= max, "{} entries, at most {max}: {log}", http.len());
    assert_eq!(site.server.send("GET", "/readyz", None, "").0, 200);
    site.server.stop();
}
