//! `supervise` with real processes: started, started again, given up, drained, and never orphaned.

use serde_json::{Value, json};

use crate::support::{Place, Running, SOON, eventually, is_alive, signal};

/// Says when it starts and when it is asked to end, in a file; a worker's life in few words.
pub const LIFE: &str = "trap 'echo end $$ >> lives; exit 0' TERM; echo start $$ >> lives; \
                        while :; do sleep 0.02; done";

/// How soon processes count as started, and are started again, in tests.
pub const QUICK: &str =
    "[supervise]\nstart_time = '50ms'\nrestart_after = '10ms'\nrestart_most = '40ms'\n";

/// A section that runs a script.
pub fn section(name: &str, script: &str, more: &str) -> String {
    let command = json!(["sh", "-c", script]);
    format!("[supervise.workers.{name}]\ncommand = {command}\n{more}\n")
}

/// A place with this configuration, beside what makes tests quick.
pub fn with(sections: &str) -> Place {
    let place = Place::new();
    place.write("longshore.toml", format!("{QUICK}{sections}"));
    place
}

/// The same, where what is started has so long to show whether it lives.
pub fn patient(time: &str, sections: &str) -> Place {
    let place = Place::new();
    place.write("longshore.toml", format!("{}{sections}", QUICK.replace("50ms", time)));
    place
}

/// A place with one section of [`LIFE`]s.
pub fn lives(more: &str) -> Place {
    with(&section("life", LIFE, more))
}

/// The processes that said so and have neither said that they end nor died.
pub fn living(place: &Place) -> Vec<String> {
    let text = place.read("lives");
    let said = |word: &str| -> Vec<String> {
        text.lines().filter_map(|line| line.strip_prefix(word)).map(str::to_owned).collect()
    };
    let ended = said("end ");
    said("start ").into_iter().filter(|pid| !ended.contains(pid) && is_alive(pid)).collect()
}

/// Waits until so many live, and returns them.
#[track_caller]
pub fn until(place: &Place, count: usize) -> Vec<String> {
    eventually(SOON, || Some(living(place)).filter(|living| living.len() == count))
}

/// Waits until the supervisor has said this.
#[track_caller]
pub fn says(place: &Place, words: &str) {
    eventually(SOON, || place.read("stderr").contains(words).then_some(()));
}

/// Has it end, in good order.
#[track_caller]
pub fn drained(place: &Place, supervisor: &mut Running) {
    supervisor.signal("TERM");
    assert_eq!(supervisor.ends_within(SOON), 0, "{}", place.read("stderr"));
    assert_eq!(living(place), Vec::<String>::new());
}

#[test]
fn who_dies_is_started_again_and_all_are_drained_at_the_end() {
    let place = lives("count = 3");
    let mut supervisor = place.start(&["supervise"]);
    let first = until(&place, 3);
    assert!(signal(first[0].parse().unwrap(), "KILL"));
    eventually(SOON, || (!is_alive(&first[0])).then_some(()));
    let second = until(&place, 3);
    assert!(!second.contains(&first[0]));
    assert!(second.contains(&first[1]) && second.contains(&first[2]), "the others go on");
    says(&place, "3 of 3 processes run");
    drained(&place, &mut supervisor);
    let ends = place.read("lives").lines().filter(|line| line.starts_with("end ")).count();
    assert_eq!(ends, 3, "each was asked");
}

#[test]
fn workers_of_ours_run_units_and_finish_what_they_hold() {
    let place = with("[supervise.workers.ours]\nkinds = ['exec']\nslots = 1\ncount = 2\n");
    let id = place.submit_script("echo > began; while [ ! -e go ]; do sleep 0.02; done", &[]);
    let mut supervisor = place.start(&["supervise"]);
    eventually(SOON, || place.path("began").exists().then_some(()));
    supervisor.signal("TERM");
    says(&place, "ours.1 is told to stop");
    place.write("go", "");
    assert_eq!(supervisor.ends_within(SOON), 0, "{}", place.read("stderr"));
    assert_eq!(place.unit(&id)["state"], "done");
    assert_eq!(place.run(&["workers", "--json"]).ok().json(), json!([]));
    place.run(&["verify"]).ok();
}

#[test]
fn a_worker_that_ran_enough_units_is_replaced() {
    let place = with("[supervise.workers.ours]\nkinds = ['exec']\nslots = 1\nmax_units = 2\n");
    let mut supervisor = place.start(&["supervise"]);
    for _ in 0..3 {
        place.submit_script("true", &[]);
    }
    eventually(SOON, || (place.units("done").len() == 3).then_some(()));
    let starts = || place.read("stderr").matches("ours.1 started").count();
    eventually(SOON, || (starts() >= 2).then_some(()));
    drained(&place, &mut supervisor);
}

