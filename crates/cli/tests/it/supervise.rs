//! `supervise` with real processes: started, restarted, given up, drained, and never orphaned.

use serde_json::{Value, json};

use crate::support::{ChildGuard, TIMEOUT, TestDir, eventually, is_alive, signal};

/// A worker that records its start and its SIGTERM in the file `dir_with_workers`.
pub const WORKER_SCRIPT: &str = "trap 'echo end $$ >> lives; exit 0' TERM; echo start $$ >> lives; \
                        while :; do sleep 0.02; done";

/// Short start and restart times for tests.
pub const FAST_SETTINGS: &str =
    "[supervise]\nmin_uptime = '50ms'\nrestart_base = '10ms'\nrestart_max = '40ms'\n";

/// A section that runs a script.
pub fn section(name: &str, script: &str, more: &str) -> String {
    let command = json!(["sh", "-c", script]);
    format!("[supervise.workers.{name}]\ncommand = {command}\n{more}\n")
}

/// A test directory with these sections and short times.
pub fn dir_with_sections(sections: &str) -> TestDir {
    let dir = TestDir::new();
    dir.write("longshore.toml", format!("{FAST_SETTINGS}{sections}"));
    dir
}

/// A test directory with these sections, where a process counts as started after `time`.
pub fn dir_with_min_uptime(time: &str, sections: &str) -> TestDir {
    let dir = TestDir::new();
    dir.write("longshore.toml", format!("{}{sections}", FAST_SETTINGS.replace("50ms", time)));
    dir
}

/// A test directory with one section of [`WORKER_SCRIPT`].
pub fn dir_with_workers(more: &str) -> TestDir {
    dir_with_sections(&section("life", WORKER_SCRIPT, more))
}

/// The processes that recorded a start and no end, and are alive.
pub fn live_pids(dir: &TestDir) -> Vec<String> {
    let text = dir.read("lives");
    let recorded = |word: &str| -> Vec<String> {
        text.lines().filter_map(|line| line.strip_prefix(word)).map(str::to_owned).collect()
    };
    let ended = recorded("end ");
    recorded("start ").into_iter().filter(|pid| !ended.contains(pid) && is_alive(pid)).collect()
}

/// Waits for this number of live processes, and returns them.
#[track_caller]
pub fn wait_for_count(dir: &TestDir, count: usize) -> Vec<String> {
    eventually(TIMEOUT, || Some(live_pids(dir)).filter(|live_pids| live_pids.len() == count))
}

/// Waits until the supervisor has logged this.
#[track_caller]
pub fn wait_for_log(dir: &TestDir, words: &str) {
    eventually(TIMEOUT, || dir.read("stderr").contains(words).then_some(()));
}

/// Drains the supervisor and checks that no process is left.
#[track_caller]
pub fn drain(dir: &TestDir, supervisor: &mut ChildGuard) {
    supervisor.signal("TERM");
    assert_eq!(supervisor.ends_within(TIMEOUT), 0, "{}", dir.read("stderr"));
    assert_eq!(live_pids(dir), Vec::<String>::new());
}

#[test]
fn who_dies_is_started_again_and_all_are_drained_at_the_end() {
    let dir = dir_with_workers("count = 3");
    let mut supervisor = dir.start(&["supervise"]);
    let first = wait_for_count(&dir, 3);
    assert!(signal(first[0].parse().unwrap(), "KILL"));
    eventually(TIMEOUT, || (!is_alive(&first[0])).then_some(()));
    let second = wait_for_count(&dir, 3);
    assert!(!second.contains(&first[0]));
    assert!(second.contains(&first[1]) && second.contains(&first[2]), "the others go on");
    wait_for_log(&dir, "3 of 3 processes run");
    drain(&dir, &mut supervisor);
    let ends = dir.read("lives").lines().filter(|line| line.starts_with("end ")).count();
    assert_eq!(ends, 3, "each got SIGTERM");
}

