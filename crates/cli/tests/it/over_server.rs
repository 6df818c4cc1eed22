//! Commands that go over a server: the same words, and nothing lost on the way.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;

use crate::serve::{Served, certificate};
use crate::support::{Place, Run, eventually, limit, soaked};

/// A server, and the machine of somebody who has only its address and a token.
struct Office {
    place: Place,
    desk: Place,
    served: Served,
}

impl Office {
    fn open() -> Self {
        let place = Place::new();
        let served = Served::start(&place, &[]);
        Self { place, desk: Place::new(), served }
    }

    fn url(&self) -> String {
        format!("http://{}", self.served.address)
    }

    /// A command at the desk, over the server.
    fn command(&self, args: &[&str], token: &str) -> std::process::Command {
        let mut command = self.desk.command(args);
        command.env("LONGSHORE_SERVER", self.url()).env("LONGSHORE_TOKEN", token);
        command
    }

    fn run(&self, args: &[&str], token: &str) -> Run {
        Run::of(self.command(args, token).spawn().unwrap())
    }

    fn token(&self, of: &str, role: &str) -> String {
        let run = self.place.run(&["token", "add", "--for", of, "--role", role, "--json"]).ok();
        run.json()["secret"].as_str().unwrap().to_owned()
    }

    fn kill(&mut self) {
        self.served.child.kill().unwrap();
        self.served.child.wait().unwrap();
    }

    /// Opens again at the same address.
    fn reopen(&mut self) {
        self.served = Served::start_at(&self.served.address, &self.place, &[]);
    }

    fn close(self) {
        self.served.stop();
        let left: Vec<_> = std::fs::read_dir(self.desk.path(".")).unwrap().flatten().collect();
        let stores = left.iter().filter(|file| file.file_name().to_string_lossy().ends_with(".db"));
        assert_eq!(stores.count(), 0, "no store was made where none was meant");
    }
}

#[test]
fn what_is_sent_over_a_server_is_done_on_the_store_and_waited_for_over_the_server() {
    let office = Office::open();
    let token = office.token("acme", "operate");
    let mut worker = office.place.start(&["worker"]);
    let hello = r#"{"argv":["echo","hello"]}"#;
    let sent = office.run(&["submit", "exec", hello, "--wait", "--json"], &token).ok().json();
    assert_eq!((&sent["state"], &sent["status"]), (&json!("done"), &json!("created")));
    assert_eq!(sent["result"]["stdout"], "hello\n");
    let id = sent["unit"].as_str().unwrap();
    let shown = office.run(&["unit", "show", id, "--json"], &token).ok().json();
    assert_eq!(shown["tenant"], "acme", "a unit is the token's own tenant's");
    assert_eq!(shown, office.place.unit(id));
    let fails = r#"{"argv":["false"]}"#;
    let fails = office.run(&["submit", "exec", fails, "--max-attempts", "1"], &token).ok().out;
    office.run(&["unit", "wait", fails.trim()], &token).ends(3).says("failed");
    worker.kill();
    office.close();
}

