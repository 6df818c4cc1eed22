//! Commands over a server: the same output as on the store, and nothing lost.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;

use crate::serve::{ServeProcess, self_signed_certificate};
use crate::support::{CliOutput, TestDir, eventually, pick_size, stretch};

/// A server, and a client directory that knows only its address and a token.
struct RemoteFixture {
    dir: TestDir,
    client: TestDir,
    server: ServeProcess,
}

impl RemoteFixture {
    fn start() -> Self {
        let dir = TestDir::new();
        let server = ServeProcess::start(&dir, &[]);
        Self { dir, client: TestDir::new(), server }
    }

    fn url(&self) -> String {
        format!("http://{}", self.server.address)
    }

    /// A command of the client, over the server.
    fn command(&self, args: &[&str], token: &str) -> std::process::Command {
        let mut command = self.client.command(args);
        command.env("LONGSHORE_SERVER", self.url()).env("LONGSHORE_TOKEN", token);
        command
    }

    fn run(&self, args: &[&str], token: &str) -> CliOutput {
        CliOutput::of(self.command(args, token).spawn().unwrap())
    }

    /// A token of a tenant that may run commands.
    fn add_token(&self, of: &str, role: &str) -> String {
        let _ = self.dir.run(&["tenant", "add", of, "--allow-kind", "exec"]);
        let run = self.dir.run(&["token", "add", "--for", of, "--role", role, "--json"]).ok();
        run.json()["secret"].as_str().unwrap().to_owned()
    }

    fn kill_server(&mut self) {
        self.server.child.kill().unwrap();
        self.server.child.wait().unwrap();
    }

    /// Restarts the server at the same address.
    fn restart_server(&mut self) {
        self.server = ServeProcess::start_at(&self.server.address, &self.dir, &[]);
    }

    fn stop(self) {
        self.server.stop();
        let left: Vec<_> = std::fs::read_dir(self.client.path(".")).unwrap().flatten().collect();
        let stores = left.iter().filter(|file| file.file_name().to_string_lossy().ends_with(".db"));
        assert_eq!(stores.count(), 0, "the client created no store");
    }
}

#[test]
fn what_is_sent_over_a_server_is_done_on_the_store_and_waited_for_over_the_server() {
    let remote = RemoteFixture::start();
    let token = remote.add_token("acme", "operate");
    let mut worker = remote.dir.start(&["worker"]);
    let hello = r#"{"argv":["echo","hello"]}"#;
    let sent = remote.run(&["submit", "exec", hello, "--wait", "--json"], &token).ok().json();
    assert_eq!((&sent["state"], &sent["status"]), (&json!("done"), &json!("created")));
    assert_eq!(sent["result"]["stdout"], "hello\n");
    let id = sent["unit"].as_str().unwrap();
    let shown = remote.run(&["unit", "show", id, "--json"], &token).ok().json();
    assert_eq!(shown["tenant"], "acme", "the unit belongs to the token's tenant");
    assert_eq!(shown, remote.dir.unit(id));
    let fails = r#"{"argv":["false"]}"#;
    let fails = remote.run(&["submit", "exec", fails, "--max-attempts", "1"], &token).ok().out;
    remote.run(&["unit", "wait", fails.trim()], &token).ends(3).says("failed");
    worker.kill();
    remote.stop();
}

