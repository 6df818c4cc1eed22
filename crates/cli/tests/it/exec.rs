//! The kind `exec`: what commands get, what is recorded of them, and that none outlives its unit.

use serde_json::{Value, json};

use crate::support::{TIMEOUT, TestDir, eventually, is_alive};

/// Runs one payload to its end.
fn run_payload(dir: &TestDir, payload: &Value, more: &[&str]) -> Value {
    let text = payload.to_string();
    let id = dir.run(&[&["submit", "exec", &text], more].concat()).ok().out;
    dir.work();
    dir.unit(id.trim())
}

fn failure_code(unit: &Value) -> &str {
    assert_eq!(unit["state"], "failed", "{unit}");
    unit["failure"]["code"].as_str().unwrap()
}

#[test]
fn a_command_gets_its_stdin_directory_and_environment() {
    let dir = TestDir::new();
    std::fs::create_dir(dir.path("sub")).unwrap();
    let script = "cat; pwd; echo $GREETING; echo $LONGSHORE_UNIT_ID $LONGSHORE_ATTEMPT $LONGSHORE_KEY";
    let payload = json!({
        "argv": ["sh", "-c", script], "stdin": "in\n", "cwd": "sub", "env": { "GREETING": "hi" },
    });
    let unit = run_payload(&dir, &payload, &["--key", "k"]);
    let out = unit["result"]["stdout"].as_str().unwrap();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!((lines[0], lines[2]), ("in", "hi"));
    assert!(lines[1].ends_with("/sub"), "{out}");
    assert_eq!(lines[3], format!("{} 1 k", unit["id"].as_str().unwrap()));
}

#[test]
fn a_worker_keeps_its_secrets_from_commands() {
    let dir = TestDir::new();
    let id = dir.submit_script("env", &[]);
    let mut worker = dir.command(&["worker", "--slots", "1", "--until-idle"]);
    worker.env("DATABASE_PASSWORD", "hunter2").env("LC_TIME", "C");
    assert!(worker.status().unwrap().success());
    let out = dir.unit(&id)["result"]["stdout"].as_str().unwrap().to_owned();
    assert!(!out.contains("hunter2"), "{out}");
    assert!(out.contains("LC_TIME=C") && out.contains("PATH="), "{out}");
}

#[test]
fn each_way_to_fail_has_its_code() {
    let dir = TestDir::new();
    for (payload, wanted) in [
        (json!({ "argv": ["sh", "-c", "exit 3"] }), "exit-code"),
        (json!({ "argv": ["sh", "-c", "kill -9 $$"] }), "signal"),
        (json!({ "argv": ["no-such-program-anywhere"] }), "not-found"),
        (json!({ "argv": ["/etc/passwd"] }), "not-executable"),
        (json!({ "argv": ["sleep", "60"], "timeout": 0.1 }), "timeout"),
        (json!({ "argv": ["true"], "timeuot": 3 }), "bad-input"),
        (json!({ "argv": ["true"], "cwd": "nowhere" }), "bad-input"),
        (json!([1, 2, 3]), "bad-input"),
    ] {
        let unit = run_payload(&dir, &payload, &[]);
        assert_eq!(failure_code(&unit), wanted, "{payload}");
        assert_eq!(unit["attempt"], 1, "a command is tried once unless the sender says more");
    }
}

#[test]
fn more_attempts_are_made_by_request() {
    let dir = TestDir::new();
    let script = "echo x >> tries; test $(wc -l < tries) -ge 3";
    let unit = run_payload(&dir, &json!({ "argv": ["sh", "-c", script] }), &["--max-attempts", "5"]);
    assert_eq!((&unit["state"], &unit["attempt"]), (&json!("done"), &json!(3)));
    assert_eq!(unit["failures"].as_array().unwrap().len(), 2);
}

