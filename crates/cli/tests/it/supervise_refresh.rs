//! How `supervise` replaces processes, changes their number, and notifies systemd.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use crate::supervise::{
    WORKER_SCRIPT, dir_with_min_uptime, dir_with_sections, dir_with_workers, drain, live_pids, section,
    wait_for_count, wait_for_log,
};
use crate::support::{TIMEOUT, TestDir, eventually, is_alive};

/// The fewest processes running concurrently since `count` ran for the first time.
fn fewest_running(dir: &TestDir, count: usize) -> usize {
    let mut now = 0_usize;
    let mut all = Vec::new();
    for line in dir.read("lives").lines() {
        now = if line.starts_with("start ") { now + 1 } else { now - 1 };
        all.push(now);
    }
    let from = all.iter().position(|now| *now == count).unwrap();
    all.drain(from..).min().unwrap()
}

#[test]
fn a_refresh_replaces_all_and_is_never_below_the_number() {
    let dir = dir_with_min_uptime("3s", &section("life", WORKER_SCRIPT, "count = 3"));
    let mut supervisor = dir.start(&["supervise"]);
    let old = wait_for_count(&dir, 3);
    wait_for_log(&dir, "3 of 3 processes run");
    let answer = dir.run(&["workers", "refresh"]).ok();
    assert!(answer.out.contains(&supervisor.0.id().to_string()), "{}", answer.out);
    let is_new =
        |live_pids: &Vec<String>| live_pids.len() == 3 && !live_pids.iter().any(|pid| old.contains(pid));
    eventually(TIMEOUT, || Some(live_pids(&dir)).filter(is_new));
    assert_eq!(fewest_running(&dir, 3), 3, "{}", dir.read("lives"));
    drain(&dir, &mut supervisor);
}

#[test]
fn a_refresh_reads_the_sections_anew_and_a_bad_file_changes_nothing() {
    let marked = |mark: &str| format!("echo start $$ {mark} >> lives; exec sleep 600");
    let file = |sections: &[String]| sections.concat();
    let dir = dir_with_sections(&file(&[
        section("stays", &marked("stays"), ""),
        section("changes", &marked("before"), ""),
        section("goes", &marked("goes"), "count = 2"),
    ]));
    let rewrite = |sections: &str| {
        dir.write("longshore.toml", format!("{}{sections}", crate::supervise::FAST_SETTINGS));
    };
    let mut supervisor = dir.start(&["supervise"]);
    wait_for_log(&dir, "4 of 4 processes run");
    let marks = || {
        let lives = dir.read("lives");
        let alive = lives.lines().filter_map(|line| line.strip_prefix("start ")?.split_once(' '));
        let alive = alive.filter(|(pid, _)| is_alive(pid));
        let mut marks: Vec<String> = alive.map(|(_, mark)| mark.to_owned()).collect();
        marks.sort_unstable();
        marks
    };
    let old = live_pids(&dir);
    for (bad, why) in [
        ("[supervise.workers.stays]\ncoutn = 3\n", "coutn"),
        ("", "no workers to supervise"),
        ("[supervise.workers.stays]\ncount = 9\nmax = 2\n", "begins with 9"),
    ] {
        rewrite(bad);
        supervisor.signal("HUP");
        wait_for_log(&dir, why);
    }
    assert_eq!(live_pids(&dir), old, "no process was replaced");
    rewrite(&file(&[
        section("comes", &marked("comes"), "count = 3"),
        section("changes", &marked("after"), "count = 2"),
        section("stays", &marked("stays"), ""),
    ]));
    supervisor.signal("HUP");
    let wanted = ["after", "after", "comes", "comes", "comes", "stays"];
    eventually(TIMEOUT, || (marks() == wanted).then_some(()));
    wait_for_log(&dir, "6 of 6 processes run");
    for words in ["section comes is new", "section changes has changed", "section goes is removed"] {
        wait_for_log(&dir, words);
    }
    assert!(!dir.read("stderr").contains("section stays"));
    assert!(old.iter().all(|pid| !is_alive(pid)), "all were replaced");
    supervisor.signal("TERM");
    assert_eq!(supervisor.ends_within(TIMEOUT), 0);
}

#[test]
fn a_new_version_replaces_all_once_it_has_settled() {
    let dir = dir_with_sections(&format!(
        "version_file = 'version'\nsettle = '100ms'\n{}",
        section("life", "echo start $$ $(head -n 1 version) >> lives; exec sleep 600", "count = 2")
    ));
    dir.write("version", "1\nthe rest is nothing\n");
    let mut supervisor = dir.start(&["supervise"]);
    let lines = |version: &str| {
        let text = dir.read("lives");
        text.lines().filter(|line| line.ends_with(&format!(" {version}"))).count()
    };
    eventually(TIMEOUT, || (lines("1") == 2).then_some(()));
    wait_for_log(&dir, "2 of 2 processes run");
    dir.write("version", "1\nonly the rest has changed\n");
    dir.write("version", "2\n");
    eventually(TIMEOUT, || (lines("2") == 2).then_some(()));
    wait_for_log(&dir, "version 2 is installed");
    assert_eq!(lines("1"), 2, "no process was started for the other change");
    supervisor.signal("TERM");
    assert_eq!(supervisor.ends_within(TIMEOUT), 0);
}

