//! Takeover from a killed process of the same host: no wait for the TTL, but for its child processes.

use std::cell::RefCell;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use longshore_testkit::servers::PrivatePostgres;

use crate::batch_job::{BatchJob, ROWS_IN_POSTGRES, SharedPostgres};
use crate::support::{ChildGuard, CliOutput, TIMEOUT, TestDir, eventually, signal, stretch};

/// No test waits this long for a heartbeat.
const LONG_TTL: &str = "600s";
/// Kills in a row, each followed by a run.
const KILLS: u64 = 4;
/// More than all runs together take, and much less than the TTL.
const LIMIT: Duration = Duration::from_secs(60);

fn slow_job() -> BatchJob {
    let script = "script = \"script.toml\"";
    BatchJob::good(200).with(&[(script, &format!("{script}\ndelay = \"50ms\""))])
}

/// How much longer a run after kills may take than an undisturbed one.
const MAX_DELAY: Duration = Duration::from_secs(3);

fn timed_run(job: &BatchJob) -> Duration {
    let began = Instant::now();
    job.run(&[]).ok();
    began.elapsed()
}

/// Kills run after run, then lets one finish. Compares its time with that of an undisturbed run.
fn kill_and_rerun(job: &BatchJob, undisturbed: Duration) {
    let config = job.dir.read("longshore.toml").replace("ttl = \"1s\"", &format!("ttl = \"{LONG_TTL}\""));
    job.dir.write("longshore.toml", config);
    let began = Instant::now();
    for kill in 1..=KILLS {
        let mut run = job.start(&[]);
        job.wait_for_effects(kill * 20);
        run.kill();
    }
    let rerun = timed_run(job);
    eprintln!("undisturbed {undisturbed:.1?}, after {KILLS} kills {rerun:.1?}");
    assert!(rerun < undisturbed + stretch(MAX_DELAY), "{rerun:?}, undisturbed {undisturbed:?}");
    assert!(began.elapsed() < stretch(LIMIT), "{:?}", began.elapsed());
    assert_eq!(job.batch()["done"], 200);
    job.assert_exact();
}

#[test]
fn a_rerun_after_a_kill_does_not_wait_for_the_ttl_on_sqlite() {
    kill_and_rerun(&slow_job(), timed_run(&slow_job()));
}

#[test]
fn a_rerun_after_a_kill_does_not_wait_for_the_ttl_on_postgres() {
    let make_job = || {
        let server: SharedPostgres = Rc::new(RefCell::new(PrivatePostgres::start().unwrap()));
        let script = "script = \"script.toml\"";
        let job = BatchJob::good(200)
            .with(&[ROWS_IN_POSTGRES, (script, &format!("{script}\ndelay = \"50ms\""))])
            .move_to(&server, &server, &[]);
        job.seed();
        job
    };
    kill_and_rerun(&make_job(), timed_run(&make_job()));
}

/// The pid of the orphan reaper that this process started.
fn reaper_of(worker: &ChildGuard) -> Option<u32> {
    let output = Command::new("pgrep").args(["-f", "-P", &worker.0.id().to_string(), "reaper"]).output();
    String::from_utf8(output.unwrap().stdout).unwrap().trim().parse().ok()
}

/// Whether a process has a handler for SIGTERM.
fn catches_term(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << 14) != 0)
}

/// The first run of the unit sleeps; the second ends.
const ONE_AT_A_TIME: &str = "echo $$ > leader; exec 9> lock; flock -n 9 || echo overlap >> runs; echo run >> runs; \
     test $(grep -c run runs) = 2 || sleep 600";

fn start_worker(dir: &TestDir, more: &[&str]) -> ChildGuard {
    dir.start(&[&["worker", "--ttl", LONG_TTL], more].concat())
}

#[test]
fn units_of_a_killed_worker_run_again_once_its_child_processes_have_ended() {
    let dir = TestDir::new();
    let id = dir.submit_script(ONE_AT_A_TIME, &[]);
    let mut killed = start_worker(&dir, &[]);
    eventually(TIMEOUT, || dir.read("runs").contains("run").then_some(()));
    let leader = dir.read("leader");
    // Without its reaper, the killed worker leaves the child process running.
    let reaper = eventually(TIMEOUT, || reaper_of(&killed));
    assert!(signal(reaper, "KILL"));
    killed.kill();
    let mut next = start_worker(&dir, &["--until-idle"]);
    eventually(TIMEOUT, || dir.read("stderr").contains("waiting for its child processes").then_some(()));
    assert_eq!((dir.unit(&id)["state"].as_str(), dir.read("runs").as_str()), (Some("leased"), "run\n"));
    assert!(dir.is_running(ONE_AT_A_TIME, leader.trim()));
    let group = format!("-{}", leader.trim());
    assert!(Command::new("kill").args(["-KILL", "--", &group]).status().unwrap().success());
    assert_eq!(next.ends_within(LIMIT), 0);
    assert_eq!(dir.read("runs"), "run\nrun\n", "no overlap");
    assert_eq!(dir.unit(&id)["state"], "done");
}

