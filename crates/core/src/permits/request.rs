//! Requests to a bounded pool that can be coalesced ([`crate::Coalescer`]).

use super::{AcquireRequest, AcquireResult};
use crate::Result;
use crate::name::PermitId;

/// A request to a pool. Every request may be repeated.
#[derive(Debug, Clone)]
pub enum PermitRequest {
    /// Asks for a permit.
    Ask(AcquireRequest),
    /// Releases permits, or leaves the wait queue.
    Release {
        /// The permits.
        ids: Vec<PermitId>,
        /// Whether their waits timed out.
        late: bool,
    },
}

/// The reply to a request: for `AcquireRequest`, an answer.
pub type PermitReply = Result<Option<AcquireResult>>;

impl PermitRequest {
    /// The permit asked for.
    pub fn acquire_request(&self) -> Option<&AcquireRequest> {
        match self {
            Self::Ask(ask) => Some(ask),
            Self::Release { .. } => None,
        }
    }

    /// The released permits, each with whether its wait timed out.
    pub fn releases(&self) -> impl Iterator<Item = (PermitId, bool)> {
        let (ids, late) = match self {
            Self::Ask(_) => (&[][..], false),
            Self::Release { ids, late } => (&ids[..], *late),
        };
        ids.iter().map(move |id| (*id, late))
    }

    /// One reply per request, from the answers of the asks in order.
    pub fn replies(jobs: &[Self], mut next: impl FnMut() -> Result<AcquireResult>) -> Vec<PermitReply> {
        jobs.iter().map(|job| job.acquire_request().map(|_| next()).transpose()).collect()
    }

    /// The same error for each of `jobs` requests.
    pub fn fail_all(jobs: usize, error: crate::Error) -> Vec<PermitReply> {
        let mut all: Vec<PermitReply> = (1..jobs).map(|_| Err(error.copy_for_caller())).collect();
        all.insert(0, Err(error));
        all
    }
}
