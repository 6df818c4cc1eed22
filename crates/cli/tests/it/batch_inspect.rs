//! Inspecting batches before, during and after a run: `--dry-run`, `rows`, `report`.

use std::io::BufRead;

use serde_json::{Value, json};

use crate::batch_job::BatchJob;
use crate::support::{ChildGuard, TIMEOUT, eventually};

/// Six rows in ten are good; each of the other four fails in its own way.
const MIXED_SORTS: &str = "CASE i % 10 WHEN 1 THEN 'bad' WHEN 2 THEN 'silent' WHEN 3 THEN 'refused' \
                     WHEN 4 THEN 'gone' ELSE 'good' END";
const SHORT_TIMEOUT: (&str, &str) = ("timeout = \"30s\"", "timeout = \"700ms\"");

fn run_mixed_job() -> BatchJob {
    let job = BatchJob::new(50, MIXED_SORTS).with(&[SHORT_TIMEOUT]);
    job.run(&[]).ends(3);
    job
}

#[test]
fn a_dry_run_asks_and_changes_nothing() {
    let job = BatchJob::good(50);
    drop(job.create());
    let before = std::fs::read(job.dir.path("rows.db")).unwrap();
    let shown = job.dir.run(&["batch", "run", ".", "--dry-run"]).ok().out;
    for words in ["SELECT id FROM rows WHERE done = 0", "50", "simulated", "$0.0", "exactly once"] {
        assert!(shown.contains(words), "no {words} in {shown}");
    }
    let prompts: Vec<&str> = shown.lines().filter(|line| line.starts_with("Row ")).collect();
    assert_eq!(prompts, ["Row 1 is good.", "Row 2 is good.", "Row 3 is good."]);
    let json = job.run(&["--dry-run", "--limit", "20"]).ok().json();
    assert_eq!((&json["count"], &json["simulated"]), (&json!(20), &json!(true)), "{json}");
    assert!(json["cost_estimate"].as_f64() <= json["cost_at_most"].as_f64(), "{json}");
    assert!(json["cost_estimate"].as_f64() > Some(0.0), "{json}");
    let after = std::fs::read(job.dir.path("rows.db")).unwrap();
    assert!(before == after, "the database was changed");
    assert_eq!(job.count("sqlite_schema WHERE type = 'table'"), 5, "no tables of a store");
}

/// JSON consumers get a prompt as text, and an error as an error.
#[test]
fn a_dry_run_shows_a_prompt_that_cannot_be_made() {
    let job = BatchJob::new(5, "CASE i WHEN 2 THEN 'gone' ELSE 'good' END");
    job.create();
    let json = job.run(&["--dry-run"]).ends(3).json();
    assert_eq!((&json["prompts"][0]["key"], &json["prompts"][1]["key"]), (&json!(1), &json!(2)));
    assert_eq!(json["prompts"][0]["prompt"], "Row 1 is good.", "{json}");
    assert!(json["prompts"][1].to_string().contains("the row is gone"), "{json}");
}

#[test]
fn a_batch_that_runs_can_be_looked_at() {
    let script = "script = \"script.toml\"";
    let job = BatchJob::good(400).with(&[(script, &format!("{script}\ndelay = \"20ms\""))]);
    let mut run = job.start(&[]);
    job.wait_for_effects(10);
    let batch = job.batch();
    assert_eq!((&batch["status"], &batch["type"]), (&json!("running"), &json!("review")), "{batch}");
    let states = ["done", "failed", "cancelled", "blocked", "scheduled", "ready", "leased"];
    let sum: u64 = states.iter().map(|state| batch[state].as_u64().unwrap()).sum();
    assert_eq!(batch["total"], sum, "{batch}");
    let running = job.dir.run(&["batch", "list", "--status", "running", "--json"]).ok().json();
    assert_eq!(running[0]["batch"], batch["batch"]);

    let name = job.name();
    let mut watch = job.dir.command(&["batch", "watch", &name, "--json"]);
    let mut watch = ChildGuard(watch.spawn().unwrap());
    let lines = std::io::BufReader::new(watch.0.stdout.take().unwrap()).lines();
    let seen: Vec<Value> = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    assert_eq!(watch.ends_within(TIMEOUT), 0);
    assert_eq!(run.ends_within(TIMEOUT), 0);
    let done: Vec<u64> = seen.iter().map(|batch| batch["done"].as_u64().unwrap()).collect();
    assert!(done.is_sorted() && done.len() >= 2 && done.last() == Some(&400), "{done:?}");
    assert_eq!(seen.last().unwrap()["status"], "complete");
    let workers: u64 = job.query("SELECT count(DISTINCT worker) FROM effects");
    assert!((2..=8).contains(&workers), "{workers} of 8 workers");
    assert_eq!(job.dir.run(&["batch", "list", "--status", "running", "--json"]).ok().json(), json!([]));
}

