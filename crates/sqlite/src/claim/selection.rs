//! Selects units lane by lane, as far as the worker has capacity.

use longshore_core::claim::{ClaimBudget, FitDecision, UnitNeeds};
use longshore_core::store::{ClaimRequest, LeasedUnit};
use longshore_core::stride_scheduler::StrideCursor;
use longshore_core::unit_state::{Event, transition};
use longshore_core::worker_session::Lease;
use longshore_core::{Policy, Result, UnitId, UnitState};
use rusqlite::Connection;

use super::candidate_streams::Stream;
use super::lanes::{Candidate, Lane, ReadyUnit, candidates};
use crate::claim_cache::CachedUnit;
use crate::error::Translate;
use crate::finish::apply;
use crate::prepared::PreparedSql;
use crate::queries::{FullRow, load_overflow};
use crate::row::{READY_ALONE, READY_CAPPED, UnitAttributes, UnitRow, flag, state_code, unit};
use crate::tx::Tx;

/// Rows read beyond the requested number, in case some cannot be taken.
const SCAN_SLACK: u64 = 16;

/// The units taken so far, and the worker's remaining capacity.
pub(super) struct Selection<'c> {
    claim: &'c ClaimRequest,
    session: i64,
    pub(super) budget: ClaimBudget<'c>,
}

impl<'c> Selection<'c> {
    pub(super) fn new(claim: &'c ClaimRequest, session: i64) -> Self {
        Self { claim, session, budget: ClaimBudget::new(claim) }
    }

    /// Takes a unit that must run alone, if there is one and the worker holds no unit.
    pub(super) fn take_alone(
        &mut self,
        tx: &mut Tx<'_>,
        lanes: &[Lane<'_>],
        stride: &mut StrideCursor<i64>,
    ) -> Result<bool> {
        let all = lanes.iter().enumerate().flat_map(|(at, lane)| lane.streams().map(move |one| (at, one)));
        for (at, stream) in all {
            if !stream.alone || !stride.is_open(at) {
                continue;
            }
            for candidate in candidates(tx.db, stream.num, READY_ALONE, Candidate::FIRST, SCAN_SLACK)? {
                let id = UnitId::from_bytes(candidate.id);
                let full = FullRow::load(tx.prepared(PreparedSql::FindFull)?, id)?;
                let spec = UnitAttributes::parse(full.row.spec.as_deref())?;
                let needs = UnitNeeds::from_columns(&spec, full.row.deadline, full.row.flags);
                let leased = || count_leased_with_key(tx.db, &full.row);
                match self.budget.admit_alone(&needs, tx.now, leased)? {
                    FitDecision::Start => {
                        self.take(tx, full, stream, true, true)?;
                        stride.serve(at);
                        return Ok(true);
                    }
                    FitDecision::Stop => return Ok(false),
                    FitDecision::Expire => expire(tx, &full.row)?,
                    _ => {}
                }
            }
        }
        Ok(false)
    }

    /// Takes one unit at a time from the next lane.
    pub(super) fn take_by_stride(
        &mut self,
        tx: &mut Tx<'_>,
        lanes: &mut [Lane<'_>],
        stride: &mut StrideCursor<i64>,
    ) -> Result<()> {
        let share = (self.budget.remaining() + SCAN_SLACK).div_ceil(lanes.len().max(1) as u64);
        while self.budget.remaining() > 0 {
            let Some(at) = stride.next_lane() else { break };
            let lane = &mut lanes[at];
            let limit = self.budget.remaining() + SCAN_SLACK;
            let Some(ready) = lane.next(tx.db, share, limit)? else {
                stride.close(at);
                continue;
            };
            match self.consider(tx, lane.capped, ready)? {
                FitDecision::Start | FitDecision::Prefetch => stride.serve(at),
                FitDecision::Skip | FitDecision::Expire | FitDecision::Park => stride.pass_over(at),
                FitDecision::LeaveLane => stride.close(at),
                FitDecision::Stop => break,
            }
        }
        Ok(())
    }

    fn consider(
        &mut self,
        tx: &mut Tx<'_>,
        lane_capped: bool,
        ReadyUnit { candidate, stream, fresh }: ReadyUnit<'_>,
    ) -> Result<FitDecision> {
        let full = match fresh {
            Some(fresh) => fresh,
            None => FullRow::load(tx.prepared(PreparedSql::FindFull)?, UnitId::from_bytes(candidate.id))?,
        };
        let fit = if full.row.has(flag::NEEDS_CHECK) {
            let spec = UnitAttributes::parse(full.row.spec.as_deref())?;
            let needs = UnitNeeds::from_columns(&spec, full.row.deadline, full.row.flags);
            let leased = || count_leased_with_key(tx.db, &full.row);
            self.budget.admit(&needs, lane_capped, tx.now, leased)?
        } else {
            self.budget.admit_plain(lane_capped)
        };
        match fit {
            FitDecision::Start | FitDecision::Prefetch => {
                self.take(tx, full, stream, fit == FitDecision::Start, false)?;
            }
            FitDecision::Expire => expire(tx, &full.row)?,
            FitDecision::Park => park(tx, &full.row)?,
            FitDecision::Skip | FitDecision::LeaveLane | FitDecision::Stop => {}
        }
        Ok(fit)
    }

    fn take(
        &mut self,
        tx: &mut Tx<'_>,
        full: FullRow,
        stream: &Stream,
        started: bool,
        alone: bool,
    ) -> Result<()> {
        let FullRow { mut row, mut parts } = full;
        let now = tx.now.as_micros();
        tx.prepared(PreparedSql::Lease)?
            .execute((
                row.id.as_bytes(),
                now,
                self.session,
                row.fence + 1,
                row.attempt + u32::from(started),
                started.then_some(now),
            ))
            .or_translate()?;
        tx.count_transition(row.stream, Some(UnitState::Ready), Some(UnitState::Leased), row.bytes);
        tx.claim_cache.insert(row.id, CachedUnit { stream: row.stream, bytes: row.bytes });
        load_overflow(tx.db, &row, &mut parts)?;
        row.code = state_code(UnitState::Leased);
        row.sort_key = now;
        row.fence += 1;
        row.attempt += u32::from(started);
        row.started_at = started.then_some(now);
        let lease = Lease { unit: row.id, fence: row.fence };
        let unit = unit(row, parts, &stream.names, Some(self.claim.session))?;
        self.budget.claimed.units.push(LeasedUnit { lease, started, alone, unit });
        Ok(())
    }
}

/// Fails a unit past its deadline.
fn expire(tx: &mut Tx<'_>, row: &UnitRow) -> Result<()> {
    let step = transition(&row.transition_input()?, &Event::Expired, &Policy::default(), tx.now)?;
    apply(tx, row, &step, row.fence, None)
}

/// How many units with the unit's cap key are leased.
fn count_leased_with_key(db: &Connection, row: &UnitRow) -> Result<Option<u32>> {
    db.prepare_cached(
        "SELECT count(*) FROM longshore_unit INDEXED BY longshore_unit_cap
         WHERE cap_key = ?1 AND state = 3 AND state IN (3, 7)",
    )
    .or_translate()?
    .query_row([&row.cap_key], |row| row.get(0).map(Some))
    .or_translate()
}

/// Hides a unit from claims until another unit with its cap key leaves.
fn park(tx: &Tx<'_>, row: &UnitRow) -> Result<()> {
    tx.db
        .prepare_cached("UPDATE longshore_unit SET state = ?2 WHERE id = ?1")
        .or_translate()?
        .execute((row.id.as_bytes(), READY_CAPPED))
        .or_translate()?;
    Ok(())
}
