//! The rules of a pool: when it is reused, when it ends with its owner, its size, and launch
//! failures.

use std::process::Stdio;

use super::fixture::{POOL_TIMEOUT, PoolFixture};
use super::launcher::LocalLauncher;
use crate::support::{CliOutput, TIMEOUT, eventually, pick_size};

#[test]
fn a_pool_is_used_again_if_it_is_what_is_wanted() {
    let pool = PoolFixture::start(&["--workers", "2", "--nthr", "2"]);
    let server = pool.server_pid();
    let again = pool.start_with(&["--workers", "1", "--nthr", "2"]).ok();
    assert!(again.out.contains("is reused"), "{}", again.out);
    pool.start_with(&["--workers", "3", "--nthr", "2"]).ends(1).says("it has 2 workers, not 3");
    pool.start_with(&["--nthr", "4"]).ends(1).says("2 threads, not 4");
    // Else a tenant's scripts would run on workers without roots.
    pool.start_with(&["--nthr", "2", "--root", "."]).ends(1).says("other roots: no roots, not");
    let other = ["dispatch", "start", "--qsys", "slurm_worker", "--nthr", "1"];
    pool.run(&other).ends(1).says("started by local, not slurm");
    pool.run(&["dispatch", "start", "--qsys", "local"]).ends(2).says("--qsys local_worker");
    assert_eq!(pool.server_pid(), server);
    pool.stop();
}

#[test]
fn scripts_of_a_pool_with_roots_gain_no_privileges() {
    let pool = PoolFixture::prepare(Box::new(LocalLauncher), &[]);
    pool.dir.write("status.sh", "grep NoNewPrivs /proc/self/status");
    pool.start_with(&["--workers", "1", "--nthr", "1", "--root", "."]).ok();
    let ended = pool.run(&["submit", "--wait", "--json", "--script", "status.sh"]).ok().json();
    assert_eq!(ended["report"]["tail"], "NoNewPrivs:\t1\n", "{ended}");
    pool.stop();
}

#[test]
fn two_who_start_a_pool_at_once_get_the_same() {
    let pool = PoolFixture::prepare(Box::new(LocalLauncher), &[]);
    let start = || {
        let args = ["dispatch", "start", "--qsys", "local_worker", "--nthr", "1", "--json"];
        pool.command(&args).spawn().unwrap()
    };
    let runs = [start(), start(), start()].map(|child| CliOutput::of(child).ok().json());
    assert!(runs.iter().all(|run| run["pid"] == runs[0]["pid"]), "{runs:?}");
    assert_eq!(pool.server_pid(), u32::try_from(runs[0]["pid"].as_u64().unwrap()).unwrap());
    pool.wait_for_workers(1);
    pool.stop();
}

#[test]
fn a_pool_ends_with_its_owner_unless_it_is_detached() {
    let pool = PoolFixture::prepare(Box::new(LocalLauncher), &[]);
    let from_a_shell = |more: &str| {
        let program = pool.command(&[]).get_program().to_str().unwrap().to_owned();
        let script = format!("{program} dispatch start --qsys local_worker --nthr 1 {more}; exit 0");
        let given = pool.command(&[]);
        let mut shell = std::process::Command::new("bash");
        shell.args(["-c", &script]).current_dir(pool.dir.path(""));
        shell.envs(given.get_envs().filter_map(|(name, value)| Some((name, value?))));
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        CliOutput::of(shell.spawn().unwrap()).ok()
    };
    from_a_shell("");
    eventually(TIMEOUT, || pool.processes().is_empty().then_some(()));
    pool.assert_nothing_left();
    pool.run(&["dispatch", "status"]).ends(1).says("dispatch start");
    from_a_shell("--detach");
    pool.wait_for("job.sh", "echo still here", &[]);
    pool.stop();
}

#[test]
fn a_pool_starts_again_right_after_it_was_stopped() {
    let pool = PoolFixture::prepare(Box::new(LocalLauncher), &["--workers", "2", "--nthr", "1"]);
    for _ in 0..pick_size(6, 100) {
        let started = pool.start_server().ok();
        assert!(started.out.contains("is up: 2 workers"), "{}", started.out);
        pool.run(&["dispatch", "stop"]).ok();
        assert_eq!(pool.processes(), Vec::<u32>::new());
        assert!(!pool.dir.path("pool/access.json").exists() && !pool.dir.path("pool/worker.json").exists());
    }
    pool.assert_nothing_left();
}

