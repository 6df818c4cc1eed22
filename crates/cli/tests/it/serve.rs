//! `serve` and `token` as a real process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{TestDir, eventually, signal, stretch};

/// A server on an ephemeral port.
pub struct ServeProcess {
    pub child: Child,
    pub address: String,
}

impl ServeProcess {
    pub fn start(dir: &TestDir, more: &[&str]) -> Self {
        Self::start_at("127.0.0.1:0", dir, more)
    }

    pub fn start_at(address: &str, dir: &TestDir, more: &[&str]) -> Self {
        let args = [&["serve", "--listen", address, "--json"], more].concat();
        let mut child = dir.command(&args).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let greeting: Value = serde_json::from_str(&line).expect(&line);
        Self { address: greeting["listen"].as_str().unwrap().to_owned(), child }
    }

    /// Sends a request and returns the response's status and body.
    pub fn send(&self, method: &str, path: &str, token: Option<&str>, body: &str) -> (u16, String) {
        let token = token.map_or(String::new(), |token| format!("authorization: Bearer {token}\r\n"));
        self.send_with(method, path, &token, body)
    }

    /// Sends a request with additional headers; each ends its line.
    pub fn send_with(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let length = body.len();
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{headers}\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}",
            self.address
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").expect(&response);
        (head[9..12].parse().unwrap(), body.to_owned())
    }

    pub fn stop(self) {
        assert!(signal(self.child.id(), "TERM"));
        self.wait_for_exit();
    }

    /// Waits for the server's end after a signal.
    pub fn wait_for_exit(mut self) {
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for ServeProcess {
    /// A failed test leaves no process behind.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn what_is_sent_over_http_is_run_by_any_worker_and_its_result_read() {
    let dir = TestDir::new();
    let server = ServeProcess::start(&dir, &[]);
    let unit = r#"{"kind": "exec", "payload": {"argv": ["echo", "hello"]}}"#;
    let (status, body) = server.send("POST", "/api/v1/units", None, unit);
    assert_eq!(status, 201, "{body}");
    let id = serde_json::from_str::<Value>(&body).unwrap()["unit"].as_str().unwrap().to_owned();
    dir.work();
    let (status, body) = server.send("GET", &format!("/api/v1/units/{id}?wait=60"), None, "");
    assert_eq!(status, 200);
    assert!(body.contains(r#""state":"done""#) && body.contains("hello"), "{body}");
    let (status, page) = server.send("GET", "/queues", None, "");
    assert_eq!(status, 200);
    assert!(page.contains("<title>Queues"), "{page}");
    server.stop();
}

#[test]
fn a_token_opens_the_door_until_it_is_revoked() {
    let dir = TestDir::new();
    let quiet = dir.run(&["--quiet", "token", "add", "--role", "admin"]).ok().out;
    assert!(quiet.starts_with("lsh_"), "the token is printed even with --quiet: {quiet}");
    let added = dir.run(&["token", "add", "--for", "acme", "--json"]).ok().json();
    let (secret, id) = (added["secret"].as_str().unwrap(), added["token"].as_str().unwrap());
    let server = ServeProcess::start(&dir, &[]);
    assert_eq!(server.send("GET", "/api/v1/whoami", None, "").0, 401);
    let (status, me) = server.send("GET", "/api/v1/whoami", Some(secret), "");
    assert_eq!(status, 200);
    assert!(me.contains(r#""tenant":"acme""#), "{me}");
    let listed = dir.run(&["token", "list"]).ok().out;
    assert!(listed.contains(id) && !listed.contains(secret), "{listed}");
    assert!(!dir.read("longshore.db").contains(secret));
    dir.run(&["token", "revoke", id]).ok();
    assert_eq!(server.send("GET", "/api/v1/whoami", Some(secret), "").0, 401);
    server.stop();
}

#[test]
fn an_address_that_others_can_reach_demands_tls_and_a_token() {
    let dir = TestDir::new();
    let run = dir.run(&["serve", "--listen", "0.0.0.0:0"]).ends(2);
    assert!(run.err.contains("there is no TLS") && run.err.contains("hint:"), "{}", run.err);
    let run = dir.run(&["serve", "--listen", "0.0.0.0:0", "--no-tls"]).ends(2);
    assert!(run.err.contains("there is no token yet"), "{}", run.err);
    let run = dir.run(&["serve", "--tls-cert", "none.pem"]).ends(2);
    assert!(run.err.contains("belong together"), "{}", run.err);
}

#[test]
fn a_tenants_profiles_are_asked_through_the_gateway_with_its_own_token() {
    let dir = TestDir::new();
    for tenant in ["acme", "other"] {
        let name = format!("{tenant}-echo");
        let add = ["profile", "add", &name, "--provider", "echo", "--tenant", tenant];
        dir.run(&add).ok();
    }
    let token = |role: &str| {
        let run = dir.run(&["token", "add", "--for", "acme", "--role", role, "--json"]).ok();
        run.json()["secret"].as_str().unwrap().to_owned()
    };
    let (submit, read) = (token("submit"), token("read"));
    let server = ServeProcess::start(&dir, &[]);
    let ask = |profile: &str, token: Option<&str>| {
        let body =
            format!(r#"{{"model": "{profile}", "messages": [{{"role": "user", "content": "good day"}}]}}"#);
        server.send("POST", "/v1/chat/completions", token, &body)
    };
    let (status, body) = ask("acme-echo", Some(&submit));
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("good day"), "{body}");
    assert_eq!(ask("acme-echo", None).0, 401);
    assert_eq!(ask("acme-echo", Some(&read)).0, 401, "a read token may not call models");
    assert_eq!(ask("other-echo", Some(&submit)).0, 404, "another tenant's profile");
    let (_, models) = server.send("GET", "/v1/models", Some(&submit), "");
    assert!(models.contains("acme-echo") && !models.contains("other-echo"), "{models}");
    // Usage is recorded after the answer.
    eventually(stretch(Duration::from_secs(60)), || {
        let (_, usage) = server.send("GET", "/api/v1/usage?by=model", Some(&submit), "");
        usage.contains(r#""calls":1"#).then_some(())
    });
    server.stop();
}

#[test]
fn a_server_does_the_upkeep_where_there_is_no_worker() {
    let dir = TestDir::new();
    let mut server = ServeProcess::start(&dir, &[]);
    let id = dir.run(&["submit", "exec", r#"{"argv":["true"]}"#, "--delay", "5s"]).ok();
    let id = id.out.trim().to_owned();
    assert_eq!(dir.unit(&id)["state"], "scheduled");
    eventually(stretch(Duration::from_secs(60)), || (dir.unit(&id)["state"] == "ready").then_some(()));
    server.child.kill().unwrap();
    server.child.wait().unwrap();
}

#[test]
fn workers_go_on_when_the_server_is_killed_and_the_next_one_shows_what_they_did() {
    let dir = TestDir::new();
    let mut server = ServeProcess::start(&dir, &[]);
    let exec = |script: &str| {
        json!({ "kind": "exec", "payload": { "argv": ["sh", "-c", script] } }).to_string() + "\n"
    };
    let (quick, waits) = (exec("true"), exec("while [ ! -e go ]; do sleep 0.05; done"));
    let lines = quick.repeat(30) + &waits.repeat(30);
    let (status, response) = server.send("POST", "/api/v1/units/stream", None, &lines);
    assert_eq!(status, 200, "{response}");
    let mut worker = dir.start(&["worker", "--slots", "4", "--until-idle"]);
    let done = || dir.queue()["counts"]["done"].as_u64().unwrap();
    eventually(stretch(Duration::from_secs(60)), || (done() > 0).then_some(()));
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    assert!(done() < 60, "it was killed before the end");
    dir.write("go", "");
    assert_eq!(worker.ends_within(stretch(Duration::from_secs(120))), 0);
    assert_eq!(done(), 60);
    let server = ServeProcess::start(&dir, &[]);
    let (_, queues) = server.send("GET", "/api/v1/queues", None, "");
    assert!(queues.contains(r#""done":60"#), "{queues}");
    server.stop();
    dir.run(&["verify"]).ok();
}

/// Creates a self-signed certificate for these names and its key; returns both paths.
pub fn self_signed_certificate(dir: &TestDir, names: &str) -> (String, String) {
    let [cert, key] = ["site.pem", "site.key"].map(|name| dir.path(name).display().to_string());
    let made = std::process::Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args(["-days", "2", "-subj", "/CN=localhost", "-out", &cert, "-keyout", &key])
        .args(["-addext", &format!("subjectAltName={names}")])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    (cert, key)
}

#[test]
fn over_tls_only_who_speaks_it_is_answered() {
    let dir = TestDir::new();
    let (cert, key) = self_signed_certificate(&dir, "DNS:localhost");
    dir.run(&["token", "add", "--role", "admin"]).ok();
    let server = ServeProcess::start(&dir, &["--tls-cert", &cert, "--tls-key", &key]);
    let mut plain = TcpStream::connect(&server.address).unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut response = Vec::new();
    // The server may close the connection with or without a response.
    let _ = plain.read_to_end(&mut response);
    assert!(!String::from_utf8_lossy(&response).contains("200 OK"));
    let mut client = std::process::Command::new("openssl")
        .args(["s_client", "-quiet", "-servername", "localhost", "-verify_return_error"])
        .args(["-verify_hostname", "localhost", "-CAfile", &cert, "-connect", &server.address])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let asked = b"GET /login HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    client.stdin.as_mut().unwrap().write_all(asked).unwrap();
    let output = client.wait_with_output().unwrap();
    let response = String::from_utf8_lossy(&output.stdout);
    assert!(response.starts_with("HTTP/1.1 200") && response.contains("Log in"), "{output:?}");
    server.stop();
}

/// A Python program that uses a server.
const CLIENT_PROGRAM: &str = r#"
import sys
from longshore.client import Client, Problem
client = Client("http://" + sys.argv[1], token=sys.argv[2])
unit = client.submit("exec", {"argv": ["echo", "hello"]}, key="once", queue="acme/mail")
assert client.submit("exec", {"argv": ["echo", "hello"]}, key="once", queue="acme/mail") == unit
ended = client.wait(unit, limit=60)
assert ended["state"] == "done" and "hello" in ended["result"]["stdout"], ended
units = [{"kind": "exec", "payload": {"argv": ["true"]}, "queue": "acme/mail"}] * 250
assert client.submit_many(units, key="many")["created"] == 250
assert client.submit_many(units, key="many")["existing"] == 250
assert len(list(client.all("/units", kind="exec", limit=100))) == 251
for _ in range(2):
    batch = client.send_batch("nightly", units, chunk=100, type="orders")
    assert batch["sealed"] and sum(batch["counts"].values()) == 250, batch
with client.permit("erp", wait=1) as permit:
    permit.extend()
    try:
        with client.permit("erp", wait=0):
            raise AssertionError("there is only one")
    except Problem as problem:
        assert (problem.status, problem.kind) == (429, "too-many-requests"), problem
with client.permit("acme/erp", wait=0) as own:
    own.extend()
for pool in ["internal", "other/erp"]:
    try:
        with client.permit(pool, wait=0):
            raise AssertionError("it is not ours")
    except Problem as problem:
        assert problem.status == 404, problem
with client.permit("erp", wait=0) as next:
    assert next.fence > permit.fence
try:
    client.unit("019a8d2e-0000-7000-8000-000000000000")
except Problem as problem:
    assert problem.status == 404 and "there is no unit" in str(problem), problem
print("good")
"#;

#[test]
fn a_program_in_python_sends_waits_and_holds_permits() {
    let dir = TestDir::new();
    dir.write("longshore.toml", "[web]\nshared_pools = [\"erp\"]\n");
    for pool in ["erp", "internal", "acme/erp", "other/erp"] {
        dir.run(&["pool", "resize", pool, "1"]).ok();
    }
    let add = ["token", "add", "--for", "acme", "--role", "submit", "--json"];
    let token = dir.run(&add).ok().json()["secret"].as_str().unwrap().to_owned();
    let server = ServeProcess::start(&dir, &[]);
    let mut worker = dir.start(&["worker"]);
    let run = std::process::Command::new("python3")
        .args(["-B", "-c", CLIENT_PROGRAM, &server.address, &token])
        .env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk/python"))
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success() && stdout == "good\n", "{stdout}\n{stderr}");
    worker.kill();
    server.stop();
}
