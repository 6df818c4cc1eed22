//! Simulation: a client, workers and a memory store on virtual time, with random faults chosen by a seed.
//!
//! One seed is one history of some virtual minutes, which takes milliseconds: replies are lost, late or repeated, stores
//! are away, sessions are ended under living workers, workers are killed, the wall clock jumps. Then the faults end, and
//! the invariants of docs/guarantees.md must hold. `./test` runs 60 seeds, `./test --soak` 20,000 on all cores,
//! and `LONGSHORE_SIMULATION_SEEDS=1000` this many; each prints how many it ran per minute.
//!
//! A seed that fails is printed with the invariant that it broke. `LONGSHORE_SIMULATION_SEED=7 cargo nextest run -p
//! longshore simulation --no-capture` runs it again, and `SIMULATION_TRACE=1` prints its events. As a regression test it
//! is one line in [`REGRESSIONS`]. A change of the driver, or of the order of the engine's calls, gives each seed another
//! history: a defect that must stay found also needs a test of its own.
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

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use driver::Simulation;

/// Seeds that once failed, each with the defect that it showed: `(7, "a late start revives a lost run")`.
const REGRESSIONS: &[(u64, &str)] = &[];

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

impl Summary {
    fn add(&mut self, other: &Self) {
        self.units += other.units;
        self.runs += other.runs;
        self.faults += other.faults;
        self.kills += other.kills;
    }
}

/// Runs one history. Panics with the seed if an invariant is broken, or something else panics.
fn check(seed: u64) -> Summary {
    let result = std::panic::catch_unwind(|| simulate(seed));
    result.unwrap_or_else(|_| Err("a panic, see above".to_owned())).unwrap_or_else(|broken| {
        panic!(
            "seed {seed}: {broken}\nrun it again with LONGSHORE_SIMULATION_SEED={seed}; add it to REGRESSIONS"
        )
    })
}

/// Runs the seeds below `count`, on this many threads. The first seed that fails ends all.
fn check_all(count: u64, threads: usize) -> Summary {
    let next = AtomicU64::new(0);
    let work = || {
        let mut all = Summary::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= count {
                return all;
            }
            // Ends the others if this one panics.
            let stop = StopOnPanic(&next, count);
            all.add(&check(seed));
            drop(stop);
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut all = Summary::default();
        threads.into_iter().for_each(|thread| all.add(&thread.join().unwrap()));
        all
    })
}

struct StopOnPanic<'a>(&'a AtomicU64, u64);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(self.1, Ordering::Relaxed);
        }
    }
}

#[test]
fn no_unit_lost_and_every_invariant_holds_in_simulated_storms() {
    if let Ok(seed) = std::env::var("LONGSHORE_SIMULATION_SEED") {
        let seed = seed.parse().unwrap();
        return eprintln!("{:?}", check(seed));
    }
    for (seed, defect) in REGRESSIONS {
        eprintln!("seed {seed}: {defect}");
        check(*seed);
    }
    let wanted = std::env::var("LONGSHORE_SIMULATION_SEEDS").ok().map(|count| count.parse().unwrap());
    let soak = std::env::var_os("LONGSHORE_SOAK").map(|_| 20_000);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (seeds, threads) = wanted.or(soak).map_or((60, 1), |seeds| (seeds, cores));
    let began = Instant::now();
    let all = check_all(seeds, threads);
    let took = began.elapsed().as_secs_f64();
    let rate = seeds as f64 * 60.0 / took;
    eprintln!("{seeds} seeds in {took:.1} s on {threads} threads, {rate:.0} seeds per minute: {all:?}");
    assert!(all.faults > all.units && all.kills > 0 && all.runs > all.units, "the storms were calm: {all:?}");
}

#[test]
fn one_seed_gives_one_trace() {
    let traces: Vec<u64> = (0..20).map(|seed| check(seed).trace).collect();
    let again: Vec<u64> = (0..20).map(|seed| check(seed).trace).collect();
    assert_eq!(traces, again);
    assert!(traces.windows(2).all(|pair| pair[0] != pair[1]), "the trace of each seed differs: {traces:?}");
}
