//! The kind `exec`: what commands get, what is recorded of them, and that none outlives its unit.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{ChildGuard, TIMEOUT, TestDir, eventually, is_alive};

/// The user id of Debian's `nobody`.
const NOBODY: u32 = 65_534;

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
    dir.write("longshore.toml", "[worker]\nexec_env = [\"LICENCE\"]\n");
    let id = dir.submit_script("env", &[]);
    let mut worker = dir.command(&["worker", "--slots", "1", "--until-idle"]);
    let store = format!("sqlite:{}", dir.path("longshore.db").display());
    worker.env("DATABASE_PASSWORD", "hunter2").env("LC_TIME", "C").env("LICENCE", "seven");
    worker.env("LONGSHORE_STORE", store).env("LONGSHORE_SMTP_PASSWORD", "hunter2");
    assert!(worker.status().unwrap().success());
    let out = dir.unit(&id)["result"]["stdout"].as_str().unwrap().to_owned();
    assert!(!out.contains("hunter2") && !out.contains("LONGSHORE_STORE"), "{out}");
    assert!(out.contains("LC_TIME=C") && out.contains("PATH=") && out.contains("LICENCE=seven"), "{out}");
    dir.write("longshore.toml", "[worker]\nexec_env = [\"LONGSHORE_MASTER_KEY\"]\n");
    dir.run(&["worker", "--until-idle"]).ends(2).says("commands never inherit");
}

/// A script that prints the secret of each process of this user, if it can read it.
const READ_SECRETS: &str =
    "cat /proc/$PPID/environ; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep SMTP_PASS";

/// The binary, with a secret in its environment. As root a process reads everything, so that it is
/// started as another user.
fn without_privileges(dir: &TestDir, arguments: &[&str]) -> Command {
    use std::os::unix::process::CommandExt;
    let mut command = dir.command(arguments);
    if dir.is_root() {
        // The build's folder may be closed to that user.
        let program = dir.path("longshore");
        std::fs::copy(command.get_program(), &program).unwrap();
        dir.give_to(NOBODY);
        command = Command::new(program);
        command.args(arguments).current_dir(dir.path(".")).uid(NOBODY).gid(NOBODY);
    }
    command.env("LONGSHORE_SMTP_PASSWORD", "hunter2");
    command
}

#[test]
fn a_command_reads_neither_its_workers_environment_nor_that_of_the_reaper() {
    let dir = TestDir::new();
    let id = dir.submit_script(&format!("({READ_SECRETS}); grep NoNewPrivs /proc/self/status; id -u"), &[]);
    let mut worker = without_privileges(&dir, &["worker", "--slots", "1", "--until-idle"]);
    assert!(worker.status().unwrap().success());
    // The store belongs to the other user.
    let unit = dir.run(&["--store", "sqlite:longshore.db", "unit", "show", &id, "--json"]).ok().json();
    let out = unit["result"]["stdout"].as_str().unwrap_or_else(|| panic!("{unit}"));
    assert!(!out.contains("hunter2"), "{out}");
    assert!(unit["result"]["stderr"].as_str().unwrap().contains("Permission denied"), "{unit}");
    assert!(out.contains("NoNewPrivs:\t1"), "{out}");
}

#[test]
fn a_command_reads_the_environment_of_no_other_process_of_its_supervisor() {
    let dir = TestDir::new();
    dir.write(
        "longshore.toml",
        "mail.spool = 'spool'\n\
         [supervise.workers.mail]\ncommand = ['longshore', 'mail', 'send', '--daemon', '--folder', 'out']\n\
         [supervise.workers.own]\ncommand = ['sh', '-c', 'touch own; sleep 600']\n\
         [supervise.workers.exec]\nkinds = ['exec']\nslots = 1\n",
    );
    let wait = "until [ -e own ] && [ -d spool ]; do sleep 0.02; done";
    dir.submit_script(&format!("{wait}; ({READ_SECRETS}) > found; touch end"), &[]);
    let mut supervisor = without_privileges(&dir, &["supervise"]);
    let _supervisor = ChildGuard(supervisor.spawn().unwrap());
    eventually(TIMEOUT, || dir.path("end").exists().then_some(()));
    assert_eq!(dir.read("found"), "");
}

#[test]
fn a_root_worker_runs_commands_as_another_user_if_it_is_told_to() {
    let dir = TestDir::new();
    if !dir.is_root() {
        dir.run(&["worker", "--exec-user", "nobody"]).ends(1).says("does not run as root");
        return;
    }
    std::fs::set_permissions(dir.path("."), Permissions::from_mode(0o755)).unwrap();
    let work = ["worker", "--until-idle", "--exec-user", "nobody"];
    // The tests may have a terminal.
    let run_detached = || {
        let mut detached = Command::new("setsid");
        detached.arg("--wait").arg(dir.command(&[]).get_program()).args(work).current_dir(dir.path("."));
        assert!(detached.status().unwrap().success());
    };
    let id = dir.submit_script("id -u; id -G; echo $USER; cat /proc/$PPID/environ", &["--max-attempts", "1"]);
    run_detached();
    let unit = dir.unit(&id);
    assert_eq!(failure_code(&unit), "exit-code", "the worker's environment is not readable");
    let id = dir.submit_script("id -u; id -G; echo $USER", &[]);
    run_detached();
    let unit = dir.unit(&id);
    let nobody = NOBODY.to_string();
    assert_eq!(unit["result"]["stdout"], format!("{nobody}\n{nobody}\nnobody\n"), "{unit}");
    dir.run(&["worker", "--exec-user", "no-such-user"]).ends(1).says("no user `no-such-user`");
    // `script` runs a command on a terminal, which a command of the other user could type into.
    let on_terminal = format!("{} {}", dir.command(&[]).get_program().display(), work.join(" "));
    let mut script = Command::new("script");
    script.args(["-qec", &on_terminal, "/dev/null"]).current_dir(dir.path(".")).stdin(Stdio::null());
    let shown = script.output().unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("must not have a terminal"), "{shown}");
}

/// A group has its leader's id. If the leader were reaped first, the id could belong to another group
/// by the time the rest of the group is killed.
#[test]
fn a_command_is_reaped_after_its_group_was_killed() {
    let dir = TestDir::new();
    // `sleep` keeps the output open, so that the worker waits for the rest of it.
    let id = dir.submit_script("sleep 600 & echo $! > left; echo $$ > leader", &[]);
    let _worker = dir.start(&["worker", "--slots", "1"]);
    eventually(TIMEOUT, || dir.read("leader").ends_with('\n').then_some(()));
    let (leader, left) = (dir.read("leader"), dir.read("left"));
    let leader = std::path::Path::new("/proc").join(leader.trim());
    eventually(TIMEOUT, || (!leader.exists()).then_some(()));
    // A killed process needs a moment to end. A worker that reaps first waits two seconds for the output.
    eventually(Duration::from_millis(500), || (!is_alive(left.trim())).then_some(()));
    eventually(TIMEOUT, || (dir.unit(&id)["state"] == "done").then_some(()));
    assert!(!leader.exists());
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
        (json!({ "argv": ["true"], "cwd": "nowhere" }), "bad-input"),
    ] {
        let unit = run_payload(&dir, &payload, &[]);
        assert_eq!(failure_code(&unit), wanted, "{payload}");
        assert_eq!(unit["attempt"], 1, "a command is tried once unless the sender says more");
    }
    // Rejected before anything is sent.
    for payload in [json!({ "argv": ["true"], "timeuot": 3 }), json!([1, 2, 3])] {
        dir.run(&["submit", "exec", &payload.to_string()]).ends(2).says("is not an exec payload");
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
