//! Thousands of scripts, while workers and the server are killed at random.

use std::hash::{BuildHasher, RandomState};

use super::kit::{LONG, Pool, counted, signal};
use crate::support::{eventually, limit, soaked};

const THREADS: usize = 8;
const WORKERS: usize = 4;

#[test]
fn dispatch_storm() {
    let (scripts, kills): (usize, usize) = soaked((600, 6), (5_000, 40));
    let pool = Pool::start(&["--workers", "4", "--nthr", "8"]);
    let array = format!("1-{scripts}");
    let more = ["--array", &array, "--output", "none", "--crash-limit", "1000"];
    pool.submit("job.sh", "echo $LONGSHORE_ARRAY_INDEX >> runs; sleep 0.0$((RANDOM % 10))", &more);
    let chance = RandomState::new();
    let mut servers = 0;
    for kill in 1..=kills {
        pool.until_lines("runs", kill * scripts / (kills + 2));
        // Every third kill hits the server, the others one of the live workers.
        if kill % 3 == 0 {
            servers += 1;
            pool.kill_server();
            pool.start_server().ok();
        } else {
            let workers =
                eventually(limit(LONG), || Some(pool.workers()).filter(|w| !w.is_empty()));
            let victim = chance.hash_one(kill) as usize % workers.len();
            signal(workers[victim], "KILL");
        }
    }
    let status = pool.at_rest();
    assert_eq!((&status["done"], &status["failed"]), (&scripts.into(), &0.into()));
    assert_eq!(status["cancelled"], 0);
    let ran = pool.lines("runs");
    let counts = counted(&ran);
    assert_eq!(counts.len(), scripts, "every script ran");
    let repeats = ran.len() - scripts;
    // A killed worker costs what it ran; a killed server nothing, unless a worker died meanwhile.
    let most = (kills - servers) * THREADS + servers * THREADS * WORKERS;
    assert!(repeats <= most, "{repeats} repeats, not {most}");
    eprintln!("{repeats} repeats after {kills} kills");
    pool.stop();
}
