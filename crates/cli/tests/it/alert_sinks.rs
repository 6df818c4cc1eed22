//! Alerts of bounded pools for a webhook and for Sentry, sent by real processes.

use serde_json::{Value, json};

use crate::http::server::{HttpServer, ReceivedRequest, answer};
use crate::support::{ChildGuard, CliOutput, TIMEOUT, TestDir, eventually};

/// The secret part of the receivers' URLs; only the receivers may see it.
const SECRET: &str = "s3cr3t-t0ken";

/// Starts a process that holds the only permit.
fn hold_permit(dir: &TestDir) -> ChildGuard {
    let holder = dir.start(&["pool", "exec", "licence", "--max", "1", "--", "sleep", "60"]);
    eventually(TIMEOUT, || {
        let status = dir.run(&["pool", "status", "licence", "--json"]);
        (status.code == 0 && status.json()["in_use"] == 1).then_some(())
    });
    holder
}

/// A command that waits in vain for the permit and logs at trace level.
fn wait_for_permit(dir: &TestDir) -> std::process::Command {
    dir.command(&["pool", "exec", "licence", "--wait", "700ms", "--log-level", "trace", "--", "true"])
}

fn parse_alert(request: &ReceivedRequest) -> Value {
    assert_eq!(request.headers["content-type"], "application/json");
    serde_json::from_str(&request.body).unwrap()
}

#[test]
fn an_alert_is_posted_once_by_all_processes_together() {
    let (dir, server) = (TestDir::new(), HttpServer::answering(&[answer(204, "", "")]));
    dir.write("longshore.toml", format!("[alerts]\nwebhook = \"{}/{SECRET}\"\n", server.url));
    let _holder = hold_permit(&dir);
    let both = [wait_for_permit(&dir).spawn().unwrap(), wait_for_permit(&dir).spawn().unwrap()];
    for run in both.map(CliOutput::of) {
        assert!(!run.err.contains(SECRET), "{}", run.err);
        run.ends(75);
    }
    let (first, second) = (server.request(), server.request());
    assert!(server.has_no_request(), "each kind of alert is posted once");
    assert_eq!((&*first.method, &*first.path), ("POST", &*format!("/{SECRET}")));
    // Two processes post: the second alert may arrive before the first.
    let (mut first, mut second) = (parse_alert(&first), parse_alert(&second));
    if first["alert"] == "timed-out" {
        std::mem::swap(&mut first, &mut second);
    }
    let at_capacity = json!({
        "pool": "licence", "alert": "at-capacity", "figures": { "max": 1, "in_use": 1, "available": 0 },
    });
    for key in ["pool", "alert"] {
        assert_eq!(first[key], at_capacity[key]);
    }
    for (key, value) in at_capacity["figures"].as_object().unwrap() {
        assert_eq!(&first["figures"][key], value, "{first}");
    }
    assert!(first["text"].as_str().unwrap().contains("1 of 1 in use"), "{first}");
    assert_eq!(second["alert"], "timed-out");
    assert!(second["figures"]["timeouts"].as_u64() >= Some(1), "{second}");
}

#[test]
fn a_budget_that_is_nearly_used_up_is_an_alert() {
    let (dir, server) = (TestDir::new(), HttpServer::answering(&[answer(204, "", "")]));
    dir.write("longshore.toml", format!("[alerts]\nwebhook = \"{}/{SECRET}\"\n", server.url));
    dir.run(&["tenant", "add", "acme", "--budget-tokens", "10k", "--warn-at", "1%"]).ok();
    dir.run(&["--tenant", "acme", "profile", "add", "parrot", "--provider", "echo", "--set", "delay=1ms"])
        .ok();
    let long = "hello ".repeat(100);
    for _ in 0..2 {
        dir.run(&["--tenant", "acme", "ai", "ask", "--profile", "parrot", &long]).ok();
    }
    let alert = parse_alert(&server.request());
    assert_eq!((&alert["service"], &alert["alert"]), (&json!("budget"), &json!("service")));
    let text = alert["text"].as_str().unwrap();
    assert!(text.ends_with("% of the month's budget of tenant `acme` is used"), "{text}");
}

