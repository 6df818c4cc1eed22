//! The same sequence on each scheduler: two hundred scripts, a killed worker, a cancelled allocation,
//! a server killed while fifty scripts run, and the stop.

use std::rc::Rc;

use super::bases::{Cluster, GridEngine, Shared, Slurm, Torque};
use crate::dispatch::kit::{LONG, Pool, counted, signal};
use crate::support::{eventually, limit};

const SCRIPTS: usize = 200;
/// Threads of each of two workers, regardless of their nodes' processors.
const THREADS: usize = 25;
const BOTH: usize = 2 * THREADS;

#[test]
fn a_pool_on_slurm_loses_nothing_and_leaves_nothing() {
    a_life(Slurm::start());
}

#[test]
fn a_pool_on_grid_engine_loses_nothing_and_leaves_nothing() {
    a_life(GridEngine::start());
}

#[test]
fn a_pool_on_torque_loses_nothing_and_leaves_nothing() {
    a_life(Torque::start());
}

fn a_life(cluster: impl Cluster + 'static) {
    let cluster = Rc::new(cluster);
    let options = cluster.overcommit();
    let threads = THREADS.to_string();
    let args = ["--workers", "2", "--nthr", &threads, "--"];
    let base = Box::new(Shared(Rc::clone(&cluster)));
    let pool = Pool::start_on(base, &[&args[..], &options].concat());
    assert_eq!(cluster.jobs(), pool.jobs().into_iter().collect());
    a_worker_is_killed(&pool);
    an_allocation_is_cancelled(&pool);
    the_server_is_killed(&pool, cluster.as_ref());
    pool.stop();
    eventually(limit(LONG), || cluster.jobs().is_empty().then_some(()));
}

/// Waits for two workers other than `gone`.
fn until_replaced(pool: &Pool, gone: u32) {
    eventually(limit(LONG), || {
        let now = pool.workers();
        (now.len() == 2 && !now.contains(&gone)).then_some(())
    });
}

fn a_worker_is_killed(pool: &Pool) {
    let script = "echo $LONGSHORE_ARRAY_INDEX >> runs; sleep 0.05";
    pool.submit("short.sh", script, &["--array", "1-200"]);
    pool.until_lines("runs", 20);
    let killed = pool.workers()[0];
    signal(killed, "KILL");
    let status = pool.at_rest();
    assert_eq!((&status["done"], &status["failed"]), (&SCRIPTS.into(), &0.into()));
    let ran = pool.lines("runs");
    let counts = counted(&ran);
    assert_eq!(counts.len(), SCRIPTS);
    let repeated = counts.values().filter(|times| **times > 1).count();
    assert!(repeated <= THREADS && counts.values().all(|times| *times <= 2), "{counts:?}");
    until_replaced(pool, killed);
}

/// A script that records its run in a file, and ends once the file `go` exists.
fn held(runs: &str, go: &str) -> String {
    format!("echo $LONGSHORE_ARRAY_INDEX >> {runs}; until [ -e {go} ]; do sleep 0.1; done")
}

/// If a loss counted, one would exceed the crash limit.
fn an_allocation_is_cancelled(pool: &Pool) {
    let all = format!("1-{BOTH}");
    pool.submit("held.sh", &held("twice", "go"), &["--array", &all, "--crash-limit", "1"]);
    pool.until_lines("twice", BOTH);
    let (workers, jobs) = (pool.workers(), pool.jobs());
    assert_eq!(jobs.len(), 2, "one for each worker");
    pool.base.cancel(&jobs[0]);
    let gone = eventually(limit(LONG), || {
        let now = pool.workers();
        workers.iter().find(|worker| !now.contains(worker)).copied()
    });
    until_replaced(pool, gone);
    pool.until_lines("twice", BOTH + THREADS);
    pool.place.write("go", "");
    let status = pool.at_rest();
    assert_eq!((&status["done"], &status["failed"]), (&(SCRIPTS + BOTH).into(), &0.into()));
    let ran = pool.lines("twice");
    let counts = counted(&ran);
    let repeated = counts.values().filter(|times| **times == 2).count();
    assert_eq!((counts.len(), ran.len(), repeated), (BOTH, BOTH + THREADS, THREADS));
}

fn the_server_is_killed(pool: &Pool, cluster: &impl Cluster) {
    let all = format!("1-{BOTH}");
    pool.submit("once.sh", &held("once", "on"), &["--array", &all]);
    pool.until_lines("once", BOTH);
    let (workers, jobs) = (pool.workers(), cluster.jobs());
    pool.kill_server();
    pool.start_server().ok();
    assert_eq!(pool.workers(), workers, "the same workers");
    assert_eq!(pool.lines("once").len(), BOTH);
    pool.place.write("on", "");
    let status = pool.at_rest();
    assert_eq!((&status["done"], &status["failed"]), (&(SCRIPTS + 2 * BOTH).into(), &0.into()));
    let ran = pool.lines("once");
    assert_eq!((counted(&ran).len(), ran.len()), (BOTH, BOTH), "each ran once");
    assert_eq!((pool.workers(), cluster.jobs()), (workers, jobs), "and no others were asked for");
}