/// Words without how long ago it was, which each look finds different, and without the room it takes.
fn timeless(text: &str) -> String {
    let of_time = ["ms", "s", "min", "h", "ago", "just", "now", "in"];
    let is_time = |word: &&str| of_time.contains(word) || word.parse::<f64>().is_ok();
    let words = text.split_whitespace().filter(|word| !is_time(word));
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn every_command_prints_over_a_server_what_it_prints_on_the_store() {
    let office = Office::open();
    let place = &office.place;
    let token = office.token("default", "admin");
    let lines = "{\"argv\":[\"true\"]}\n".repeat(3) + "{\"argv\":[\"false\"]}\n";
    place.run_with(&["submit", "exec", "--lines", "-", "--batch", "b"], lines).ok();
    place.work();
    let id = place.submit_script("true", &["--key", "seven", "--delay", "1h"]);
    place.run(&["pool", "resize", "erp", "2"]).ok();
    let cron = ["cron", "add", "tidy", "--cron", "0 2 * * *", "--kind", "exec"];
    place.run(&[&cron[..], &["--payload", r#"{"argv":["true"]}"#]].concat()).ok();
    place.run(&["profile", "add", "fast", "--provider", "echo"]).ok();
    place.run(&["ai", "ask", "--profile", "fast", "good day"]).ok();
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
            let look = |out: String| if form == "--json" { out } else { timeless(&out) };
            // A server's own sign of life may come between two looks.
            eventually(limit(Duration::from_secs(60)), || {
                let (near, far) = (place.run(&args).ok().out, office.run(&args, &token).ok().out);
                let (near, far) = (look(near), look(far));
                if near != far {
                    eprintln!("{args:?} differs:\n{near}\n{far}");
                }
                (near == far).then_some(())
            });
        }
    }
    office.close();
}

#[test]
fn what_is_steered_over_a_server_is_steered_on_the_store() {
    let office = Office::open();
    let (place, token) = (&office.place, office.token("default", "admin"));
    let lines = "{\"argv\":[\"false\"]}\n".repeat(3);
    place.run_with(&["submit", "exec", "--lines", "-", "--batch", "b"], lines).ok();
    let paused = office.run(&["batch", "pause", "b", "--reason", "lunch", "--json"], &token).ok();
    assert_eq!(
        (&paused.json()["status"], &paused.json()["reason"]),
        (&json!("paused"), &json!("lunch"))
    );
    office.run(&["batch", "drain", "b"], &token).ok();
    office.run(&["batch", "resume", "b"], &token).ok();
    place.work();
    office.run(&["batch", "watch", "b"], &token).ends(3);
    office.run(&["batch", "retry", "b"], &token).ok();
    assert_eq!(place.batch("b")["ready"], 3);
    office.run(&["batch", "cancel", "b"], &token).ok();
    assert_eq!(place.batch("b")["status"], "cancelled");
    let id = place.submit_script("true", &[]);
    office.run(&["unit", "cancel", &id], &token).ok();
    assert_eq!(place.unit(&id)["state"], "cancelled");
    office.run(&["unit", "retry", &id], &token).ok();
    office.run(&["queue", "pause", "default"], &token).ok();
    assert_eq!(place.queue()["paused"], true);
    office.run(&["queue", "resume", "default"], &token).ok();
    place.run(&["pool", "resize", "erp", "2"]).ok();
    office.run(&["pool", "resize", "erp", "5"], &token).ok();
    assert_eq!(place.run(&["pool", "status", "erp", "--json"]).ok().json()["max"], 5);
    let mut worker = place.start(&["worker"]);
    let id = eventually(limit(Duration::from_secs(60)), || {
        let workers = office.run(&["workers", "--json"], &token).ok().json();
        let found = workers.as_array().unwrap().iter().find(|one| one["slots"].as_u64() > Some(0));
        found.map(|one| one["id"].as_str().unwrap().to_owned())
    });
    office.run(&["workers", "drain", &id, "--server", &office.url()], &token).ok();
    assert_eq!(worker.ends_within(limit(Duration::from_secs(60))), 0);
    office.close();
}

#[test]
fn who_cannot_get_through_hears_why_and_what_to_do() {
    let mut office = Office::open();
    let token = office.token("acme", "read");
    let list = ["queue", "list"];
    office.run(&list, "lsh_wrong").ends(1).says("token is not valid").says("--token-file");
    office.run(&list, "").ends(1).says("no token was given").says("LONGSHORE_TOKEN");
    office.run(&["queue", "pause", "default"], &token).ends(1).says("needs role").says("hint: ");
    office.run(&["workers"], &token).ends(1).says("permission denied").says("hint: ");
    office
        .run(&["unit", "show", "019a8d2e-0000-7000-8000-000000000000"], &token)
        .ends(1)
        .says("there is no unit");
    office.desk.write("token", format!("{token}\n"));
    office.run(&["queue", "list", "--token-file", "token"], "lsh_wrong").ok();
    office.run(&["queue", "list", "--token-file", "none"], "").ends(1).says("cannot read none");
    let url = office.url();
    for (server, words) in [
        ("host:7717", "http://"),
        ("nonsense", "not a URL"),
        ("http://lsh_secret@127.0.0.1:1", "does not belong"),
    ] {
        let run = office.desk.run(&["queue", "list", "--server", server]).ends(2).says(words);
        assert!(run.err.contains("hint: ") && !run.err.contains("lsh_secret"), "{}", run.err);
    }
    let secure = url.replace("http:", "https:");
    office.desk.run(&["queue", "list", "--server", &secure]).ends(1).says("no secure connection");
    office.desk.run(&["queue", "list", "--server", &url, "--store", "sqlite:x.db"]).ends(2);
    office.desk.run(&["queue", "purge", "default", "--server", &url]).ends(2).says("--server");
    office
        .desk
        .run(&["submit", "--script", "a.sh", "--server", &url])
        .ends(2)
        .says("pool of workers");
    office.kill();
    office
        .run(&list, &token)
        .ends(1)
        .says("cannot reach the server")
        .says("is `longshore serve` up");
    office.reopen();
    office.close();
}

#[test]
fn a_server_of_somebody_else_is_told_apart() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = [0; 4096];
        let heard = stream.read(&mut head).unwrap();
        let page = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello";
        stream.write_all(page.as_bytes()).unwrap();
        heard
    });
    let place = Place::new();
    place.run(&["queue", "list", "--server", &address]).ends(1).says("is not Longshore's API");
    assert!(other.join().unwrap() > 0);
}