#[test]
fn a_killed_supervisor_leaves_nobody_behind_and_the_next_one_goes_on() {
    let ours =
        "[supervise.workers.ours]\nkinds = ['exec']\nslots = 1\nenv = { LONGSHORE_TTL = '1s' }\n";
    // One leaves its group; it must not stay behind either.
    let flees = "setsid sh -c 'echo start $$ >> lives; exec sleep 600' & exec sleep 600";
    let place =
        with(&[ours, &section("life", LIFE, "count = 2"), &section("flees", flees, "")].concat());
    let id = place.submit_script("echo $$ > pid; [ -e again ] || exec sleep 600", &[]);
    let mut supervisor = place.start(&["supervise"]);
    let all = until(&place, 3);
    let script = eventually(SOON, || Some(place.read("pid")).filter(|pid| pid.ends_with('\n')));
    let workers = place.run(&["workers", "--json"]).ok().json();
    let worker = workers[0]["label"].as_str().unwrap().rsplit(':').next().unwrap().to_owned();
    assert!(is_alive(&worker));
    supervisor.kill();
    for pid in all.iter().map(String::as_str).chain([script.trim(), &worker]) {
        eventually(SOON, || (!is_alive(pid)).then_some(()));
    }
    // As after a reboot: what the dead worker held is run again.
    place.write("again", "");
    let mut next = place.start(&["supervise"]);
    eventually(SOON, || (place.unit(&id)["state"] == "done").then_some(()));
    until(&place, 3);
    next.signal("TERM");
    eventually(SOON, || next.0.try_wait().unwrap());
    place.run(&["verify"]).ok();
}

#[test]
fn a_section_that_does_not_start_is_given_up_and_the_others_go_on() {
    let bad = section("bad", "echo starting; echo no database here >&2; exit 3", "");
    let sections = format!("start_failures = 3\n{bad}{}", section("life", LIFE, ""));
    let place = patient("20s", &sections);
    let mut supervisor = place.start(&["supervise"]);
    says(&place, "bad failed to start 3 times");
    says(&place, "its last line of output: no database here");
    let tries = place.read("stderr").matches("bad.1 started").count();
    assert_eq!(tries, 3);
    assert_eq!(until(&place, 1), until(&place, 1), "the other one still runs");
    drained(&place, &mut supervisor);
}

#[test]
fn nothing_that_starts_is_an_error() {
    let missing = "[supervise.workers.none]\ncommand = ['./no-such-program']\n";
    let place = with(&format!("start_failures = 2\n{missing}"));
    let run = place.run(&["supervise"]).ends(1);
    run.says("cannot start none.1").says("every section was given up");
}

#[test]
fn who_does_not_end_is_killed_when_nobody_wants_to_wait() {
    let stubborn = "trap '' TERM; echo start $$ >> lives; while :; do sleep 0.02; done";
    let place = with(&section("stubborn", stubborn, ""));
    let mut supervisor = place.start(&["supervise"]);
    until(&place, 1);
    supervisor.signal("TERM");
    says(&place, "draining");
    supervisor.signal("TERM");
    assert_eq!(supervisor.ends_within(SOON), 130);
    assert_eq!(living(&place), Vec::<String>::new());
}

#[test]
fn lines_of_the_children_have_prefixes_or_are_json() {
    let talks = "echo to stdout; echo to stderr >&2; exec sleep 600";
    let place = with(&section("talks", talks, ""));
    let mut supervisor = place.start(&["supervise"]);
    says(&place, "talks.1 | to stdout\n");
    says(&place, "talks.1 | to stderr\n");
    supervisor.signal("TERM");
    supervisor.ends_within(SOON);
    let place = with(&section("talks", talks, ""));
    let mut supervisor = place.start(&["supervise", "--log-format", "json"]);
    let said = |stream: &str| {
        let is_it = |said: &Value| said["worker"] == "talks.1" && said["stream"] == stream;
        let lines = place.read("stderr");
        lines.lines().filter_map(|line| serde_json::from_str(line).ok()).find(is_it)
    };
    let out: Value = eventually(SOON, || said("stdout"));
    assert_eq!(out["line"], "to stdout");
    assert_eq!(eventually(SOON, || said("stderr"))["line"], "to stderr");
    supervisor.signal("TERM");
    supervisor.ends_within(SOON);
    let is_json = |line: &str| serde_json::from_str::<Value>(line).is_ok();
    assert!(place.read("stderr").lines().all(is_json), "{}", place.read("stderr"));
}

#[test]
fn what_makes_no_sense_is_refused_with_its_key() {
    let refused = |text: &str, code: i32| {
        let place = Place::new();
        place.write("longshore.toml", text);
        place.run(&["supervise"]).ends(code).err
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
    let place = lives("");
    let mut supervisor = place.start(&["supervise"]);
    until(&place, 1);
    let refused = place.run(&["supervise"]).ends(1);
    refused.says(&format!("another supervisor runs: process {}", supervisor.0.id()));
    drained(&place, &mut supervisor);
    place.run(&["workers", "refresh"]).ends(1).says("no supervisor runs here");
}
