//! The kind `http`: what servers get, what is recorded of their answers, and which addresses are
//! refused.

use std::io::Write;
use std::net::TcpListener;
use std::sync::Mutex;
use std::sync::mpsc::channel;

use serde_json::{Value, json};

use crate::support::{CliOutput, TIMEOUT, TestDir, eventually};
use server::{HttpServer, answer};

pub mod server;

/// Sends one payload.
fn send_payload(dir: &TestDir, payload: &Value, more: &[&str]) -> String {
    let text = payload.to_string();
    dir.run(&[&["submit", "http", &text], more].concat()).ok().out.trim().to_owned()
}

/// Runs one payload to its end.
fn run_payload(dir: &TestDir, payload: &Value, more: &[&str]) -> Value {
    let id = send_payload(dir, payload, more);
    dir.work();
    dir.unit(&id)
}

/// Runs one payload on a worker with these variables that logs at trace level.
fn run_payload_with(dir: &TestDir, payload: &Value, vars: &[(&str, &str)]) -> (Value, CliOutput) {
    let id = send_payload(dir, payload, &["--max-attempts", "1"]);
    let mut worker = dir.command(&["worker", "--until-idle", "--log-level", "trace"]);
    let ended = CliOutput::of(worker.envs(vars.iter().copied()).spawn().unwrap()).ok();
    (dir.unit(&id), ended)
}

#[track_caller]
fn failure_code(unit: &Value) -> &str {
    assert_eq!(unit["state"], "failed", "{unit}");
    unit["failure"]["code"].as_str().unwrap()
}

fn failure_message(unit: &Value) -> &str {
    unit["failure"]["message"].as_str().unwrap()
}

