//! How `supervise` replaces processes, changes their number, and tells systemd.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use crate::supervise::{LIFE, drained, lives, living, patient, says, section, until, with};
use crate::support::{Place, SOON, eventually, is_alive};

/// The fewest that were at work at any time between the moment in which so many were for the first time,
/// and the end.
fn fewest(place: &Place, count: usize) -> usize {
    let mut now = 0_usize;
    let mut all = Vec::new();
    for line in place.read("lives").lines() {
        now = if line.starts_with("start ") { now + 1 } else { now - 1 };
        all.push(now);
    }
    let from = all.iter().position(|now| *now == count).unwrap();
    all.drain(from..).min().unwrap()
}

#[test]
fn a_refresh_replaces_all_and_is_never_below_the_number() {
    let place = patient("3s", &section("life", LIFE, "count = 3"));
    let mut supervisor = place.start(&["supervise"]);
    let old = until(&place, 3);
    says(&place, "3 of 3 processes run");
    let answer = place.run(&["workers", "refresh"]).ok();
    assert!(answer.out.contains(&supervisor.0.id().to_string()), "{}", answer.out);
    let is_new =
        |living: &Vec<String>| living.len() == 3 && !living.iter().any(|pid| old.contains(pid));
    eventually(SOON, || Some(living(&place)).filter(is_new));
    assert_eq!(fewest(&place, 3), 3, "{}", place.read("lives"));
    drained(&place, &mut supervisor);
}

#[test]
fn a_refresh_reads_the_sections_anew_and_a_bad_file_changes_nothing() {
    let marked = |mark: &str| format!("echo start $$ {mark} >> lives; exec sleep 600");
    let file = |sections: &[String]| sections.concat();
    let place = with(&file(&[
        section("stays", &marked("stays"), ""),
        section("changes", &marked("before"), ""),
        section("goes", &marked("goes"), "count = 2"),
    ]));
    let rewrite = |sections: &str| {
        place.write("longshore.toml", format!("{}{sections}", crate::supervise::QUICK));
    };
    let mut supervisor = place.start(&["supervise"]);
    says(&place, "4 of 4 processes run");
    let marks = || {
        let lives = place.read("lives");
        let alive = lives.lines().filter_map(|line| line.strip_prefix("start ")?.split_once(' '));
        let alive = alive.filter(|(pid, _)| is_alive(pid));
        let mut marks: Vec<String> = alive.map(|(_, mark)| mark.to_owned()).collect();
        marks.sort_unstable();
        marks
    };
    let old = living(&place);
    for (bad, why) in [
        ("[supervise.workers.stays]\ncoutn = 3\n", "coutn"),
        ("", "no workers to supervise"),
        ("[supervise.workers.stays]\ncount = 9\nmax = 2\n", "begins with 9"),
    ] {
        rewrite(bad);
        supervisor.signal("HUP");
        says(&place, why);
    }
    assert_eq!(living(&place), old, "nobody was replaced");
    rewrite(&file(&[
        section("comes", &marked("comes"), "count = 3"),
        section("changes", &marked("after"), "count = 2"),
        section("stays", &marked("stays"), ""),
    ]));
    supervisor.signal("HUP");
    let wanted = ["after", "after", "comes", "comes", "comes", "stays"];
    eventually(SOON, || (marks() == wanted).then_some(()));
    says(&place, "6 of 6 processes run");
    for words in ["section comes is new", "section changes has changed", "section goes is gone"] {
        says(&place, words);
    }
    assert!(!place.read("stderr").contains("section stays"));
    assert!(old.iter().all(|pid| !is_alive(pid)), "all were replaced");
    supervisor.signal("TERM");
    assert_eq!(supervisor.ends_within(SOON), 0);
}

#[test]
fn a_new_version_replaces_all_once_it_has_settled() {
    let place = with(&format!(
        "version_file = 'version'\nsettle = '100ms'\n{}",
        section("life", "echo start $$ $(head -n 1 version) >> lives; exec sleep 600", "count = 2")
    ));
    place.write("version", "1\nthe rest is nothing\n");
    let mut supervisor = place.start(&["supervise"]);
    let lines = |version: &str| {
        let text = place.read("lives");
        text.lines().filter(|line| line.ends_with(&format!(" {version}"))).count()
    };
    eventually(SOON, || (lines("1") == 2).then_some(()));
    says(&place, "2 of 2 processes run");
    place.write("version", "1\nonly the rest has changed\n");
    place.write("version", "2\n");
    eventually(SOON, || (lines("2") == 2).then_some(()));
    says(&place, "version 2 is installed");
    assert_eq!(lines("1"), 2, "nobody was started for the other change");
    supervisor.signal("TERM");
    assert_eq!(supervisor.ends_within(SOON), 0);
}

