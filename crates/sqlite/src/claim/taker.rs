//! Takes units, by turns, as far as they fit.

use std::collections::BTreeMap;

use longshore_core::fair::turn;
use longshore_core::machine::{Event, next};
use longshore_core::session::Lease;
use longshore_core::store::{Claim, Claimed, HeldUnit};
use longshore_core::{Payload, Policy, Priority, Result, UnitId, UnitState};
use rusqlite::Connection;

use super::lanes::{Candidate, Lane, candidates, take_from_tenant};
use super::streams::Stream;
use crate::error::{Translate, damaged};
use crate::finish::apply;
use crate::hot::Hot;
use crate::inspect::FullRow;
use crate::known::Facts;
use crate::row::{ALONE, PARKED, Spec, UnitParts, UnitRow, code, flag, unit};
use crate::tx::Tx;

/// Looked at beyond what was asked for, in case some cannot be taken.
pub(super) const SPARE: u64 = 16;

/// Takes units until the worker has what it can hold.
pub(super) struct Taker<'c> {
    pub(super) claim: &'c Claim,
    pub(super) session: i64,
    pub(super) free: u32,
    pub(super) ahead: u32,
    pub(super) resources: BTreeMap<String, u32>,
    pub(super) claimed: Claimed,
}

/// What to do with one candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// Take it and run it.
    Start,
    /// Take it for later.
    Ahead,
    /// Leave it and look further.
    Pass,
    /// Nothing more of this lane.
    LeaveLane,
    /// Leave it and take nothing after it.
    Stop,
}

impl<'c> Taker<'c> {
    pub(super) fn new(claim: &'c Claim, session: i64) -> Self {
        let (free, ahead, resources) = (claim.free, claim.ahead, claim.resources.clone());
        Self { claim, session, free, ahead, resources, claimed: Claimed::default() }
    }

