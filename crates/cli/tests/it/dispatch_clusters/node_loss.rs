//! What Slurm does to jobs: it loses nodes while their processes live on, preempts jobs, and forgets
//! ended jobs.

use std::rc::Rc;

use super::schedulers::{Cluster, SharedCluster, SlurmCluster};
use crate::dispatch::fixture::{POOL_TIMEOUT, PoolFixture, count_lines};
use crate::support::{eventually, stretch};

const SCRIPTS: usize = 6;

#[test]
fn a_worker_on_a_lost_node_works_on_and_one_that_makes_way_is_replaced() {
    let slurm = Rc::new(SlurmCluster::start_with(&[
        ("MinJobAge", "2"),
        ("PreemptType", "preempt/partition_prio"),
        ("PreemptMode", "REQUEUE"),
        ("PartitionName", "urgent Nodes=ALL PriorityTier=100 State=UP"),
    ]));
    let launcher = Box::new(SharedCluster(Rc::clone(&slurm)));
    let pool = PoolFixture::start_on(launcher, &["--workers", "3", "--nthr", "2"]);
    let first = pool.job_ids();
    let held = "echo $LONGSHORE_ARRAY_INDEX >> runs; until [ -e go ]; do sleep 0.1; done";
    // If a loss counted, one would exceed the crash limit.
    pool.submit("held.sh", held, &["--array", "1-6", "--crash-limit", "1"]);
    pool.wait_for_lines("runs", SCRIPTS);
    slurm.0.lock().unwrap().lose_node("n3").unwrap();
    let urgent = submit_preempting_job(&slurm);
    // Slurm no longer knows the job on the lost node, and a new job waits for the preempted node.
    eventually(stretch(POOL_TIMEOUT), || {
        let (jobs, here) = (pool.job_ids(), pool.worker_pids().len());
        let new = jobs.iter().filter(|job| !first.contains(job)).count();
        (jobs.len() == 2 && new == 1 && here == 2).then_some(())
    });
    let explained = pool.run(&["dispatch", "explain"]).ok().out;
    assert!(explained.contains("3 wanted, 2 here, 1 on their way"), "{explained}");
    slurm.run("scancel", &[&urgent]);
    pool.wait_for_workers(3);
    pool.wait_for_lines("runs", SCRIPTS + 2);
    pool.dir.write("go", "");
    let status = pool.wait_until_idle();
    assert_eq!((&status["done"], &status["failed"]), (&SCRIPTS.into(), &0.into()));
    let ran = pool.lines("runs");
    assert_eq!((count_lines(&ran).len(), ran.len()), (SCRIPTS, SCRIPTS + 2), "{ran:?}");
    pool.stop();
    eventually(stretch(POOL_TIMEOUT), || slurm.job_ids().is_empty().then_some(()));
}

/// Submits a job that preempts the first node.
fn submit_preempting_job(slurm: &SlurmCluster) -> String {
    let args = ["--parsable", "--partition=urgent", "--nodelist=n1", "--output=/dev/null"];
    let output = slurm.run("sbatch", &[&args[..], &["--wrap=sleep 600"]].concat());
    output.trim().to_owned()
}
