//! Pools on batch systems that cannot be installed here: the fakes refuse every wrong directive.

use longshore_testkit::servers::FakeBatch;

use super::bases::Fake;
use crate::dispatch::kit::{Pool, counted};

#[test]
fn a_pool_on_openpbs_runs_scripts_and_leaves_nothing() {
    twenty_scripts("pbs_worker", "qdel");
}

#[test]
fn a_pool_on_lsf_runs_scripts_and_leaves_nothing() {
    twenty_scripts("lsf_worker", "bkill");
}

fn twenty_scripts(qsys: &'static str, kill: &'static str) {
    let fake = Fake { batch: FakeBatch::start().unwrap(), qsys, kill };
    let args = ["--workers", "2", "--nthr", "2", "--time", "1h", "--mem", "100MB"];
    let pool = Pool::start_on(Box::new(fake), &args);
    let (workers, jobs) = (pool.workers(), pool.jobs());
    assert_eq!((workers.len(), jobs.len()), (2, 2));
    pool.submit("job.sh", "echo $LONGSHORE_ARRAY_INDEX >> runs", &["--array", "1-20"]);
    let status = pool.at_rest();
    assert_eq!((&status["done"], &status["failed"]), (&20.into(), &0.into()));
    let ran = pool.lines("runs");
    assert_eq!((counted(&ran).len(), ran.len()), (20, 20));
    pool.base.cancel(&jobs[0]);
    pool.until(|status| {
        let now: Vec<u64> = status["workers"].as_array().unwrap().iter().map(pid).collect();
        now.len() == 2 && !workers.iter().all(|worker| now.contains(&u64::from(*worker)))
    });
    pool.stop();
}

fn pid(worker: &serde_json::Value) -> u64 {
    worker["pid"].as_u64().unwrap()
}