#[test]
fn workers_of_ours_run_units_and_finish_what_they_hold() {
    let dir = dir_with_sections("[supervise.workers.ours]\nkinds = ['exec']\nslots = 1\ncount = 2\n");
    let id = dir.submit_script("echo > began; while [ ! -e go ]; do sleep 0.02; done", &[]);
    let mut supervisor = dir.start(&["supervise"]);
    eventually(TIMEOUT, || dir.path("began").exists().then_some(()));
    supervisor.signal("TERM");
    wait_for_log(&dir, "ours.1 is told to stop");
    dir.write("go", "");
    assert_eq!(supervisor.ends_within(TIMEOUT), 0, "{}", dir.read("stderr"));
    assert_eq!(dir.unit(&id)["state"], "done");
    assert_eq!(dir.run(&["workers", "--json"]).ok().json(), json!([]));
    dir.run(&["verify"]).ok();
}

#[test]
fn a_worker_that_ran_enough_units_is_replaced() {
    let dir = dir_with_sections("[supervise.workers.ours]\nkinds = ['exec']\nslots = 1\nmax_units = 2\n");
    let mut supervisor = dir.start(&["supervise"]);
    for _ in 0..3 {
        dir.submit_script("true", &[]);
    }
    eventually(TIMEOUT, || (dir.units("done").len() == 3).then_some(()));
    let starts = || dir.read("stderr").matches("ours.1 started").count();
    eventually(TIMEOUT, || (starts() >= 2).then_some(()));
    drain(&dir, &mut supervisor);
}

#[test]
fn a_killed_supervisor_leaves_nobody_behind_and_the_next_one_goes_on() {
    let ours = "[supervise.workers.ours]\nkinds = ['exec']\nslots = 1\nenv = { LONGSHORE_TTL = '1s' }\n";
    // One process leaves its group; it must not be orphaned either.
    let flees = "setsid sh -c 'echo start $$ >> lives; exec sleep 600' & exec sleep 600";
    let dir = dir_with_sections(
        &[ours, &section("life", WORKER_SCRIPT, "count = 2"), &section("flees", flees, "")].concat(),
    );
    let id = dir.submit_script("echo $$ > pid; [ -e again ] || exec sleep 600", &[]);
    let mut supervisor = dir.start(&["supervise"]);
    let all = wait_for_count(&dir, 3);
    let script = eventually(TIMEOUT, || Some(dir.read("pid")).filter(|pid| pid.ends_with('\n')));
    let workers = dir.run(&["workers", "--json"]).ok().json();
    let worker = workers[0]["label"].as_str().unwrap().rsplit(':').next().unwrap().to_owned();
    assert!(is_alive(&worker));
    supervisor.kill();
    for pid in all.iter().map(String::as_str).chain([script.trim(), &worker]) {
        eventually(TIMEOUT, || (!is_alive(pid)).then_some(()));
    }
    // As after a reboot: the units of the dead worker run again.
    dir.write("again", "");
    let mut next = dir.start(&["supervise"]);
    eventually(TIMEOUT, || (dir.unit(&id)["state"] == "done").then_some(()));
    wait_for_count(&dir, 3);
    next.signal("TERM");
    eventually(TIMEOUT, || next.0.try_wait().unwrap());
    dir.run(&["verify"]).ok();
}

#[test]
fn a_section_that_does_not_start_is_given_up_and_the_others_go_on() {
    let bad = section("bad", "echo starting; echo no database here >&2; exit 3", "");
    let sections = format!("start_failures = 3\n{bad}{}", section("life", WORKER_SCRIPT, ""));
    let dir = dir_with_min_uptime("20s", &sections);
    let mut supervisor = dir.start(&["supervise"]);
    wait_for_log(&dir, "bad failed to start 3 times");
    wait_for_log(&dir, "its last line of output: no database here");
    let tries = dir.read("stderr").matches("bad.1 started").count();
    assert_eq!(tries, 3);
    assert_eq!(wait_for_count(&dir, 1), wait_for_count(&dir, 1), "the other one still runs");
    drain(&dir, &mut supervisor);
}