/// Removes relative times, which differ in each run, and column padding.
fn strip_times(text: &str) -> String {
    let of_time = ["ms", "s", "min", "h", "ago", "just", "now", "in"];
    let is_time = |word: &&str| of_time.contains(word) || word.parse::<f64>().is_ok();
    let words = text.split_whitespace().filter(|word| !is_time(word));
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn every_command_prints_over_a_server_what_it_prints_on_the_store() {
    let remote = RemoteFixture::start();
    let dir = &remote.dir;
    let token = remote.add_token("default", "admin");
    let lines = "{\"argv\":[\"true\"]}\n".repeat(3) + "{\"argv\":[\"false\"]}\n";
    dir.run_with(&["submit", "exec", "--lines", "-", "--batch", "b"], lines).ok();
    dir.work();
    let id = dir.submit_script("true", &["--key", "seven", "--delay", "1h"]);
    dir.run(&["pool", "resize", "erp", "2"]).ok();
    let cron = ["cron", "add", "tidy", "--cron", "0 2 * * *", "--kind", "exec"];
    dir.run(&[&cron[..], &["--payload", r#"{"argv":["true"]}"#]].concat()).ok();
    dir.run(&["profile", "add", "fast", "--provider", "echo"]).ok();
    dir.run(&["ai", "ask", "--profile", "fast", "good day"]).ok();
    for args in [
        &["unit", "show", &id][..],
        &["unit", "list"],
        &["unit", "list", "--state", "failed", "--limit", "1"],
        &["queue", "list"],
        &["queue", "show", "default"],
        &["batch", "list"],
        &["batch", "status", "b"],
        &["batch", "rows", "b"],
        &["batch", "rows", "b", "--failed"],
        &["workers"],
        &["pool", "status"],
        &["pool", "status", "erp"],
        &["cron", "list"],
        &["usage"],
        &["usage", "--by", "model", "--since", "7d"],
    ] {
        for form in ["--json", "--quiet"] {
            let args = [args, &[form]].concat();
            let mask = |out: String| if form == "--json" { out } else { strip_times(&out) };
            // The server's own heartbeat may come between the two commands.
            eventually(stretch(Duration::from_secs(60)), || {
                let (near, far) = (dir.run(&args).ok().out, remote.run(&args, &token).ok().out);
                let (near, far) = (mask(near), mask(far));
                if near != far {
                    eprintln!("{args:?} differs:\n{near}\n{far}");
                }
                (near == far).then_some(())
            });
        }
    }
    remote.stop();
}

#[test]
fn what_is_steered_over_a_server_is_steered_on_the_store() {
    let remote = RemoteFixture::start();
    let (dir, token) = (&remote.dir, remote.add_token("default", "admin"));
    let lines = "{\"argv\":[\"false\"]}\n".repeat(3);
    dir.run_with(&["submit", "exec", "--lines", "-", "--batch", "b"], lines).ok();
    let paused = remote.run(&["batch", "pause", "b", "--reason", "lunch", "--json"], &token).ok();
    assert_eq!((&paused.json()["status"], &paused.json()["reason"]), (&json!("paused"), &json!("lunch")));
    remote.run(&["batch", "drain", "b"], &token).ok();
    remote.run(&["batch", "resume", "b"], &token).ok();
    dir.work();
    remote.run(&["batch", "watch", "b"], &token).ends(3);
    remote.run(&["batch", "retry", "b"], &token).ok();
    assert_eq!(dir.batch("b")["ready"], 3);
    remote.run(&["batch", "cancel", "b"], &token).ok();
    assert_eq!(dir.batch("b")["status"], "cancelled");
    let id = dir.submit_script("true", &[]);
    remote.run(&["unit", "cancel", &id], &token).ok();
    assert_eq!(dir.unit(&id)["state"], "cancelled");
    remote.run(&["unit", "retry", &id], &token).ok();
    remote.run(&["queue", "pause", "default"], &token).ok();
    assert_eq!(dir.queue()["paused"], true);
    remote.run(&["queue", "resume", "default"], &token).ok();
    dir.run(&["pool", "resize", "erp", "2"]).ok();
    remote.run(&["pool", "resize", "erp", "5"], &token).ok();
    assert_eq!(dir.run(&["pool", "status", "erp", "--json"]).ok().json()["max"], 5);
    let mut worker = dir.start(&["worker"]);
    let id = eventually(stretch(Duration::from_secs(60)), || {
        let workers = remote.run(&["workers", "--json"], &token).ok().json();
        let found = workers.as_array().unwrap().iter().find(|one| one["slots"].as_u64() > Some(0));
        found.map(|one| one["id"].as_str().unwrap().to_owned())
    });
    remote.run(&["workers", "drain", &id, "--server", &remote.url()], &token).ok();
    assert_eq!(worker.ends_within(stretch(Duration::from_secs(60))), 0);
    remote.stop();
}

#[test]
fn who_cannot_get_through_hears_why_and_what_to_do() {
    let mut remote = RemoteFixture::start();
    let token = remote.add_token("acme", "read");
    let list = ["queue", "list"];
    remote.run(&list, "lsh_wrong").ends(1).says("token is not valid").says("--token-file");
    remote.run(&list, "").ends(1).says("no token was given").says("LONGSHORE_TOKEN");
    remote.run(&["queue", "pause", "default"], &token).ends(1).says("needs role").says("hint: ");
    remote.run(&["workers"], &token).ends(1).says("permission denied").says("hint: ");
    remote
        .run(&["unit", "show", "019a8d2e-0000-7000-8000-000000000000"], &token)
        .ends(1)
        .says("there is no unit");
    let file = remote.client.write("token", format!("{token}\n"));
    let set_mode = |mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&file, mode).unwrap();
    };
    set_mode(0o644);
    let open = remote.run(&["queue", "list", "--token-file", "token"], "").ends(1);
    open.says("accessible to other users").says("hint: chmod 600");
    set_mode(0o600);
    remote.run(&["queue", "list", "--token-file", "token"], "lsh_wrong").ok();
    remote.run(&["queue", "list", "--token-file", "none"], "").ends(1).says("cannot read none");
    let url = remote.url();
    for (server, words) in [
        ("host:7717", "http://"),
        ("nonsense", "not a URL"),
        ("http://lsh_secret@127.0.0.1:1", "does not belong"),
    ] {
        let run = remote.client.run(&["queue", "list", "--server", server]).ends(2).says(words);
        assert!(run.err.contains("hint: ") && !run.err.contains("lsh_secret"), "{}", run.err);
    }
    let secure = url.replace("http:", "https:");
    remote.client.run(&["queue", "list", "--server", &secure]).ends(1).says("no secure connection");
    remote.client.run(&["queue", "list", "--server", &url, "--store", "sqlite:x.db"]).ends(2);
    remote.client.run(&["queue", "purge", "default", "--server", &url]).ends(2).says("--server");
    remote.client.run(&["submit", "--script", "a.sh", "--server", &url]).ends(2).says("pool of workers");
    remote.kill_server();
    remote.run(&list, &token).ends(1).says("cannot reach the server").says("is `longshore serve` up");
    remote.restart_server();
    remote.stop();
}

#[test]
fn a_server_of_somebody_else_is_told_apart() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = [0; 4096];
        let length = stream.read(&mut head).unwrap();
        let page = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello";
        stream.write_all(page.as_bytes()).unwrap();
        length
    });
    let dir = TestDir::new();
    dir.run(&["queue", "list", "--server", &address]).ends(1).says("is not Longshore's API");
    assert!(other.join().unwrap() > 0);
}

