//! What came of a storm.

use longshore_core::permits::PoolStats;

/// What came of a storm.
#[derive(Debug)]
pub struct Report {
    /// Permits that were given.
    pub total: u64,
    /// The most weight that was held at once.
    pub most: u32,
    /// Processes that were killed.
    pub killed: u32,
    /// Processes that were stopped for a while.
    pub stopped: u32,
    /// Restarts of the server.
    pub restarted: u32,
    /// How often the pool's maximum was changed.
    pub resized: u32,
    /// What must not have been: more than there is, or one that was overtaken.
    pub wrongs: Vec<String>,
    /// How the pool stood when all were gone and their leases had run out.
    pub end: PoolStats,
    /// To have the same throws again.
    pub seed: u64,
}

impl Report {
    /// Fails unless the pool kept what is promised, and it was a storm.
    pub fn check(&self) {
        assert!(self.wrongs.is_empty(), "{self:#?}");
        let end = (self.end.in_use, self.end.holders.len(), self.end.waiting.len());
        assert_eq!(end, (0, 0, 0), "every permit is back: {self:#?}");
        assert!(self.most > 1, "no storm: {self:#?}");
    }
}
