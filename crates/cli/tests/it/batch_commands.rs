//! PRE and POST as commands in another language. The commands are killed, hang, print or do not
//! start, and each row still ends once with its effects applied once.

use std::path::Path;

use serde_json::{Value, json};

use crate::batch_job::BatchJob;
use crate::support::{TIMEOUT, eventually, stretch};

/// The batch file with a command for PRE and POST.
const COMMAND_EDITS: [(&str, &str); 2] = [
    (
        "[pre]\nsql = \"SELECT id, sort FROM rows WHERE id = :key AND sort <> 'gone'\"\nprompt = \"Row {{ id }} is {{ sort }}.\"",
        "[pre]\ncommand = [\"python3\", \"steps.py\"]\nsql = \"SELECT id, sort FROM rows WHERE id = :key\"",
    ),
    (
        "[post]\nsuccess = [\n  \"UPDATE rows SET done = done + 1 WHERE id = :key\",\n  \"INSERT INTO effects (row, batch, worker, n) VALUES (:key, :batch_id, :worker_id, :n)\",\n]\nfail = \"INSERT INTO failures (row, batch, code) VALUES (:key, :batch_id, :error_code)\"",
        "[post]\ncommand = [\"python3\", \"steps.py\"]",
    ),
];

/// A worker with both operations, written with this repository's SDK. The row's `sort` selects its
/// behaviour.
const STEPS_PROGRAM: &str = r#"
import os, sys, time
sys.path.insert(0, SDK)
with open("pids", "a") as pids:
    pids.write(f"{os.getpid()}\n")
# BEFORE
from longshore.worker import OperationError, Worker

worker = Worker()
calls = 0


def at_work():
    global calls
    calls += 1
    if calls == 1:
        with open("at-work", "a") as pids:
            pids.write(f"{os.getpid()}\n")


@worker.operation("prepare")
def prepare(given: dict):
    at_work()
    row = given["row"]
    if row["sort"] == "skipped":
        return {"skip": "nobody need know"}
    if row["sort"] == "hopeless":
        raise OperationError("there is nothing to ask", data={"outcome": "fail"})
    if row["sort"] == "hanging":
        time.sleep(3600)
    if row["sort"] == "printing":
        print("a stray print")
        os.write(1, b"{\"type\":\"result\",\"id\":")
        os.system("echo and one of a child")
    return f"Row {row['id']} is good."


@worker.operation("apply")
def apply(given: dict):
    at_work()
    if given["status"] == "skipped":
        return {"effects": ["INSERT INTO failures (row, batch, code) VALUES (:key, :batch_id, :status)"]}
    if given["status"] == "error":
        if given["retryable"] and not given["last_attempt"]:
            return "retry"
        failure = "INSERT INTO failures (row, batch, code) VALUES (:key, :batch_id, :error_code)"
        return {"verdict": "fail", "reason": given["error_message"], "effects": [failure]}
    time.sleep(PAUSE)
    count = {"sql": "UPDATE rows SET done = done + 1 WHERE id = :key", "rows": 1}
    keep = "INSERT INTO effects (row, batch, worker, n) VALUES (:key, :batch_id, :who, :n)"
    return {"verdict": "done", "effects": [count, {"sql": keep, "params": {"who": str(os.getpid())}}]}


# AFTER
worker.run()
"#;

/// A job of `rows` rows with PRE and POST in the worker above; `change` edits the worker's source.
pub fn job(rows: u64, sort: &str, edits: &[(&str, &str)], change: &[(&str, &str)]) -> BatchJob {
    let job = BatchJob::new(rows, sort).with(&[&COMMAND_EDITS, edits].concat());
    write_steps(&job, change);
    job
}

fn write_steps(job: &BatchJob, change: &[(&str, &str)]) {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/python");
    let mut steps = STEPS_PROGRAM.replace("SDK", &format!("{:?}", sdk.display().to_string()));
    for (right, wrong) in change {
        assert!(steps.contains(right), "there is no {right} to be edited");
        steps = steps.replace(right, wrong);
    }
    job.dir.write("steps.py", steps.replace("PAUSE", "0"));
}

/// The live processes of the command.
fn live_processes(job: &BatchJob) -> Vec<String> {
    live_processes_in(job, "pids")
}