#[test]
fn commands_that_need_the_store_do_not_look_at_the_servers_address() {
    let dir = TestDir::new();
    let id = dir.submit_script("true", &[]);
    let with = |args: &[&str]| {
        let mut command = dir.command(args);
        CliOutput::of(command.env("LONGSHORE_SERVER", "http://127.0.0.1:1").spawn().unwrap())
    };
    with(&["queue", "set", "default", "--max-units", "5"]).ok();
    with(&["worker", "--until-idle"]).ok();
    with(&["verify"]).ok();
    with(&["--store", "sqlite:longshore.db", "unit", "show", &id]).ok();
    with(&["unit", "show", &id]).ends(1).says("cannot reach the server");
}

#[test]
fn a_full_queue_refuses_or_makes_wait_over_a_server_too() {
    let remote = RemoteFixture::start();
    let token = remote.add_token("default", "submit");
    remote.dir.run(&["queue", "set", "default", "--max-units", "1"]).ok();
    let unit = r#"{"argv":["true"]}"#;
    remote.run(&["submit", "exec", unit], &token).ok();
    remote.run(&["submit", "exec", unit, "--no-wait"], &token).ends(5).says("queue is full").says("hint: ");
    remote.run(&["submit", "exec", unit, "--wait-room", "10ms"], &token).ends(5);
    let mut waits = remote.command(&["submit", "exec", unit, "--wait"], &token);
    let waits = waits.spawn().unwrap();
    let mut worker = remote.dir.start(&["worker"]);
    CliOutput::of(waits).ok();
    worker.kill();
    remote.stop();
}