#[test]
fn rows_are_listed_with_what_became_of_them() {
    let job = run_mixed_job();
    let name = job.name();
    let all = job.dir.run(&["batch", "rows", &name, "--limit", "100", "--json"]).ok().json();
    let mut keys: Vec<u64> = all.as_array().unwrap().iter().map(|row| row["key"].as_u64().unwrap()).collect();
    keys.sort_unstable();
    assert!(keys.into_iter().eq(1..=50), "{all}");

    let failed = job.operate("rows", &["--failed"]).ok().json();
    assert_eq!(failed, Value::Array(job.rows(&name, "failed")));
    for (rest, code, words) in [
        (1, "bad-answer", "not JSON"),
        (2, "timeout", "no answer in time"),
        (3, "effect", "CHECK constraint failed"),
        (4, "pre-error", "the row is gone"),
    ] {
        let rows = failed.as_array().unwrap().iter();
        let rows: Vec<&Value> = rows.filter(|row| row["key"].as_u64().unwrap() % 10 == rest).collect();
        assert_eq!(rows.len(), 5, "{failed}");
        for row in rows {
            assert_eq!((&row["code"], &row["state"]), (&json!(code), &json!("failed")), "{row}");
            assert!(row["reason"].as_str().unwrap().contains(words), "{row}");
        }
    }
    let done = &job.rows(&name, "done")[0];
    assert_eq!((&done["result"]["verdict"], &done["result"]["simulated"]), (&json!("SUCCESS"), &json!(true)));

    // As a table, and page by page.
    let table = job.dir.run(&["batch", "rows", &name, "--failed", "--limit", "3"]).ok();
    assert_eq!(table.out.lines().count(), 4, "{}", table.out);
    let cursor = table.err.rsplit("--after ").next().unwrap().trim().to_owned();
    let rest = job.operate("rows", &["--failed", "--after", &cursor]).ok().json();
    assert_eq!(rest.as_array().unwrap().len(), 17);
    job.dir.run(&["batch", "rows", "nothing"]).ends(1).says("there is no batch").says("hint:");
}

#[test]
fn a_report_groups_failures_by_their_reason() {
    let job = run_mixed_job();
    let name = job.name();
    let text = job.dir.run(&["batch", "report", &name]).ok().out;
    for words in [&format!("# Batch {name}"), "Simulated", "## Latency", "| Done | 30 |", "| Failed | 20 |"] {
        assert!(text.contains(words), "no {words} in {text}");
    }
    let failures: Vec<&str> = text.split("## Failures").nth(1).unwrap().lines().collect();
    for code in ["bad-answer", "timeout", "effect", "pre-error"] {
        let group = failures.iter().filter(|line| line.contains(&format!("| 5 | {code} |")));
        assert_eq!(group.count(), 1, "{code}: {text}");
    }
    let html = job.dir.run(&["batch", "report", &name, "--html"]).ok().out;
    assert!(html.starts_with("<!doctype html>") && html.trim_end().ends_with("</html>"), "{html}");
    assert!(html.contains("<svg") && !html.contains("<script") && !html.contains("http"), "{html}");
    assert!(html.contains("Simulated") && html.contains("CHECK constraint failed: n &gt; 0"), "{html}");

    let json = job.operate("report", &[]).ok().json();
    assert_eq!((&json["batch"]["id"], &json["usage"]["answers"]), (&json!(name), &json!(40)), "{json}");
    let wrote = job.dir.run(&["batch", "report", &name, "--html", "-o", "report.html"]).ok();
    assert_eq!(wrote.says("wrote report.html").out, "", "stdout is for data");
    // Everything but the report's own timestamp.
    let body = |html: &str| html.split("<footer>").next().unwrap().to_owned();
    assert_eq!(body(&job.dir.read("report.html")), body(&html));
    job.dir.run(&["batch", "report", "nothing"]).ends(1).says("there is no batch").says("hint:");
    job.dir.run(&["batch", "report", &name, "-o", "no/dir/x"]).ends(1).says("no/dir/x");
}

/// If rows and store are two databases, the dry run announces at-least-once effects, and the rows'
/// database has no store tables.
#[test]
fn rows_in_another_database_than_the_store_are_worked_on_as_well() {
    let job = BatchJob::new(50, MIXED_SORTS).with(&[SHORT_TIMEOUT]);
    job.create();
    let elsewhere = ["--store", "sqlite:store.db"];
    let run = |args: &[&str]| job.dir.run(&[&elsewhere, args].concat());
    let shown = run(&["batch", "run", ".", "--dry-run"]).ok().out;
    assert!(shown.contains("at least once"), "{shown}");
    let last = run(&["batch", "run", ".", "--json"]).ends(3).json();
    assert_eq!((&last["done"], &last["failed"]), (&json!(30), &json!(20)), "{last}");
    assert_eq!((job.count("effects"), job.count("failures"), job.count("ends")), (30, 20, 1));
    assert_eq!(job.count("sqlite_schema WHERE type = 'table'"), 5, "no tables of a store");
    let failed = run(&["batch", "rows", last["batch"].as_str().unwrap(), "--failed", "--json"]);
    let failed = failed.ok().json();
    let refused = failed.as_array().unwrap().iter().filter(|row| row["code"] == "post-error");
    assert_eq!(refused.count(), 5, "{failed}");
    run(&["verify"]).ok();
}

/// A worker needs only the store: the batch holds everything else.
#[test]
fn a_worker_needs_neither_the_batch_file_nor_its_folder() {
    let job = BatchJob::good(50);
    job.create();
    job.dir.run(&["batch", "start", ".", "--notes", "for the night"]).ok();
    assert_eq!((&job.batch()["notes"], &job.batch()["status"]), (&json!("for the night"), &json!("queued")));
    for file in ["batch.toml", "script.toml", "seed.sql"] {
        std::fs::remove_file(job.dir.path(file)).unwrap();
    }
    std::fs::create_dir(job.dir.path("elsewhere")).unwrap();
    let store = format!("sqlite:{}", job.dir.path("rows.db").display());
    let mut worker = job.dir.command(&["--store", &store, "worker", "--slots", "4", "--until-idle"]);
    let worker = worker.current_dir(job.dir.path("elsewhere")).spawn().unwrap();
    crate::support::CliOutput::of(worker).ok();
    eventually(TIMEOUT, || (job.batch()["status"] == "complete").then_some(()));
    assert_eq!((job.count("effects"), job.count("ends")), (50, 1));
    job.assert_exact();
}
