//! A batch while supervised workers and their supervisor are killed: every unit is counted once, and
//! no process is left behind.

use std::time::Duration;

use crate::supervise::{says, with};
use crate::support::{Place, Running, eventually, is_alive, limit, signal, soaked};

/// The live processes that the workers' sessions name.
fn workers(place: &Place) -> Vec<String> {
    let sessions = place.run(&["workers", "--json"]).ok().json();
    let labels = sessions.as_array().unwrap().iter().map(|session| &session["label"]);
    let pid = |label: &str| label.rsplit(':').next().unwrap().to_owned();
    let is_ours = |pid: &String| place.is_running("worker", pid);
    labels.map(|label| pid(label.as_str().unwrap())).filter(is_ours).collect()
}

fn ended(place: &Place) -> u64 {
    let batch = place.batch("storm");
    ["done", "failed", "cancelled"].iter().map(|state| batch[*state].as_u64().unwrap()).sum()
}

#[test]
fn a_batch_is_counted_exactly_while_workers_and_supervisors_are_killed() {
    let (units, kills) = (soaked(120, 3000), soaked(4, 60));
    let place = with(
        "[supervise.workers.ours]\nkinds = ['exec']\nslots = 2\ncount = 3\n\
         env = { LONGSHORE_TTL = '1s' }\n",
    );
    let lines = "{\"argv\":[\"sleep\",\"0.05\"]}\n".repeat(units);
    place.run_with(&["submit", "exec", "--lines", "-", "--batch", "storm"], lines).ok();
    let patience = limit(Duration::from_secs(60));
    let mut supervisor = place.start(&["supervise"]);
    let mut seen = Vec::new();
    for kill in 0..kills {
        // Kill during the work, not before it starts.
        let reached = ended(&place);
        eventually(patience, || {
            (ended(&place) > reached || ended(&place) == units as u64).then_some(())
        });
        let living = eventually(patience, || Some(workers(&place)).filter(|all| !all.is_empty()));
        seen.extend(living.iter().cloned());
        if kill % 2 == 1 {
            supervisor.kill();
            for pid in &living {
                eventually(patience, || (!is_alive(pid)).then_some(()));
            }
            supervisor = place.start(&["supervise"]);
        } else {
            signal(living[kill % living.len()].parse().unwrap(), "KILL");
        }
    }
    eventually(patience, || (ended(&place) == units as u64).then_some(()));
    over(&place, &mut supervisor);
    let batch = place.batch("storm");
    assert_eq!((batch["done"].as_u64(), batch["failed"].as_u64()), (Some(units as u64), Some(0)));
    assert!(seen.iter().all(|pid| !is_alive(pid)), "nobody is left behind");
    place.run(&["verify"]).ok();
}

fn over(place: &Place, supervisor: &mut Running) {
    supervisor.signal("TERM");
    assert_eq!(supervisor.ends_within(limit(Duration::from_secs(30))), 0);
    assert!(workers(place).is_empty());
}

#[test]
fn batches_are_taken_up_at_the_start_where_that_is_wanted() {
    let place = with("recover = true\n[supervise.workers.ours]\nkinds = ['exec']\n");
    place.submit_script("true", &[]);
    let mut supervisor = place.start(&["supervise"]);
    says(&place, "recover | nothing to recover");
    says(&place, "recover has ended: exit status: 0");
    over(&place, &mut supervisor);
}
