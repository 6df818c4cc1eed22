//! Faults outside the process's control: a handler that aborts its worker, a full disk, a lock held
//! by another program.

use std::collections::BTreeMap;
use std::time::Duration;

use longshore_sqlite::rusqlite::Connection;
use longshore_testkit::servers::SmallDisk;
use serde_json::{Value, json};

use crate::support::{ChildGuard, TIMEOUT, TestDir, eventually};

/// The exit code for SIGABRT.
const SIGABRT_EXIT: i32 = -6;

fn unit_line(n: u64, ms: u64) -> String {
    format!("{{\"n\":{n},\"ms\":{ms}}}\n")
}

fn submit(dir: &TestDir, batch: &str, lines: String) {
    // With a policy of their own: the kind's default tolerates any number of losses.
    let args = ["submit", "chaos", "--lines", "-", "--batch", batch, "--max-attempts", "5"];
    dir.run_with(&args, lines).ok();
}

fn attempts_by_id(units: Vec<Value>) -> BTreeMap<String, (u64, u64)> {
    let number = |unit: &Value, name: &str| unit[name].as_u64().unwrap();
    let entry = |unit: &Value| {
        let id = unit["unit"].as_str().unwrap().to_owned();
        (id, (number(unit, "attempt"), number(unit, "lost")))
    };
    units.iter().map(entry).collect()
}

/// Starts a worker, waits until it has aborted, and returns the units it held: unit → (attempt,
/// lost). The watcher is stopped meanwhile: it would take them over at once.
fn run_until_abort(dir: &TestDir, watcher: &ChildGuard) -> BTreeMap<String, (u64, u64)> {
    watcher.signal("STOP");
    let args = ["worker", "--slots", "2", "--ttl", "6s", "--chaos-log", "runs"];
    let mut worker: ChildGuard = dir.start(&args);
    assert_eq!(worker.ends_within(TIMEOUT), SIGABRT_EXIT);
    let held = attempts_by_id(dir.units("leased"));
    assert!(!held.is_empty(), "its units were rescued before the test read them");
    watcher.signal("CONT");
    held
}

fn wait_for_rescue(dir: &TestDir) {
    eventually(TIMEOUT, || (dir.queue()["counts"]["leased"] == 0).then_some(()));
}

#[test]
fn a_handler_that_aborts_its_worker_is_found_out_and_its_neighbours_are_not_blamed() {
    const UNITS: u64 = 4000;
    const ABORTING_UNIT: u64 = 1000;
    let dir = TestDir::new();
    // Reaps dead workers' sessions, and claims none of their units.
    let watcher = dir.start(&["worker", "--slots", "1", "--kind", "exec", "--ttl", "2s"]);
    let workers = || dir.run(&["workers", "--json"]).ok().json();
    eventually(TIMEOUT, || workers().as_array().filter(|all| !all.is_empty()).map(|_| ()));
    let culprit = format!("{{\"n\":{ABORTING_UNIT},\"ms\":60,\"abort\":true}}\n");
    let lines = (0..UNITS).map(|n| if n == ABORTING_UNIT { culprit.clone() } else { unit_line(n, 0) });
    submit(&dir, "b", lines.collect());

    // First death: the worker had prefetched units that it had not started.
    let held = run_until_abort(&dir, &watcher);
    let buffered: Vec<&String> =
        held.iter().filter(|(_, (attempt, _))| *attempt == 0).map(|(id, _)| id).collect();
    assert!(!buffered.is_empty(), "nothing was prefetched: {held:?}");
    wait_for_rescue(&dir);
    let ready = attempts_by_id(dir.units("ready"));
    for id in &buffered {
        assert_eq!(ready[*id], (0, 0), "unit {id} had not started, so its loss does not count");
    }

    // Second death. The culprit is now the last unit, so more units are added that it could harm.
    run_until_abort(&dir, &watcher);
    wait_for_rescue(&dir);
    submit(&dir, "late", (0..300).map(|n| unit_line(UNITS + n, 0)).collect());

    // From now on the suspect runs alone, whatever the backlog, until it has been lost too often.
    let mut seen = Vec::new();
    for lost in 2..5 {
        let held = run_until_abort(&dir, &watcher);
        assert_eq!(held.len(), 1, "alone: {held:?}");
        let (id, (_, times)) = held.into_iter().next().unwrap();
        assert_eq!(times, lost);
        seen.push(id);
        wait_for_rescue(&dir);
    }
    seen.dedup();
    let [id] = &seen[..] else { panic!("several culprits: {seen:?}") };
    let unit = dir.unit(id);
    assert_eq!((&unit["state"], &unit["failure"]["code"]), (&json!("failed"), &json!("lost")));
    assert_eq!((&unit["lost"], &unit["payload"]["n"]), (&json!(5), &json!(ABORTING_UNIT)));

    // All others are done, and the prefetched units ran once.
    dir.run(&["worker", "--slots", "4", "--chaos-log", "runs", "--until-idle"]).ok();
    let batch = dir.batch("b");
    assert_eq!((&batch["done"], &batch["failed"]), (&json!(UNITS - 1), &json!(1)), "{batch}");
    assert_eq!((&batch["total"], &batch["status"]), (&json!(UNITS), &json!("complete")));
    assert_eq!(dir.batch("late")["done"], 300);
    let done = attempts_by_id(dir.units("done"));
    assert!(buffered.iter().all(|id| done[*id] == (1, 0)));
    dir.run(&["verify"]).ok();
}

