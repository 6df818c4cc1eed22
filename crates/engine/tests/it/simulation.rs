//! Simulation: a client, workers and a memory store on virtual time, with random faults chosen by a seed.
//!
//! One seed is one history of some virtual minutes, which takes milliseconds: replies are lost, late or repeated, stores
//! are away, sessions are ended under living workers, workers are killed, the wall clock jumps. Then the faults end, and
//! the invariants of docs/guarantees.md must hold. A seed that fails prints itself; add it to [`REGRESSIONS`].
//!
//! `LONGSHORE_SIMULATION_SEED=7 cargo nextest run -p longshore simulation --no-capture` runs one seed again.
//!
//! Why tokio's paused time and no simulator: turmoil simulates a network between hosts, and here is none. madsim replaces
//! tokio by its own at compile time, in every dependency. shuttle explores schedules of threads, and knows no timers.
//! Paused time needs no other build. What remains random is the order in which `select!` polls branches that are ready at
//! the same virtual instant, and ids of sessions: most histories of one seed differ in details, so a seed is run often.

mod driver;
mod handler;

use std::time::Instant;

use driver::Simulation;

/// Seeds that once failed, with the defect that they showed.
const REGRESSIONS: [u64; 0] = [];
/// How often a seed that once failed is run.
const REPEATS: u64 = 20;

/// Runs one history. Fails with the broken invariant.
fn simulate(seed: u64) -> Result<Summary, String> {
    longshore::seed_jitter(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(Box::pin(async { Simulation::new(seed).run().await }))
}

/// What happened in a history.
#[derive(Debug, Default)]
struct Summary {
    units: u64,
    runs: u64,
    faults: u64,
    kills: u64,
}

fn check(seed: u64) -> Summary {
    simulate(seed).unwrap_or_else(|broken| {
        panic!("seed {seed}: {broken}\nrun it again with LONGSHORE_SIMULATION_SEED={seed}")
    })
}

#[test]
fn no_unit_lost_and_every_invariant_holds_in_simulated_storms() {
    if let Ok(seed) = std::env::var("LONGSHORE_SIMULATION_SEED") {
        let seed = seed.parse().unwrap();
        return (0..10 * REPEATS).for_each(|_| eprintln!("{:?}", check(seed)));
    }
    for seed in REGRESSIONS {
        for _ in 0..REPEATS {
            check(seed);
        }
    }
    let soak = std::env::var_os("LONGSHORE_SOAK").is_some();
    let (seeds, began, mut all) = (if soak { 20_000 } else { 60 }, Instant::now(), Summary::default());
    for seed in 0..seeds {
        let summary = check(seed);
        all.units += summary.units;
        all.runs += summary.runs;
        all.faults += summary.faults;
        all.kills += summary.kills;
    }
    eprintln!("{seeds} seeds in {:.1} s: {all:?}", began.elapsed().as_secs_f64());
    assert!(all.faults > all.units && all.kills > 0 && all.runs > all.units, "the storms were calm: {all:?}");
}
