//! Two hundred scripts, while a worker, an allocation or the server is killed.

use super::fixture::{PoolFixture, count_lines, signal};
use super::launcher::{LocalLauncher, TestLauncher};
use crate::support::{TIMEOUT, eventually};

const SCRIPTS: usize = 200;
const ARRAY_RANGE: &str = "1-200";
/// Records that it ran, and takes a little while.
const SHORT_SCRIPT: &str = "echo $LONGSHORE_ARRAY_INDEX >> runs; sleep 0.1";
/// Records that it ran, and runs until the file `go` exists.
const HELD_SCRIPT: &str =
    "echo $LONGSHORE_ARRAY_INDEX >> runs; until [ -e go ]; do sleep 0.05; done; echo x >> ends";

/// Every case on one launcher.
macro_rules! cases {
    ($($launcher:ident: $make:expr;)*) => {$(
        mod $launcher {
            use super::*;

            #[test]
            fn two_hundred_scripts_run_once_each_and_the_pool_drains() {
                super::two_hundred_scripts(Box::new($make));
            }

            #[test]
            fn scripts_of_a_killed_worker_run_again_and_all_others_once() {
                super::a_killed_worker(Box::new($make));
            }

            #[test]
            fn scripts_of_a_cancelled_allocation_run_again_and_another_is_asked_for() {
                super::a_cancelled_allocation(Box::new($make));
            }

            #[test]
            fn a_killed_server_is_started_again_and_takes_fifty_running_scripts_back() {
                super::a_killed_server(Box::new($make));
            }
        }
    )*};
}

cases! {
    local: LocalLauncher;
}

fn two_hundred_scripts(launcher: Box<dyn TestLauncher>) {
    let pool = PoolFixture::start_on(launcher, &["--workers", "2", "--nthr", "4"]);
    pool.submit("job.sh", SHORT_SCRIPT, &["--array", ARRAY_RANGE]);
    // A drain finishes running scripts and starts none; the rest waits for the next pool.
    pool.wait_for_lines("runs", 20);
    pool.stop();
    let ran = pool.lines("runs");
    assert!(count_lines(&ran).values().all(|times| *times == 1), "{ran:?}");
    assert!(ran.len() < SCRIPTS, "the drain came before the end");
    pool.start_server().ok();
    let status = pool.wait_until_idle();
    assert_eq!((&status["done"], &status["failed"]), (&SCRIPTS.into(), &0.into()));
    let ran = pool.lines("runs");
    assert!(count_lines(&ran).values().all(|times| *times == 1), "{ran:?}");
    assert_eq!(ran.len(), SCRIPTS);
    pool.stop();
}

fn a_killed_worker(launcher: Box<dyn TestLauncher>) {
    let pool = PoolFixture::start_on(launcher, &["--workers", "2", "--nthr", "4"]);
    pool.submit("job.sh", SHORT_SCRIPT, &["--array", ARRAY_RANGE]);
    pool.wait_for_lines("runs", 20);
    let before = pool.worker_pids();
    signal(before[0], "KILL");
    assert_repeats_of_one_worker(&pool, 4);
    eventually(TIMEOUT, || {
        let now = pool.worker_pids();
        (now.len() == 2 && !now.contains(&before[0])).then_some(())
    });
    pool.stop();
}

fn a_cancelled_allocation(launcher: Box<dyn TestLauncher>) {
    let pool = PoolFixture::start_on(launcher, &["--workers", "2", "--nthr", "4"]);
    let jobs = pool.job_ids();
    assert_eq!(jobs.len(), 2);
    pool.submit("job.sh", SHORT_SCRIPT, &["--array", ARRAY_RANGE]);
    pool.wait_for_lines("runs", 20);
    pool.launcher.cancel(&jobs[0]);
    assert_repeats_of_one_worker(&pool, 4);
    pool.wait_for_workers(2);
    pool.stop();
}

/// All scripts are done, and only scripts that one worker can have run at once ran twice.
fn assert_repeats_of_one_worker(pool: &PoolFixture, threads: usize) {
    let status = pool.wait_until_idle();
    assert_eq!((&status["done"], &status["failed"]), (&SCRIPTS.into(), &0.into()));
    let ran = pool.lines("runs");
    let counts = count_lines(&ran);
    assert_eq!(counts.len(), SCRIPTS);
    let repeated = counts.values().filter(|times| **times > 1).count();
    assert!(repeated <= threads && counts.values().all(|times| *times <= 2), "{counts:?}");
}

fn a_killed_server(launcher: Box<dyn TestLauncher>) {
    const RUNNING_SCRIPTS: usize = 50;
    let pool = PoolFixture::start_on(launcher, &["--workers", "2", "--nthr", "25"]);
    let workers = pool.worker_pids();
    pool.submit("job.sh", HELD_SCRIPT, &["--array", ARRAY_RANGE]);
    pool.wait_for_lines("runs", RUNNING_SCRIPTS);
    pool.kill_server();
    pool.start_server().ok();
    pool.wait_for_workers(2);
    assert_eq!(pool.worker_pids(), workers, "exactly the same workers as before");
    assert_eq!(pool.lines("runs").len(), RUNNING_SCRIPTS);
    // A second kill: the scripts end while no server runs, under claims made two server processes
    // earlier.
    pool.kill_server();
    pool.dir.write("go", "");
    pool.wait_for_lines("ends", RUNNING_SCRIPTS);
    pool.start_server().ok();
    let status = pool.wait_until_idle();
    assert_eq!((&status["done"], &status["failed"]), (&SCRIPTS.into(), &0.into()));
    let ran = pool.lines("runs");
    assert!(count_lines(&ran).values().all(|times| *times == 1), "each ran once: {ran:?}");
    assert_eq!(ran.len(), SCRIPTS);
    assert_eq!(pool.worker_pids(), workers, "exactly the same workers as before");
    pool.stop();
}
