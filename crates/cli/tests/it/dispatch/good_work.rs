//! Running scripts are not interrupted before their time: by a stop, a smaller pool, a frozen server, a
//! cut-off worker, or a script that cannot be killed.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::fixture::{PoolFixture, signal};
use super::launcher::LocalLauncher;
use crate::support::{ChildGuard, TIMEOUT, eventually, stretch};

/// Runs longer than the workers of [`impatient_pool`] drain by themselves.
const LONG_SCRIPT: &str = "echo start >> runs; sleep 4; echo end >> runs";
const TTL: Duration = Duration::from_secs(3);

/// Its workers' own drain limit is a second.
fn impatient_pool() -> PoolFixture {
    let pool = PoolFixture::start(&["--workers", "1", "--nthr", "1", "--drain-timeout", "1s"]);
    pool.submit("long.sh", LONG_SCRIPT, &[]);
    pool.wait_for_lines("runs", 1);
    pool
}

#[test]
fn a_stop_lets_a_script_run_as_long_as_its_drain_timeout_says() {
    let pool = impatient_pool();
    pool.run(&["dispatch", "stop", "--drain-timeout", "1m"]).ok();
    assert_eq!(pool.lines("runs"), ["start", "end"]);
    pool.assert_nothing_left();
}

#[test]
fn a_smaller_pool_lets_a_script_run_as_long_as_its_drain_timeout_says() {
    let pool = impatient_pool();
    pool.run(&["dispatch", "scale", "0", "--drain-timeout", "1m"]).ok();
    pool.wait_for_workers(0);
    assert_eq!(pool.lines("runs"), ["start", "end"]);
    pool.run(&["dispatch", "scale", "2", "1"]).ends(2).says("below the minimum of 2");
    pool.stop();
}

/// A pool with a short ttl that launches no workers, and a worker that is started by hand.
fn pool_with_own_worker() -> (PoolFixture, ChildGuard) {
    let pool = PoolFixture::prepare(Box::new(LocalLauncher), &[]);
    let ttl = format!("{}s", TTL.as_secs());
    let start = ["dispatch", "start", "--workers", "0", "--max-workers", "0", "--nthr", "1", "--ttl", &ttl];
    pool.run(&start).ok();
    let mut worker = pool.command(&["worker", "--server", "pool", "--nthr", "2"]);
    let worker = ChildGuard(worker.spawn().unwrap());
    pool.wait_for_workers(1);
    (pool, worker)
}

#[test]
fn a_server_that_was_frozen_declares_no_worker_lost() {
    let (pool, _worker) = pool_with_own_worker();
    let server = pool.server_pid();
    pool.submit("held.sh", "echo x >> runs; until [ -e go ]; do sleep 0.05; done", &[]);
    pool.wait_for_lines("runs", 1);
    for _ in 0..4 {
        signal(server, "STOP");
        // The freeze itself is what is tested.
        std::thread::sleep(TTL + Duration::from_millis(300));
        signal(server, "CONT");
        pool.wait_for_workers(1);
    }
    pool.dir.write("go", "");
    let status = pool.wait_until_idle();
    assert_eq!((&status["done"], pool.lines("runs").len()), (&1.into(), 1));
    let log = pool.dir.read("pool/server.log");
    assert!(log.contains("this server was stalled") && !log.contains("was lost"), "{log}");
    pool.stop();
}

/// The worker is counted as lost and comes back; no other worker has begun the script.
#[test]
fn the_result_of_a_worker_that_was_cut_off_is_taken() {
    let (pool, worker) = pool_with_own_worker();
    let unit = pool.unit("held.sh", "echo x >> runs; until [ -e go ]; do sleep 0.05; done; exit 0", &[]);
    let ended = pool.unit("short.sh", "echo y >> runs; until [ -e cut ]; do sleep 0.05; done", &[]);
    pool.wait_for_lines("runs", 2);
    signal(worker.0.id(), "STOP");
    pool.wait_for_workers(0);
    // One script ends while its worker is away, the other after its return.
    pool.dir.write("cut", "");
    signal(worker.0.id(), "CONT");
    pool.wait_for_workers(1);
    let shown = |unit: &str| pool.run(&["unit", "show", unit, "--dir", "pool", "--json"]).ok().json();
    eventually(stretch(TIMEOUT), || (shown(&ended)["state"] == "done").then_some(()));
    pool.dir.write("go", "");
    let shown = eventually(stretch(TIMEOUT), || Some(shown(&unit)).filter(|unit| unit["state"] == "done"));
    assert_eq!(shown["past"][0]["failure"]["code"], "lost", "{shown}");
    assert_eq!(pool.lines("runs").len(), 2, "no script ran again");
    pool.stop();
}

/// A freezer of the kernel: what is in it cannot be killed, as a process that waits for a dead disk.
struct Freezer(std::path::PathBuf);

impl Freezer {
    /// `None` where the kernel has no such freezer (cgroup v2 only), or this process may not use it.
    fn new() -> Option<Self> {
        let folder = Path::new("/sys/fs/cgroup/freezer").join(format!("longshore-{}", std::process::id()));
        std::fs::create_dir(&folder).ok()?;
        Some(Self(folder))
    }

    fn set(&self, state: &str) {
        std::fs::write(self.0.join("freezer.state"), state).unwrap();
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.set("THAWED");
        eventually(TIMEOUT, || std::fs::remove_dir(&self.0).ok());
    }
}

#[test]
fn a_script_that_cannot_be_killed_holds_up_no_other() {
    let mounted = Path::new("/sys/fs/cgroup/freezer").exists();
    if !mounted {
        let target = "/sys/fs/cgroup/freezer";
        let _ = std::fs::create_dir_all(target);
        let _ = Command::new("mount").args(["-t", "cgroup", "-o", "freezer", "none", target]).status();
    }
    let pool = PoolFixture::start(&["--workers", "1", "--nthr", "2"]);
    // Dropped before the pool: a frozen process would keep the pool from ending.
    let Some(freezer) = Freezer::new() else {
        eprintln!("this kernel has no freezer that SIGKILL does not thaw");
        return pool.stop();
    };
    let join = format!("echo $$ > {}/tasks; echo x >> runs; sleep 600", freezer.0.display());
    let stuck = pool.unit("stuck.sh", &join, &[]);
    pool.wait_for_lines("runs", 1);
    freezer.set("FROZEN");
    pool.run(&["unit", "cancel", &stuck, "--dir", "pool"]).ok();
    // The worker's other thread works meanwhile, and the unit ends.
    assert_eq!(pool.wait_for("other.sh", "exit 0", &[]).0, 0);
    let shown = || pool.run(&["unit", "show", &stuck, "--dir", "pool", "--json"]).ok().json();
    let shown = eventually(stretch(TIMEOUT), || Some(shown()).filter(|unit| unit["state"] == "cancelled"));
    assert!(shown.to_string().contains("did not end within"), "{shown}");
    assert_eq!(pool.wait_for("more.sh", "exit 0", &[]).0, 0);
    drop(freezer);
    pool.stop();
}
