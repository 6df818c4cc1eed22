//! The lists of a frame. Pure.

#[cfg(feature = "tui")]
use super::figures::Figures;

/// What a list is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum List {
    #[default]
    Queues,
    Batches,
    Workers,
    Pools,
}

impl List {
    /// All, from top to bottom.
    pub(super) const ALL: [Self; 4] = [Self::Queues, Self::Batches, Self::Workers, Self::Pools];

    /// What it is called.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Queues => "queues",
            Self::Batches => "batches",
            Self::Workers => "workers",
            Self::Pools => "pools",
        }
    }

    /// How many rows it has.
    #[cfg(feature = "tui")]
    pub(super) fn length(self, figures: &Figures) -> usize {
        match self {
            Self::Queues => figures.queues.len(),
            Self::Batches => figures.batches.len(),
            Self::Workers => figures.workers.len(),
            Self::Pools => figures.pools.len(),
        }
    }
}