/// The live processes among those in a list.
pub fn live_processes_in(job: &BatchJob, list: &str) -> Vec<String> {
    let pids = job.dir.read(list);
    pids.lines().filter(|pid| job.dir.is_running("steps.py", pid)).map(str::to_owned).collect()
}

pub fn assert_no_process_left(job: &BatchJob) {
    eventually(TIMEOUT, || live_processes(job).is_empty().then_some(()));
}

pub fn kill(pid: &str) {
    let _ = std::process::Command::new("kill").args(["-KILL", pid]).status();
}

fn failed_rows(job: &BatchJob) -> Vec<Value> {
    job.rows(&job.name(), "failed")
}

#[test]
fn rows_go_through_a_program_in_another_language() {
    let sort = "CASE WHEN i % 10 = 3 THEN 'skipped' WHEN i % 10 = 7 THEN 'hopeless' ELSE 'good' END";
    let job = job(50, sort, &[], &[]);
    let last = job.run(&[]).ends(3).json();
    assert_eq!((&last["done"], &last["failed"]), (&json!(45), &json!(5)), "{last}");
    assert_eq!(job.count("effects"), 40);
    assert_eq!(job.count("failures WHERE code = 'skipped' AND row % 10 = 3"), 5);
    assert_eq!(job.count("failures WHERE code = 'PRE_ERROR' AND row % 10 = 7"), 5);
    assert_eq!(job.batch()["sums"]["answers"], 40, "skipped and failed rows asked no model");
    for row in failed_rows(&job) {
        let reason = row["reason"].as_str().unwrap();
        assert!(reason.contains("there is nothing to ask"), "{row}");
        assert_eq!(row["attempt"], 1, "{row}");
    }
    let started = job.dir.read("pids").lines().count();
    assert!((1..=4).contains(&started), "{started} processes for 50 rows");
    job.assert_exact();
    assert_no_process_left(&job);
}

#[test]
fn workers_elsewhere_start_the_program_themselves() {
    let job = job(40, "'good'", &[], &[]);
    job.create();
    job.dir.run(&["batch", "start", "."]).ok();
    assert_no_process_left(&job);
    job.dir.work();
    let batch = job.batch();
    assert_eq!((&batch["done"], &batch["status"]), (&json!(40), &json!("complete")), "{batch}");
    job.assert_exact();
    assert_no_process_left(&job);
}

#[test]
fn a_dry_run_asks_the_program_for_prompts() {
    let job = job(3, "CASE i WHEN 1 THEN 'skipped' WHEN 2 THEN 'hopeless' ELSE 'good' END", &[], &[]);
    let shown = job.run(&["--dry-run"]).ends(3).json();
    let prompts = &shown["prompts"];
    assert_eq!(prompts[0]["skipped"], "nobody need know", "{shown}");
    assert!(prompts[1]["error"].as_str().unwrap().contains("nothing to ask"), "{shown}");
    assert_eq!(prompts[2]["prompt"], "Row 3 is good.", "{shown}");
    assert!(!job.dir.path("rows.db").exists());
    assert_no_process_left(&job);
}

#[test]
fn what_a_program_prints_harms_nobody() {
    let change = [("# BEFORE", "print('before')"), ("# AFTER", "print('{\"type\": \"stop\"}')")];
    let job = job(20, "'printing'", &[], &change);
    let last = job.run(&[]).ok().json();
    assert_eq!(last["done"], 20, "{last}");
    job.assert_exact();
}

#[test]
fn a_program_that_does_not_start_is_one_clear_error_and_no_batch() {
    let change = [("# BEFORE", "import walrus")];
    let job = job(5, "'good'", &[], &change);
    let line = job.dir.read("batch.toml");
    let line = line.lines().position(|line| line.starts_with("command")).unwrap() + 1;
    for args in [&[][..], &["--dry-run"]] {
        let run = job.run(args).ends(1);
        assert_eq!(run.err.matches("error:").count(), 1, "{}", run.err);
        run.says(&format!("batch.toml, line {line}: `pre.command`: `python3 steps.py`"))
            .says("No module named 'walrus'")
            .says("hint: it must speak the worker protocol");
    }
    assert_eq!(job.batches(), Vec::<Value>::new());
    assert_no_process_left(&job);
}

