//! A store that counts what is asked of it, and is otherwise the store it wraps.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use longshore_core::Store;

use crate::forward::{forward, seam::*};

/// What was seen of one verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VerbStats {
    /// Calls answered, well or badly.
    pub calls: u64,
    /// Calls that ended in an error.
    pub errors: u64,
    /// Time spent in them, together.
    pub spent: Duration,
    /// The longest.
    pub longest: Duration,
}

/// Counts calls and their durations by verb. Transparent otherwise.
pub struct InstrumentedStore {
    inner: Arc<dyn Store>,
    seen: Mutex<BTreeMap<&'static str, VerbStats>>,
}

impl InstrumentedStore {
    /// Wraps a store.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, seen: Mutex::default() }
    }

    /// How often a verb was called.
    pub fn calls(&self, verb: &str) -> u64 {
        self.stats().get(verb).map_or(0, |stats| stats.calls)
    }

    /// Everything seen so far, by verb.
    pub fn stats(&self) -> BTreeMap<&'static str, VerbStats> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn around<T, F: Future<Output = Result<T>> + Send>(
        &self,
        verb: &'static str,
        call: impl Fn() -> F + Send + Sync,
    ) -> Result<T> {
        let begun = Instant::now();
        let answer = call().await;
        let spent = begun.elapsed();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let stats = seen.entry(verb).or_default();
        stats.calls += 1;
        stats.errors += u64::from(answer.is_err());
        stats.spent += spent;
        stats.longest = stats.longest.max(spent);
        answer
    }
}

forward!(InstrumentedStore);