#[test]
fn nothing_that_starts_is_an_error() {
    let missing = "[supervise.workers.none]\ncommand = ['./no-such-program']\n";
    let dir = dir_with_sections(&format!("start_failures = 2\n{missing}"));
    let run = dir.run(&["supervise"]).ends(1);
    run.says("cannot start none.1").says("every section was given up");
}

#[test]
fn who_does_not_end_is_killed_when_nobody_wants_to_wait() {
    let stubborn = "trap '' TERM; echo start $$ >> lives; while :; do sleep 0.02; done";
    let dir = dir_with_sections(&section("stubborn", stubborn, ""));
    let mut supervisor = dir.start(&["supervise"]);
    wait_for_count(&dir, 1);
    supervisor.signal("TERM");
    wait_for_log(&dir, "draining");
    supervisor.signal("TERM");
    assert_eq!(supervisor.ends_within(TIMEOUT), 130);
    assert_eq!(live_pids(&dir), Vec::<String>::new());
}

#[test]
fn lines_of_the_children_have_prefixes_or_are_json() {
    let talks = "echo to stdout; echo to stderr >&2; exec sleep 600";
    let dir = dir_with_sections(&section("talks", talks, ""));
    let mut supervisor = dir.start(&["supervise"]);
    wait_for_log(&dir, "talks.1 | to stdout\n");
    wait_for_log(&dir, "talks.1 | to stderr\n");
    supervisor.signal("TERM");
    supervisor.ends_within(TIMEOUT);
    let dir = dir_with_sections(&section("talks", talks, ""));
    let mut supervisor = dir.start(&["supervise", "--log-format", "json"]);
    let find_line = |stream: &str| {
        let is_match = |line: &Value| line["worker"] == "talks.1" && line["stream"] == stream;
        let lines = dir.read("stderr");
        lines.lines().filter_map(|line| serde_json::from_str(line).ok()).find(is_match)
    };
    let out: Value = eventually(TIMEOUT, || find_line("stdout"));
    assert_eq!(out["line"], "to stdout");
    assert_eq!(eventually(TIMEOUT, || find_line("stderr"))["line"], "to stderr");
    supervisor.signal("TERM");
    supervisor.ends_within(TIMEOUT);
    let is_json = |line: &str| serde_json::from_str::<Value>(line).is_ok();
    assert!(dir.read("stderr").lines().all(is_json), "{}", dir.read("stderr"));
}

#[test]
fn what_makes_no_sense_is_refused_with_its_key() {
    let refused = |text: &str, code: i32| {
        let dir = TestDir::new();
        dir.write("longshore.toml", text);
        dir.run(&["supervise"]).ends(code).err
    };
    assert!(refused("", 2).contains("[supervise.workers.NAME]"));
    let both = "[supervise.workers.a]\ncommand = ['x']\nkinds = ['exec']\n";
    assert!(refused(both, 2).contains("`supervise.workers.a.kinds` are both set"));
    let range = "[supervise.workers.a]\ncount = 5\nmax = 2\n";
    assert!(refused(range, 2).contains("not within 1 and 2"));
    let unknown = refused("[supervise.workers.a]\ncmd = ['x']\n", 1);
    assert!(unknown.contains("unknown key `cmd`"), "{unknown}");
    assert!(refused("[[worker]]\nkinds = ['exec']\n", 1).contains("[supervise.workers.NAME]"));
    assert!(refused("[supervise]\nsettle = 'soon'\n", 2).contains("`supervise.settle`"));
}

#[test]
fn a_second_supervisor_is_kept_out() {
    let dir = dir_with_workers("");
    let mut supervisor = dir.start(&["supervise"]);
    wait_for_count(&dir, 1);
    let refused = dir.run(&["supervise"]).ends(1);
    refused.says(&format!("another supervisor runs: process {}", supervisor.0.id()));
    drain(&dir, &mut supervisor);
    dir.run(&["workers", "refresh"]).ends(1).says("no supervisor runs here");
}
