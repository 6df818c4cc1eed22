//! Claiming: first selects streams, then rows by index.
//!
//! Streams of paused queues, lanes and batches, of suspended or other tenants, and of kinds that
//! the worker does not handle are excluded before any row is read. Tenants, and the lanes of each,
//! are served by stride scheduling; within a lane the smallest rank goes first, over all its streams.

mod candidate_streams;
mod lanes;
mod selection;

use longshore_core::Result;
use longshore_core::store::{ClaimRequest, ClaimResult};
use longshore_core::stride_scheduler::ClaimFilterHash;

use crate::tx::Tx;
use candidate_streams::eligible_streams;
use lanes::group_by_lane;
use selection::Selection;

/// Leases units for a session.
pub(crate) fn claim(tx: &mut Tx<'_>, claim: &ClaimRequest) -> Result<ClaimResult> {
    let session = crate::session::number(tx.db, claim.session)?;
    let streams = eligible_streams(tx.db, claim)?;
    let mut selection = Selection::new(claim, session);
    let filter = ClaimFilterHash::of(claim);
    let (mut lanes, tenants, shares) = group_by_lane(tx.db, &streams)?;
    let mut stride = tx.claim_cache.stride.cursor(filter, claim.session, tenants, shares);
    if !selection.take_alone(tx, &lanes, &mut stride)? {
        selection.take_by_stride(tx, &mut lanes, &mut stride)?;
    }
    tx.claim_cache.stride.save(filter, &stride, &claim.excluded_tenants);
    Ok(selection.budget.claimed)
}
