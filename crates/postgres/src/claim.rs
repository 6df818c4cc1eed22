//! Claiming: streams first, then rows by index.
//!
//! Paused queues, lanes and batches, suspended tenants, other tenants and kinds that the worker
//! does not handle are excluded with their streams, before any row is read. Tenants, and the lanes of
//! each, share by stride; within a lane the lowest rank goes first, whichever stream it is in.
//!
//! Claims do not wait for row locks: rows that other transactions hold are skipped, and workers
//! claim again a moment later in case they are released. One statement finds the streams. A second
//! claims the rows if all are plain. With several streams, another statement first reads how many
//! units each has, so that the claim can be divided. If some rows have weights, caps or deadlines,
//! the second statement only locks all rows; they are checked here one by one, and a third
//! statement claims each that fits. If there is only one stream, of plain units, one statement
//! does everything ([`fast_path`]).

use std::time::Instant;

use longshore_core::Result;
use longshore_core::store::{ClaimRequest, ClaimResult};
use longshore_core::stride_scheduler::ClaimFilterHash;

use crate::stride::{ScanMode, ScannedStream, StrideState};
use crate::tx::Tx;

mod candidate_streams;
mod concurrency_keys;
mod fast_path;
mod lanes;
mod plan;
mod rows;
mod selection;

use candidate_streams::find_candidates;
pub(crate) use fast_path::try_fast_path;
use lanes::ClaimLanes;
use plan::{RoundPlan, Schedule};
use selection::Selection;

/// Rows read beyond the requested number, in case some cannot be claimed.
const SPARE: u64 = 16;
/// Units claimed at once at most, whatever a worker requests.
const MAX_CLAIM: u64 = 10_000;

/// Rounds of one claim, with some 10,000 rows that it does not take.
const MAX_ROUNDS: u32 = 10;

/// Claims units for a session.
pub(crate) async fn claim(
    tx: &mut Tx<'_>,
    stride: &StrideState,
    claim: &ClaimRequest,
) -> Result<ClaimResult> {
    let filter = ClaimFilterHash::of(claim);
    let mode = stride.scan_starts.mode(filter, Instant::now());
    let claimed = claim_at(tx, stride, claim, filter, &mode).await?;
    let found_nothing = claimed.units.is_empty() && (claim.free_slots > 0 || claim.prefetch > 0);
    if found_nothing && mode != ScanMode::Full {
        return claim_at(tx, stride, claim, filter, &ScanMode::Full).await;
    }
    Ok(claimed)
}

async fn claim_at(
    tx: &mut Tx<'_>,
    stride: &StrideState,
    claim: &ClaimRequest,
    filter: ClaimFilterHash,
    mode: &ScanMode,
) -> Result<ClaimResult> {
    let schedule = Schedule { stride, filter, claim };
    let (mode, unserved) = &bounded(&schedule, mode);
    let found = find_candidates(tx, claim, mode).await?;
    let mut selection = Selection::new(claim, found.session);
    let mut lanes = ClaimLanes::new(&stride.scan_starts, mode, found.sources, unserved);
    // If tenants are excluded, the scan did not see everything.
    if *mode == ScanMode::Full && claim.excluded_tenants.is_empty() {
        stride.scan_starts.record_full_scan(filter, found.cost, lanes.scanned(), Instant::now());
    }
    stride.set_needs_full_claim(filter, !lanes.is_simple());
    lanes.count_capped(tx).await?;
    if let Some(lane) = selection.take_alone(tx, &lanes).await? {
        schedule.charge(&lanes, lane);
        return Ok(selection.budget.claimed);
    }
    claim_rounds(tx, &schedule, &mut selection, &mut lanes, mode).await?;
    stride.set_needs_full_claim(filter, !lanes.is_simple() || selection.checked);
    lanes.record_starts(&stride.scan_starts, mode, selection.budget.claimed.units.len());
    if *mode != ScanMode::Full {
        stride.scan_starts.forget(filter, &lanes.exhausted());
    }
    Ok(selection.budget.claimed)
}

/// If a scan would resume in many more streams than the claim wants units, limits it to the streams that are next in
/// stride order, and returns the others.
fn bounded(schedule: &Schedule<'_>, mode: &ScanMode) -> (ScanMode, Vec<ScannedStream>) {
    let claim = schedule.claim;
    let wanted = u64::from(claim.free_slots) + u64::from(claim.prefetch);
    match mode {
        ScanMode::Resume(streams) if streams.len() as u64 > wanted.saturating_mul(lanes::MANY_LANES) => {
            let scanned = schedule.stride.scan_starts.scanned(schedule.filter);
            let (streams, unserved) = schedule.split(&scanned, wanted.saturating_mul(2));
            (ScanMode::Resume(streams), unserved)
        }
        mode => (mode.clone(), Vec::new()),
    }
}

/// Claims units from lanes in stride order, until the worker's capacity is used or nothing is left.
/// One round is usually enough; each further round reads past the rows that could not be claimed.
/// The last one leaves the rest to the next claim, since other claims wait for the rows meanwhile.
async fn claim_rounds(
    tx: &mut Tx<'_>,
    schedule: &Schedule<'_>,
    selection: &mut Selection<'_>,
    lanes: &mut ClaimLanes,
    mode: &ScanMode,
) -> Result<()> {
    let fences = &schedule.stride.fences;
    for round in 0..MAX_ROUNDS {
        let wanted = selection.budget.remaining().min(MAX_CLAIM);
        if wanted == 0 {
            break;
        }
        let spare = if round == 0 { 0 } else { SPARE << round.min(8) };
        lanes.plan_windows(tx, schedule, wanted + spare).await?;
        let plan = RoundPlan::make(schedule, lanes, selection.budget.free().into(), wanted, spare);
        if plan.order.is_empty() {
            break;
        }
        let rows = rows::claim(tx, &lanes.sources, &plan, selection.session, fences, round > 0).await?;
        if round == 0 && *mode == ScanMode::Full {
            // There were ready units a moment ago, and other transactions hold them all: they may
            // be released.
            tx.after.skipped |= rows.is_empty();
            tx.after.rechecks.extend(plan.partial_streams(lanes, &rows));
        }
        lanes.advance(&plan, &rows);
        let result = match rows.iter().all(|row| row.claimed) {
            true => selection.accept(tx, lanes, &plan, rows)?,
            false => selection.select(tx, lanes, &plan, rows).await?,
        };
        plan.refund_unclaimed(schedule, lanes, &result);
        lanes.record_skipped(&result.skipped);
        if selection.stopped {
            break;
        }
    }
    Ok(())
}
