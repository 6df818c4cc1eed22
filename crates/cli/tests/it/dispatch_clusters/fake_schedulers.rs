//! Pools on batch systems that cannot be installed here: the fakes refuse every wrong directive.

use longshore_testkit::servers::FakeBatchSystem;

use super::schedulers::FakeScheduler;
use crate::dispatch::fixture::{POOL_TIMEOUT, PoolFixture, count_lines};
use crate::support::eventually;

#[test]
fn a_pool_on_openpbs_runs_scripts_and_leaves_nothing() {
    run_twenty_scripts("pbs_worker", "qdel");
}

#[test]
fn a_pool_on_lsf_runs_scripts_and_leaves_nothing() {
    run_twenty_scripts("lsf_worker", "bkill");
}

fn run_twenty_scripts(qsys: &'static str, kill: &'static str) {
    let fake = FakeScheduler { batch: FakeBatchSystem::start().unwrap(), qsys, kill };
    let args = ["--workers", "2", "--nthr", "2", "--time", "1h", "--mem", "100MB"];
    let pool = PoolFixture::start_on(Box::new(fake), &args);
    let workers = pool.worker_pids();
    assert_eq!(workers.len(), 2);
    // A worker may connect before its server has written down the job.
    let jobs = eventually(POOL_TIMEOUT, || Some(pool.job_ids()).filter(|jobs| jobs.len() == 2));
    pool.submit("job.sh", "echo $LONGSHORE_ARRAY_INDEX >> runs", &["--array", "1-20"]);
    let status = pool.wait_until_idle();
    assert_eq!((&status["done"], &status["failed"]), (&20.into(), &0.into()));
    let ran = pool.lines("runs");
    assert_eq!((count_lines(&ran).len(), ran.len()), (20, 20));
    pool.launcher.cancel(&jobs[0]);
    pool.wait_for_status(|status| {
        let now: Vec<u64> = status["workers"].as_array().unwrap().iter().map(pid).collect();
        now.len() == 2 && !workers.iter().all(|worker| now.contains(&u64::from(*worker)))
    });
    pool.stop();
}

fn pid(worker: &serde_json::Value) -> u64 {
    worker["pid"].as_u64().unwrap()
}
