//! `serve` and `token` as a real process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{ChildGuard, TestDir, eventually, signal, stretch};

/// A server on an ephemeral port.
pub struct ServeProcess {
    pub child: Child,
    pub address: String,
    /// The admin token and the login link, if this was the first start on its store.
    pub token: Option<String>,
    pub login: Option<String>,
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
        let text = |key: &str| greeting[key].as_str().map(str::to_owned);
        Self { address: text("listen").unwrap(), token: text("token"), login: text("login"), child }
    }

    /// The header with the first start's token, or nothing.
    pub fn authorization(&self) -> String {
        let token = self.token.as_ref();
        token.map_or_else(String::new, |token| format!("authorization: Bearer {token}\r\n"))
    }

    /// Sends a request and returns the response's status and body. Without a token, it has the first
    /// start's.
    pub fn send(&self, method: &str, path: &str, token: Option<&str>, body: &str) -> (u16, String) {
        let token = token.map_or(String::new(), |token| format!("authorization: Bearer {token}\r\n"));
        self.send_with(method, path, &token, body)
    }

    /// Sends a request with additional headers; each ends its line.
    pub fn send_with(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let (head, body) = self.exchange(method, path, headers, body);
        (head[9..12].parse().unwrap(), body)
    }

    /// Sends a request, and returns the head and the body of the response.
    pub fn exchange(&self, method: &str, path: &str, headers: &str, body: &str) -> (String, String) {
        let default = if headers.contains("authorization:") { String::new() } else { self.authorization() };
        let length = body.len();
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{headers}{default}\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}",
            self.address
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").expect(&response);
        (head.to_owned(), body.to_owned())
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
fn changes_by_the_command_line_are_in_the_audit_log() {
    let dir = TestDir::new();
    let added = dir.run(&["token", "add", "--role", "admin", "--json"]).ok().json();
    dir.run(&["tenant", "add", "acme", "--weight", "2"]).ok();
    dir.run(&["tenant", "suspend", "acme"]).ok();
    // Rejected, so it leaves no entry.
    dir.run(&["tenant", "set", "acme", "--allow-kind", "http"]).ends(1).says("open to every tenant");
    dir.run(&["profile", "add", "echo", "--provider", "echo"]).ok();
    let other = dir.run(&["token", "add", "--for", "acme", "--json"]).ok().json();
    dir.run(&["token", "revoke", other["token"].as_str().unwrap()]).ok();
    let server = ServeProcess::start(&dir, &[]);
    let (status, log) = server.send("GET", "/api/v1/audit", added["secret"].as_str(), "");
    assert_eq!(status, 200, "{log}");
    let log: Value = serde_json::from_str(&log).unwrap();
    let actions: Vec<_> = log["items"].as_array().unwrap().iter().map(|entry| &entry["action"]).collect();
    let expected = ["token.revoke", "token.add", "profile.set", "tenant.set", "tenant.set", "token.add"];
    assert_eq!(actions, expected);
    assert!(log["items"][0]["by"].as_str().unwrap().contains('@'), "{log}");
    server.stop();
}

