//! Tenants, lanes and limits from the command line: shares, caps, suspension, and what a sender is
//! told when there is no room.

use serde_json::{Value, json};

use crate::support::{CliOutput, TIMEOUT, TestDir, eventually};

fn show_tenant(dir: &TestDir, name: &str) -> Value {
    dir.run(&["tenant", "show", name, "--json"]).ok().json()
}

fn submit(dir: &TestDir, more: &[&str]) -> CliOutput {
    dir.run(&[&["submit", "exec", r#"{"argv":["true"]}"#], more].concat())
}

#[test]
fn a_tenant_is_added_set_shown_and_removed() {
    let dir = TestDir::new();
    assert_eq!(dir.run(&["tenant", "list", "--json"]).ok().json(), json!([]));
    let add = ["tenant", "add", "acme", "--weight", "3", "--cap", "2", "--max-bytes", "10MB"];
    dir.run(&add).ok();
    dir.run(&add).ends(1).says("has settings already").says("tenant set acme");
    dir.run(&["tenant", "set", "acme", "--max-units", "5"]).ok();
    let acme = show_tenant(&dir, "acme");
    assert_eq!((&acme["tenant"], &acme["weight"]), (&json!("acme"), &json!(3)));
    assert_eq!((&acme["cap"], &acme["suspended"]), (&json!(2), &json!(false)));
    assert_eq!(acme["capacity"], json!({ "units": 5, "bytes": 10_000_000 }), "both stay");
    dir.run(&["tenant", "set", "acme", "--max-bytes", "none", "--cap", "none"]).ok();
    let acme = show_tenant(&dir, "acme");
    assert_eq!((&acme["cap"], &acme["capacity"]["bytes"]), (&Value::Null, &Value::Null));
    let table = dir.run(&["tenant", "list"]).ok().out;
    assert!(table.contains("acme") && table.contains("open"), "{table}");
    dir.run(&["tenant", "remove", "acme"]).ok();
    dir.run(&["tenant", "show", "acme"]).ends(1).says("there is no tenant `acme`");
}

#[test]
fn what_makes_no_sense_for_a_tenant_is_refused_with_a_hint() {
    let dir = TestDir::new();
    dir.run(&["tenant", "add", "acme"]).ok();
    for (args, code, words) in [
        (&["tenant", "add", "b", "--weight", "0"][..], 2, "whole number from 1"),
        (&["tenant", "add", "b", "--cap", "0"], 2, "whole number from 1"),
        (&["tenant", "add", "b", "--max-bytes", "10XB"], 2, "64KiB"),
        (&["tenant", "set", "acme"], 2, "--weight"),
        (&["tenant", "suspend", "acne"], 1, "did you mean `acme`?"),
        (&["tenant", "set", "zzz", "--weight", "2"], 1, "tenant add zzz"),
        (&["tenant", "set", "acme", "--weight", "2", "--tenant", "acme"], 1, "leave out --tenant"),
        (&["queue", "set", "mail"], 2, "--max-units"),
        (&["queue", "set", "mail", "--weight", "2"], 2, "--lane"),
    ] {
        dir.run(args).ends(code).says(words);
    }
    submit(&dir, &["--tenant", "acme"]).ok();
    dir.run(&["tenant", "remove", "acme"]).ends(1).says("1 live units").says("unit list");
    submit(&dir, &["--tenant", "guest"]).ok();
    dir.run(&["tenant", "show", "guest"]).ends(1).says("tenant add guest");
}

#[test]
fn a_command_for_all_tenants_rejects_a_tenant() {
    let dir = TestDir::new();
    for command in [&["serve", "--listen", "127.0.0.1:0"][..], &["pool", "status"], &["workers", "list"]] {
        let run = dir.run(&[&["--tenant", "acme"], command].concat()).ends(2);
        let error = format!("error: `{}` is for all tenants, not for tenant `acme` alone", command[0]);
        run.says(&error).says("hint: leave out --tenant");
    }
}

#[test]
fn a_tenant_has_a_budget_for_the_month_until_it_is_lifted() {
    let dir = TestDir::new();
    let set = |more: &[&str]| dir.run(&[&["tenant", "set", "acme"], more].concat());
    dir.run(&["tenant", "add", "acme", "--budget-usd", "50.25", "--budget-tokens", "2M"]).ok();
    let month = show_tenant(&dir, "acme")["month"].clone();
    assert_eq!((&month["budget_usd"], &month["warn_at"]), (&json!("50.25"), &json!(0.8)));
    assert_eq!((&month["budget_tokens"], &month["spent_usd"]), (&json!(2_000_000), &json!("0.00")));
    set(&["--warn-at", "90%", "--budget-usd", "none"]).ok();
    let month = show_tenant(&dir, "acme")["month"].clone();
    assert_eq!((&month["budget_usd"], &month["warn_at"]), (&Value::Null, &json!(0.9)));
    let shown = dir.run(&["tenant", "show", "acme"]).ok().out;
    assert!(shown.contains("0 of 2000000") && shown.contains("90%"), "{shown}");
    set(&["--budget-tokens", "none"]).ok();
    assert_eq!(show_tenant(&dir, "acme")["month"]["budget_tokens"], Value::Null);
    set(&["--budget-usd", "-1"]).ends(2);
    set(&["--budget-usd", "much"]).ends(2).says("amount of dollars");
    set(&["--budget-tokens", "2.5"]).ends(2).says("amount of tokens");
    set(&["--warn-at", "120%"]).ends(2).says("80%");
    set(&["--budget-usd", "5", "--tenant", "acme"]).ends(1).says("leave out --tenant");
    assert_eq!(show_tenant(&dir, "acme")["month"]["budget_usd"], Value::Null);
}

#[test]
fn a_suspended_tenant_asks_no_model() {
    let dir = TestDir::new();
    dir.run(&["tenant", "add", "acme"]).ok();
    dir.run(&["profile", "add", "fast", "--provider", "echo", "--tenant", "acme"]).ok();
    dir.run(&["tenant", "suspend", "acme"]).ok();
    for way in [&["--timeout", "5s"][..], &["--queue"]] {
        let ask = ["ai", "ask", "--tenant", "acme", "--profile", "fast", "hi"];
        let refused = dir.run(&[&ask, way].concat());
        refused.ends(1).says("PROFILE_DISABLED").says("suspended").says("tenant resume");
    }
}

#[test]
fn a_suspended_tenant_waits_and_its_sends_are_refused() {
    let dir = TestDir::new();
    let theirs = dir.submit_script("true", &["--tenant", "acme"]);
    dir.run(&["tenant", "suspend", "acme"]).ok();
    let refused = submit(&dir, &["--tenant", "acme"]);
    refused.ends(5).says("tenant `acme` is suspended").says("tenant resume acme");
    let list = dir.run(&["queue", "list"]).ok().out;
    assert!(list.contains("suspended"), "{list}");
    let _worker = dir.start(&["worker", "--slots", "1"]);
    let other = dir.submit_script("true", &[]);
    eventually(TIMEOUT, || (dir.unit(&other)["state"] == "done").then_some(()));
    assert_eq!(dir.unit(&theirs)["state"], "ready");
    dir.run(&["tenant", "resume", "acme"]).ok();
    eventually(TIMEOUT, || (dir.unit(&theirs)["state"] == "done").then_some(()));
}

#[test]
fn one_lane_is_paused_and_the_others_go_on() {
    let dir = TestDir::new();
    let theirs = dir.submit_script("true", &["--tenant", "acme"]);
    dir.run(&["queue", "pause", "default", "--lane", "acme"]).ok();
    let _worker = dir.start(&["worker", "--slots", "1"]);
    let other = dir.submit_script("true", &[]);
    eventually(TIMEOUT, || (dir.unit(&other)["state"] == "done").then_some(()));
    assert_eq!(dir.unit(&theirs)["state"], "ready");
    let resumed = dir.run(&["queue", "resume", "default", "--tenant", "acme"]).ok();
    assert!(resumed.out.contains("lane `acme` of queue `default` is open"), "{}", resumed.out);
    eventually(TIMEOUT, || (dir.unit(&theirs)["state"] == "done").then_some(()));
}

#[test]
fn a_queue_and_a_lane_keep_what_was_set() {
    let dir = TestDir::new();
    dir.run(&["queue", "set", "mail", "--max-units", "10", "--max-bytes", "1kB"]).ok();
    let lane = ["queue", "set", "mail", "--lane", "acme", "--weight", "4", "--cap", "2"];
    dir.run(&[&lane[..], &["--max-units", "3"]].concat()).ok();
    dir.run(&["queue", "set", "mail", "--max-bytes", "none"]).ok();
    let lanes = dir.run(&["queue", "show", "mail", "--json"]).ok().json();
    let acme = lanes.as_array().unwrap().iter().find(|lane| lane["tenant"] == "acme").unwrap();
    assert_eq!(acme["capacity"], json!({ "units": 10, "bytes": null }));
    assert_eq!((&acme["weight"], &acme["cap"]), (&json!(4), &json!(2)));
    assert_eq!(acme["lane_capacity"]["units"], 3);
    let shown = dir.run(&["queue", "show", "mail"]).ok().out;
    assert!(shown.contains("LANE MAX UNITS"), "{shown}");
}

#[test]
fn a_sender_to_a_full_queue_is_refused_waits_a_while_or_waits() {
    let dir = TestDir::new();
    dir.run(&["queue", "set", "default", "--max-units", "1"]).ok();
    submit(&dir, &["--no-wait"]).ok();
    let refused = submit(&dir, &["--no-wait"]).ends(5);
    refused.says("queue is full: 1 live units").says("hint: wait for room");
    submit(&dir, &["--wait-room", "200ms"]).ends(5).says("queue is full");
    submit(&dir, &["--wait-room", "1s", "--no-wait"]).ends(2);
    let mut waits = dir.start(&["submit", "exec", r#"{"argv":["true"]}"#]);
    assert!(waits.0.try_wait().unwrap().is_none(), "it waits for room");
    dir.work();
    assert_eq!(waits.ends_within(TIMEOUT), 0);
    dir.run(&["tenant", "add", "acme", "--max-units", "1"]).ok();
    let theirs = ["--tenant", "acme", "--queue", "other", "--no-wait"];
    submit(&dir, &theirs).ok();
    submit(&dir, &theirs).ends(5).says("tenant is full").says("tenant set");
}

#[test]
fn a_batch_that_finds_no_room_goes_on_later() {
    let dir = TestDir::new();
    dir.run(&["queue", "set", "default", "--max-units", "4"]).ok();
    let lines = "{\"argv\":[\"true\"]}\n".repeat(6);
    let args = ["submit", "exec", "--lines", "-", "--batch", "b", "--chunk", "2", "--no-wait"];
    dir.run_with(&args, &lines).ends(5).says("it resumes after line 4");
    let _worker = dir.start(&["worker", "--slots", "2"]);
    eventually(TIMEOUT, || (dir.batch("b")["done"] == 4).then_some(()));
    let sent = dir.run_with(&[&args[..], &["--json"]].concat(), &lines).ok().json();
    assert_eq!(sent, json!({ "batch": "b", "sent": 6, "new": 2 }));
}
