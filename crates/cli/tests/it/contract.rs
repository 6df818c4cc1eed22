//! The contract for scripts: behaviour that must never change.

use serde_json::{Value, json};

use crate::support::{TIMEOUT, TestDir, eventually};

/// The counts of a batch; checks that they add up.
fn counts(batch: &Value) -> [u64; 7] {
    let names = ["done", "failed", "cancelled", "blocked", "scheduled", "ready", "leased"];
    let counts = names.map(|name| batch[name].as_u64().unwrap());
    assert_eq!(counts.iter().sum::<u64>(), batch["total"].as_u64().unwrap(), "{batch}");
    counts
}

#[test]
fn a_submitted_command_runs_and_its_result_is_kept() {
    let dir = TestDir::new();
    let run = dir.run(&["submit", "exec", r#"{"argv":["sh","-c","echo hello; echo oh >&2"]}"#]);
    let id = run.ok().out;
    assert_eq!(id.trim().len(), 36, "the id alone: {id:?}");
    dir.work();
    let unit = dir.unit(id.trim());
    assert_eq!(unit["state"], "done");
    assert_eq!(unit["result"]["stdout"], "hello\n");
    assert_eq!(unit["result"]["stderr"], "oh\n");
    assert_eq!(unit["result"]["exit_code"], 0);
}

#[test]
fn a_batch_of_lines_is_sent_sealed_and_counted() {
    let dir = TestDir::new();
    let lines = "{\"argv\":[\"true\"]}\n\n{\"argv\":[\"false\"]}\n{\"argv\":[\"true\"]}";
    let args = ["submit", "exec", "--lines", "-", "--batch", "b1", "--json"];
    let sent = dir.run_with(&args, lines).ok().json();
    assert_eq!((&sent["batch"], &sent["sent"]), (&json!("b1"), &json!(3)));

    let before = dir.batch("b1");
    assert_eq!((&before["status"], counts(&before)), (&json!("queued"), [0, 0, 0, 0, 0, 3, 0]));
    dir.work();
    let after = dir.batch("b1");
    assert_eq!((&after["status"], counts(&after)), (&json!("complete"), [2, 1, 0, 0, 0, 0, 0]));
    dir.run(&["batch", "watch", "b1"]).ends(3);
    dir.run(&["verify"]).ok();
}

#[test]
fn the_keys_of_a_batch_come_in_their_order() {
    let dir = TestDir::new();
    dir.run_with(&["submit", "exec", "--lines", "-", "--batch", "b"], "").ok();
    let text = dir.run(&["batch", "status", "b", "--json"]).ok().out;
    let keys = [
        "batch",
        "status",
        "total",
        "done",
        "failed",
        "cancelled",
        "blocked",
        "scheduled",
        "ready",
        "leased",
    ];
    let at = keys.map(|key| text.find(&format!("\"{key}\":")).expect(key));
    assert!(at.is_sorted(), "{text}");
}

#[test]
fn a_sealed_batch_is_not_sent_twice() {
    let dir = TestDir::new();
    let args = ["submit", "exec", "--lines", "-", "--batch", "b", "--json"];
    dir.run_with(&args, "{\"argv\":[\"true\"]}\n").ok();
    let again = dir.run_with(&args, "{\"argv\":[\"true\"]}\n").ok().says("was submitted before");
    assert_eq!(again.json(), json!({ "batch": "b", "sent": 1, "new": 0 }));
    assert_eq!(dir.batch("b")["total"], 1);
}

#[test]
fn waiting_tells_by_the_exit_code_how_it_went() {
    let dir = TestDir::new();
    let _worker = dir.start(&["worker", "--slots", "2"]);
    let submit = |argv: Value, more: &[&str]| {
        let payload = json!({ "argv": argv }).to_string();
        dir.run(&[&["submit", "exec", &payload, "--wait"], more].concat())
    };
    let done = submit(json!(["echo", "hi"]), &[]).ok();
    assert_eq!(done.json()["stdout"], "hi\n");
    submit(json!(["sh", "-c", "echo why >&2; exit 7"]), &[]).ends(3).says("exit code 7: why");
    let failed = submit(json!(["false"]), &["--json"]).ends(3).json();
    assert_eq!((&failed["state"], &failed["failure"]["code"]), (&json!("failed"), &json!("exit-code")));
    submit(json!(["sleep", "60"]), &["--wait-limit", "200ms"]).ends(1).says("not ended within");

    let run = ["submit", "exec", "--lines", "-", "--batch", "good", "--wait"];
    dir.run_with(&run, "{\"argv\":[\"true\"]}\n").ok();
}

#[test]
fn cancelled_and_paused_batches_end_a_watch_with_four() {
    let dir = TestDir::new();
    let line = "{\"argv\":[\"true\"]}\n";
    for name in ["c", "p"] {
        dir.run_with(&["submit", "exec", "--lines", "-", "--batch", name], line).ok();
    }
    dir.run(&["batch", "cancel", "c"]).ok();
    dir.run(&["batch", "watch", "c"]).ends(4);
    dir.run(&["batch", "pause", "p", "--reason", "tea"]).ok();
    dir.run(&["batch", "watch", "p"]).ends(4);
    dir.run(&["batch", "resume", "p"]).ok();
    dir.work();
    dir.run(&["batch", "watch", "p"]).ok();
    assert_eq!(dir.batch("c")["cancelled"], 1);
}

#[test]
fn an_interrupted_watch_ends_with_130() {
    let dir = TestDir::new();
    let line = "{\"argv\":[\"true\"]}\n";
    dir.run_with(&["submit", "exec", "--lines", "-", "--batch", "b"], line).ok();
    let mut command = dir.command(&["batch", "watch", "b", "--json"]);
    let mut watch = crate::support::ChildGuard(command.spawn().unwrap());
    let mut out = std::io::BufReader::new(watch.0.stdout.take().unwrap());
    let mut first = String::new();
    std::io::BufRead::read_line(&mut out, &mut first).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&first).unwrap()["ready"], 1);
    watch.signal("INT");
    assert_eq!(watch.ends_within(TIMEOUT), 130);
}

