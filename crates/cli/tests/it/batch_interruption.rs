//! Batches interrupted before their end: workers drained from outside, and a store that is not at the
//! expected path.

use serde_json::json;

use crate::batch_job::BatchJob;
use crate::support::{TIMEOUT, TestDir};

fn slow_job(rows: u64) -> BatchJob {
    let script = "script = \"script.toml\"";
    BatchJob::good(rows).with(&[(script, &format!("{script}\ndelay = \"50ms\""))])
}

#[test]
fn a_run_whose_workers_are_drained_from_outside_ends_and_can_be_taken_up() {
    let job = slow_job(300);
    let mut run = job.start(&[]);
    job.wait_for_effects(20);
    let sessions = job.dir.run(&["workers", "--json"]).ok().json();
    for session in sessions.as_array().unwrap() {
        // Draining one session may already have ended the other.
        job.dir.run(&["workers", "drain", session["id"].as_str().unwrap()]);
    }
    assert_eq!(run.ends_within(TIMEOUT), 130);
    let left = job.batch();
    assert_eq!((&left["status"], &left["leased"]), (&json!("running"), &json!(0)));
    job.run(&[]).ok();
    job.assert_exact();
}

#[test]
fn what_looks_for_batches_does_not_make_a_store() {
    let dir = TestDir::new();
    for verb in ["recover", "status", "report", "rows"] {
        let name: &[&str] = if verb == "recover" { &[] } else { &["20261115-073259-001"] };
        let args = [&["batch", verb], name].concat();
        dir.run(&args).ends(1).says("sqlite:longshore.db").says("hint:");
        assert!(!dir.path("longshore.db").exists(), "{verb} made a store");
    }
}

#[test]
fn a_drain_takes_back_what_killed_workers_held() {
    let job = slow_job(300);
    let mut run = job.start(&[]);
    job.wait_for_effects(20);
    run.kill();
    assert_ne!(job.batch()["leased"], 0, "the leases have not expired yet");
    job.operate("drain", &[]).ok();
    assert_eq!(job.batch()["leased"], 0);
    job.operate("resume", &[]).ok();
    job.run(&[]).ok();
    job.assert_exact();
}