/// A start while the pool shuts down waits for its end.
#[test]
fn a_start_during_a_stop_starts_a_new_pool() {
    let pool = PoolFixture::start(&["--workers", "1", "--nthr", "1"]);
    let server = pool.server_pid();
    pool.submit("held.sh", "echo x >> runs; until [ -e go ]; do sleep 0.05; done", &[]);
    pool.wait_for_lines("runs", 1);
    let stop = pool.command(&["dispatch", "stop"]).spawn().unwrap();
    pool.wait_for_status(|status| status["mood"] == "draining");
    let start =
        pool.command(&["dispatch", "start", "--qsys", "local_worker", "--nthr", "1"]).spawn().unwrap();
    pool.dir.write("go", "");
    CliOutput::of(stop).ok();
    CliOutput::of(start).ok();
    assert_ne!(pool.server_pid(), server);
    pool.stop();
}

#[test]
fn a_pool_is_made_larger_and_smaller() {
    let pool = PoolFixture::start(&["--workers", "1", "--nthr", "1"]);
    pool.run(&["dispatch", "scale", "3"]).ok();
    pool.wait_for_workers(3);
    // Scaling down while scripts run: they end first, and none is lost or run twice.
    pool.submit("job.sh", "echo x >> runs; sleep 0.5", &["--array", "1-6"]);
    pool.wait_for_lines("runs", 3);
    pool.run(&["dispatch", "scale", "1"]).ok();
    pool.wait_for_workers(1);
    let status = pool.wait_until_idle();
    assert_eq!((&status["done"], &status["failed"]), (&6.into(), &0.into()));
    assert_eq!(pool.lines("runs").len(), 6);
    pool.stop();
}

#[test]
fn workers_come_with_the_work_and_go_without_it() {
    let args = ["--workers", "0", "--max-workers", "3", "--nthr", "1", "--idle", "500ms"];
    let pool = PoolFixture::start(&args);
    assert_eq!(pool.worker_pids(), Vec::<u32>::new());
    pool.submit("job.sh", "echo $PPID >> runs; sleep 0.5", &["--array", "1-12"]);
    pool.wait_for_workers(3);
    let status = pool.wait_until_idle();
    assert_eq!((&status["done"], &status["failed"]), (&12.into(), &0.into()));
    pool.wait_for_workers(0);
    assert_eq!(pool.wait_for("more.sh", "exit 0", &[]).0, 0, "and come again");
    pool.stop();
}

#[test]
fn a_launch_that_fails_is_explained_and_tried_again() {
    let args = ["--nthr", "1", "--before", "hook.sh", "--wait-limit", "4s"];
    let pool = PoolFixture::prepare(Box::new(LocalLauncher), &args);
    let hook = format!("[ -e {} ]", pool.dir.path("mended").display());
    pool.dir.write("hook.sh", hook);
    pool.start_server().ends(1).says("dispatch explain");
    let explained = || pool.run(&["dispatch", "explain", "--json"]).ok().json();
    let trouble = eventually(POOL_TIMEOUT, || explained()["trouble"].as_str().map(str::to_owned));
    assert!(trouble.contains("ended before its worker registered"), "{trouble}");
    let log = trouble.rsplit("see ").next().unwrap();
    let worker_log = std::fs::read_to_string(log).unwrap();
    assert!(worker_log.contains("the hook before the first script"), "{worker_log}");
    pool.dir.write("mended", "");
    pool.wait_for_workers(1);
    eventually(TIMEOUT, || explained()["trouble"].is_null().then_some(()));
    pool.stop();
}

#[test]
fn what_cannot_be_taken_in_is_an_error() {
    let pool = PoolFixture::prepare(Box::new(LocalLauncher), &["--nthr", "1"]);
    pool.dir.write("job.sh", "until [ -e go ]; do sleep 0.05; done");
    let submit = ["submit", "--script", "job.sh"];
    pool.run(&submit).ends(1).says("dispatch start");
    pool.start_server().ok();
    pool.run_on_store(&["queue", "set", "default", "--max-units", "3"]).ok();
    let codes: Vec<i32> = (0..6).map(|_| pool.run(&submit).code).collect();
    assert_eq!(codes[0], 0);
    assert!(codes.contains(&5) && codes.iter().all(|code| [0, 5].contains(code)), "{codes:?}");
    pool.dir.write("go", "");
    pool.wait_until_idle();
    pool.kill_server();
    pool.run(&submit).ends(1).says("cannot be reached");
    pool.start_server().ok();
    pool.stop();
}

#[test]
fn a_worker_leaves_in_time_when_its_life_is_nearly_over() {
    // The launcher would kill the worker after two seconds, so it stops earlier.
    let pool = PoolFixture::start(&["--nthr", "1", "--time", "2s"]);
    pool.submit("job.sh", "echo x >> runs; sleep 0.3", &["--array", "1-20"]);
    let status = pool.wait_until_idle();
    assert_eq!((&status["done"], &status["failed"]), (&20.into(), &0.into()));
    let repeats = pool.lines("runs").len() - 20;
    assert!(repeats <= 5, "{repeats} were interrupted");
    let started = pool.dir.read("pool/server.log").matches("worker registered").count();
    assert!(started >= 3, "only {started} workers in turn");
    pool.stop();
}
