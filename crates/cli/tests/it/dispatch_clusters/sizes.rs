//! How many workers there are: more than fit, as many as there is work for, and some that die young.

use std::rc::Rc;

use super::bases::{Cluster, Shared, Slurm};
use crate::dispatch::kit::{LONG, Pool};
use crate::support::{eventually, limit};

#[test]
fn a_pool_on_slurm_has_the_workers_that_it_can_have_and_needs() {
    let slurm = Rc::new(Slurm::start());
    more_workers_than_fit(&slurm);
    as_many_as_there_is_work_for(&slurm);
    workers_whose_time_is_short(&slurm);
}

fn pool(slurm: &Rc<Slurm>, args: &[&str]) -> Pool {
    Pool::prepare(Box::new(Shared(Rc::clone(slurm))), args)
}

/// How many workers were ever asked for: each has a log.
fn launches(pool: &Pool) -> usize {
    std::fs::read_dir(pool.place.path("pool/workers")).unwrap().count()
}

fn until_jobs(slurm: &Slurm, count: usize) {
    eventually(limit(LONG), || (slurm.jobs().len() == count).then_some(()));
}

fn more_workers_than_fit(slurm: &Rc<Slurm>) {
    let pool = pool(slurm, &["--workers", "4", "--nthr", "2", "--wait-limit", "4s"]);
    pool.start_server().ends(1).says("the pool continues");
    pool.until_workers(3);
    let explained = eventually(limit(LONG), || {
        let said = pool.run(&["dispatch", "explain", "--json"]).ok().json();
        Some(said).filter(|said| said["pending"].to_string().contains("Resources"))
    });
    assert_eq!((&explained["wanted"], &explained["here"]), (&4.into(), &3.into()));
    pool.submit("short.sh", "exit 0", &["--array", "1-20"]);
    assert_eq!(pool.at_rest()["done"], 20);
    assert_eq!(slurm.jobs().len(), 4, "one still waits");
    pool.run(&["dispatch", "scale", "3"]).ok();
    until_jobs(slurm, 3);
    pool.run(&["dispatch", "scale", "4"]).ok();
    until_jobs(slurm, 4);
    pool.stop();
    until_jobs(slurm, 0);
}

fn as_many_as_there_is_work_for(slurm: &Rc<Slurm>) {
    let size = ["--workers", "0", "--max-workers", "3", "--nthr", "2", "--idle", "1s"];
    let pool = pool(slurm, &size);
    pool.start_server().ok();
    assert_eq!((slurm.jobs().len(), launches(&pool)), (0, 0));
    let held = "echo >> runs; until [ -e go ]; do sleep 0.1; done";
    pool.submit("held.sh", held, &["--array", "1-20"]);
    pool.until_lines("runs", 6);
    assert_eq!((pool.workers().len(), slurm.jobs().len()), (3, 3));
    pool.place.write("go", "");
    assert_eq!(pool.at_rest()["done"], 20);
    pool.until_workers(0);
    until_jobs(slurm, 0);
    assert_eq!(launches(&pool), 3, "nobody was asked for twice");
    pool.stop();
}

/// A loss would be one too many: they end in good time before their allocations do.
fn workers_whose_time_is_short(slurm: &Rc<Slurm>) {
    let pool = pool(slurm, &["--workers", "1", "--nthr", "1", "--time", "5s"]);
    pool.start_server().ok();
    pool.submit("short.sh", "sleep 0.2", &["--array", "1-30", "--crash-limit", "1"]);
    let status = pool.at_rest();
    assert_eq!((&status["done"], &status["failed"]), (&30.into(), &0.into()));
    assert!(launches(&pool) >= 2, "one life was not enough");
    assert!(pool.place.read("pool/workers/0001.log").contains("its time is nearly over"));
    pool.stop();
    until_jobs(slurm, 0);
}