#[test]
fn a_webhook_that_fails_is_logged_and_changes_nothing() {
    let (dir, server) = (TestDir::new(), HttpServer::answering(&[answer(500, "", "no")]));
    dir.write("longshore.toml", format!("[alerts]\nwebhook = \"{}/{SECRET}\"\n", server.url));
    let _holder = hold_permit(&dir);
    let run = CliOutput::of(wait_for_permit(&dir).spawn().unwrap()).ends(75);
    assert!(!run.err.contains(SECRET), "{}", run.err);
    run.says("cannot post an alert to the webhook").says("it answered 500");
}

#[test]
fn a_webhook_that_hangs_keeps_nobody_from_a_permit() {
    let (dir, (server, gone)) = (TestDir::new(), HttpServer::silent());
    dir.write("longshore.toml", format!("[alerts]\nwebhook = \"{}\"\n", server.url));
    let script = "while [ ! -e end ]; do sleep 0.05; done";
    let hold = ["pool", "exec", "licence", "--max", "1", "--", "sh", "-c", script];
    let mut holder = dir.start(&hold);
    eventually(TIMEOUT, || {
        let status = dir.run(&["pool", "status", "licence", "--json"]);
        (status.code == 0 && status.json()["in_use"] == 1).then_some(())
    });
    let mut next = dir.start(&["pool", "exec", "licence", "--", "touch", "got"]);
    server.request();
    dir.write("end", "");
    assert_eq!(holder.ends_within(TIMEOUT), 0);
    assert_eq!(next.ends_within(TIMEOUT), 0);
    assert!(dir.path("got").exists());
    gone.recv_timeout(TIMEOUT).expect("the post times out");
}

/// Parses a Sentry envelope: its header, and each item with the item's header.
fn parse_envelope(body: &str) -> (Value, Vec<(Value, Value)>) {
    let (header, mut rest) = body.split_once('\n').unwrap();
    let mut items = Vec::new();
    while let Some((head, after)) = rest.split_once('\n') {
        let head: Value = serde_json::from_str(head).unwrap();
        let length = usize::try_from(head["length"].as_u64().unwrap()).unwrap();
        items.push((head, serde_json::from_str(&after[..length]).unwrap()));
        rest = after[length..].trim_start_matches('\n');
    }
    assert_eq!(rest, "");
    (serde_json::from_str(header).unwrap(), items)
}

#[test]
fn sentry_gets_an_envelope_with_the_figures_grouped_by_pool_and_kind() {
    let (dir, server) = (TestDir::new(), HttpServer::answering(&[answer(200, "", "{\"id\":\"x\"}")]));
    let _holder = hold_permit(&dir);
    let dsn = server.url.replace("http://", &format!("http://{SECRET}@")) + "/42";
    let run = wait_for_permit(&dir).env("LONGSHORE_ALERTS_SENTRY", &dsn).spawn().unwrap();
    let run = CliOutput::of(run).ends(75);
    assert!(!run.err.contains(SECRET), "{}", run.err);
    for (kind, level) in [("at-capacity", "warning"), ("timed-out", "error")] {
        let request = server.request();
        assert_eq!((&*request.method, &*request.path), ("POST", "/api/42/envelope/"));
        let auth = &request.headers["x-sentry-auth"];
        assert!(auth.contains(&format!("sentry_key={SECRET}")), "{auth}");
        let (header, items) = parse_envelope(&request.body);
        let [(head, event)] = &items[..] else { panic!("{items:?}") };
        assert_eq!(head["type"], "event");
        let plain = |id: &Value| id.as_str().unwrap().replace('-', "");
        assert_eq!(plain(&header["event_id"]), plain(&event["event_id"]));
        assert_eq!(event["fingerprint"], json!(["bounded-pool", "licence", kind]));
        assert_eq!((&event["tags"]["pool"], &event["tags"]["alert"]), (&"licence".into(), &kind.into()));
        assert_eq!(event["extra"]["figures"]["max"], 1);
        assert_eq!(event["level"], level);
        assert!(event["message"].as_str().unwrap().contains("`licence`"), "{event}");
    }
    assert!(server.has_no_request());
}
