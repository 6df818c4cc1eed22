//! Thousands of scripts, while workers and the server are killed at random.

use std::hash::{BuildHasher, RandomState};

use super::fixture::{POOL_TIMEOUT, PoolFixture, count_lines, signal};
use crate::support::{eventually, pick_size, stretch};

const THREADS_PER_WORKER: usize = 8;
const WORKERS: usize = 4;

#[test]
fn dispatch_storm() {
    let (scripts, kills): (usize, usize) = pick_size((600, 6), (5_000, 40));
    let pool = PoolFixture::start(&["--workers", "4", "--nthr", "8"]);
    let array = format!("1-{scripts}");
    let more = ["--array", &array, "--output", "none", "--crash-limit", "1000"];
    pool.submit("job.sh", "echo $LONGSHORE_ARRAY_INDEX >> runs; sleep 0.0$((RANDOM % 10))", &more);
    let random = RandomState::new();
    for kill in 1..=kills {
        pool.wait_for_lines("runs", kill * scripts / (kills + 2));
        // Every third kill hits the server, the others one of the live workers.
        if kill % 3 == 0 {
            pool.kill_server();
            pool.start_server().ok();
        } else {
            let workers =
                eventually(stretch(POOL_TIMEOUT), || Some(pool.worker_pids()).filter(|w| !w.is_empty()));
            let victim = random.hash_one(kill) as usize % workers.len();
            signal(workers[victim], "KILL");
        }
    }
    let status = pool.wait_until_idle();
    assert_eq!((&status["done"], &status["failed"]), (&scripts.into(), &0.into()));
    assert_eq!(status["cancelled"], 0);
    let ran = pool.lines("runs");
    let counts = count_lines(&ran);
    assert_eq!(counts.len(), scripts, "every script ran");
    let repeats = ran.len() - scripts;
    // A killed worker costs what it ran, and results that no server had recorded yet: after the death of a server those
    // of the scripts that ran meanwhile.
    let most = kills * THREADS_PER_WORKER * WORKERS;
    assert!(repeats <= most, "{repeats} repeats, not {most}");
    eprintln!("{repeats} repeats after {kills} kills");
    pool.stop();
}
