//! A batch while supervised workers and their supervisor are killed: every unit is counted once, and
//! no process is left behind.

use std::time::Duration;

use crate::supervise::{dir_with_sections, wait_for_log};
use crate::support::{ChildGuard, TestDir, eventually, is_alive, pick_size, signal, stretch};

/// The live processes that the workers' sessions name.
fn live_workers(dir: &TestDir) -> Vec<String> {
    let sessions = dir.run(&["workers", "--json"]).ok().json();
    let labels = sessions.as_array().unwrap().iter().map(|session| &session["label"]);
    let pid = |label: &str| label.rsplit(':').next().unwrap().to_owned();
    let is_ours = |pid: &String| dir.is_running("worker", pid);
    labels.map(|label| pid(label.as_str().unwrap())).filter(is_ours).collect()
}

fn ended_count(dir: &TestDir) -> u64 {
    let batch = dir.batch("storm");
    ["done", "failed", "cancelled"].iter().map(|state| batch[*state].as_u64().unwrap()).sum()
}

#[test]
fn a_batch_is_counted_exactly_while_workers_and_supervisors_are_killed() {
    let (units, kills) = (pick_size(120, 3000), pick_size(4, 60));
    let dir = dir_with_sections(
        "[supervise.workers.ours]\nkinds = ['exec']\nslots = 2\ncount = 3\n\
         env = { LONGSHORE_TTL = '1s' }\n",
    );
    let lines = "{\"argv\":[\"sleep\",\"0.05\"]}\n".repeat(units);
    dir.run_with(&["submit", "exec", "--lines", "-", "--batch", "storm"], lines).ok();
    let patience = stretch(Duration::from_secs(60));
    let mut supervisor = dir.start(&["supervise"]);
    let mut seen = Vec::new();
    for kill in 0..kills {
        // Kill during the work, not before it starts.
        let reached = ended_count(&dir);
        eventually(patience, || {
            (ended_count(&dir) > reached || ended_count(&dir) == units as u64).then_some(())
        });
        let live_pids = eventually(patience, || Some(live_workers(&dir)).filter(|all| !all.is_empty()));
        seen.extend(live_pids.iter().cloned());
        if kill % 2 == 1 {
            supervisor.kill();
            for pid in &live_pids {
                eventually(patience, || (!is_alive(pid)).then_some(()));
            }
            supervisor = dir.start(&["supervise"]);
        } else {
            signal(live_pids[kill % live_pids.len()].parse().unwrap(), "KILL");
        }
    }
    eventually(patience, || (ended_count(&dir) == units as u64).then_some(()));
    stop(&dir, &mut supervisor);
    let batch = dir.batch("storm");
    assert_eq!((batch["done"].as_u64(), batch["failed"].as_u64()), (Some(units as u64), Some(0)));
    assert!(seen.iter().all(|pid| !is_alive(pid)), "no process is left");
    dir.run(&["verify"]).ok();
}

fn stop(dir: &TestDir, supervisor: &mut ChildGuard) {
    supervisor.signal("TERM");
    assert_eq!(supervisor.ends_within(stretch(Duration::from_secs(30))), 0);
    assert!(live_workers(dir).is_empty());
}

#[test]
fn batches_are_taken_up_at_the_start_where_that_is_wanted() {
    let dir = dir_with_sections("recover = true\n[supervise.workers.ours]\nkinds = ['exec']\n");
    dir.submit_script("true", &[]);
    let mut supervisor = dir.start(&["supervise"]);
    wait_for_log(&dir, "recover | nothing to recover");
    wait_for_log(&dir, "recover has ended: exit status: 0");
    stop(&dir, &mut supervisor);
}
