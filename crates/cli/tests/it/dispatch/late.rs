//! A worker that was declared dead and returns.

use super::fixture::{PoolFixture, signal};
use crate::support::{TIMEOUT, eventually};

#[test]
fn a_worker_that_slept_too_long_hears_what_it_lost_and_goes_on() {
    let pool = PoolFixture::start(&["--workers", "1", "--nthr", "2"]);
    let sleeper = pool.worker_pids()[0];
    // The first run of each script waits; the second does not.
    let text = "echo $LONGSHORE_ATTEMPT >> runs; [ -e second ] || sleep 1000; echo x >> ends";
    pool.submit("job.sh", text, &["--array", "1-2"]);
    pool.wait_for_lines("runs", 2);
    signal(sleeper, "STOP");
    pool.dir.write("second", "");
    let status = pool.wait_until_idle();
    assert_eq!((&status["done"], &status["failed"]), (&2.into(), &0.into()));
    assert_eq!((pool.lines("runs").len(), pool.lines("ends").len()), (4, 2));
    assert!(!pool.worker_pids().contains(&sleeper), "the worker was declared dead");

    signal(sleeper, "CONT");
    // It is back; the pool of one worker then releases its replacement.
    eventually(TIMEOUT, || pool.worker_pids().contains(&sleeper).then_some(()));
    // The worker stops its old scripts unfinished: another worker has done them.
    eventually(TIMEOUT, || pool.dir.read("pool/server.log").contains("worker=3").then_some(()));
    let others: Vec<u32> = pool.worker_pids().into_iter().filter(|pid| *pid != sleeper).collect();
    others.iter().for_each(|pid| signal(*pid, "STOP"));
    let (code, _) = pool.wait_for("more.sh", "echo more", &[]);
    assert_eq!(code, 0, "the returned worker runs scripts");
    others.iter().for_each(|pid| signal(*pid, "CONT"));
    let status = pool.wait_until_idle();
    assert_eq!((&status["done"], &status["failed"]), (&3.into(), &0.into()));
    assert_eq!((pool.lines("runs").len(), pool.lines("ends").len()), (4, 2));
    pool.stop();
}
