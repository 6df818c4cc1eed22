//! Decides an initiator's next step from the batch as the store has it. Pure.
//!
//! A chunk is accepted only if the cursor has not moved since it was read, and only initiators add
//! to a batch. So the decision still holds when the chunk is committed, even if another initiator
//! fills the same batch.

use longshore::{Batch, BatchStatus};

use super::FillEnd;
use crate::definition::Candidates;

/// The next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FillStep {
    /// Stop.
    End(FillEnd),
    /// Wait until workers finish rows, or the batch is resumed.
    Wait,
    /// Seal the batch: all rows are in.
    Seal,
    /// Send at most this many rows.
    Send(u64),
}

/// The next step, with chunks of at most `chunk` rows.
pub(super) fn next(batch: &Batch, candidates: &Candidates, chunk: u64) -> FillStep {
    match batch.status {
        status if status.is_aborted() => return FillStep::End(FillEnd::GivenUp(status)),
        _ if batch.sealed => return FillStep::End(FillEnd::Sealed),
        BatchStatus::Paused => return FillStep::Wait,
        _ => {}
    }
    let sent = batch.counts.total();
    let left = candidates.limit.map_or(u64::MAX, |limit| limit.saturating_sub(sent));
    if left == 0 {
        return FillStep::Seal;
    }
    // Send half of `ahead` at a time, so that workers have rows to run while the other half is
    // read.
    let max = chunk.min(left).min(candidates.ahead / 2).max(1);
    if batch.counts.live() + max <= candidates.ahead.max(1) { FillStep::Send(max) } else { FillStep::Wait }
}
