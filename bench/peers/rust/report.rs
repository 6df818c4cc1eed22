//! What every Rust peer is told and what it says; `bench/peers/run` reads the lines.
//!
//! Included by path: each peer is a package with a lock file of its own, since two of them cannot
//! be linked with the same SQLite.

use std::fmt::Display;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Jobs per call of the bulk send, the same for every product.
pub const CHUNK: usize = 1000;

static RAN: AtomicUsize = AtomicUsize::new(0);

/// The handler of every peer: it only counts.
pub fn tick() {
    RAN.fetch_add(1, Ordering::Relaxed);
}

/// How many jobs were handled.
pub fn ran() -> usize {
    RAN.load(Ordering::Relaxed)
}

/// The store's address, or the file of an embedded one.
pub fn store() -> String {
    std::env::var("STORE").expect("STORE says where the store is")
}

/// A setting of the peer. The default is the best that was found; another can be tried without
/// building anew.
pub fn setting<T: FromStr>(name: &str, default: T) -> T {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Jobs of this run.
pub fn units() -> usize {
    setting("UNITS", 20_000)
}

/// The numbers of the jobs, in the parts in which they are sent.
pub fn chunks() -> impl Iterator<Item = std::ops::Range<usize>> {
    let units = units();
    (0..units).step_by(CHUNK).map(move |start| start..(start + CHUNK).min(units))
}

/// When to give up processing: a peer that is slower is told by what it did until then.
pub fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(setting("LIMIT", 60))
}

/// Waits until every job was handled; false if that took too long.
pub async fn all_ran(deadline: Instant) -> bool {
    while ran() < units() {
        if Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    true
}

/// One line for `bench/peers/run`.
pub fn line(what: impl Display, units: usize, took: Duration) {
    println!("{what} {units} {:.6}", took.as_secs_f64());
}
