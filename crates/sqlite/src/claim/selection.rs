//! Selects units lane by lane, as far as the worker has capacity.

use std::collections::BTreeMap;

use longshore_core::fair::turn;
use longshore_core::machine::{Event, next};
use longshore_core::session::Lease;
use longshore_core::store::{Claim, Claimed, HeldUnit};
use longshore_core::{Payload, Policy, Priority, Result, UnitId, UnitState};
use rusqlite::Connection;

use super::candidate_streams::Stream;
use super::lanes::{Candidate, Lane, candidates, charge_tenant};
use crate::claim_cache::CachedUnit;
use crate::error::{Translate, damaged};
use crate::finish::apply;
use crate::prepared::PreparedSql;
use crate::queries::{FullRow, load_overflow};
use crate::row::{ALONE, PARKED, Spec, UnitParts, UnitRow, code, flag, unit};
use crate::tx::Tx;

/// Rows read beyond the requested number, in case some cannot be taken.
pub(super) const SCAN_SLACK: u64 = 16;

/// The units taken so far, and the worker's remaining capacity.
pub(super) struct Selection<'c> {
    pub(super) claim: &'c Claim,
    pub(super) session: i64,
    pub(super) free: u32,
    pub(super) ahead: u32,
    pub(super) resources: BTreeMap<String, u32>,
    pub(super) claimed: Claimed,
}

/// What to do with a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FitDecision {
    /// Take it and start it.
    Start,
    /// Take it without starting it.
    Ahead,
    /// Skip it.
    Pass,
    /// Take nothing more from this lane.
    LeaveLane,
    /// Take nothing after it.
    Stop,
}

impl<'c> Selection<'c> {
    pub(super) fn new(claim: &'c Claim, session: i64) -> Self {
        let (free, ahead, resources) = (claim.free, claim.ahead, claim.resources.clone());
        Self { claim, session, free, ahead, resources, claimed: Claimed::default() }
    }

    /// Gives a unit that must run alone to a worker that holds no unit, before anything else:
    /// otherwise other units would always run beside it. Other workers are only told that it waits.
    pub(super) fn take_alone(&mut self, tx: &mut Tx<'_>, lanes: &[Lane<'_>]) -> Result<bool> {
        for lane in lanes.iter().filter(|lane| lane.share.available > 0) {
            for stream in &lane.streams {
                for candidate in candidates(tx.db, stream.num, ALONE, Candidate::FIRST, SCAN_SLACK)?
                {
                    let id = UnitId::from_bytes(candidate.id);
                    let full = FullRow::load(tx.prepared(PreparedSql::FindFull)?, id)?;
                    if !self.fits_alone(tx, &full.row)? {
                        continue;
                    }
                    if self.claim.empty_handed && self.fits_now(&full.row)? {
                        self.take(tx, full, stream, true, true)?;
                        return Ok(true);
                    }
                    self.claimed.alone_waiting = true;
                    return Ok(false);
                }
            }
        }
        Ok(false)
    }

    /// Whether this worker can run it once it holds no unit.
    pub(super) fn fits_alone(&self, tx: &mut Tx<'_>, row: &UnitRow) -> Result<bool> {
        if expire(tx, row)? {
            return Ok(false);
        }
        let spec = Spec::parse(row.spec.as_deref())?;
        let capped = match (&spec.cap, &row.cap_key) {
            (Some(cap), Some(key)) => count_leased_with_key(tx.db, key)? >= cap.limit,
            _ => false,
        };
        Ok(!capped && self.could_run(&spec))
    }

    pub(super) fn fits_now(&self, row: &UnitRow) -> Result<bool> {
        let spec = Spec::parse(row.spec.as_deref())?;
        let has = |(name, amount): (&String, &u32)| self.resources.get(name) >= Some(amount);
        Ok(spec.slots.unwrap_or(1) <= self.free && spec.resources.iter().all(has))
    }

    /// Whether the worker has what the unit needs in total.
    pub(super) fn could_run(&self, spec: &Spec) -> bool {
        let all = &self.claim.all_resources;
        spec.slots.unwrap_or(1) <= self.claim.slots
            && spec.resources.iter().all(|(name, amount)| all.get(name) >= Some(amount))
    }

    /// Takes one unit at a time from the next lane.
    pub(super) fn take_by_stride(&mut self, tx: &mut Tx<'_>, lanes: &mut [Lane<'_>]) -> Result<()> {
        while self.free > 0 || self.ahead > 0 {
            let Some(at) = turn(lanes.iter().map(|lane| &lane.share)) else { break };
            let lane = &mut lanes[at];
            let limit = u64::from(self.free) + u64::from(self.ahead) + SCAN_SLACK;
            let Some((candidate, stream)) = lane.next(tx.db, limit)? else {
                lane.share.available = 0;
                continue;
            };
            match self.consider(tx, lane.capped, stream, candidate)? {
                FitDecision::Start | FitDecision::Ahead => {
                    lane.share.serve();
                    lane.taken += 1;
                    charge_tenant(lanes, at);
                }
                FitDecision::Pass => {}
                FitDecision::LeaveLane => lane.share.available = 0,
                FitDecision::Stop => break,
            }
        }
        Ok(())
    }

    pub(super) fn consider(
        &mut self,
        tx: &mut Tx<'_>,
        capped: bool,
        stream: &Stream,
        candidate: Candidate,
    ) -> Result<FitDecision> {
        let full = match load_fresh(tx, stream, candidate)? {
            Some(fresh) => fresh,
            None => FullRow::load(
                tx.prepared(PreparedSql::FindFull)?,
                UnitId::from_bytes(candidate.id),
            )?,
        };
        let fit = if full.row.has(flag::SPECIAL) {
            self.fit_special(tx, capped, &full.row)?
        } else {
            self.fit_plain(capped)
        };
        if matches!(fit, FitDecision::Start | FitDecision::Ahead) {
            self.take(tx, full, stream, fit == FitDecision::Start, false)?;
        }
        Ok(fit)
    }

    pub(super) fn fit_plain(&mut self, capped: bool) -> FitDecision {
        if self.free > 0 {
            self.free -= 1;
            return FitDecision::Start;
        }
        if capped {
            return FitDecision::LeaveLane;
        }
        self.ahead -= 1;
        FitDecision::Ahead
    }

    pub(super) fn fit_special(
        &mut self,
        tx: &mut Tx<'_>,
        capped: bool,
        row: &UnitRow,
    ) -> Result<FitDecision> {
        if expire(tx, row)? {
            return Ok(FitDecision::Pass);
        }
        let spec = Spec::parse(row.spec.as_deref())?;
        let slots = spec.slots.unwrap_or(1);
        if !self.could_run(&spec) {
            return Ok(FitDecision::Pass);
        }
        if let (Some(cap), Some(key)) = (&spec.cap, &row.cap_key)
            && count_leased_with_key(tx.db, key)? >= cap.limit
        {
            park(tx, row)?;
            return Ok(FitDecision::Pass);
        }
        let lacks = |(name, amount): (&String, &u32)| self.resources.get(name) < Some(amount);
        if slots > self.free || spec.resources.iter().any(lacks) {
            return Ok(self.defer_or_reserve(capped, slots, &spec));
        }
        self.free -= slots;
        for (name, amount) in &spec.resources {
            if let Some(left) = self.resources.get_mut(name) {
                *left -= amount;
            }
        }
        Ok(FitDecision::Start)
    }

    /// If no slot is free, a light unit may be claimed ahead. For any other unit slots and
    /// resources are reserved, or other units would overtake it for ever.
    pub(super) fn defer_or_reserve(
        &mut self,
        capped: bool,
        slots: u32,
        spec: &Spec,
    ) -> FitDecision {
        if slots > 1 || self.free > 0 {
            self.claimed.heavy_waiting = true;
            return FitDecision::Stop;
        }
        let later = spec.cap.is_none() && spec.resources.is_empty();
        if later { self.fit_plain(capped) } else { FitDecision::Pass }
    }

    pub(super) fn take(
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
        row.code = code(UnitState::Leased);
        row.sort_key = now;
        row.fence += 1;
        row.attempt += u32::from(started);
        row.started_at = started.then_some(now);
        let lease = Lease { unit: row.id, fence: row.fence };
        let unit = unit(row, parts, &stream.names, Some(self.claim.session))?;
        self.claimed.units.push(HeldUnit { lease, started, alone, unit });
        Ok(())
    }
}

