//! What an initiator does next, from the batch as the store has it. Pure.
//!
//! A chunk goes in only if the cursor is still the one that was looked at, and only initiators add
//! to a batch: so what is decided here holds when the chunk goes in, whoever else fills the batch.

use longshore::{Batch, BatchStatus};

use super::FillEnd;
use crate::definition::Candidates;

/// What is done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing more.
    End(FillEnd),
    /// Wait for workers, or for the batch to be resumed.
    Wait,
    /// Say that all rows are in.
    Seal,
    /// Send so many rows at most.
    Send(u64),
}

/// The next step, with chunks of at most `chunk` rows.
pub(super) fn next(batch: &Batch, candidates: &Candidates, chunk: u64) -> Step {
    match batch.status {
        status if status.is_given_up() => return Step::End(FillEnd::GivenUp(status)),
        _ if batch.sealed => return Step::End(FillEnd::Sealed),
        BatchStatus::Paused => return Step::Wait,
        _ => {}
    }
    let sent = batch.counts.total();
    let left = candidates.limit.map_or(u64::MAX, |limit| limit.saturating_sub(sent));
    if left == 0 {
        return Step::Seal;
    }
    // Half at a time, so that workers have something to do while the other half is fetched.
    let most = chunk.min(left).min(candidates.ahead / 2).max(1);
    if batch.counts.live() + most <= candidates.ahead.max(1) {
        Step::Send(most)
    } else {
        Step::Wait
    }
}
