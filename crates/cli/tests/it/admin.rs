//! Inspecting and controlling units, queues, batches and workers.

use serde_json::{Value, json};

use crate::support::{TIMEOUT, TestDir, eventually};

#[test]
fn a_failed_unit_can_be_retried_and_a_waiting_one_cancelled() {
    let dir = TestDir::new();
    let fails = dir.submit_script("test -e mended", &[]);
    dir.work();
    assert_eq!(dir.unit(&fails)["state"], "failed");
    dir.write("mended", "");
    dir.run(&["unit", "retry", &fails]).ok();
    dir.work();
    assert_eq!(dir.unit(&fails)["state"], "done");
    dir.run(&["unit", "retry", &fails]).ends(1);

    let waits = dir.submit_script("true", &["--delay", "1h"]);
    assert_eq!(dir.unit(&waits)["state"], "scheduled");
    dir.run(&["unit", "cancel", &waits]).ok();
    assert_eq!(dir.unit(&waits)["state"], "cancelled");
}

#[test]
fn lists_are_filtered_and_go_on_where_they_stopped() {
    let dir = TestDir::new();
    let ids: Vec<String> = (0..5).map(|_| dir.submit_script("true", &[])).collect();
    dir.submit_script("true", &["--queue", "other"]);
    let list = |more: &[&str]| {
        let args = [&["unit", "list", "--json", "--queue", "default"], more].concat();
        dir.run(&args).ok()
    };
    assert_eq!(list(&[]).json().as_array().unwrap().len(), 5);
    let first = list(&["--limit", "3"]);
    let cursor = first.err.rsplit("--after ").next().unwrap().trim().to_owned();
    let rest = list(&["--limit", "3", "--after", &cursor]);
    let mut seen: Vec<String> = Vec::new();
    for page in [first.json(), rest.json()] {
        let units = page.as_array().unwrap().clone();
        seen.extend(units.iter().map(|unit| unit["unit"].as_str().unwrap().to_owned()));
    }
    seen.reverse();
    assert_eq!(seen, ids, "newest first, no gap, no repeat");
    assert_eq!(list(&["--state", "done"]).json(), json!([]));
}

#[test]
fn a_paused_queue_is_passed_by_and_a_purged_one_is_empty() {
    let dir = TestDir::new();
    let id = dir.submit_script("true", &[]);
    dir.run(&["queue", "pause", "default"]).ok();
    assert_eq!(dir.queue()["paused"], true);
    let other = dir.submit_script("true", &["--queue", "other"]);
    let _worker = dir.start(&["worker", "--slots", "1"]);
    eventually(TIMEOUT, || (dir.unit(&other)["state"] == "done").then_some(()));
    assert_eq!(dir.unit(&id)["state"], "ready");

    dir.run(&["queue", "purge", "default"]).ends(2).says("--yes");
    dir.run(&["queue", "purge", "default", "--yes"]).ok();
    assert_eq!(dir.unit(&id)["state"], "cancelled");
    dir.run(&["queue", "resume", "default"]).ok();
    let next = dir.submit_script("true", &[]);
    eventually(TIMEOUT, || (dir.unit(&next)["state"] == "done").then_some(()));
}

#[test]
fn the_failures_of_a_batch_can_be_retried_after_its_end() {
    let dir = TestDir::new();
    let line = json!({ "argv": ["test", "-e", "mended"] }).to_string() + "\n";
    dir.run_with(&["submit", "exec", "--lines", "-", "--batch", "b"], line.repeat(3)).ok();
    dir.work();
    assert_eq!(dir.batch("b")["failed"], 3);
    dir.write("mended", "");
    dir.run(&["batch", "retry", "b"]).ok();
    dir.work();
    let batch = dir.batch("b");
    assert_eq!((&batch["done"], &batch["failed"], &batch["generation"]), (&json!(3), &json!(0), &json!(2)));
    dir.run(&["batch", "watch", "b"]).ok();
}

#[test]
fn a_batch_pauses_at_its_threshold() {
    let dir = TestDir::new();
    let args = ["submit", "exec", "--lines", "-", "--batch", "b", "--threshold", "2"];
    dir.run_with(&args, "{\"argv\":[\"sh\",\"-c\",\"sleep 0.2; exit 1\"]}\n".repeat(20)).ok();
    let _worker = dir.start(&["worker", "--slots", "1"]);
    dir.run(&["batch", "watch", "b"]).ends(4).says("");
    let batch = dir.batch("b");
    assert_eq!(batch["status"], "paused");
    assert!(batch["reason"].as_str().unwrap().contains("threshold"), "{batch}");
    assert!(batch["ready"].as_u64().unwrap() > 0, "{batch}");
}