/// The row of a unit that has not run and has no special attributes, as most claimed units: few
/// columns suffice.
pub(super) fn load_fresh(
    tx: &mut Tx<'_>,
    stream: &Stream,
    candidate: Candidate,
) -> Result<Option<FullRow>> {
    let mut rows = tx.prepared(PreparedSql::FindFresh)?.query([candidate.id]).or_translate()?;
    let Some(row) = rows.next().or_translate()? else { return Ok(None) };
    let payload = row.get_ref(4).or_translate()?;
    let payload = payload.as_blob().map_err(|error| damaged(error.to_string()))?;
    let parts = UnitParts {
        failure: None,
        progress: None,
        payload: Some(Payload::from(payload)),
        checkpoint: None,
        result: None,
    };
    let row = UnitRow {
        id: UnitId::from_bytes(candidate.id),
        stream: stream.num,
        code: code(UnitState::Ready),
        sort_key: candidate.place,
        priority: Priority::new(row.get(0).or_translate()?).map_err(damaged)?,
        attempt: 0,
        lost: 0,
        fence: row.get(1).or_translate()?,
        session: None,
        started_at: None,
        created_at: row.get(2).or_translate()?,
        deadline: None,
        flags: 0,
        bytes: row.get(3).or_translate()?,
        cap_key: None,
        spec: None,
    };
    Ok(Some(FullRow { row, parts }))
}

/// Fails a unit past its deadline; whether it did.
pub(super) fn expire(tx: &mut Tx<'_>, row: &UnitRow) -> Result<bool> {
    if row.deadline.is_none_or(|deadline| deadline > tx.now.as_micros()) {
        return Ok(false);
    }
    let step = next(&row.transition_input()?, &Event::Expired, &Policy::default(), tx.now)?;
    apply(tx, row, &step, row.fence, None)?;
    Ok(true)
}

pub(super) fn count_leased_with_key(db: &Connection, key: &str) -> Result<u32> {
    db.prepare_cached(
        "SELECT count(*) FROM longshore_unit INDEXED BY longshore_unit_cap
         WHERE cap_key = ?1 AND state = 3 AND state IN (3, 7)",
    )
    .or_translate()?
    .query_row([key], |row| row.get(0))
    .or_translate()
}

/// Hides a unit from claims until another unit with its cap key leaves.
pub(super) fn park(tx: &Tx<'_>, row: &UnitRow) -> Result<()> {
    tx.db
        .prepare_cached("UPDATE longshore_unit SET state = ?2 WHERE id = ?1")
        .or_translate()?
        .execute((row.id.as_bytes(), PARKED))
        .or_translate()?;
    Ok(())
}