#[test]
fn a_submit_that_fills_the_disk_says_so_and_goes_on_when_there_is_room() {
    const LINES: u64 = 30_000;
    let dir = TestDir::new();
    let disk = SmallDisk::mount(&dir.path("disk"), 4).unwrap();
    let lines: String = (0..LINES).map(|n| unit_line(n, 0)).collect();
    dir.write("lines", lines);
    let submit = || {
        let args = ["submit", "chaos", "--lines", "lines", "--batch", "b", "--json"];
        let mut command = dir.command(&[&["--store", "sqlite:disk/l.db"], &args[..]].concat());
        // By default the process waits for room.
        command.env("LONGSHORE_PATIENCE", "0s");
        crate::support::CliOutput::of(command.spawn().unwrap())
    };
    let full = submit().ends(1).says("cannot add to batch `b`").says("disk is full");
    let full = full.says("hint: free some space and run the same command again");
    assert_eq!(full.out, "", "stdout is for data");
    let at = full.err.rsplit("after line ").next().unwrap().trim().parse::<u64>().unwrap();
    assert!((1..LINES).contains(&at), "it was stopped midway: {}", full.err);

    disk.resize(256).unwrap();
    let sent = submit().ok().says(&format!("resuming batch `b` after line {at}")).json();
    assert_eq!(sent, json!({ "batch": "b", "sent": LINES, "new": LINES - at }));
    let store = ["--store", "sqlite:disk/l.db"];
    let work = ["worker", "--slots", "16", "--chaos-log", "runs", "--until-idle"];
    dir.run(&[&store[..], &work].concat()).ok();
    assert_each_ran_once(&dir, LINES);
    dir.run(&[&store[..], &["verify"]].concat()).ok();
}

fn assert_each_ran_once(dir: &TestDir, units: u64) {
    let mut seen: Vec<u64> = dir.read("runs").lines().map(|line| line.parse().unwrap()).collect();
    seen.sort_unstable();
    assert!(seen.iter().copied().eq(0..units), "{} runs of {units} units", seen.len());
}

#[test]
fn a_database_that_another_program_locks_for_seconds_loses_nothing() {
    const UNITS: u64 = 1500;
    let dir = TestDir::new();
    submit(&dir, "b", (0..UNITS).map(|n| unit_line(n, 15)).collect());
    let start = || dir.start(&["worker", "--slots", "4", "--chaos-log", "runs", "--until-idle"]);
    let mut workers = [start(), start()];
    eventually(TIMEOUT, || (dir.batch("b")["done"].as_u64() > Some(100)).then_some(()));
    let other = Connection::open(dir.path("longshore.db")).unwrap();
    other.busy_timeout(TIMEOUT).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let before = dir.batch("b")["done"].as_u64().unwrap();
    assert!(before < UNITS, "the lock came too late");
    std::thread::sleep(Duration::from_secs(3));
    let during = dir.batch("b")["done"].as_u64().unwrap();
    assert_eq!(during, before, "no worker can write under a foreign lock");
    other.execute_batch("COMMIT").unwrap();
    for worker in &mut workers {
        assert_eq!(worker.ends_within(TIMEOUT), 0);
    }
    assert_eq!(dir.batch("b")["done"], UNITS);
    assert_each_ran_once(&dir, UNITS);
    dir.run(&["verify"]).ok();
}
