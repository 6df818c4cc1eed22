//! What is asked of a pool on the way to every permit, as something that can gather ([`crate::Gather`]).

use super::{Answer, Ask};
use crate::Result;
use crate::name::PermitId;

/// Something that is asked of a pool. All of it may be repeated.
#[derive(Debug, Clone)]
pub enum Job {
    /// A permit is asked for.
    Ask(Ask),
    /// Permits are given back, or places in the line.
    Release {
        /// Which.
        ids: Vec<PermitId>,
        /// Whether they were waited for too long.
        late: bool,
    },
}

/// What comes of it: for an ask, an answer.
pub type Done = Result<Option<Answer>>;

impl Job {
    /// What is asked for.
    pub fn ask(&self) -> Option<&Ask> {
        match self {
            Self::Ask(ask) => Some(ask),
            Self::Release { .. } => None,
        }
    }

    /// What is given back, each with whether it was waited for too long.
    pub fn back(&self) -> impl Iterator<Item = (PermitId, bool)> {
        let (ids, late) = match self {
            Self::Ask(_) => (&[][..], false),
            Self::Release { ids, late } => (&ids[..], *late),
        };
        ids.iter().map(move |id| (*id, late))
    }

    /// An answer for each job, from those of the asks in their order.
    pub fn done(jobs: &[Self], mut next: impl FnMut() -> Result<Answer>) -> Vec<Done> {
        jobs.iter().map(|job| job.ask().map(|_| next()).transpose()).collect()
    }

    /// The same trouble for each of so many.
    pub fn failed(jobs: usize, error: crate::Error) -> Vec<Done> {
        let mut all: Vec<Done> = (1..jobs).map(|_| Err(error.echo())).collect();
        all.insert(0, Err(error));
        all
    }
}