/// Lines with distinct numbers.
fn numbered_lines(from: u64, to: u64) -> String {
    (from..=to).map(|n| format!("{{\"argv\":[\"echo\",\"{n}\"]}}\n")).collect()
}

/// The number of ready units in the default queue, which exists from its first unit on.
fn ready_count(dir: &TestDir) -> u64 {
    let queues = dir.run(&["queue", "list", "--json"]).ok().json();
    queues[0]["counts"]["ready"].as_u64().unwrap_or_default()
}

#[test]
fn lines_survive_a_killed_server_and_none_is_sent_twice() {
    let (half, all) = pick_size((3_000, 6_000), (10_000, 20_000));
    let mut remote = RemoteFixture::start();
    let token = remote.add_token("default", "submit");
    let send = ["submit", "exec", "--lines", "-", "--key", "nightly", "--json"];
    // Without patience: the sender gives up, and the same command is run again.
    let mut sender = remote.command(&send, &token);
    sender.env("LONGSHORE_PATIENCE", "0s").stdin(Stdio::piped());
    let mut sender = sender.spawn().unwrap();
    let mut pipe = sender.stdin.take().unwrap();
    pipe.write_all(numbered_lines(1, half).as_bytes()).unwrap();
    eventually(stretch(Duration::from_secs(60)), || (ready_count(&remote.dir) >= 1_000).then_some(()));
    remote.kill_server();
    // The sender may have stopped reading.
    let _ = pipe.write_all(numbered_lines(half + 1, all).as_bytes());
    drop(pipe);
    CliOutput::of(sender).ends(1).says("run the same command again");
    let some = ready_count(&remote.dir);
    assert!((1_000..all).contains(&some), "{some} of {all}");
    remote.restart_server();
    // With patience: the server is killed again, and restarted.
    let mut sender = remote.command(&send, &token);
    let mut sender = sender.stdin(Stdio::piped()).spawn().unwrap();
    let mut pipe = sender.stdin.take().unwrap();
    pipe.write_all(numbered_lines(1, half).as_bytes()).unwrap();
    remote.kill_server();
    let feed = std::thread::spawn(move || {
        pipe.write_all(numbered_lines(half + 1, all).as_bytes()).unwrap();
    });
    remote.restart_server();
    let response = CliOutput::of(sender).ok().json();
    feed.join().unwrap();
    assert_eq!(response["sent"], all, "{response}");
    assert_eq!(ready_count(&remote.dir), all, "no unit lost or repeated");
    let again = CliOutput::of({
        let mut sender = remote.command(&send, &token);
        let mut sender = sender.stdin(Stdio::piped()).spawn().unwrap();
        let mut pipe = sender.stdin.take().unwrap();
        std::thread::spawn(move || pipe.write_all(numbered_lines(1, all).as_bytes()).unwrap());
        sender
    });
    assert_eq!(again.ok().json(), json!({ "sent": all, "new": 0 }));
    remote.dir.run(&["verify"]).ok();
    remote.stop();
}