#[test]
fn a_worker_is_listed_and_obeys_an_order_by_the_beginning_of_its_id() {
    let dir = TestDir::new();
    let mut worker = dir.start(&["worker", "--slots", "3", "--ttl", "6s"]);
    let listed = || dir.run(&["workers", "--json"]).ok().json();
    let session = eventually(TIMEOUT, || listed()[0].as_object().cloned());
    let kinds = json!(["batch.bulk", "batch.end", "batch.row", "batch.start", "exec", "http"]);
    assert_eq!((&session["slots"], &session["kinds"]), (&json!(3), &kinds));
    let id = session["id"].as_str().unwrap();
    dir.run(&["workers", "drain", &id[..8]]).ok();
    assert_eq!(worker.ends_within(TIMEOUT), 0);
    assert_eq!(listed(), json!([]));
}

#[test]
fn a_tenant_sees_only_its_own() {
    let dir = TestDir::new();
    let id = dir.submit_script("true", &["--tenant", "acme"]);
    assert_eq!(dir.run(&["unit", "show", &id, "--tenant", "other"]).code, 1);
    let listed = |tenant: &str| dir.run(&["unit", "list", "--json", "--tenant", tenant]).ok().json();
    assert_eq!(listed("other"), json!([]));
    assert_eq!(listed("acme")[0]["tenant"], "acme");
}

#[test]
fn tables_are_for_people_and_stay_plain_without_a_terminal() {
    let dir = TestDir::new();
    let id = dir.submit_script("true", &[]);
    for args in [&["unit", "list"][..], &["queue", "list"], &["unit", "show", &id]] {
        let out = dir.run(args).ok().out;
        assert!(out.contains("default") && !out.contains('\x1b'), "{out}");
    }
    assert_eq!(dir.run(&["batch", "list"]).ok().out, "no batches\n");
}

#[test]
fn verify_and_migrate_answer_in_both_forms() {
    let dir = TestDir::new();
    dir.submit_script("true", &[]);
    assert_eq!(dir.run(&["verify"]).ok().out, "ok: 1 units, 0 batches, counters exact\n");
    assert_eq!(dir.run(&["verify", "--json"]).ok().json()["ok"], true);
    assert!(dir.run(&["migrate", "--json"]).ok().json()["schema"].is_u64());
    assert_eq!(dir.run(&["migrate", "--plan"]).ok().out, "");
    let list = dir.run(&["migrate", "list", "--json"]).ok().json();
    assert_eq!((&list[0]["version"], &list[0]["state"]), (&json!(1), &json!("applied")), "{list}");
    assert!(dir.run(&["migrate", "list"]).ok().out.contains("applied"));
    assert!(dir.run(&["migrate", "validate"]).ok().out.starts_with("ok: schema version"));
}

#[test]
fn a_plan_prints_the_sql_that_creates_a_store_and_creates_none() {
    let dir = TestDir::new();
    let plan = dir.run(&["migrate", "--plan"]).ok().out;
    assert!(plan.contains("CREATE TABLE longshore_unit") && plan.ends_with("COMMIT;\n"), "{plan}");
    dir.run(&["migrate", "validate"]).ends(1).says("pending").says("longshore migrate");
    assert!(!dir.path("longshore.db").exists());
    dir.run_with(&["migrate"], "").ok();
    dir.run(&["migrate", "validate"]).ok();
}

#[test]
fn many_processes_may_make_the_store_at_once() {
    let dir = TestDir::new();
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| dir.submit_script("true", &[]));
        }
    });
    assert_eq!(dir.queue()["counts"]["ready"], 16);
}

#[test]
fn a_small_bench_and_a_little_chaos_end_well() {
    let dir = TestDir::new();
    let bench = dir.run(&["bench", "--units", "500", "--slots", "4", "--json"]).ok().json();
    assert!(bench["process_per_second"].as_f64().unwrap() > 0.0, "{bench}");
    let leftovers: Vec<_> = std::fs::read_dir(dir.path("")).unwrap().collect();
    assert!(leftovers.is_empty(), "{leftovers:?}");
    let storm = ["chaos", "--units", "300", "--workers", "2", "--slots", "4", "--kills", "3"];
    let books: Value = dir.run(&[&storm[..], &["--json", "--seed", "1"]].concat()).ok().json();
    assert_eq!((&books["ok"], &books["kills"]), (&json!(true), &json!(3)), "{books}");
}
