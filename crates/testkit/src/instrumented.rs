//! A store wrapper that counts and times calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use longshore_core::Store;

use crate::delegate::{assert_known, delegate, store_types::*};

/// Statistics of one store method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MethodStats {
    /// Calls that returned, with or without an error.
    pub calls: u64,
    /// Calls that returned an error.
    pub errors: u64,
    /// Total time of all calls.
    pub total_time: Duration,
    /// Time of the longest call.
    pub max_time: Duration,
}

/// Counts and times calls by method; otherwise behaves as the store it wraps.
pub struct InstrumentedStore {
    inner: Arc<dyn Store>,
    stats_by_method: Mutex<BTreeMap<&'static str, MethodStats>>,
}

impl InstrumentedStore {
    /// Wraps a store.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, stats_by_method: Mutex::default() }
    }

    /// How often a method was called.
    pub fn calls(&self, method: &str) -> u64 {
        assert_known(method, &[Self::METHODS]);
        self.stats().get(method).map_or(0, |stats| stats.calls)
    }

    /// The statistics so far, by method.
    pub fn stats(&self) -> BTreeMap<&'static str, MethodStats> {
        self.stats_by_method.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn wrap_call<T, F: Future<Output = Result<T>> + Send>(
        &self,
        method: &'static str,
        call: impl Fn() -> F + Send + Sync,
    ) -> Result<T> {
        let start = Instant::now();
        let result = call().await;
        let elapsed = start.elapsed();
        let mut all = self.stats_by_method.lock().unwrap_or_else(PoisonError::into_inner);
        let stats = all.entry(method).or_default();
        stats.calls += 1;
        stats.errors += u64::from(result.is_err());
        stats.total_time += elapsed;
        stats.max_time = stats.max_time.max(elapsed);
        result
    }
}

delegate!(InstrumentedStore);
