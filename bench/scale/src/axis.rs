//! The axes: what grows, through which points, and how much of the budget it needs.

use clap::ValueEnum;

/// What grows from point to point of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Axis {
    /// Slots of one worker.
    Slots,
    /// Worker processes on one store.
    Processes,
    /// Units that wait in the queue.
    Waiting,
    /// Units that have ended and are kept.
    Finished,
    /// Tenants that share the queue.
    Tenants,
    /// Queues with waiting units.
    Queues,
    /// Open batches.
    Batches,
    /// Dependencies of a unit: groups of that many units and one that waits for all of them.
    Dependencies,
    /// Dependants of a unit: groups of one unit and that many that wait for it.
    Dependants,
}

impl Axis {
    /// The name in options and file names.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Slots => "slots",
            Self::Processes => "processes",
            Self::Waiting => "waiting",
            Self::Finished => "finished",
            Self::Tenants => "tenants",
            Self::Queues => "queues",
            Self::Batches => "batches",
            Self::Dependencies => "dependencies",
            Self::Dependants => "dependants",
        }
    }

    /// The title of the x axis.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Slots => "slots of one worker",
            Self::Processes => "worker processes",
            Self::Waiting => "units waiting in the queue",
            Self::Finished => "ended units in the store",
            Self::Tenants => "tenants with waiting units",
            Self::Queues => "queues with waiting units",
            Self::Batches => "open batches",
            Self::Dependencies => "dependencies of a unit",
            Self::Dependants => "dependants of a unit",
        }
    }

    /// The points from the smallest to `max`.
    pub(crate) fn points(self, max: usize) -> Vec<usize> {
        let points = match self {
            Self::Slots => powers(2, 1, 1_024),
            Self::Processes => powers(2, 1, 32),
            Self::Waiting => powers(10, 1_000, 10_000_000),
            Self::Finished => [vec![0], powers(10, 10_000, 10_000_000)].concat(),
            Self::Tenants | Self::Batches => powers(10, 1, 10_000),
            Self::Queues | Self::Dependants => powers(10, 1, 100_000),
            Self::Dependencies => powers(10, 1, longshore::unit::MAX_DEPENDENCIES),
        };
        points.into_iter().filter(|point| *point <= max).collect()
    }

    /// Its share of the budget, relative to the other axes.
    pub(crate) fn weight(self) -> u32 {
        match self {
            Self::Finished => 10,
            Self::Waiting => 5,
            Self::Queues => 4,
            Self::Slots | Self::Batches => 3,
            Self::Processes | Self::Tenants | Self::Dependencies | Self::Dependants => 2,
        }
    }

    /// Whether sending depends on the axis and is measured beside processing.
    pub(crate) fn measures_send(self) -> bool {
        !matches!(self, Self::Slots | Self::Processes)
    }
}

fn powers(factor: usize, first: usize, last: usize) -> Vec<usize> {
    std::iter::successors(Some(first), |power| power.checked_mul(factor))
        .take_while(|power| *power <= last)
        .collect()
}
