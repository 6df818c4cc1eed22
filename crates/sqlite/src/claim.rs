//! Claiming: first selects streams, then rows by index.
//!
//! Streams of paused queues, lanes and batches, of suspended or other tenants, and of kinds that
//! the worker does not handle are excluded before any row is read. Lanes are served by stride
//! scheduling; within a lane the smallest rank goes first, over all its streams.

mod candidate_streams;
mod lanes;
mod selection;

use longshore_core::Result;
use longshore_core::store::{ClaimRequest, ClaimResult};

use crate::stride_state;
use crate::tx::Tx;
use candidate_streams::eligible_streams;
use lanes::group_by_lane;
use selection::Selection;

/// Leases units for a session.
pub(crate) fn claim(tx: &mut Tx<'_>, claim: &ClaimRequest) -> Result<ClaimResult> {
    let session = crate::session::number(tx.db, claim.session)?;
    let streams = eligible_streams(tx.db, claim)?;
    let mut selection = Selection::new(claim, session);
    let (mut lanes, mut stride) = group_by_lane(tx.db, &streams)?;
    if selection.take_alone(tx, &lanes, &stride)? {
        return Ok(selection.budget.claimed);
    }
    selection.take_by_stride(tx, &mut lanes, &mut stride)?;
    if lanes.len() > 1 {
        let moved = lanes.iter().zip(&stride.shares);
        for (lane, share) in moved.filter(|(lane, _)| lane.taken > 0 || lane.joins) {
            stride_state::save(tx.db, lane.num, share.pass)?;
        }
    }
    Ok(selection.budget.claimed)
}
