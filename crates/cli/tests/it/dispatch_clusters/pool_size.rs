//! The number of workers: more than fit, as many as there is work for, and short-lived ones.

use std::rc::Rc;

use super::schedulers::{Cluster, SharedCluster, SlurmCluster};
use crate::dispatch::fixture::{POOL_TIMEOUT, PoolFixture};
use crate::support::{eventually, stretch};

#[test]
fn a_pool_on_slurm_has_the_workers_that_it_can_have_and_needs() {
    let slurm = Rc::new(SlurmCluster::start());
    more_workers_than_fit(&slurm);
    as_many_as_there_is_work_for(&slurm);
    workers_whose_time_is_short(&slurm);
}

fn pool(slurm: &Rc<SlurmCluster>, args: &[&str]) -> PoolFixture {
    PoolFixture::prepare(Box::new(SharedCluster(Rc::clone(slurm))), args)
}

/// The number of workers ever requested: each has a log.
fn launch_count(pool: &PoolFixture) -> usize {
    std::fs::read_dir(pool.dir.path("pool/workers")).unwrap().count()
}

fn wait_for_jobs(slurm: &SlurmCluster, count: usize) {
    eventually(stretch(POOL_TIMEOUT), || (slurm.job_ids().len() == count).then_some(()));
}

fn more_workers_than_fit(slurm: &Rc<SlurmCluster>) {
    let pool = pool(slurm, &["--workers", "4", "--nthr", "2", "--wait-limit", "4s"]);
    pool.start_server().ends(1).says("the pool continues");
    pool.wait_for_workers(3);
    let explained = eventually(stretch(POOL_TIMEOUT), || {
        let output = pool.run(&["dispatch", "explain", "--json"]).ok().json();
        Some(output).filter(|output| output["pending"].to_string().contains("Resources"))
    });
    assert_eq!((&explained["wanted"], &explained["here"]), (&4.into(), &3.into()));
    pool.submit("short.sh", "exit 0", &["--array", "1-20"]);
    assert_eq!(pool.wait_until_idle()["done"], 20);
    assert_eq!(slurm.job_ids().len(), 4, "one still waits");
    pool.run(&["dispatch", "scale", "3"]).ok();
    wait_for_jobs(slurm, 3);
    pool.run(&["dispatch", "scale", "4"]).ok();
    wait_for_jobs(slurm, 4);
    pool.stop();
    wait_for_jobs(slurm, 0);
}

fn as_many_as_there_is_work_for(slurm: &Rc<SlurmCluster>) {
    let size = ["--workers", "0", "--max-workers", "3", "--nthr", "2", "--idle", "1s"];
    let pool = pool(slurm, &size);
    pool.start_server().ok();
    assert_eq!((slurm.job_ids().len(), launch_count(&pool)), (0, 0));
    let held = "echo >> runs; until [ -e go ]; do sleep 0.1; done";
    pool.submit("held.sh", held, &["--array", "1-20"]);
    pool.wait_for_lines("runs", 6);
    assert_eq!((pool.worker_pids().len(), slurm.job_ids().len()), (3, 3));
    pool.dir.write("go", "");
    assert_eq!(pool.wait_until_idle()["done"], 20);
    pool.wait_for_workers(0);
    wait_for_jobs(slurm, 0);
    assert_eq!(launch_count(&pool), 3, "no worker was requested twice");
    pool.stop();
}

/// A loss would exceed the crash limit: the workers stop before their allocations end.
fn workers_whose_time_is_short(slurm: &Rc<SlurmCluster>) {
    let pool = pool(slurm, &["--workers", "1", "--nthr", "1", "--time", "5s"]);
    pool.start_server().ok();
    pool.submit("short.sh", "sleep 0.2", &["--array", "1-30", "--crash-limit", "1"]);
    let status = pool.wait_until_idle();
    assert_eq!((&status["done"], &status["failed"]), (&30.into(), &0.into()));
    assert!(launch_count(&pool) >= 2, "one allocation was not enough");
    assert!(pool.dir.read("pool/workers/0001.log").contains("its lifetime is nearly over"));
    pool.stop();
    wait_for_jobs(slurm, 0);
}