#[test]
fn a_timeout_kills_the_grandchildren_too() {
    let dir = TestDir::new();
    let script = "sh -c 'echo $$ > grandchild; trap \"\" TERM; sleep 600; sleep 600' & wait";
    let payload = json!({ "argv": ["sh", "-c", script], "timeout": "3s" });
    assert_eq!(failure_code(&run_payload(&dir, &payload, &[])), "timeout");
    let pid = dir.read("grandchild");
    assert!(!pid.trim().is_empty());
    assert!(!is_alive(pid.trim()), "it ignored TERM, and KILL must have followed");
}

#[test]
fn the_senders_timeout_ends_a_command_with_its_group() {
    let dir = TestDir::new();
    let script = "sh -c 'echo $$ > grandchild; sleep 600; true' & wait";
    let payload = json!({ "argv": ["sh", "-c", script] });
    assert_eq!(failure_code(&run_payload(&dir, &payload, &["--timeout", "3s"])), "timeout");
    assert!(!is_alive(dir.read("grandchild").trim()));
}

#[test]
fn what_a_command_leaves_behind_is_killed() {
    let dir = TestDir::new();
    let script = "sleep 600 & echo $! > left; echo done";
    let unit = run_payload(&dir, &json!({ "argv": ["sh", "-c", script] }), &[]);
    assert_eq!(unit["result"]["stdout"], "done\n");
    assert!(!is_alive(dir.read("left").trim()));
}

#[test]
fn cancelling_a_running_unit_ends_its_command() {
    let dir = TestDir::new();
    let id = dir.submit_script("echo $$ > pid; sleep 600; true", &[]);
    let _worker = dir.start(&["worker", "--slots", "1"]);
    eventually(TIMEOUT, || (dir.read("pid").ends_with('\n')).then_some(()));
    dir.run(&["unit", "cancel", &id]).ok();
    eventually(TIMEOUT, || (dir.unit(&id)["state"] == "cancelled").then_some(()));
    assert!(!is_alive(dir.read("pid").trim()));
}

#[test]
fn a_killed_worker_takes_its_commands_with_it() {
    let dir = TestDir::new();
    dir.submit_script("echo $$ > pid; sleep 600; true", &[]);
    let mut worker = dir.start(&["worker", "--slots", "1"]);
    eventually(TIMEOUT, || (dir.read("pid").ends_with('\n')).then_some(()));
    let pid = dir.read("pid");
    assert!(is_alive(pid.trim()));
    worker.kill();
    eventually(TIMEOUT, || (!is_alive(pid.trim())).then_some(()));
}

#[test]
fn a_killed_worker_takes_along_what_left_the_group() {
    let dir = TestDir::new();
    dir.submit_script("setsid sh -c 'echo $$ > pid; sleep 600; true'", &[]);
    let mut worker = dir.start(&["worker", "--slots", "1"]);
    eventually(TIMEOUT, || (dir.read("pid").ends_with('\n')).then_some(()));
    let pid = dir.read("pid");
    worker.kill();
    eventually(TIMEOUT, || (!is_alive(pid.trim())).then_some(()));
}

#[test]
fn a_flood_of_output_is_cut_in_the_middle_and_blocks_nobody() {
    let dir = TestDir::new();
    let script = "echo first; yes | head -c 20000000; yes | head -c 5000000 >&2; echo last";
    let unit = run_payload(&dir, &json!({ "argv": ["sh", "-c", script] }), &[]);
    let result = &unit["result"];
    let out = result["stdout"].as_str().unwrap();
    assert_eq!(result["truncated"], true);
    assert!(out.starts_with("first\n") && out.ends_with("last\n"));
    assert!(out.len() < 1_100_000, "{}", out.len());
}

#[test]
fn a_command_need_not_read_its_input() {
    let dir = TestDir::new();
    let payload = json!({ "argv": ["true"], "stdin": "x".repeat(1_000_000) });
    let file = dir.write("payload.json", payload.to_string());
    let id = dir.run(&["submit", "exec", &format!("@{}", file.display())]).ok().out;
    dir.work();
    assert_eq!(dir.unit(id.trim())["state"], "done");
}