#[test]
fn a_version_that_does_not_start_leaves_the_old_processes_at_work() {
    let script = "[ ! -e broken ] || { echo it is broken; exit 1; }; echo start $$ >> lives; exec sleep 600";
    let dir =
        dir_with_min_uptime("2s", &format!("start_failures = 2\n{}", section("life", script, "count = 2")));
    let mut supervisor = dir.start(&["supervise"]);
    let old = wait_for_count(&dir, 2);
    wait_for_log(&dir, "2 of 2 processes run");
    dir.write("broken", "");
    supervisor.signal("HUP");
    wait_for_log(&dir, "given up; its last line of output: it is broken");
    assert_eq!(live_pids(&dir), old);
    std::fs::remove_file(dir.path("broken")).unwrap();
    supervisor.signal("HUP");
    eventually(TIMEOUT, || old.iter().all(|pid| !is_alive(pid)).then_some(()));
    wait_for_count(&dir, 2);
    supervisor.signal("TERM");
    assert_eq!(supervisor.ends_within(TIMEOUT), 0);
}

#[test]
fn signals_change_the_number_within_its_bounds() {
    let dir = dir_with_workers("min = 1\nmax = 2");
    let mut supervisor = dir.start(&["supervise"]);
    wait_for_count(&dir, 1);
    let wanted = |count: usize, words: &str| {
        eventually(TIMEOUT, || (dir.read("stderr").matches(words).count() == count).then_some(()));
    };
    for times in [1, 2] {
        supervisor.signal("TTIN");
        wanted(times, "now 2 processes in all");
    }
    wait_for_count(&dir, 2);
    supervisor.signal("TTOU");
    wait_for_count(&dir, 1);
    supervisor.signal("TTOU");
    wanted(2, "now 1 processes in all");
    wait_for_count(&dir, 1);
    drain(&dir, &mut supervisor);
}

#[test]
fn a_section_grows_while_more_is_ready_than_it_can_hold() {
    let dir =
        dir_with_sections("[supervise.workers.ours]\nqueues = ['default']\nslots = 1\nmin = 1\nmax = 3\n");
    let mut supervisor = dir.start(&["supervise"]);
    wait_for_log(&dir, "1 of 1 processes run");
    for _ in 0..9 {
        dir.submit_script("while [ ! -e go ]; do sleep 0.05; done", &[]);
    }
    let workers = || dir.run(&["workers", "--json"]).ok().json().as_array().unwrap().len();
    eventually(TIMEOUT, || (workers() == 3).then_some(()));
    wait_for_log(&dir, "units are ready; one process more, 3 in all");
    dir.write("go", "");
    eventually(TIMEOUT, || (dir.units("done").len() == 9).then_some(()));
    assert_eq!(workers(), 3, "three at most, and none stopped yet");
    drain(&dir, &mut supervisor);
}

#[test]
fn who_uses_too_much_memory_is_replaced() {
    let large = "import os, time\nopen('lives', 'a').write('start %d\\n' % os.getpid())\n\
                 grown = bytearray(80_000_000) if not os.path.exists('grown') else b''\n\
                 open('grown', 'w')\ntime.sleep(600)";
    let command = serde_json::json!(["python3", "-c", large]);
    let dir =
        dir_with_sections(&format!("[supervise.workers.large]\ncommand = {command}\nmax_memory = '60MB'\n"));
    let mut supervisor = dir.start(&["supervise"]);
    let first = wait_for_count(&dir, 1);
    wait_for_log(&dir, "of memory, more than allowed");
    eventually(TIMEOUT, || (!is_alive(&first[0])).then_some(()));
    wait_for_count(&dir, 1);
    supervisor.signal("TERM");
    assert_eq!(supervisor.ends_within(TIMEOUT), 0);
}

/// The notifications to systemd, until these words arrive.
fn wait_for_notification(socket: &UnixDatagram, words: &str) -> String {
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
    let dir = dir_with_sections(&section("life", script, ""));
    let path = dir.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut command = dir.command(&["supervise"]);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000");
    let err = std::fs::File::create(dir.path("stderr")).unwrap();
    let mut supervisor = crate::support::ChildGuard(command.stderr(err).spawn().unwrap());
    let before = wait_for_notification(&socket, "READY=1\nSTATUS=1 of 1 processes run");
    assert!(!before.contains("STOPPING"), "{before}");
    wait_for_notification(&socket, "WATCHDOG=1");
    supervisor.signal("HUP");
    let reload = wait_for_notification(&socket, "RELOADING=1\nMONOTONIC_USEC=");
    assert!(!reload.contains("READY"), "{reload}");
    wait_for_notification(&socket, "READY=1");
    supervisor.signal("TERM");
    wait_for_notification(&socket, "STOPPING=1");
    assert_eq!(supervisor.ends_within(TIMEOUT + Duration::from_secs(1)), 0);
    let is_bare = |line: &str| line.split_whitespace().count() == 2;
    let lives = dir.read("lives");
    assert!(lives.lines().all(is_bare), "workers do not inherit the variables: {lives}");
}
