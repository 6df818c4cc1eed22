//! Requests to a bounded pool that can be coalesced ([`crate::Gather`]).

use super::{Answer, Ask};
use crate::Result;
use crate::name::PermitId;

/// A request to a pool. Every request may be repeated.
#[derive(Debug, Clone)]
pub enum Job {
    /// Asks for a permit.
    Ask(Ask),
    /// Releases permits, or leaves the wait queue.
    Release {
        /// The permits.
        ids: Vec<PermitId>,
        /// Whether their waits timed out.
        late: bool,
    },
}

/// The reply to a request: for `Ask`, an answer.
pub type Done = Result<Option<Answer>>;

impl Job {
    /// The permit asked for.
    pub fn ask(&self) -> Option<&Ask> {
        match self {
            Self::Ask(ask) => Some(ask),
            Self::Release { .. } => None,
        }
    }

    /// The released permits, each with whether its wait timed out.
    pub fn back(&self) -> impl Iterator<Item = (PermitId, bool)> {
        let (ids, late) = match self {
            Self::Ask(_) => (&[][..], false),
            Self::Release { ids, late } => (&ids[..], *late),
        };
        ids.iter().map(move |id| (*id, late))
    }

    /// One reply per request, from the answers of the asks in order.
    pub fn done(jobs: &[Self], mut next: impl FnMut() -> Result<Answer>) -> Vec<Done> {
        jobs.iter().map(|job| job.ask().map(|_| next()).transpose()).collect()
    }

    /// The same error for each of `jobs` requests.
    pub fn failed(jobs: usize, error: crate::Error) -> Vec<Done> {
        let mut all: Vec<Done> = (1..jobs).map(|_| Err(error.echo())).collect();
        all.insert(0, Err(error));
        all
    }
}