#[test]
fn commands_that_need_the_store_do_not_look_at_the_servers_address() {
    let place = Place::new();
    let id = place.submit_script("true", &[]);
    let with = |args: &[&str]| {
        let mut command = place.command(args);
        Run::of(command.env("LONGSHORE_SERVER", "http://127.0.0.1:1").spawn().unwrap())
    };
    with(&["queue", "set", "default", "--max-units", "5"]).ok();
    with(&["worker", "--until-idle"]).ok();
    with(&["verify"]).ok();
    with(&["--store", "sqlite:longshore.db", "unit", "show", &id]).ok();
    with(&["unit", "show", &id]).ends(1).says("cannot reach the server");
}

#[test]
fn a_full_queue_refuses_or_makes_wait_over_a_server_too() {
    let office = Office::open();
    let token = office.token("default", "submit");
    office.place.run(&["queue", "set", "default", "--max-units", "1"]).ok();
    let unit = r#"{"argv":["true"]}"#;
    office.run(&["submit", "exec", unit], &token).ok();
    office
        .run(&["submit", "exec", unit, "--no-wait"], &token)
        .ends(5)
        .says("queue is full")
        .says("hint: ");
    office.run(&["submit", "exec", unit, "--wait-room", "10ms"], &token).ends(5);
    let mut waits = office.command(&["submit", "exec", unit, "--wait"], &token);
    let waits = waits.spawn().unwrap();
    let mut worker = office.place.start(&["worker"]);
    Run::of(waits).ok();
    worker.kill();
    office.close();
}

/// Lines that tell each other apart.
fn lines(from: u64, to: u64) -> String {
    (from..=to).map(|n| format!("{{\"argv\":[\"echo\",\"{n}\"]}}\n")).collect()
}

/// How many units are ready in the default queue, which is there with its first unit.
fn ready(place: &Place) -> u64 {
    let queues = place.run(&["queue", "list", "--json"]).ok().json();
    queues[0]["counts"]["ready"].as_u64().unwrap_or_default()
}

#[test]
fn lines_survive_a_killed_server_and_none_is_sent_twice() {
    let (half, all) = soaked((3_000, 6_000), (10_000, 20_000));
    let mut office = Office::open();
    let token = office.token("default", "submit");
    let send = ["submit", "exec", "--lines", "-", "--key", "nightly", "--json"];
    // Impatient: it gives up, and the same command is run again.
    let mut sender = office.command(&send, &token);
    sender.env("LONGSHORE_PATIENCE", "0s").stdin(Stdio::piped());
    let mut sender = sender.spawn().unwrap();
    let mut pipe = sender.stdin.take().unwrap();
    pipe.write_all(lines(1, half).as_bytes()).unwrap();
    eventually(limit(Duration::from_secs(60)), || (ready(&office.place) >= 1_000).then_some(()));
    office.kill();
    // It may have stopped reading.
    let _ = pipe.write_all(lines(half + 1, all).as_bytes());
    drop(pipe);
    Run::of(sender).ends(1).says("run the same command again");
    let some = ready(&office.place);
    assert!((1_000..all).contains(&some), "{some} of {all}");
    office.reopen();
    // Patient: the server is killed again, and comes back.
    let mut sender = office.command(&send, &token);
    let mut sender = sender.stdin(Stdio::piped()).spawn().unwrap();
    let mut pipe = sender.stdin.take().unwrap();
    pipe.write_all(lines(1, half).as_bytes()).unwrap();
    office.kill();
    let feed = std::thread::spawn(move || pipe.write_all(lines(half + 1, all).as_bytes()).unwrap());
    office.reopen();
    let told = Run::of(sender).ok().json();
    feed.join().unwrap();
    assert_eq!(told["sent"], all, "{told}");
    assert_eq!(ready(&office.place), all, "nothing lost, nothing twice");
    let again = Run::of({
        let mut sender = office.command(&send, &token);
        let mut sender = sender.stdin(Stdio::piped()).spawn().unwrap();
        let mut pipe = sender.stdin.take().unwrap();
        std::thread::spawn(move || pipe.write_all(lines(1, all).as_bytes()).unwrap());
        sender
    });
    assert_eq!(again.ok().json(), json!({ "sent": all, "new": 0 }));
    office.place.run(&["verify"]).ok();
    office.close();
}