#[test]
fn a_token_is_accepted_until_it_is_revoked() {
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
fn an_address_that_others_can_reach_demands_tls_and_tokens() {
    let dir = TestDir::new();
    let run = dir.run(&["serve", "--listen", "0.0.0.0:0"]).ends(2);
    assert!(run.err.contains("there is no TLS") && run.err.contains("hint:"), "{}", run.err);
    let run = dir.run(&["serve", "--listen", "0.0.0.0:0", "--no-tls", "--no-auth"]).ends(2);
    assert!(run.err.contains("--no-auth is for loopback only"), "{}", run.err);
    let run = dir.run(&["serve", "--tls-cert", "none.pem"]).ends(2);
    assert!(run.err.contains("belong together"), "{}", run.err);
}

#[test]
fn an_address_that_cannot_be_listened_on_is_explained() {
    let dir = TestDir::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for command in [&["serve"][..], &["ai", "gateway"]] {
        let run = dir.run(&[command, &["--listen", &address]].concat()).ends(1);
        let run = run.says(&format!("error: cannot listen on {address}")).says("Address already in use");
        run.says("hint: another process listens there");
    }
    let pool = ["dispatch", "start", "--dir", "pool", "--listen", "192.0.2.1"];
    dir.run(&pool).ends(1).says("cannot listen on 192.0.2.1").says("hint: --listen takes an address");
}

/// Sends a request as it is, and returns the response.
fn exchange(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn the_first_start_makes_a_token_and_its_link_logs_a_browser_in_for_later_starts_too() {
    let dir = TestDir::new();
    let mut first = dir.command(&["serve", "--listen", "127.0.0.1:0"]);
    let mut first = ChildGuard(first.stderr(Stdio::null()).spawn().unwrap());
    let mut lines = BufReader::new(first.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.next().unwrap().ends_with("to clients with a token"));
    let token = lines.next().unwrap();
    let token = token.strip_prefix("admin token, shown only now: ").unwrap();
    let link = lines.next().unwrap();
    let (address, path) = link.strip_prefix("log in: http://").unwrap().split_once('/').unwrap();
    assert_eq!(path, format!("login?token={token}"));
    assert!(!dir.read("longshore.db").contains(token) && !dir.read("longshore.db-wal").contains(token));
    // What a proxy with nginx's defaults sends for any stranger.
    let stranger = "GET /api/v1/queues HTTP/1.0\r\nhost: 127.0.0.1\r\n\r\n";
    assert!(exchange(address, stranger).contains(" 401 "), "no token, no access");
    let response = exchange(address, &format!("GET /{path} HTTP/1.0\r\nhost: {address}\r\n\r\n"));
    assert!(response.contains(" 303 ") && response.contains("location: /\r\n"), "{response}");
    let cookie = response.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    let cookie = cookie.split(';').next().unwrap();
    assert!(!cookie.contains(token), "{cookie}");
    first.signal("TERM");
    assert_eq!(first.ends_within(stretch(Duration::from_secs(30))), 0);

    let next = ServeProcess::start(&dir, &[]);
    assert_eq!(next.token, None, "a valid token exists");
    let visit = || next.send_with("GET", "/queues", &format!("cookie: {cookie}\r\n"), "").0;
    assert_eq!(visit(), 200, "the session survives a restart");
    let tokens = dir.run(&["token", "list", "--json"]).ok().json();
    assert_eq!(tokens[0]["role"], "admin");
    dir.run(&["token", "revoke", tokens[0]["token"].as_str().unwrap()]).ok();
    assert_eq!(visit(), 303, "revoking the token ends its session");
    next.stop();
    let again = ServeProcess::start(&dir, &[]);
    assert!(again.token.is_some(), "no token is valid: the operator gets one");
    again.stop();
}

#[test]
fn a_later_start_says_how_to_get_a_token() {
    let dir = TestDir::new();
    dir.run(&["token", "add"]).ok();
    let mut server = dir.command(&["serve", "--listen", "127.0.0.1:0"]).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stderr.take().unwrap()).read_line(&mut line).unwrap();
    signal(server.id(), "TERM");
    assert!(server.wait().unwrap().success());
    assert!(line.contains("longshore token add --role admin"), "{line}");
}

#[test]
fn without_authentication_only_direct_requests_of_this_machine_are_admitted() {
    let dir = TestDir::new();
    let server = ServeProcess::start(&dir, &["--no-auth"]);
    assert_eq!(server.token, None);
    assert_eq!(server.send("GET", "/api/v1/queues", None, "").0, 200);
    for header in [
        "x-forwarded-for: 203.0.113.7",
        "x-forwarded-host: site.example",
        "x-forwarded-proto: https",
        "cf-connecting-ip: 203.0.113.7",
        "true-client-ip: 203.0.113.7",
    ] {
        let (status, body) = server.send_with("GET", "/api/v1/queues", &format!("{header}\r\n"), "");
        assert_eq!(status, 403, "{header}: {body}");
    }
    let old = exchange(&server.address, "GET /api/v1/queues HTTP/1.0\r\nhost: 127.0.0.1\r\n\r\n");
    assert!(old.contains(" 403 "), "{old}");
    server.stop();
}

#[test]
fn a_socket_without_authentication_is_for_its_own_user() {
    let dir = TestDir::new();
    // Another user can reach it: only the check of the user is in the way.
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = folder.path().join("api.sock").display().to_string();
    let server = ServeProcess::start_at(&format!("unix:{path}"), &dir, &["--no-auth"]);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
    let ask = |user: &[&str]| {
        let curl = ["curl", "--silent", "--unix-socket", &path, "http://localhost/api/v1/whoami"];
        let words = [user, &curl].concat();
        let output = std::process::Command::new(words[0]).args(&words[1..]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(ask(&[]).contains(r#""role":"admin""#));
    if rustix::process::geteuid().is_root() {
        let other = ask(&["setpriv", "--reuid", "65534", "--clear-groups"]);
        assert!(other.contains("only the server's own user and root"), "{other}");
    } else {
        eprintln!(
            "SKIPPED: needs root: a request of another user (the decision has a unit test in web/src/auth.rs)"
        );
    }
    // A killed server leaves its socket behind, and the next one replaces it.
    drop(server);
    let server = ServeProcess::start_at(&format!("unix:{path}"), &dir, &[]);
    assert!(ask(&[]).contains("no token was given"));
    server.stop();
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
    assert_eq!(ask("acme-echo", Some(&read)).0, 403, "a read token may not call models");
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
fn the_gateway_alone_demands_the_token_that_it_prints_unless_told_otherwise() {
    let dir = TestDir::new();
    dir.run(&["profile", "add", "echo", "--provider", "echo"]).ok();
    let run = dir.run(&["ai", "gateway", "--listen", "0.0.0.0:0", "--no-auth"]).ends(2);
    assert!(run.err.contains("--no-auth is for loopback only"), "{}", run.err);
    let run = dir.run(&["ai", "gateway", "--listen", "0.0.0.0:0"]).ends(2).says("hint: ").says("--no-tls");
    assert!(run.err.contains("error: 0.0.0.0:0 is reachable from other machines"), "{}", run.err);
    for flags in [&["--json"][..], &["--json", "--no-auth"]] {
        let mut gateway = dir.command(&[&["ai", "gateway", "--listen", "127.0.0.1:0"], flags].concat());
        let mut gateway = ChildGuard(gateway.stderr(Stdio::null()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(gateway.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let greeting: Value = serde_json::from_str(&line).expect(&line);
        let address = greeting["listen"].as_str().unwrap();
        let ask = |header: &str| {
            let head = "GET /v1/models HTTP/1.1\r\nconnection: close";
            let response = exchange(address, &format!("{head}\r\nhost: {address}\r\n{header}\r\n\r\n"));
            response[9..12].parse::<u16>().unwrap()
        };
        match greeting["token"].as_str() {
            Some(token) => {
                assert_eq!(ask("accept: */*"), 401);
                assert_eq!(ask(&format!("authorization: Bearer {token}")), 200);
            }
            None => {
                assert_eq!(ask("accept: */*"), 200);
                assert_eq!(ask("x-forwarded-proto: https"), 401);
            }
        }
        assert_eq!(greeting["token"].is_null(), flags.contains(&"--no-auth"));
        gateway.signal("TERM");
        assert_eq!(gateway.ends_within(stretch(Duration::from_secs(30))), 0);
    }
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
    let token = server.token.clone();
    let server = ServeProcess::start(&dir, &[]);
    let (_, queues) = server.send("GET", "/api/v1/queues", token.as_deref(), "");
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

/// The certificate that a server presents, in PEM.
fn presented_certificate(address: &str) -> String {
    let client = std::process::Command::new("openssl")
        .args(["s_client", "-servername", "localhost", "-connect", address])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&client.stdout).into_owned();
    let begin = output.find("-----BEGIN CERTIFICATE-----").expect(&output);
    output[begin..output.find("-----END CERTIFICATE-----").unwrap()].to_owned()
}

#[test]
fn a_new_certificate_is_used_without_a_restart_and_a_broken_one_is_not() {
    let dir = TestDir::new();
    let (cert, key) = self_signed_certificate(&dir, "DNS:localhost");
    let tls = ["--tls-cert", &cert, "--tls-key", &key, "--log-dir", "logs"];
    let server = ServeProcess::start(&dir, &tls);
    let is_presented = |text: &str| text.starts_with(&presented_certificate(&server.address)).then_some(());
    let old = dir.read("site.pem");
    is_presented(&old).unwrap();
    dir.write("site.pem", "no certificate");
    let logged = || {
        presented_certificate(&server.address);
        let files = std::fs::read_dir(dir.path("logs")).unwrap();
        let mut texts = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
        texts.any(|text| text.contains("the new certificate is not used")).then_some(())
    };
    eventually(stretch(Duration::from_secs(30)), logged);
    is_presented(&old).expect("the certificate before it stays");
    self_signed_certificate(&dir, "DNS:localhost");
    let new = dir.read("site.pem");
    assert_ne!(new, old);
    eventually(stretch(Duration::from_secs(30)), || is_presented(&new));
    server.stop();
}

/// A Python program that uses a server.
const CLIENT_PROGRAM: &str = r#"
import sys, time
from longshore.client import Client, PermitLost, Problem
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
with client.permit("erp", wait=1, ttl=1) as renewed:
    time.sleep(2.5)
    renewed.extend()
try:
    with client.permit("erp", wait=1, ttl=1) as revoked:
        client._ask("POST", f"/pools/erp/permits/{revoked.id}/release")
        while not revoked.lost:
            time.sleep(0.01)
    raise AssertionError("it was lost")
except PermitLost:
    pass
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
    dir.run(&["tenant", "add", "acme", "--allow-kind", "exec"]).ok();
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
