//! What happened in a simulation, and when, as one hash.

use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;

use tokio::time::Instant;

/// Hashes events with their virtual times.
pub(super) struct Trace {
    began: Instant,
    is_printed: bool,
    hasher: Mutex<DefaultHasher>,
}

impl Trace {
    pub(super) fn new() -> Self {
        let is_printed = std::env::var_os("SIMULATION_TRACE").is_some();
        Self { began: Instant::now(), is_printed, hasher: Mutex::default() }
    }

    /// Adds an event that happens now. `SIMULATION_TRACE=1` prints it, to compare two histories of one seed.
    #[expect(clippy::print_stderr, reason = "requested by the environment variable")]
    pub(super) fn record(&self, event: &(impl Hash + Debug)) {
        let event = (self.began.elapsed(), event);
        if self.is_printed {
            eprintln!("{event:?}");
        }
        event.hash(&mut *self.hasher.lock().unwrap());
    }

    pub(super) fn hash(&self) -> u64 {
        self.hasher.lock().unwrap().finish()
    }
}
