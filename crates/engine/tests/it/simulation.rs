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
//! Paused time needs no other build.
//!
//! One seed has one trace. Tokio is random in two places: the branch that `select!` polls first, so the engine's are
//! `biased`; and the order in which a watch channel wakes its waiters, so tasks of a worker wait for a `Notify`. Backoffs
//! and ids of units follow the seed; ids of sessions do not, but their order does.

mod driver;
mod handler;
mod trace;

use std::time::Instant;

use driver::Simulation;

/// Seeds that once failed, with the defect that they showed.
const REGRESSIONS: [u64; 0] = [];

/// Runs one history. Fails with the broken invariant.
fn simulate(seed: u64) -> Result<Summary, String> {
    longshore::seed_randomness(seed);
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
    /// The hash of all calls to the store and all runs, with their times.
    trace: u64,
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
        return eprintln!("{:?}", check(seed));
    }
    for seed in REGRESSIONS {
        check(seed);
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
    let took = began.elapsed().as_secs_f64();
    eprintln!("{seeds} seeds in {took:.1} s, {:.0} a minute: {all:?}", seeds as f64 * 60.0 / took);
    assert!(all.faults > all.units && all.kills > 0 && all.runs > all.units, "the storms were calm: {all:?}");
}

#[test]
fn one_seed_gives_one_trace() {
    let traces: Vec<u64> = (0..20).map(|seed| check(seed).trace).collect();
    let again: Vec<u64> = (0..20).map(|seed| check(seed).trace).collect();
    assert_eq!(traces, again);
    assert!(traces.windows(2).all(|pair| pair[0] != pair[1]), "the trace of each seed differs: {traces:?}");
}