    /// Gives empty hands a unit that must run alone, before anything else: while others come and
    /// go it would never be its turn. Other hands only hear of it.
    pub(super) fn take_alone(&mut self, tx: &mut Tx<'_>, lanes: &[Lane<'_>]) -> Result<bool> {
        for lane in lanes.iter().filter(|lane| lane.share.available > 0) {
            for stream in &lane.streams {
                for candidate in candidates(tx.db, stream.num, ALONE, Candidate::FIRST, SPARE)? {
                    let id = UnitId::from_bytes(candidate.id);
                    let full = FullRow::load(tx.hot(Hot::FindFull)?, id)?;
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

    /// Whether this worker, once empty-handed, can run it.
    pub(super) fn fits_alone(&self, tx: &mut Tx<'_>, row: &UnitRow) -> Result<bool> {
        if expire(tx, row)? {
            return Ok(false);
        }
        let spec = Spec::parse(row.spec.as_deref())?;
        let capped = match (&spec.cap, &row.cap_key) {
            (Some(cap), Some(key)) => leased_with(tx.db, key)? >= cap.limit,
            _ => false,
        };
        Ok(!capped && self.could_run(&spec))
    }

    pub(super) fn fits_now(&self, row: &UnitRow) -> Result<bool> {
        let spec = Spec::parse(row.spec.as_deref())?;
        let has = |(name, amount): (&String, &u32)| self.resources.get(name) >= Some(amount);
        Ok(spec.slots.unwrap_or(1) <= self.free && spec.resources.iter().all(has))
    }

    /// Whether the worker has what the unit needs, free or not.
    pub(super) fn could_run(&self, spec: &Spec) -> bool {
        let all = &self.claim.all_resources;
        spec.slots.unwrap_or(1) <= self.claim.slots
            && spec.resources.iter().all(|(name, amount)| all.get(name) >= Some(amount))
    }

    /// One unit at a time from the lane whose turn it is.
    pub(super) fn take_by_turns(&mut self, tx: &mut Tx<'_>, lanes: &mut [Lane<'_>]) -> Result<()> {
        while self.free > 0 || self.ahead > 0 {
            let Some(at) = turn(lanes.iter().map(|lane| &lane.share)) else { break };
            let lane = &mut lanes[at];
            let limit = u64::from(self.free) + u64::from(self.ahead) + SPARE;
            let Some((candidate, stream)) = lane.next(tx.db, limit)? else {
                lane.share.available = 0;
                continue;
            };
            match self.consider(tx, lane.capped, stream, candidate)? {
                Fit::Start | Fit::Ahead => {
                    lane.share.serve();
                    lane.taken += 1;
                    take_from_tenant(lanes, at);
                }
                Fit::Pass => {}
                Fit::LeaveLane => lane.share.available = 0,
                Fit::Stop => break,
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
    ) -> Result<Fit> {
        let full = match fresh(tx, stream, candidate)? {
            Some(fresh) => fresh,
            None => FullRow::load(tx.hot(Hot::FindFull)?, UnitId::from_bytes(candidate.id))?,
        };
        let fit = if full.row.has(flag::SPECIAL) {
            self.fit_special(tx, capped, &full.row)?
        } else {
            self.fit_plain(capped)
        };
        if matches!(fit, Fit::Start | Fit::Ahead) {
            self.take(tx, full, stream, fit == Fit::Start, false)?;
        }
        Ok(fit)
    }

    pub(super) fn fit_plain(&mut self, capped: bool) -> Fit {
        if self.free > 0 {
            self.free -= 1;
            return Fit::Start;
        }
        if capped {
            return Fit::LeaveLane;
        }
        self.ahead -= 1;
        Fit::Ahead
    }

    pub(super) fn fit_special(
        &mut self,
        tx: &mut Tx<'_>,
        capped: bool,
        row: &UnitRow,
    ) -> Result<Fit> {
        if expire(tx, row)? {
            return Ok(Fit::Pass);
        }
        let spec = Spec::parse(row.spec.as_deref())?;
        let slots = spec.slots.unwrap_or(1);
        if !self.could_run(&spec) {
            return Ok(Fit::Pass);
        }
        if let (Some(cap), Some(key)) = (&spec.cap, &row.cap_key)
            && leased_with(tx.db, key)? >= cap.limit
        {
            park(tx, row)?;
            return Ok(Fit::Pass);
        }
        let lacks = |(name, amount): (&String, &u32)| self.resources.get(name) < Some(amount);
        if slots > self.free || spec.resources.iter().any(lacks) {
            return Ok(self.does_not_fit_now(capped, slots, &spec));
        }
        self.free -= slots;
        for (name, amount) in &spec.resources {
            if let Some(left) = self.resources.get_mut(name) {
                *left -= amount;
            }
        }
        Ok(Fit::Start)
    }

    /// With no slot free a light unit may be for later; any other is waited for: slots and
    /// resources are kept for it, or others would overtake it for ever.
    pub(super) fn does_not_fit_now(&mut self, capped: bool, slots: u32, spec: &Spec) -> Fit {
        if slots > 1 || self.free > 0 {
            self.claimed.heavy_waiting = true;
            return Fit::Stop;
        }
        let later = spec.cap.is_none() && spec.resources.is_empty();
        if later { self.fit_plain(capped) } else { Fit::Pass }
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
        tx.hot(Hot::Lease)?
            .execute((
                row.id.as_bytes(),
                now,
                self.session,
                row.fence + 1,
                row.attempt + u32::from(started),
                started.then_some(now),
            ))
            .or_translate()?;
        tx.moved(row.stream, Some(UnitState::Ready), Some(UnitState::Leased), row.bytes);
        tx.known.remember(row.id, Facts { stream: row.stream, bytes: row.bytes });
        parts.fetch(tx.db, &row)?;
        row.code = code(UnitState::Leased);
        row.place = now;
        row.fence += 1;
        row.attempt += u32::from(started);
        row.started_at = started.then_some(now);
        let lease = Lease { unit: row.id, fence: row.fence };
        let unit = unit(row, parts, &stream.names, Some(self.claim.session))?;
        self.claimed.units.push(HeldUnit { lease, started, alone, unit });
        Ok(())
    }
}

/// The row of a unit of which only a few columns can hold anything: most that are claimed.
pub(super) fn fresh(
    tx: &mut Tx<'_>,
    stream: &Stream,
    candidate: Candidate,
) -> Result<Option<FullRow>> {
    let mut rows = tx.hot(Hot::FindFresh)?.query([candidate.id]).or_translate()?;
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
        place: candidate.place,
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

/// Fails a unit whose deadline has passed; whether it did.
pub(super) fn expire(tx: &mut Tx<'_>, row: &UnitRow) -> Result<bool> {
    if row.deadline.is_none_or(|deadline| deadline > tx.now.as_micros()) {
        return Ok(false);
    }
    let step = next(&row.head()?, &Event::Expired, &Policy::default(), tx.now)?;
    apply(tx, row, &step, row.fence, None)?;
    Ok(true)
}

pub(super) fn leased_with(db: &Connection, key: &str) -> Result<u32> {
    db.prepare_cached(
        "SELECT count(*) FROM longshore_unit INDEXED BY longshore_unit_cap
         WHERE cap_key = ?1 AND state = 3 AND state IN (3, 7)",
    )
    .or_translate()?
    .query_row([key], |row| row.get(0))
    .or_translate()
}

/// Puts a unit out of the way until another of its key leaves.
pub(super) fn park(tx: &Tx<'_>, row: &UnitRow) -> Result<()> {
    tx.db
        .prepare_cached("UPDATE longshore_unit SET state = ?2 WHERE id = ?1")
        .or_translate()?
        .execute((row.id.as_bytes(), PARKED))
        .or_translate()?;
    Ok(())
}