#[test]
fn a_reaper_survives_the_signals_of_a_terminal_and_of_a_service_manager() {
    let dir = TestDir::new();
    let script = "echo $$ > leader; sleep 600";
    dir.submit_script(script, &[]);
    let mut killed = start_worker(&dir, &[]);
    let leader = eventually(TIMEOUT, || dir.read("leader").strip_suffix('\n').map(str::to_owned));
    let reaper = eventually(TIMEOUT, || reaper_of(&killed).filter(|pid| catches_term(*pid)));
    for name in ["INT", "HUP", "TERM"] {
        assert!(signal(reaper, name));
    }
    killed.kill();
    eventually(TIMEOUT, || (!dir.is_running(script, &leader)).then_some(()));
}

#[test]
fn a_worker_that_is_only_stopped_keeps_its_units() {
    let dir = TestDir::new();
    let id = dir.submit_script("sleep 600", &[]);
    let stopped = dir.start(&["worker", "--ttl", "6s"]);
    eventually(TIMEOUT, || (dir.unit(&id)["state"] == "leased").then_some(()));
    stopped.signal("STOP");
    let _next = dir.start(&["worker", "--slots", "1"]);
    // The other worker says what it waits for, and waits.
    eventually(TIMEOUT, || dir.read("stderr").contains("sends no heartbeat").then_some(()));
    let unit = dir.unit(&id);
    assert_eq!((unit["state"].as_str(), unit["lost"].as_u64()), (Some("leased"), Some(0)), "{unit}");
}

/// Needs root: the worker gets a PID namespace of its own.
#[test]
fn units_of_a_worker_in_another_pid_namespace_wait_for_the_ttl() {
    let dir = TestDir::new();
    if !dir.is_root() {
        return;
    }
    let id = dir.submit_script("sleep 600", &[]);
    let outside = dir.command(&["worker", "--ttl", "6s"]);
    let mut inside = Command::new("unshare");
    inside.args(["--pid", "--fork", "--kill-child", "--mount-proc"]).arg(outside.get_program());
    inside.args(outside.get_args()).current_dir(dir.path("")).process_group(0);
    let mut worker = ChildGuard(inside.spawn().unwrap());
    eventually(TIMEOUT, || (dir.unit(&id)["state"] == "leased").then_some(()));
    worker.kill();
    let _next = dir.start(&["worker", "--slots", "1"]);
    eventually(TIMEOUT, || dir.read("stderr").contains("sends no heartbeat").then_some(()));
    assert_eq!(dir.unit(&id)["lost"], 0, "the TTL has not passed");
    eventually(TIMEOUT, || (dir.unit(&id)["lost"] == 1).then_some(()));
}

/// Needs root. The environment of other users' processes cannot be read, but that they did not inherit
/// the worker's `no_new_privs` can.
#[test]
fn a_worker_of_an_ordinary_user_is_taken_over_beside_later_processes_of_other_users() {
    const NOBODY: u32 = 65534;
    let dir = TestDir::new();
    if !dir.is_root() {
        return;
    }
    dir.give_to(NOBODY);
    // Through stdin: the user may have no way to the program's file.
    let as_nobody = |args: &[&str]| {
        let outside = dir.command(args);
        let mut command = dir.program("sh".as_ref(), &["-c", "exec /proc/self/fd/0 \"$@\"", "sh"]);
        command.args(args).stdin(std::fs::File::open(outside.get_program()).unwrap());
        command.uid(NOBODY).gid(NOBODY);
        command
    };
    let submitted =
        CliOutput::of(as_nobody(&["submit", "exec", r#"{"argv": ["sleep", "600"]}"#]).spawn().unwrap());
    let id = submitted.ok().out.trim().to_owned();
    let unit = || CliOutput::of(as_nobody(&["unit", "show", &id, "--json"]).spawn().unwrap()).ok().json();
    let worker = || {
        let mut command = as_nobody(&["worker", "--ttl", LONG_TTL]);
        ChildGuard(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    };
    let mut killed = worker();
    eventually(TIMEOUT, || (unit()["state"] == "leased").then_some(()));
    let sleeper =
        Command::new("sh").args(["-c", "setsid sleep 600 > /dev/null 2>&1 & echo $!"]).output().unwrap();
    let sleeper = String::from_utf8(sleeper.stdout).unwrap().trim().parse().unwrap();
    killed.kill();
    let _next = worker();
    let taken_over = std::panic::catch_unwind(|| eventually(TIMEOUT, || (unit()["lost"] == 1).then_some(())));
    assert!(signal(sleeper, "KILL"));
    taken_over.unwrap();
}
