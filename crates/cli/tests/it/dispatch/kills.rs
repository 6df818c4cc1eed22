//! Two hundred scripts, while a worker, an allocation or the server is killed.

use super::base::{Base, Local};
use super::kit::{Pool, counted, signal};
use crate::support::{SOON, eventually};

const SCRIPTS: usize = 200;
const ARRAY: &str = "1-200";
/// Records that it ran, and takes a little while.
const SCRIPT: &str = "echo $LONGSHORE_ARRAY_INDEX >> runs; sleep 0.1";
/// Records that it ran, and runs until the file `go` exists.
const HELD: &str =
    "echo $LONGSHORE_ARRAY_INDEX >> runs; until [ -e go ]; do sleep 0.05; done; echo x >> ends";

/// Every case on one launcher.
macro_rules! cases {
    ($($base:ident: $make:expr;)*) => {$(
        mod $base {
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
    local: Local;
}

fn two_hundred_scripts(base: Box<dyn Base>) {
    let pool = Pool::start_on(base, &["--workers", "2", "--nthr", "4"]);
    pool.submit("job.sh", SCRIPT, &["--array", ARRAY]);
    // A drain finishes running scripts and starts none; the rest waits for the next pool.
    pool.until_lines("runs", 20);
    pool.stop();
    let ran = pool.lines("runs");
    assert!(counted(&ran).values().all(|times| *times == 1), "{ran:?}");
    assert!(ran.len() < SCRIPTS, "it was drained before the end");
    pool.start_server().ok();
    let status = pool.at_rest();
    assert_eq!((&status["done"], &status["failed"]), (&SCRIPTS.into(), &0.into()));
    let ran = pool.lines("runs");
    assert!(counted(&ran).values().all(|times| *times == 1), "{ran:?}");
    assert_eq!(ran.len(), SCRIPTS);
    pool.stop();
}

fn a_killed_worker(base: Box<dyn Base>) {
    let pool = Pool::start_on(base, &["--workers", "2", "--nthr", "4"]);
    pool.submit("job.sh", SCRIPT, &["--array", ARRAY]);
    pool.until_lines("runs", 20);
    let before = pool.workers();
    signal(before[0], "KILL");
    assert_repeats_of_one_worker(&pool, 4);
    eventually(SOON, || {
        let now = pool.workers();
        (now.len() == 2 && !now.contains(&before[0])).then_some(())
    });
    pool.stop();
}

fn a_cancelled_allocation(base: Box<dyn Base>) {
    let pool = Pool::start_on(base, &["--workers", "2", "--nthr", "4"]);
    let jobs = pool.jobs();
    assert_eq!(jobs.len(), 2);
    pool.submit("job.sh", SCRIPT, &["--array", ARRAY]);
    pool.until_lines("runs", 20);
    pool.base.cancel(&jobs[0]);
    assert_repeats_of_one_worker(&pool, 4);
    pool.until_workers(2);
    pool.stop();
}

/// All scripts are done, and only scripts that one worker can have run at once ran twice.
fn assert_repeats_of_one_worker(pool: &Pool, threads: usize) {
    let status = pool.at_rest();
    assert_eq!((&status["done"], &status["failed"]), (&SCRIPTS.into(), &0.into()));
    let ran = pool.lines("runs");
    let counts = counted(&ran);
    assert_eq!(counts.len(), SCRIPTS);
    let repeated = counts.values().filter(|times| **times > 1).count();
    assert!(repeated <= threads && counts.values().all(|times| *times <= 2), "{counts:?}");
}

fn a_killed_server(base: Box<dyn Base>) {
    const RUNNING: usize = 50;
    let pool = Pool::start_on(base, &["--workers", "2", "--nthr", "25"]);
    let workers = pool.workers();
    pool.submit("job.sh", HELD, &["--array", ARRAY]);
    pool.until_lines("runs", RUNNING);
    pool.kill_server();
    pool.start_server().ok();
    pool.until_workers(2);
    assert_eq!(pool.workers(), workers, "the same workers as before, and no others");
    assert_eq!(pool.lines("runs").len(), RUNNING);
    // A second kill: the scripts end while no server runs, under claims made two server processes
    // earlier.
    pool.kill_server();
    pool.place.write("go", "");
    pool.until_lines("ends", RUNNING);
    pool.start_server().ok();
    let status = pool.at_rest();
    assert_eq!((&status["done"], &status["failed"]), (&SCRIPTS.into(), &0.into()));
    let ran = pool.lines("runs");
    assert!(counted(&ran).values().all(|times| *times == 1), "each ran once: {ran:?}");
    assert_eq!(ran.len(), SCRIPTS);
    assert_eq!(pool.workers(), workers, "the same workers as before, and no others");
    pool.stop();
}
