//! Claiming: streams first, then rows by index.
//!
//! Paused queues, lanes and batches, suspended tenants, kinds the worker does not have and other
//! tenants fall away with their streams, before any row is looked at. Lanes share by stride; within
//! a lane the smallest rank goes first, whichever stream it is in.
//!
//! Nobody waits for anybody: rows that others are at are skipped, and looked for again a moment
//! later, should they be left. One statement finds the
//! streams, a second takes the rows, if they are all plain. With several streams one more looks how
//! much each has, to divide by. Rows of which some have weights, caps or deadlines are only locked
//! by the second; they are judged here one by one, and those that fit are taken by a third. Where
//! there is only one stream, of plain units, one statement does it all ([`short`]).

use std::time::Instant;

use longshore_core::Result;
use longshore_core::store::{Claim, Claimed};

use crate::turns::{Look, Shape, Turns};
use crate::tx::Tx;

mod eligible;
mod fit;
mod keys;
mod lanes;
mod plan;
mod rows;
mod short;

use eligible::eligible;
use fit::Taker;
use lanes::Lanes;
use plan::Plan;
pub(crate) use short::shortly;

/// Looked at beyond what was asked for, in case some cannot be taken.
const SPARE: u64 = 16;
/// Asked for at once at most, whatever a worker wants.
const MOST: u64 = 10_000;

/// Takes units for a session.
pub(crate) async fn claim(tx: &mut Tx<'_>, turns: &Turns, claim: &Claim) -> Result<Claimed> {
    let shape = Shape::of(claim);
    let look = turns.floors.look(shape, Instant::now());
    let claimed = claim_at(tx, turns, claim, shape, &look).await?;
    let in_vain = claimed.units.is_empty() && (claim.free > 0 || claim.ahead > 0);
    if in_vain && look != Look::Whole {
        return claim_at(tx, turns, claim, shape, &Look::Whole).await;
    }
    Ok(claimed)
}

async fn claim_at(
    tx: &mut Tx<'_>,
    turns: &Turns,
    claim: &Claim,
    shape: Shape,
    look: &Look,
) -> Result<Claimed> {
    let found = eligible(tx, claim, look).await?;
    let mut taker = Taker::new(claim, found.session);
    let mut lanes = Lanes::new(&turns.floors, look, found.sources);
    // Where somebody is passed over, not everything was seen.
    if *look == Look::Whole && claim.except.is_empty() {
        turns.floors.looked(shape, found.cost, lanes.streams(), Instant::now());
    }
    turns.note_weighed(shape, !lanes.is_simple());
    lanes.count_capped(tx).await?;
    if taker.take_alone(tx, &lanes).await? {
        return Ok(taker.claimed);
    }
    turns.enter(shape, &lanes.numbers());
    take_by_turns(tx, turns, &mut taker, &mut lanes, look).await?;
    let mut open = lanes.still_open();
    open.extend(found.passed_over);
    turns.leave(shape, open);
    turns.note_weighed(shape, !lanes.is_simple() || taker.judged);
    lanes.remember(&turns.floors, look, taker.claimed.units.len());
    Ok(taker.claimed)
}

/// Units from the lanes whose turn it is, until the worker has what it can hold or nothing is left.
/// Mostly one round is enough; each further one looks past what could not be taken.
async fn take_by_turns(
    tx: &mut Tx<'_>,
    turns: &Turns,
    taker: &mut Taker<'_>,
    lanes: &mut Lanes,
    look: &Look,
) -> Result<()> {
    for round in 0_u32.. {
        let wanted = taker.wants().min(MOST);
        if wanted == 0 {
            break;
        }
        let spare = if round == 0 { 0 } else { SPARE << round.min(8) };
        lanes.look(tx, wanted + spare).await?;
        let plan = Plan::make(turns, lanes, taker.free.into(), wanted, spare);
        if plan.order.is_empty() {
            break;
        }
        let rows = rows::take(tx, &lanes.sources, &plan, taker.session, round > 0).await?;
        if round == 0 && *look == Look::Whole {
            // There was something a moment ago, and others have it all: they may yet leave it.
            tx.after.skipped |= rows.is_empty();
            tx.after.doubts.extend(plan.short_of(lanes, &rows));
        }
        lanes.advance(&plan, &rows);
        let served = match rows.iter().all(|row| row.taken) {
            true => taker.accept(tx, lanes, &plan, rows)?,
            false => taker.judge(tx, lanes, &plan, rows).await?,
        };
        plan.settle(turns, lanes, &served);
        lanes.note_left(&served.left);
        if taker.stopped {
            break;
        }
    }
    Ok(())
}
