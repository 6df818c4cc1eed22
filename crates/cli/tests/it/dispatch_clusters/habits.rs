//! What Slurm does to jobs: it loses nodes while their processes live on, preempts jobs, and forgets
//! ended jobs.

use std::rc::Rc;

use super::bases::{Cluster, Shared, Slurm};
use crate::dispatch::kit::{LONG, Pool, counted};
use crate::support::{eventually, limit};

const SCRIPTS: usize = 6;

#[test]
fn a_worker_on_a_lost_node_works_on_and_one_that_makes_way_is_replaced() {
    let slurm = Rc::new(Slurm::start_with(&[
        ("MinJobAge", "2"),
        ("PreemptType", "preempt/partition_prio"),
        ("PreemptMode", "REQUEUE"),
        ("PartitionName", "urgent Nodes=ALL PriorityTier=100 State=UP"),
    ]));
    let base = Box::new(Shared(Rc::clone(&slurm)));
    let pool = Pool::start_on(base, &["--workers", "3", "--nthr", "2"]);
    let first = pool.jobs();
    let held = "echo $LONGSHORE_ARRAY_INDEX >> runs; until [ -e go ]; do sleep 0.1; done";
    // If a loss counted, one would exceed the crash limit.
    pool.submit("held.sh", held, &["--array", "1-6", "--crash-limit", "1"]);
    pool.until_lines("runs", SCRIPTS);
    slurm.0.lock().unwrap().lose("n3").unwrap();
    let urgent = urgent(&slurm);
    // Slurm no longer knows the job on the lost node, and a new job waits for the preempted node.
    eventually(limit(LONG), || {
        let (known, here) = (pool.jobs(), pool.workers().len());
        let new = known.iter().filter(|job| !first.contains(job)).count();
        (known.len() == 2 && new == 1 && here == 2).then_some(())
    });
    let explained = pool.run(&["dispatch", "explain"]).ok().out;
    assert!(explained.contains("3 wanted, 2 here, 1 on their way"), "{explained}");
    slurm.run("scancel", &[&urgent]);
    pool.until_workers(3);
    pool.until_lines("runs", SCRIPTS + 2);
    pool.place.write("go", "");
    let status = pool.at_rest();
    assert_eq!((&status["done"], &status["failed"]), (&SCRIPTS.into(), &0.into()));
    let ran = pool.lines("runs");
    assert_eq!((counted(&ran).len(), ran.len()), (SCRIPTS, SCRIPTS + 2), "{ran:?}");
    pool.stop();
    eventually(limit(LONG), || slurm.jobs().is_empty().then_some(()));
}

/// Submits a job that preempts the first node.
fn urgent(slurm: &Slurm) -> String {
    let args = ["--parsable", "--partition=urgent", "--nodelist=n1", "--output=/dev/null"];
    let said = slurm.run("sbatch", &[&args[..], &["--wrap=sleep 600"]].concat());
    said.trim().to_owned()
}
