//! The same sequence on each scheduler: two hundred scripts, a killed worker, a cancelled allocation,
//! a server killed while fifty scripts run, and the stop.

use std::rc::Rc;

use super::schedulers::{Cluster, GridEngineCluster, SharedCluster, SlurmCluster, TorqueCluster};
use crate::dispatch::fixture::{POOL_TIMEOUT, PoolFixture, count_lines, signal};
use crate::support::{eventually, stretch};

const SCRIPTS: usize = 200;
/// Threads of each of two workers, regardless of their nodes' processors.
const THREADS_PER_WORKER: usize = 25;
const THREADS: usize = 2 * THREADS_PER_WORKER;

#[test]
fn a_pool_on_slurm_loses_nothing_and_leaves_nothing() {
    run_pool_lifecycle(SlurmCluster::start());
}

#[test]
fn a_pool_on_grid_engine_loses_nothing_and_leaves_nothing() {
    run_pool_lifecycle(GridEngineCluster::start());
}

#[test]
fn a_pool_on_torque_loses_nothing_and_leaves_nothing() {
    run_pool_lifecycle(TorqueCluster::start());
}

fn run_pool_lifecycle(cluster: impl Cluster + 'static) {
    let cluster = Rc::new(cluster);
    let options = cluster.overcommit();
    let threads = THREADS_PER_WORKER.to_string();
    let args = ["--workers", "2", "--nthr", &threads, "--"];
    let launcher = Box::new(SharedCluster(Rc::clone(&cluster)));
    let pool = PoolFixture::start_on(launcher, &[&args[..], &options].concat());
    assert_eq!(cluster.job_ids(), pool.job_ids().into_iter().collect());
    a_worker_is_killed(&pool);
    an_allocation_is_cancelled(&pool);
    the_server_is_killed(&pool, cluster.as_ref());
    pool.stop();
    eventually(stretch(POOL_TIMEOUT), || cluster.job_ids().is_empty().then_some(()));
}

/// Waits for two workers other than `gone`.
fn wait_for_replacement(pool: &PoolFixture, gone: u32) {
    eventually(stretch(POOL_TIMEOUT), || {
        let now = pool.worker_pids();
        (now.len() == 2 && !now.contains(&gone)).then_some(())
    });
}

fn a_worker_is_killed(pool: &PoolFixture) {
    let script = "echo $LONGSHORE_ARRAY_INDEX >> runs; sleep 0.05";
    pool.submit("short.sh", script, &["--array", "1-200"]);
    pool.wait_for_lines("runs", 20);
    let killed = pool.worker_pids()[0];
    signal(killed, "KILL");
    let status = pool.wait_until_idle();
    assert_eq!((&status["done"], &status["failed"]), (&SCRIPTS.into(), &0.into()));
    let ran = pool.lines("runs");
    let counts = count_lines(&ran);
    assert_eq!(counts.len(), SCRIPTS);
    let repeated = counts.values().filter(|times| **times > 1).count();
    assert!(repeated <= THREADS_PER_WORKER && counts.values().all(|times| *times <= 2), "{counts:?}");
    wait_for_replacement(pool, killed);
}

/// A script that records its run in a file, and ends once the file `go` exists.
fn held_script(runs: &str, go: &str) -> String {
    format!("echo $LONGSHORE_ARRAY_INDEX >> {runs}; until [ -e {go} ]; do sleep 0.1; done")
}

/// If a loss counted, one would exceed the crash limit.
fn an_allocation_is_cancelled(pool: &PoolFixture) {
    let all = format!("1-{THREADS}");
    pool.submit("held.sh", &held_script("twice", "go"), &["--array", &all, "--crash-limit", "1"]);
    pool.wait_for_lines("twice", THREADS);
    let (workers, jobs) = (pool.worker_pids(), pool.job_ids());
    assert_eq!(jobs.len(), 2, "one for each worker");
    pool.launcher.cancel(&jobs[0]);
    let gone = eventually(stretch(POOL_TIMEOUT), || {
        let now = pool.worker_pids();
        workers.iter().find(|worker| !now.contains(worker)).copied()
    });
    wait_for_replacement(pool, gone);
    pool.wait_for_lines("twice", THREADS + THREADS_PER_WORKER);
    pool.dir.write("go", "");
    let status = pool.wait_until_idle();
    assert_eq!((&status["done"], &status["failed"]), (&(SCRIPTS + THREADS).into(), &0.into()));
    let ran = pool.lines("twice");
    let counts = count_lines(&ran);
    let repeated = counts.values().filter(|times| **times == 2).count();
    assert_eq!(
        (counts.len(), ran.len(), repeated),
        (THREADS, THREADS + THREADS_PER_WORKER, THREADS_PER_WORKER)
    );
}

fn the_server_is_killed(pool: &PoolFixture, cluster: &impl Cluster) {
    let all = format!("1-{THREADS}");
    pool.submit("once.sh", &held_script("once", "on"), &["--array", &all]);
    pool.wait_for_lines("once", THREADS);
    let (workers, jobs) = (pool.worker_pids(), cluster.job_ids());
    pool.kill_server();
    pool.start_server().ok();
    assert_eq!(pool.worker_pids(), workers, "the same workers");
    assert_eq!(pool.lines("once").len(), THREADS);
    pool.dir.write("on", "");
    let status = pool.wait_until_idle();
    assert_eq!((&status["done"], &status["failed"]), (&(SCRIPTS + 2 * THREADS).into(), &0.into()));
    let ran = pool.lines("once");
    assert_eq!((count_lines(&ran).len(), ran.len()), (THREADS, THREADS), "each ran once");
    assert_eq!((pool.worker_pids(), cluster.job_ids()), (workers, jobs), "no other workers were requested");
}