#[test]
fn a_program_that_is_no_worker_or_not_one_for_this_is_refused() {
    let hang = [("# BEFORE", "time.sleep(3600)")];
    let limit = [("[ai]", "start_timeout = \"300ms\"\n\n[ai]")];
    let hangs = job(5, "'good'", &limit, &hang);
    hangs.run(&[]).ends(1).says("`pre.command`: `python3 steps.py`").says("300ms");
    assert_no_process_left(&hangs);
    let lacks = job(5, "'good'", &[], &[("operation(\"apply\")", "operation(\"aply\")")]);
    lacks.run(&[]).ends(1).says("has no operation `apply`; it has").says("hint: give the worker");
    let absent = [("command = [\"python3\", \"steps.py\"]\nsql", "command = [\"./no.sh\"]\nsql")];
    job(5, "'good'", &absent, &[]).run(&[]).ends(1).says("there is no file ./no.sh");
    let absent = [("command = [\"python3\", \"steps.py\"]\nsql", "command = [\"pyhton3\"]\nsql")];
    job(5, "'good'", &absent, &[]).run(&[]).ends(1).says("`pyhton3` cannot be started");
}

#[test]
fn a_call_that_hangs_costs_its_own_row_only() {
    let limit = [("[ai]", "timeout = \"2s\"\nstart_timeout = \"5s\"\nmax = 2\n\n[ai]")];
    let job = job(30, "CASE WHEN i = 11 THEN 'hanging' ELSE 'good' END", &limit, &[]);
    let last = job.run(&[]).ends(3).json();
    assert_eq!((&last["done"], &last["failed"]), (&json!(29), &json!(1)), "{last}");
    let row = &failed_rows(&job)[0];
    assert_eq!((&row["key"], &row["code"]), (&json!(11), &json!("pre-error")), "{row}");
    assert!(row["reason"].as_str().unwrap().contains("not done within"), "{row}");
    job.assert_exact();
    assert_no_process_left(&job);
}

/// The program breaks while the batch runs and is repaired later: rows wait and use no attempt.
#[test]
fn rows_wait_for_a_program_that_does_not_start_any_more() {
    let job = job(300, "'good'", &[], &[("PAUSE", "0.02")]);
    job.create();
    let mut run = job.start(&[]);
    job.wait_for_effects(10);
    write_steps(&job, &[("# BEFORE", "import walrus")]);
    eventually(stretch(2 * TIMEOUT), || {
        live_processes(&job).iter().for_each(|pid| kill(pid));
        job.dir.read("stderr").contains("No module named 'walrus'").then_some(())
    });
    let before = job.count("effects");
    assert!(before < 300, "the batch ended before the program was broken");
    write_steps(&job, &[]);
    assert_eq!(run.ends_within(stretch(4 * TIMEOUT)), 0, "{}", job.dir.read("stderr"));
    let batch = job.batch();
    assert_eq!((&batch["done"], &batch["failed"]), (&json!(300), &json!(0)), "{batch}");
    job.assert_exact();
    assert_no_process_left(&job);
}

#[test]
fn a_program_that_dies_when_it_is_told_of_ended_rows_is_told_again() {
    let dies = "    if given[\"status\"] == \"error\":\n        with open(\"died\", \"a+\") as died:\n            \
                died.write(\"x\")\n            if died.tell() <= 6:\n                died.flush()\n                os._exit(9)\n";
    let job = job(5, "'good'", &[], &[("    if given[\"status\"] == \"error\":\n", dies)]);
    job.create();
    job.dir.run(&["batch", "start", "."]).ok();
    job.operate("cancel", &[]).ok();
    let mut worker = job.dir.start(&["worker"]);
    eventually(stretch(2 * TIMEOUT), || (job.count("ends") == 1).then_some(()));
    assert!(job.dir.read("died").len() > 6);
    assert_eq!(job.count("failures WHERE code = 'CANCELLED'"), 5);
    assert_eq!(job.query::<u64>("SELECT count(DISTINCT row) FROM failures"), 5);
    worker.signal("TERM");
    assert_eq!(worker.ends_within(TIMEOUT), 0);
    assert_no_process_left(&job);
}