#[test]
fn a_watch_follows_a_batch_to_its_end() {
    let dir = TestDir::new();
    let lines = "{\"argv\":[\"sleep\",\"0.6\"]}\n".repeat(5);
    dir.run_with(&["submit", "exec", "--lines", "-", "--batch", "b"], lines).ok();
    let _worker = dir.start(&["worker", "--slots", "1"]);
    let run = dir.run(&["batch", "watch", "b", "--json"]).ok();
    let seen: Vec<Value> = run.out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert!(seen.len() >= 2, "{}", run.out);
    seen.iter().for_each(|batch| _ = counts(batch));
    assert_eq!(seen.last().unwrap()["status"], "complete");
}

#[test]
fn until_idle_waits_for_what_is_scheduled() {
    let dir = TestDir::new();
    let id = dir.submit_script("true", &["--delay", "700ms"]);
    dir.work();
    assert_eq!(dir.unit(&id)["state"], "done");
}

#[test]
fn until_idle_waits_for_a_batch_that_is_still_being_sent() {
    use std::io::Write;
    let dir = TestDir::new();
    let args = ["submit", "exec", "--lines", "-", "--batch", "b", "--chunk", "1"];
    let mut submit = dir.command(&args);
    let mut submit = crate::support::ChildGuard(submit.stdin(std::process::Stdio::piped()).spawn().unwrap());
    let mut pipe = submit.0.stdin.take().unwrap();
    writeln!(pipe, "{{\"argv\":[\"true\"]}}").unwrap();
    let total = || {
        let run = dir.run(&["batch", "status", "b", "--json"]);
        (run.code == 0).then(|| run.json()["total"].as_u64()).flatten()
    };
    eventually(TIMEOUT, || total().filter(|total| *total == 1));
    let mut worker = dir.start(&["worker", "--slots", "1", "--until-idle"]);
    eventually(TIMEOUT, || (dir.batch("b")["done"] == 1).then_some(()));
    assert!(worker.0.try_wait().unwrap().is_none(), "it must wait for the seal");
    writeln!(pipe, "{{\"argv\":[\"true\"]}}").unwrap();
    drop(pipe);
    assert_eq!(submit.ends_within(TIMEOUT), 0);
    assert_eq!(worker.ends_within(TIMEOUT), 0);
    assert_eq!((&dir.batch("b")["done"], &dir.batch("b")["status"]), (&json!(2), &json!("complete")));
}

#[test]
fn a_worker_takes_only_from_the_queues_it_was_given() {
    let dir = TestDir::new();
    let here = dir.submit_script("true", &["--queue", "here"]);
    let there = dir.submit_script("true", &["--queue", "there"]);
    dir.run(&["worker", "--slots", "1", "--queue", "here", "--until-idle"]).ok();
    assert_eq!(dir.unit(&here)["state"], "done");
    assert_eq!(dir.unit(&there)["state"], "ready");
}

#[test]
fn a_taken_key_gives_the_first_unit_or_a_refusal() {
    let dir = TestDir::new();
    let first = dir.submit_script("true", &["--key", "k"]);
    assert_eq!(dir.submit_script("true", &["--key", "k"]), first);
    let payload = r#"{"argv":["true"]}"#;
    let again = dir.run(&["submit", "exec", payload, "--key", "k", "--json"]).ok().json();
    assert_eq!(again, json!({ "unit": first, "status": "existing" }));
    let refuse = ["submit", "exec", payload, "--key", "k", "--on-duplicate", "refuse"];
    dir.run(&refuse).ends(1).says(&first);
}

#[test]
fn a_unit_waits_for_those_it_comes_after() {
    let dir = TestDir::new();
    let first = dir.submit_script("echo 1 >> order", &[]);
    let second = dir.submit_script("echo 2 >> order", &["--after", &first, "--priority", "high"]);
    assert_eq!(dir.unit(&second)["state"], "blocked");
    dir.work();
    assert_eq!(dir.read("order"), "1\n2\n");
}
