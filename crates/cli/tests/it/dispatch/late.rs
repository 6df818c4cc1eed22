//! A worker that was declared dead and returns.

use super::kit::{Pool, signal};
use crate::support::{SOON, eventually};

#[test]
fn a_worker_that_slept_too_long_hears_what_it_lost_and_goes_on() {
    let pool = Pool::start(&["--workers", "1", "--nthr", "2"]);
    let sleeper = pool.workers()[0];
    // The first run of each script waits; the second does not.
    let text = "echo $LONGSHORE_ATTEMPT >> runs; [ -e second ] || sleep 1000; echo x >> ends";
    pool.submit("job.sh", text, &["--array", "1-2"]);
    pool.until_lines("runs", 2);
    signal(sleeper, "STOP");
    pool.place.write("second", "");
    let status = pool.at_rest();
    assert_eq!((&status["done"], &status["failed"]), (&2.into(), &0.into()));
    assert_eq!((pool.lines("runs").len(), pool.lines("ends").len()), (4, 2));
    assert!(!pool.workers().contains(&sleeper), "it was taken for dead");

    signal(sleeper, "CONT");
    let two = eventually(SOON, || Some(pool.workers()).filter(|now| now.contains(&sleeper)));
    assert_eq!(two.len(), 2, "it is here again, beside the one that took its place");
    // The worker stops its old scripts unfinished: another worker has done them.
    eventually(SOON, || pool.place.read("pool/server.log").contains("worker=3").then_some(()));
    let others: Vec<u32> = pool.workers().into_iter().filter(|pid| *pid != sleeper).collect();
    others.iter().for_each(|pid| signal(*pid, "STOP"));
    let (code, _) = pool.wait_for("more.sh", "echo more", &[]);
    assert_eq!(code, 0, "it works");
    others.iter().for_each(|pid| signal(*pid, "CONT"));
    let status = pool.at_rest();
    assert_eq!((&status["done"], &status["failed"]), (&3.into(), &0.into()));
    assert_eq!((pool.lines("runs").len(), pool.lines("ends").len()), (4, 2));
    pool.stop();
}
