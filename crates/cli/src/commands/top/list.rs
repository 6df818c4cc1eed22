//! The lists of a frame. Pure.

#[cfg(feature = "tui")]
use super::stats::TopStats;

/// The kinds of lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ListKind {
    #[default]
    Queues,
    Batches,
    Workers,
    Pools,
}

impl ListKind {
    /// All, from top to bottom.
    pub(super) const ALL: [Self; 4] = [Self::Queues, Self::Batches, Self::Workers, Self::Pools];

    /// Its title.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Queues => "queues",
            Self::Batches => "batches",
            Self::Workers => "workers",
            Self::Pools => "pools",
        }
    }

    /// Its number of rows.
    #[cfg(feature = "tui")]
    pub(super) fn length(self, stats: &TopStats) -> usize {
        match self {
            Self::Queues => stats.queues.len(),
            Self::Batches => stats.batches.len(),
            Self::Workers => stats.workers.len(),
            Self::Pools => stats.pools.len(),
        }
    }
}