#[test]
fn a_batch_of_lines_survives_a_killed_server_without_gap_or_repeat() {
    let all = soaked(3_000, 20_000);
    let mut office = Office::open();
    let token = office.token("acme", "submit");
    let send = ["submit", "exec", "--lines", "-", "--batch", "nightly", "--chunk", "50", "--json"];
    let mut sender = office.command(&send, &token);
    sender.env("LONGSHORE_PATIENCE", "0s").stdin(Stdio::piped());
    let mut sender = sender.spawn().unwrap();
    let mut pipe = sender.stdin.take().unwrap();
    pipe.write_all(lines(1, all / 2).as_bytes()).unwrap();
    eventually(limit(Duration::from_secs(60)), || (ready(&office.place) >= 500).then_some(()));
    office.kill();
    // It may have stopped reading.
    let _ = pipe.write_all(lines(all / 2 + 1, all).as_bytes());
    drop(pipe);
    Run::of(sender).ends(1).says("it resumes after line");
    assert!((500..all).contains(&ready(&office.place)));
    office.reopen();
    let mut sender = office.command(&send, &token);
    let mut sender = sender.stdin(Stdio::piped()).spawn().unwrap();
    let mut pipe = sender.stdin.take().unwrap();
    std::thread::spawn(move || pipe.write_all(lines(1, all).as_bytes()).unwrap());
    let told = Run::of(sender).ok().says("resuming batch").json();
    assert_eq!((&told["sent"], told["new"].as_u64() < Some(all)), (&json!(all), true), "{told}");
    let batch = office.run(&["batch", "status", "nightly", "--json"], &token).ok().json();
    assert_eq!((&batch["sealed"], &batch["ready"]), (&json!(true), &json!(all)), "{batch}");
    office.place.run(&["verify"]).ok();
    office.close();
}

#[test]
fn tenants_see_their_own_things_over_a_server() {
    let office = Office::open();
    let (acme, other) = (office.token("acme", "operate"), office.token("other", "operate"));
    let id = office.run(&["submit", "exec", r#"{"argv":["true"]}"#], &acme).ok().out;
    let id = id.trim();
    office.run(&["unit", "show", id], &acme).ok();
    office.run(&["unit", "show", id], &other).ends(1).says("there is no unit");
    office.run(&["unit", "cancel", id], &other).ends(1).says("there is no unit");
    office.run(&["--tenant", "acme", "queue", "list"], &other).ends(1).says("there is no tenant");
    assert_eq!(office.run(&["unit", "list", "--json"], &other).ok().json(), json!([]));
    assert_eq!(office.run(&["queue", "list", "--json"], &other).ok().json(), json!([]));
    assert_eq!(office.place.unit(id)["state"], "ready");
    office.close();
}

#[test]
fn a_certificate_of_ones_own_is_trusted_by_name() {
    let place = Place::new();
    let (cert, key) = &certificate(&place, "DNS:localhost,IP:127.0.0.1");
    let tls = ["--tls-cert", cert, "--tls-key", key];
    let served = Served::start(&place, &tls);
    let url = format!("https://{}", served.address);
    let desk = Place::new();
    desk.run(&["queue", "list", "--server", &url, "--ca-file", cert]).ok();
    desk.run(&["queue", "list", "--server", &url])
        .ends(1)
        .says("no secure connection")
        .says("--ca-file");
    desk.run(&["queue", "list", "--server", &url, "--ca-file", key]).ends(2).says("no certificate");
    served.stop();
}
