//! `serve` and `token` as a real process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::support::{Place, Run, signal};

/// A server on a port of its own choosing.
struct Served {
    child: Child,
    address: String,
}

impl Served {
    fn start(place: &Place, more: &[&str]) -> Self {
        let args = [&["serve", "--listen", "127.0.0.1:0", "--json"], more].concat();
        let mut child = place.command(&args).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).expect(&line);
        Self { address: said["listen"].as_str().unwrap().to_owned(), child }
    }

    /// The status and body of an answer.
    fn ask(&self, method: &str, path: &str, token: Option<&str>, body: &str) -> (u16, String) {
        let token =
            token.map_or(String::new(), |token| format!("authorization: Bearer {token}\r\n"));
        let length = body.len();
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{token}\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}",
            self.address
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut told = String::new();
        stream.read_to_string(&mut told).unwrap();
        let (head, body) = told.split_once("\r\n\r\n").expect(&told);
        (head[9..12].parse().unwrap(), body.to_owned())
    }

    fn stop(self) {
        assert!(signal(self.child.id(), "TERM"));
        Run::of(self.child).ok();
    }
}

#[test]
fn what_is_sent_over_http_is_run_by_any_worker_and_its_result_read() {
    let place = Place::new();
    let served = Served::start(&place, &[]);
    let unit = r#"{"kind": "exec", "payload": {"argv": ["echo", "hello"]}}"#;
    let (status, body) = served.ask("POST", "/api/v1/units", None, unit);
    assert_eq!(status, 201, "{body}");
    let id = serde_json::from_str::<Value>(&body).unwrap()["unit"].as_str().unwrap().to_owned();
    place.work();
    let (status, body) = served.ask("GET", &format!("/api/v1/units/{id}?wait=60"), None, "");
    assert_eq!(status, 200);
    assert!(body.contains(r#""state":"done""#) && body.contains("hello"), "{body}");
    let (status, page) = served.ask("GET", "/queues", None, "");
    assert_eq!(status, 200);
    assert!(page.contains("<title>Queues"), "{page}");
    served.stop();
}

#[test]
fn a_token_opens_the_door_until_it_is_revoked() {
    let place = Place::new();
    let quiet = place.run(&["--quiet", "token", "add", "--role", "admin"]).ok().out;
    assert!(quiet.starts_with("lsh_"), "nobody can ask for it again: {quiet}");
    let added = place.run(&["token", "add", "--for", "acme", "--json"]).ok().json();
    let (secret, id) = (added["secret"].as_str().unwrap(), added["token"].as_str().unwrap());
    let served = Served::start(&place, &[]);
    assert_eq!(served.ask("GET", "/api/v1/whoami", None, "").0, 401);
    let (status, me) = served.ask("GET", "/api/v1/whoami", Some(secret), "");
    assert_eq!(status, 200);
    assert!(me.contains(r#""tenant":"acme""#), "{me}");
    let listed = place.run(&["token", "list"]).ok().out;
    assert!(listed.contains(id) && !listed.contains(secret), "{listed}");
    assert!(!place.read("longshore.db").contains(secret));
    place.run(&["token", "revoke", id]).ok();
    assert_eq!(served.ask("GET", "/api/v1/whoami", Some(secret), "").0, 401);
    served.stop();
}

#[test]
fn an_address_that_others_can_reach_demands_tls_and_a_token() {
    let place = Place::new();
    let run = place.run(&["serve", "--listen", "0.0.0.0:0"]).ends(2);
    assert!(run.err.contains("there is no TLS") && run.err.contains("hint:"), "{}", run.err);
    let run = place.run(&["serve", "--listen", "0.0.0.0:0", "--no-tls"]).ends(2);
    assert!(run.err.contains("there is no token yet"), "{}", run.err);
    let run = place.run(&["serve", "--tls-cert", "none.pem"]).ends(2);
    assert!(run.err.contains("belong together"), "{}", run.err);
}