#[test]
fn a_version_that_does_not_start_leaves_the_old_processes_at_work() {
    let script =
        "[ ! -e broken ] || { echo it is broken; exit 1; }; echo start $$ >> lives; exec sleep 600";
    let place =
        patient("2s", &format!("start_failures = 2\n{}", section("life", script, "count = 2")));
    let mut supervisor = place.start(&["supervise"]);
    let old = until(&place, 2);
    says(&place, "2 of 2 processes run");
    place.write("broken", "");
    supervisor.signal("HUP");
    says(&place, "given up; its last line of output: it is broken");
    assert_eq!(living(&place), old);
    std::fs::remove_file(place.path("broken")).unwrap();
    supervisor.signal("HUP");
    eventually(SOON, || old.iter().all(|pid| !is_alive(pid)).then_some(()));
    until(&place, 2);
    supervisor.signal("TERM");
    assert_eq!(supervisor.ends_within(SOON), 0);
}

#[test]
fn signals_change_the_number_within_its_bounds() {
    let place = lives("min = 1\nmax = 2");
    let mut supervisor = place.start(&["supervise"]);
    until(&place, 1);
    let wanted = |count: usize, words: &str| {
        eventually(SOON, || (place.read("stderr").matches(words).count() == count).then_some(()));
    };
    for times in [1, 2] {
        supervisor.signal("TTIN");
        wanted(times, "now 2 processes in all");
    }
    until(&place, 2);
    supervisor.signal("TTOU");
    until(&place, 1);
    supervisor.signal("TTOU");
    wanted(2, "now 1 processes in all");
    until(&place, 1);
    drained(&place, &mut supervisor);
}

#[test]
fn a_section_grows_while_more_is_ready_than_it_can_hold() {
    let place =
        with("[supervise.workers.ours]\nqueues = ['default']\nslots = 1\nmin = 1\nmax = 3\n");
    let mut supervisor = place.start(&["supervise"]);
    says(&place, "1 of 1 processes run");
    for _ in 0..9 {
        place.submit_script("while [ ! -e go ]; do sleep 0.05; done", &[]);
    }
    let workers = || place.run(&["workers", "--json"]).ok().json().as_array().unwrap().len();
    eventually(SOON, || (workers() == 3).then_some(()));
    says(&place, "units are ready; one more, 3 in all");
    place.write("go", "");
    eventually(SOON, || (place.units("done").len() == 9).then_some(()));
    assert_eq!(workers(), 3, "three at most, and none gone at once");
    drained(&place, &mut supervisor);
}

#[test]
fn who_uses_too_much_memory_is_replaced() {
    let large = "import os, time\nopen('lives', 'a').write('start %d\\n' % os.getpid())\n\
                 grown = bytearray(80_000_000) if not os.path.exists('grown') else b''\n\
                 open('grown', 'w')\ntime.sleep(600)";
    let command = serde_json::json!(["python3", "-c", large]);
    let place =
        with(&format!("[supervise.workers.large]\ncommand = {command}\nmax_memory = '60MB'\n"));
    let mut supervisor = place.start(&["supervise"]);
    let first = until(&place, 1);
    says(&place, "of memory, more than allowed");
    eventually(SOON, || (!is_alive(&first[0])).then_some(()));
    until(&place, 1);
    supervisor.signal("TERM");
    assert_eq!(supervisor.ends_within(SOON), 0);
}

/// What systemd would hear, until it has heard these words.
fn heard(socket: &UnixDatagram, words: &str) -> String {
    let (mut all, mut buffer) = (String::new(), [0; 4096]);
    while !all.contains(words) {
        let length = socket.recv(&mut buffer).unwrap_or_else(|error| panic!("{error}: {all}"));
        all += &format!("{}\n", String::from_utf8_lossy(&buffer[..length]));
    }
    all
}

#[test]
fn systemd_hears_when_all_run_when_they_are_replaced_and_that_we_live() {
    let script = "echo start $$ ${NOTIFY_SOCKET-}${WATCHDOG_USEC-} >> lives; exec sleep 600";
    let place = with(&section("life", script, ""));
    let path = place.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    let mut command = place.command(&["supervise"]);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000");
    let err = std::fs::File::create(place.path("stderr")).unwrap();
    let mut supervisor = crate::support::Running(command.stderr(err).spawn().unwrap());
    let before = heard(&socket, "READY=1\nSTATUS=1 of 1 processes run");
    assert!(!before.contains("STOPPING"), "{before}");
    heard(&socket, "WATCHDOG=1");
    supervisor.signal("HUP");
    let reload = heard(&socket, "RELOADING=1\nMONOTONIC_USEC=");
    assert!(!reload.contains("READY"), "{reload}");
    heard(&socket, "READY=1");
    supervisor.signal("TERM");
    heard(&socket, "STOPPING=1");
    assert_eq!(supervisor.ends_within(SOON + Duration::from_secs(1)), 0);
    let is_bare = |line: &str| line.split_whitespace().count() == 2;
    let lives = place.read("lives");
    assert!(lives.lines().all(is_bare), "that is between systemd and us: {lives}");
}
