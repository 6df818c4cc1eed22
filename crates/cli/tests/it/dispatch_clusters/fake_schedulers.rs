//! Pools on batch systems that cannot be installed here: the fakes refuse every wrong directive.

use longshore_testkit::servers::FakeBatchSystem;

use super::schedulers::FakeScheduler;
use crate::dispatch::fixture::{POOL_TIMEOUT, PoolFixture, count_lines};
use crate::support::eventually;

#[test]
fn a_pool_on_openpbs_runs_scripts_and_leaves_nothing() {
    run_twenty_scripts("pbs_worker", &["qdel"], &[]);
}

#[test]
fn a_pool_on_lsf_runs_scripts_and_leaves_nothing() {
    run_twenty_scripts("lsf_worker", &["bkill"], &[]);
}

#[test]
fn a_pool_on_kubernetes_runs_scripts_and_leaves_nothing() {
    const DELETE: [&str; 6] =
        ["kubectl", "delete", "jobs", "--ignore-not-found", "--cascade=foreground", "--wait=false"];
    run_twenty_scripts("kubernetes_worker", &DELETE, &["--", "--image=registry.example/longshore:1"]);
}

#[test]
fn one_pool_has_workers_of_several_systems() {
    let fake =
        FakeScheduler { batch: FakeBatchSystem::start().unwrap(), qsys: "lsf_worker", kill: &["bkill"] };
    let pool = PoolFixture::start_on(Box::new(fake), &["--workers", "1", "--nthr", "1"]);
    let add = ["dispatch", "alloc", "add"];
    let options = ["--", "--image=registry.example/longshore:1"];
    let run = pool.run(&[&add[..], &["k8s", "--qsys", "kubernetes", "--nthr", "3"]].concat());
    run.ends(1).says("the image is missing");
    pool.run(&[&add[..], &["k8s", "--qsys", "kubernetes", "--nthr", "3"], &options].concat()).ok();
    pool.run(&[&add[..], &["long", "--nthr", "2", "--", "-q long"]].concat()).ok();
    pool.wait_for_workers(3);
    let jobs = eventually(POOL_TIMEOUT, || Some(pool.job_ids()).filter(|jobs| jobs.len() == 3));
    assert_eq!(jobs.iter().filter(|job| job.starts_with("longshore-")).count(), 1, "{jobs:?}");
    for nthr in ["1", "2", "3"] {
        assert_eq!(pool.wait_for("job.sh", "true", &["--nthr", nthr]).0, 0);
    }
    pool.stop();
}

fn run_twenty_scripts(qsys: &'static str, kill: &'static [&'static str], options: &[&str]) {
    let fake = FakeScheduler { batch: FakeBatchSystem::start().unwrap(), qsys, kill };
    let args = ["--workers", "2", "--nthr", "2", "--time", "1h", "--mem", "100MB"];
    let pool = PoolFixture::start_on(Box::new(fake), &[&args, options].concat());
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
