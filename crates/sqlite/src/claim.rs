//! Claiming: streams first, then rows by index.
//!
//! Paused queues, lanes and batches, suspended tenants, kinds the worker does not have and other
//! tenants fall away with their streams, before any row is looked at. Lanes share by stride; within a lane the
//! smallest rank goes first, whichever stream it is in.

mod lanes;
mod streams;
mod taker;

use longshore_core::Result;
use longshore_core::store::{Claim, Claimed};

use crate::fairness;
use crate::tx::Tx;
use lanes::by_lane;
use streams::eligible;
use taker::Taker;

/// Takes units for a session.
pub(crate) fn claim(tx: &mut Tx<'_>, claim: &Claim) -> Result<Claimed> {
    let session = crate::session::number(tx.db, claim.session)?;
    let streams = eligible(tx.db, claim)?;
    let mut taker = Taker::new(claim, session);
    let mut lanes = by_lane(tx.db, &streams)?;
    if taker.take_alone(tx, &lanes)? {
        return Ok(taker.claimed);
    }
    taker.take_by_turns(tx, &mut lanes)?;
    if lanes.len() > 1 {
        for lane in lanes.iter().filter(|lane| lane.taken > 0 || lane.joins) {
            fairness::save(tx.db, lane.num, lane.share)?;
        }
    }
    Ok(taker.claimed)
}