#[test]
fn a_call_goes_out_as_it_was_written_and_its_answer_is_kept() {
    let dir = TestDir::new();
    let headers = "content-type: application/json\r\netag: \"7\"\r\nx-other: no\r\n";
    let server = HttpServer::answering(&[answer(201, headers, r#"{"id": 7}"#)]);
    let payload = format!(
        r#"{{"url": "{}/things?a=b", "method": "put", "headers": {{"X-Mine": "yes"}},
            "body": {{"z": 1,  "a": 1.50}}, "timeout": "5s"}}"#,
        server.url
    );
    let id = dir.run(&["submit", "http", &payload]).ok().out.trim().to_owned();
    dir.work();
    let request = server.request();
    assert_eq!((&*request.method, &*request.path), ("PUT", "/things?a=b"));
    assert_eq!(request.body, r#"{"z": 1,  "a": 1.50}"#, "as it was written");
    let sent = |name: &str| request.headers.get(name).map_or("", String::as_str);
    assert_eq!((sent("content-type"), sent("x-mine")), ("application/json", "yes"));
    assert_eq!((sent("idempotency-key"), sent("longshore-attempt")), (&*id, "1"));
    assert_eq!(sent("longshore-time-left"), "5.000");
    assert!(sent("user-agent").starts_with("longshore/"), "{request:?}");

    let unit = dir.unit(&id);
    let result = &unit["result"];
    assert_eq!((&unit["state"], &result["status"]), (&json!("done"), &json!(201)));
    assert_eq!(result["headers"], json!({ "content-type": "application/json", "etag": "\"7\"" }));
    assert_eq!((&result["body"]["id"], &result["truncated"]), (&json!(7), &json!(false)));
}

#[test]
fn a_server_learns_the_deadline_if_that_comes_first() {
    let dir = TestDir::new();
    let server = HttpServer::answering(&[answer(200, "", "")]);
    run_payload(&dir, &json!({ "url": server.url, "timeout": "1h" }), &["--deadline", "10m"]);
    let left: f64 = server.request().headers["longshore-time-left"].parse().unwrap();
    assert!(left > 0.0 && left <= 600.0, "{left}");
}

#[test]
fn a_busy_server_is_called_again_with_the_same_key() {
    let dir = TestDir::new();
    let server = HttpServer::answering(&[answer(503, "", "not now"), answer(200, "", "fine")]);
    let unit = run_payload(&dir, &json!({ "url": server.url }), &[]);
    assert_eq!((&unit["state"], &unit["attempt"]), (&json!("done"), &json!(2)));
    assert_eq!(unit["result"]["body"], "fine");
    assert_eq!(unit["failures"][0]["code"], "http-503", "{unit}");
    let (first, second) = (server.request(), server.request());
    assert_eq!((&*first.method, &*first.headers["content-length"]), ("POST", "0"));
    assert_eq!(first.headers["idempotency-key"], second.headers["idempotency-key"]);
    assert_eq!(second.headers["longshore-attempt"], "2");
}

#[test]
fn a_server_is_left_alone_for_as_long_as_it_asks() {
    let dir = TestDir::new();
    let _worker = dir.start(&["worker", "--slots", "2"]);
    for (retry_after, seconds) in [("3600", 3600), ("Thu, 31 Dec 2099 23:59:59 GMT", 86_400)] {
        let headers = format!("retry-after: {retry_after}\r\n");
        let server = HttpServer::answering(&[answer(429, &headers, "")]);
        let id = send_payload(&dir, &json!({ "url": server.url }), &[]);
        let unit = eventually(TIMEOUT, || Some(dir.unit(&id)).filter(|unit| unit["state"] == "scheduled"));
        let time = |text: &Value| text.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        let waits = time(&unit["since"]).duration_since(time(&unit["failures"][0]["at"]));
        // A date is parsed a moment before the failure is recorded.
        assert!((0..60).contains(&(seconds - waits.as_secs())), "{waits}: {unit}");
    }
}

#[test]
fn a_refusal_is_final_and_tells_what_the_server_said() {
    let dir = TestDir::new();
    let words = "no such thing ".repeat(10_000);
    let server = HttpServer::answering(&[answer(404, "", &words)]);
    let unit = run_payload(&dir, &json!({ "url": server.url, "method": "GET" }), &[]);
    assert_eq!((failure_code(&unit), &unit["attempt"]), ("http-404", &json!(1)));
    let message = failure_message(&unit);
    assert!(message.starts_with("the server answered 404 Not Found: no such thing"), "{message}");
    assert!(message.len() < 2100, "{}", message.len());
}

#[test]
fn the_payload_says_what_is_good_and_what_is_tried_again() {
    let dir = TestDir::new();
    let gone = HttpServer::answering(&[answer(410, "", "gone")]);
    let payload = json!({ "url": gone.url, "method": "DELETE", "expect": ["2xx", 404, 410] });
    assert_eq!(run_payload(&dir, &payload, &[])["result"]["status"], 410);

    let conflict = HttpServer::answering(&[answer(409, "", ""), answer(200, "", "")]);
    let payload = json!({ "url": conflict.url, "retry_on": [409] });
    assert_eq!(run_payload(&dir, &payload, &[])["attempt"], 2);

    let broken = HttpServer::answering(&[answer(500, "", "")]);
    let unit = run_payload(&dir, &json!({ "url": broken.url, "retry_on": [] }), &[]);
    assert_eq!((failure_code(&unit), &unit["attempt"]), ("http-500", &json!(1)));
}

#[test]
fn a_slow_server_is_not_waited_for_longer_than_was_said() {
    let dir = TestDir::new();
    let (server, gone) = HttpServer::silent();
    let payload = json!({ "url": server.url, "timeout": "200ms" });
    let unit = run_payload(&dir, &payload, &["--max-attempts", "2"]);
    assert_eq!((failure_code(&unit), &unit["attempt"]), ("timeout", &json!(2)));
    assert!(failure_message(&unit).contains("no answer within 200 ms"), "{unit}");
    gone.recv_timeout(TIMEOUT).unwrap();

    let unit = run_payload(&dir, &json!({ "url": server.url }), &["--deadline", "500ms"]);
    assert_eq!(failure_code(&unit), "deadline");
}

#[test]
fn a_body_that_drips_counts_against_the_same_time() {
    let dir = TestDir::new();
    let server = HttpServer::new(|_, _, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 So\r\ncontent-length: 1000\r\n\r\n");
        while stream.write_all(b"x").is_ok() {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    });
    let payload = json!({ "url": server.url, "timeout": "500ms" });
    assert_eq!(failure_code(&run_payload(&dir, &payload, &["--max-attempts", "1"])), "timeout");
}

#[test]
fn of_an_endless_body_only_the_beginning_is_read() {
    let dir = TestDir::new();
    let (written, ends) = channel();
    let written = Mutex::new(written);
    let server = HttpServer::new(move |_, _, stream| {
        let mut bytes = 0_usize;
        let _ = stream.write_all(b"HTTP/1.1 200 So\r\nconnection: close\r\n\r\n");
        while stream.write_all(&[b'x'; 65536]).is_ok() {
            bytes += 65536;
        }
        written.lock().unwrap().send(bytes).unwrap();
    });
    let unit = run_payload(&dir, &json!({ "url": server.url }), &[]);
    assert_eq!((&unit["state"], &unit["result"]["truncated"]), (&json!("done"), &json!(true)));
    assert_eq!(unit["result"]["body"], "x".repeat(64 * 1024));
    let bytes = ends.recv_timeout(TIMEOUT).unwrap();
    assert!(bytes < 64 << 20, "{bytes} bytes were taken");
}

#[test]
fn a_server_that_is_not_there_is_tried_again() {
    let dir = TestDir::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/secret-path", listener.local_addr().unwrap());
    drop(listener);
    let unit = run_payload(&dir, &json!({ "url": url }), &["--max-attempts", "2"]);
    assert_eq!((failure_code(&unit), &unit["attempt"]), ("connection", &json!(2)));
    let message = failure_message(&unit);
    assert!(message.contains("refused") && !message.contains("secret-path"), "{message}");
}

#[test]
fn an_answer_that_breaks_off_is_no_answer() {
    let dir = TestDir::new();
    let half = "HTTP/1.1 200 So\r\ncontent-length: 1000\r\n\r\nhalf".to_owned();
    let server = HttpServer::answering(&[half, answer(200, "", "whole")]);
    let unit = run_payload(&dir, &json!({ "url": server.url }), &[]);
    assert_eq!((&unit["attempt"], &unit["result"]["body"]), (&json!(2), &json!("whole")));
    assert_eq!(unit["failures"][0]["code"], "connection");
}

#[test]
fn a_redirect_is_followed_only_by_request_and_round_in_a_circle_never() {
    let dir = TestDir::new();
    let server = HttpServer::new(|_, request, stream| {
        let reply = match &*request.path {
            "/a" => answer(302, "location: /b\r\n", ""),
            "/b" => answer(200, "", "here"),
            _ => answer(307, "location: /circle\r\n", ""),
        };
        let _ = stream.write_all(reply.as_bytes());
    });
    let url = format!("{}/a", server.url);
    let payload = json!({ "url": url, "body": "x", "expect": ["2xx", 302] });
    let unit = run_payload(&dir, &payload, &[]);
    assert_eq!(
        (&unit["result"]["status"], &unit["result"]["headers"]["location"]),
        (&json!(302), &json!("/b"))
    );
    assert_eq!(failure_code(&run_payload(&dir, &json!({ "url": url }), &[])), "http-302");
    let unit = run_payload(&dir, &json!({ "url": url, "body": "x", "follow": true }), &[]);
    assert_eq!(unit["result"]["body"], "here");
    let circle = json!({ "url": format!("{}/circle", server.url), "follow": true });
    assert_eq!(failure_code(&run_payload(&dir, &circle, &[])), "redirect");
}

#[test]
fn a_redirect_takes_no_secret_to_another_server() {
    let dir = TestDir::new();
    let other = HttpServer::answering(&[answer(200, "", "")]);
    let location = format!("location: {}/there\r\n", other.url);
    let server = HttpServer::answering(&[answer(307, &location, "")]);
    let payload = json!({
        "url": server.url, "follow": true,
        "headers": { "X-Api-Key": "env:TOKEN", "Authorization": "Basic abc", "X-Open": "yes" },
    });
    let vars = [("TOKEN", "hunter2"), ("LONGSHORE_HTTP_ENV", "TOKEN=http://127.0.0.1:*")];
    run_payload_with(&dir, &payload, &vars);
    let (first, second) = (server.request().headers, other.request().headers);
    assert_eq!((&*first["x-api-key"], &*first["authorization"]), ("hunter2", "Basic abc"));
    assert!(!second.contains_key("x-api-key") && !second.contains_key("authorization"));
    assert_eq!(second["x-open"], "yes");
}

#[test]
fn secrets_never_printed() {
    let dir = TestDir::new();
    let echo = |status: u16| {
        HttpServer::new(move |_, request, stream| {
            let header = &request.headers["authorization"];
            let headers = format!("x-echo: {header}\r\n");
            // Also at the edge of what is recorded.
            let body = format!("{header} {} {header}", "x".repeat(64 * 1024 - header.len() - 10));
            let _ = stream.write_all(answer(status, &headers, &body).as_bytes());
        })
    };
    for status in [200, 404, 503] {
        let server = echo(status);
        let payload = json!({
            "url": server.url, "keep_headers": ["x-echo"],
            "headers": { "Authorization": "Bearer env:TOKEN" },
        });
        let listed = "OTHER=https://api.example.com, TOKEN=http://127.0.0.1:*";
        let vars = [("TOKEN", "hunter2hunter2"), ("LONGSHORE_HTTP_ENV", listed)];
        let (unit, worker) = run_payload_with(&dir, &payload, &vars);
        assert_eq!(server.request().headers["authorization"], "Bearer hunter2hunter2");
        let recorded = unit.to_string();
        assert!(recorded.contains("Bearer ***") && !recorded.contains("hunter2"), "{recorded}");
        assert!(!worker.err.is_empty() && !worker.err.contains("hunter2"), "{}", worker.err);
    }
    for file in std::fs::read_dir(dir.path("")).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        assert!(!bytes.windows(7).any(|part| part == b"hunter2"));
    }
}

#[test]
fn a_variable_is_given_away_only_if_it_is_listed_for_the_destination() {
    let dir = TestDir::new();
    let server = HttpServer::answering(&[answer(200, "", "")]);
    let payload = json!({ "url": server.url, "headers": { "A": "env:DATABASE_PASSWORD" } });
    let (here, elsewhere) =
        ("DATABASE_PASSWORD=http://127.0.0.1:*", "DATABASE_PASSWORD=https://api.example.com");
    for vars in [
        &[("DATABASE_PASSWORD", "hunter2")][..],
        &[("LONGSHORE_HTTP_ENV", here)],
        &[("DATABASE_PASSWORD", "hunter2"), ("LONGSHORE_HTTP_ENV", elsewhere)],
    ] {
        let (unit, _) = run_payload_with(&dir, &payload, vars);
        assert_eq!(failure_code(&unit), "secret");
        assert!(failure_message(&unit).contains("DATABASE_PASSWORD"), "{unit}");
    }
    assert!(server.has_no_request());
}

#[test]
fn calls_go_only_where_they_may() {
    let dir = TestDir::new();
    let server = HttpServer::answering(&[answer(200, "", "")]);
    let metadata = json!({ "url": "http://169.254.169.254/latest/meta-data/" });
    let (unit, _) = run_payload_with(&dir, &metadata, &[]);
    assert_eq!(failure_code(&unit), "not-allowed");

    let here = json!({ "url": server.url });
    let list = [("LONGSHORE_HTTP_ALLOW", "https://api.example.com")];
    let (unit, _) = run_payload_with(&dir, &here, &list);
    assert_eq!(failure_code(&unit), "not-allowed");
    assert!(failure_message(&unit).contains("`http.allow`"), "{unit}");
    assert!(server.has_no_request());

    dir.write("longshore.toml", "[http]\nallow = [\"http://127.0.0.1:*\"]\n");
    assert_eq!(run_payload(&dir, &here, &[])["state"], "done");
    let elsewhere = format!("location: {}\r\n", server.url.replace("127.0.0.1", "localhost"));
    let away = HttpServer::answering(&[answer(307, &elsewhere, "")]);
    let unit = run_payload(&dir, &json!({ "url": away.url, "follow": true }), &[]);
    assert_eq!(failure_code(&unit), "not-allowed", "a redirect does not bypass the allowlist");

    dir.write("longshore.toml", "[http]\nallow = [\"api.example.com\"]\n");
    dir.run(&["worker", "--until-idle"]).ends(2).says("http.allow").says("no `://`");
}

#[test]
fn cancelling_a_unit_ends_its_call() {
    let dir = TestDir::new();
    let (server, gone) = HttpServer::silent();
    let id = send_payload(&dir, &json!({ "url": server.url }), &[]);
    let _worker = dir.start(&["worker", "--slots", "1"]);
    server.request();
    dir.run(&["unit", "cancel", &id]).ok();
    gone.recv_timeout(TIMEOUT).unwrap();
    eventually(TIMEOUT, || (dir.unit(&id)["state"] == "cancelled").then_some(()));
}

#[test]
fn a_worker_that_stops_ends_its_calls_and_gives_the_units_back() {
    let dir = TestDir::new();
    let (server, gone) = HttpServer::silent();
    let id = send_payload(&dir, &json!({ "url": server.url }), &[]);
    let mut worker = dir.start(&["worker", "--slots", "1", "--drain-timeout", "200ms"]);
    server.request();
    worker.signal("TERM");
    gone.recv_timeout(TIMEOUT).unwrap();
    assert_eq!(worker.ends_within(TIMEOUT), 130);
    let unit = dir.unit(&id);
    assert_eq!((&unit["state"], &unit["attempt"]), (&json!("ready"), &json!(0)));
}

#[test]
fn a_payload_that_makes_no_sense_is_answered_with_the_reason() {
    let dir = TestDir::new();
    for (payload, why) in [
        (json!({ "url": "nowhere" }), "`url`"),
        (json!({ "url": "http://h/", "timeuot": 3 }), "unknown field `timeuot`"),
        (json!({ "url": "http://h/", "headers": { "Host": "x" } }), "`host`"),
        (json!([1, 2, 3]), "not an http payload"),
        (json!(null), "not an http payload"),
    ] {
        let unit = run_payload(&dir, &payload, &[]);
        assert_eq!((failure_code(&unit), &unit["attempt"]), ("bad-input", &json!(1)), "{payload}");
        assert!(failure_message(&unit).contains(why), "{unit}");
    }
}

#[test]
fn a_call_can_be_typed_without_json() {
    let dir = TestDir::new();
    let server = HttpServer::answering(&[answer(200, "", "")]);
    dir.write("body.txt", "two\nlines");
    let url = ["submit", "http", "--url", &server.url];
    dir.run(&[&url[..], &["--body", r#"{"n": 1}"#, "--header", "X-A: b: c"]].concat()).ok();
    dir.work();
    let request = server.request();
    assert_eq!((&*request.method, &*request.body), ("POST", r#"{"n": 1}"#));
    assert_eq!(&*request.headers["x-a"], "b: c");
    dir.run(&[&url[..], &["--method", "PUT", "--body-file", "body.txt"]].concat()).ok();
    dir.work();
    let request = server.request();
    assert_eq!((&*request.method, &*request.body), ("PUT", "two\nlines"));
    assert_eq!(&*request.headers["content-type"], "text/plain; charset=utf-8");
}

#[test]
fn a_call_that_makes_no_sense_is_refused_when_it_is_typed() {
    let dir = TestDir::new();
    let refused = |args: &[&str]| dir.run(&[&["submit"], args].concat()).ends(2);
    refused(&["http", "--url", "example.com"]).says("`url`");
    refused(&["exec", "--url", "http://h/"]).says("kind `exec` has no --url");
    refused(&["http", "--url", "http://h/", "--header", "A"]).says("no `:`");
    refused(&["http", "--url", "http://h/", "--header", "A: 1", "--header", "A: 2"])
        .says("`A` is given twice");
    refused(&["http", "{}", "--url", "http://h/"]).says("cannot be used with");
    refused(&["http", "--method", "GET"]).says("required");
}
