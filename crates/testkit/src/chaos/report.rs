//! The result of a chaos test.

use longshore_core::permits::PoolStats;

/// The result of a chaos test.
#[derive(Debug)]
pub struct ChaosReport {
    /// Permits that the pool granted.
    pub granted: u64,
    /// The largest weight that was held at once.
    pub peak_weight: u32,
    /// Processes that were killed.
    pub killed: u32,
    /// Processes that were stopped for a while.
    pub stopped: u32,
    /// Restarts of the server.
    pub restarted: u32,
    /// How often the pool's maximum was changed.
    pub resized: u32,
    /// Broken guarantees: more weight held than the maximum, or a request that was overtaken.
    pub violations: Vec<String>,
    /// The pool's statistics after all processes ended and their leases expired.
    pub final_stats: PoolStats,
    /// The seed of the random numbers.
    pub seed: u64,
}

impl ChaosReport {
    /// Panics if the pool broke a guarantee, leaked a permit, or was never used concurrently.
    pub fn check(&self) {
        assert!(self.violations.is_empty(), "{self:#?}");
        let left = (self.final_stats.in_use, self.final_stats.holders.len(), self.final_stats.waiting.len());
        assert_eq!(left, (0, 0, 0), "permits leaked: {self:#?}");
        assert!(self.peak_weight > 1, "no concurrent use: {self:#?}");
    }
}