#[test]
fn a_batch_of_lines_survives_a_killed_server_without_gap_or_repeat() {
    let all = pick_size(3_000, 20_000);
    let mut remote = RemoteFixture::start();
    let token = remote.add_token("acme", "submit");
    let send = ["submit", "exec", "--lines", "-", "--batch", "nightly", "--chunk", "50", "--json"];
    let mut sender = remote.command(&send, &token);
    sender.env("LONGSHORE_PATIENCE", "0s").stdin(Stdio::piped());
    let mut sender = sender.spawn().unwrap();
    let mut pipe = sender.stdin.take().unwrap();
    pipe.write_all(numbered_lines(1, all / 2).as_bytes()).unwrap();
    eventually(stretch(Duration::from_secs(60)), || (ready_count(&remote.dir) >= 500).then_some(()));
    remote.kill_server();
    // The sender may have stopped reading.
    let _ = pipe.write_all(numbered_lines(all / 2 + 1, all).as_bytes());
    drop(pipe);
    CliOutput::of(sender).ends(1).says("it resumes after line");
    assert!((500..all).contains(&ready_count(&remote.dir)));
    remote.restart_server();
    let mut sender = remote.command(&send, &token);
    let mut sender = sender.stdin(Stdio::piped()).spawn().unwrap();
    let mut pipe = sender.stdin.take().unwrap();
    std::thread::spawn(move || pipe.write_all(numbered_lines(1, all).as_bytes()).unwrap());
    let response = CliOutput::of(sender).ok().says("resuming batch").json();
    assert_eq!((&response["sent"], response["new"].as_u64() < Some(all)), (&json!(all), true), "{response}");
    let batch = remote.run(&["batch", "status", "nightly", "--json"], &token).ok().json();
    assert_eq!((&batch["sealed"], &batch["ready"]), (&json!(true), &json!(all)), "{batch}");
    remote.dir.run(&["verify"]).ok();
    remote.stop();
}

#[test]
fn tenants_see_their_own_things_over_a_server() {
    let remote = RemoteFixture::start();
    let (acme, other) = (remote.add_token("acme", "operate"), remote.add_token("other", "operate"));
    let id = remote.run(&["submit", "exec", r#"{"argv":["true"]}"#], &acme).ok().out;
    let id = id.trim();
    remote.run(&["unit", "show", id], &acme).ok();
    remote.run(&["unit", "show", id], &other).ends(1).says("there is no unit");
    remote.run(&["unit", "cancel", id], &other).ends(1).says("there is no unit");
    remote.run(&["--tenant", "acme", "queue", "list"], &other).ends(1).says("there is no tenant");
    assert_eq!(remote.run(&["unit", "list", "--json"], &other).ok().json(), json!([]));
    assert_eq!(remote.run(&["queue", "list", "--json"], &other).ok().json(), json!([]));
    assert_eq!(remote.dir.unit(id)["state"], "ready");
    remote.stop();
}

#[test]
fn a_certificate_of_ones_own_is_trusted_by_name() {
    let dir = TestDir::new();
    let (cert, key) = &self_signed_certificate(&dir, "DNS:localhost,IP:127.0.0.1");
    let tls = ["--tls-cert", cert, "--tls-key", key];
    let server = ServeProcess::start(&dir, &tls);
    let url = format!("https://{}", server.address);
    let client = TestDir::new();
    let mut list = client.command(&["queue", "list", "--server", &url, "--ca-file", cert]);
    CliOutput::of(list.env("LONGSHORE_TOKEN", server.token.as_ref().unwrap()).spawn().unwrap()).ok();
    let untrusted = client.run(&["queue", "list", "--server", &url]).ends(1).says("no secure connection");
    let words = "the server's TLS certificate is rejected: it is ";
    assert_eq!(untrusted.err.matches(words).count(), 1, "{}", untrusted.err);
    assert_eq!(untrusted.says("--ca-file").err.matches("certificate is rejected").count(), 1);
    client.run(&["queue", "list", "--server", &url, "--ca-file", key]).ends(2).says("no certificate");
    server.stop();
}
