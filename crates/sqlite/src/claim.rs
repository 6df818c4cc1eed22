//! Claiming: streams first, then rows by index.
//!
//! Paused queues, lanes and batches, kinds the worker does not have and other tenants fall away
//! with their streams, before any row is looked at. Lanes share by stride; within a lane the
//! smallest rank goes first, whichever stream it is in.

use std::collections::HashMap;
use std::sync::Arc;

use longshore_core::fair::{LaneShare, divide, entry_pass};
use longshore_core::machine::{Event, next};
use longshore_core::session::Lease;
use longshore_core::store::{Claim, Claimed, HeldUnit, Queues};
use longshore_core::{
    BatchId, Kind, Policy, QueueName, Result, Scope, TenantId, UnitId, UnitState,
};
use rusqlite::Connection;

use crate::error::{Translate, damaged};
use crate::finish::apply;
use crate::hot::Hot;
use crate::inspect::FullRow;
use crate::row::{ALONE, PARKED, Spec, StreamNames, UnitRow, code, flag, unit};
use crate::tx::Tx;

/// Takes units for a session.
pub(crate) fn claim(tx: &mut Tx<'_>, claim: &Claim) -> Result<Claimed> {
    let session = crate::session::number(tx.db, claim.session)?;
    let streams = eligible(tx.db, claim)?;
    let mut taker = Taker::new(claim, session);
    if let Some((stream, id)) = first_alone(tx.db, &streams)? {
        if claim.empty_handed && claim.free > 0 {
            taker.take_alone(tx, stream, id)?;
            return Ok(taker.claimed);
        }
        taker.claimed.alone_waiting = true;
    }
    let lanes = by_lane(tx.db, &streams)?;
    let mut shares: Vec<LaneShare> = lanes.iter().map(|lane| lane.share).collect();
    let parts = divide(&mut shares, u64::from(claim.free) + u64::from(claim.ahead));
    for (lane, part) in lanes.iter().zip(&parts) {
        if taker.stopped {
            break;
        }
        taker.take_from(tx, lane, *part)?;
    }
    if lanes.len() > 1 {
        save_passes(tx.db, &lanes, &shares, &parts)?;
    }
    // Lanes were served one after another: what has been started runs first.
    taker.claimed.units.sort_by_key(|held| !held.started);
    Ok(taker.claimed)
}

/// A stream that this claim may take from.
struct Stream {
    num: i64,
    lane: i64,
    names: Arc<StreamNames>,
    ready: u64,
    weight: u32,
    cap: Option<u64>,
    pass: u64,
}

fn eligible(db: &Connection, claim: &Claim) -> Result<Vec<Stream>> {
    let mut statement = db
        .prepare_cached(
            "SELECT s.num, s.lane, s.kind, s.ready, l.tenant, l.weight, l.cap, l.pass, q.name,
             b.name FROM longshore_stream s INDEXED BY longshore_stream_ready
             JOIN longshore_lane l ON l.num = s.lane JOIN longshore_queue q ON q.num = l.queue
             LEFT JOIN longshore_batch b ON b.num = s.batch
             WHERE s.ready > 0 AND NOT l.paused AND NOT q.paused
             AND coalesce(b.status, 'running') IN ('queued', 'running')",
        )
        .or_translate()?;
    let mut rows = statement.query([]).or_translate()?;
    let mut streams = Vec::new();
    while let Some(row) = rows.next().or_translate()? {
        let text = |at: usize| row.get_ref(at).or_translate();
        let as_text =
            |at| text(at).and_then(|value| value.as_str().map_err(|e| damaged(e.to_string())));
        let kind = as_text(2)?;
        let Some(kind) = claim.kinds.iter().find(|known| known.as_str() == kind) else { continue };
        let (tenant, queue) = (as_text(4)?, as_text(8)?);
        let batch: Option<String> = row.get(9).or_translate()?;
        if !wants(claim, tenant, queue, batch.as_deref()) {
            continue;
        }
        streams.push(Stream {
            num: row.get(0).or_translate()?,
            lane: row.get(1).or_translate()?,
            names: names(kind, tenant, queue, batch.as_deref())?,
            ready: row.get(3).or_translate()?,
            weight: row.get(5).or_translate()?,
            cap: row.get(6).or_translate()?,
            pass: row.get(7).or_translate()?,
        });
    }
    Ok(streams)
}

fn wants(claim: &Claim, tenant: &str, queue: &str, batch: Option<&str>) -> bool {
    let own = match &claim.scope {
        Scope::All => true,
        Scope::Tenant(own) => own.as_str() == tenant,
    };
    let here = match &claim.queues {
        Queues::All => true,
        Queues::Named(names) => names.iter().any(|name| name.as_str() == queue),
    };
    own && here && claim.batch.as_ref().is_none_or(|wanted| Some(wanted.as_str()) == batch)
}

fn names(kind: &Kind, tenant: &str, queue: &str, batch: Option<&str>) -> Result<Arc<StreamNames>> {
    Ok(Arc::new(StreamNames {
        tenant: TenantId::new(tenant).map_err(damaged)?,
        queue: QueueName::new(queue).map_err(damaged)?,
        kind: kind.clone(),
        batch: batch.map(BatchId::new).transpose().map_err(damaged)?,
    }))
}

/// The first unit that must run alone.
fn first_alone<'s>(db: &Connection, streams: &'s [Stream]) -> Result<Option<(&'s Stream, UnitId)>> {
    let mut best: Option<(Candidate, &Stream)> = None;
    for stream in streams {
        let found = candidates(db, stream.num, ALONE, Candidate::FIRST, 1)?;
        if let Some(found) = found.into_iter().next()
            && best.as_ref().is_none_or(|(other, _)| found < *other)
        {
            best = Some((found, stream));
        }
    }
    Ok(best.map(|(candidate, stream)| (stream, UnitId::from_bytes(candidate.id))))
}

/// One lane's part in this claim.
struct Lane<'s> {
    num: i64,
    share: LaneShare,
    capped: bool,
    streams: Vec<&'s Stream>,
}

fn by_lane<'s>(db: &Connection, streams: &'s [Stream]) -> Result<Vec<Lane<'s>>> {
    let mut lanes: Vec<Lane<'s>> = Vec::new();
    let mut known: HashMap<i64, usize> = HashMap::new();
    for stream in streams {
        let at = *known.entry(stream.lane).or_insert_with(|| {
            let share = LaneShare { pass: stream.pass, weight: stream.weight, available: 0 };
            let capped = stream.cap.is_some();
            lanes.push(Lane { num: stream.lane, share, capped, streams: Vec::new() });
            lanes.len() - 1
        });
        lanes[at].share.available += stream.ready;
        lanes[at].streams.push(stream);
    }
    let level = if lanes.len() > 1 { level(db)? } else { 0 };
    for lane in &mut lanes {
        lane.share.pass = entry_pass(lane.share.pass, Some(level));
        if let Some(cap) = lane.streams.first().and_then(|stream| stream.cap) {
            let free = cap.saturating_sub(leased(db, lane.num)?);
            lane.share.available = lane.share.available.min(free);
        }
    }
    Ok(lanes)
}

fn leased(db: &Connection, lane: i64) -> Result<u64> {
    db.prepare_cached(
        "SELECT coalesce(sum(leased), 0) FROM longshore_stream INDEXED BY longshore_stream_live
         WHERE lane = ?1 AND blocked + scheduled + ready + leased > 0",
    )
    .or_translate()?
    .query_row([lane], |row| row.get(0))
    .or_translate()
}

/// Keeps the lanes' places, and the time by which a lane that was silent is level with the others.
fn save_passes(
    db: &Connection,
    lanes: &[Lane<'_>],
    after: &[LaneShare],
    parts: &[u64],
) -> Result<()> {
    for ((lane, share), part) in lanes.iter().zip(after).zip(parts) {
        if *part > 0 {
            db.prepare_cached("UPDATE longshore_lane SET pass = ?2 WHERE num = ?1")
                .or_translate()?
                .execute((lane.num, share.pass))
                .or_translate()?;
        }
    }
    let still = after.iter().zip(parts).filter(|(share, part)| share.available > **part);
    let passes = still.map(|(share, _)| share.pass);
    if let Some(level) = passes.min().or_else(|| after.iter().map(|share| share.pass).max()) {
        db.prepare_cached("UPDATE longshore_level SET pass = max(pass, ?1)")
            .or_translate()?
            .execute([level])
            .or_translate()?;
    }
    Ok(())
}

fn level(db: &Connection) -> Result<u64> {
    db.prepare_cached("SELECT pass FROM longshore_level")
        .or_translate()?
        .query_row([], |row| row.get(0))
        .or_translate()
}

impl Lane<'_> {
    /// The next ready units of the lane after `after`, by rank.
    fn window<'l>(
        &'l self,
        db: &Connection,
        after: Candidate,
        limit: u64,
    ) -> Result<Vec<(Candidate, &'l Stream)>> {
        let mut all = Vec::new();
        for stream in &self.streams {
            let found = candidates(db, stream.num, code(UnitState::Ready), after, limit)?;
            all.extend(found.into_iter().map(|candidate| (candidate, *stream)));
        }
        if self.streams.len() > 1 {
            all.sort_by_key(|(candidate, _)| *candidate);
            all.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        }
        Ok(all)
    }
}

/// A unit's place in the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    place: i64,
    id: [u8; 16],
}

impl Candidate {
    /// Before all others.
    const FIRST: Self = Self { place: i64::MIN, id: [0; 16] };
}

/// Read from the index alone: it holds stream, state, place and id.
fn candidates(
    db: &Connection,
    stream: i64,
    state: u8,
    after: Candidate,
    limit: u64,
) -> Result<Vec<Candidate>> {
    db.prepare_cached(
        "SELECT place, id FROM longshore_unit INDEXED BY longshore_unit_place
         WHERE stream = ?1 AND state = ?2 AND (place, id) > (?3, ?4) ORDER BY place, id LIMIT ?5",
    )
    .or_translate()?
    .query_map((stream, state, after.place, after.id, limit), |row| {
        Ok(Candidate { place: row.get(0)?, id: row.get(1)? })
    })
    .or_translate()?
    .collect::<rusqlite::Result<_>>()
    .or_translate()
}

/// Looked at beyond what was asked for, in case some cannot be taken.
const SPARE: u64 = 16;

/// Takes units until the worker has what it can hold.
struct Taker<'c> {
    claim: &'c Claim,
    session: i64,
    free: u32,
    ahead: u32,
    resources: std::collections::BTreeMap<String, u32>,
    claimed: Claimed,
    stopped: bool,
}

/// What to do with one candidate.
enum Fit {
    /// Take it and run it.
    Start,
    /// Take it for later.
    Ahead,
    /// Leave it and look further.
    Pass,
    /// Leave it and take nothing after it.
    Stop,
}

impl<'c> Taker<'c> {
    fn new(claim: &'c Claim, session: i64) -> Self {
        Self {
            claim,
            session,
            free: claim.free,
            ahead: claim.ahead,
            resources: claim.resources.clone(),
            claimed: Claimed::default(),
            stopped: false,
        }
    }

    fn take_alone(&mut self, tx: &mut Tx<'_>, stream: &Stream, id: UnitId) -> Result<()> {
        let full = FullRow::load(tx.hot(Hot::FindFull)?, id)?;
        if expire(tx, &full.row)? {
            return Ok(());
        }
        self.take(tx, full, stream, true, true)
    }

    /// Takes up to `part` units of a lane; returns how many it took.
    fn take_from(&mut self, tx: &mut Tx<'_>, lane: &Lane<'_>, part: u64) -> Result<u64> {
        let mut taken = 0;
        let mut after = Candidate::FIRST;
        while taken < part && !self.stopped {
            let window = lane.window(tx.db, after, part - taken + SPARE)?;
            let Some((last, _)) = window.last() else { break };
            after = *last;
            for (candidate, stream) in window {
                if taken == part || self.stopped {
                    break;
                }
                taken += u64::from(self.consider(tx, lane, stream, candidate)?);
            }
        }
        Ok(taken)
    }

    fn consider(
        &mut self,
        tx: &mut Tx<'_>,
        lane: &Lane<'_>,
        stream: &Stream,
        candidate: Candidate,
    ) -> Result<bool> {
        let full = FullRow::load(tx.hot(Hot::FindFull)?, UnitId::from_bytes(candidate.id))?;
        let fit = if full.row.has(flag::SPECIAL) {
            self.fit_special(tx, lane, &full.row)?
        } else {
            self.fit_plain(lane)
        };
        match fit {
            Fit::Start => self.take(tx, full, stream, true, false)?,
            Fit::Ahead => self.take(tx, full, stream, false, false)?,
            Fit::Pass => return Ok(false),
            Fit::Stop => {
                self.stopped = true;
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn fit_plain(&mut self, lane: &Lane<'_>) -> Fit {
        if self.free > 0 {
            self.free -= 1;
            return Fit::Start;
        }
        if lane.capped {
            return Fit::Pass;
        }
        if self.ahead == 0 {
            return Fit::Stop;
        }
        self.ahead -= 1;
        Fit::Ahead
    }

    fn fit_special(&mut self, tx: &mut Tx<'_>, lane: &Lane<'_>, row: &UnitRow) -> Result<Fit> {
        if expire(tx, row)? {
            return Ok(Fit::Pass);
        }
        let spec = Spec::parse(row.spec.as_deref())?;
        let slots = spec.slots.unwrap_or(1);
        let has = |(name, amount): (&String, &u32)| self.resources.get(name) >= Some(amount);
        if slots > self.claim.slots || !spec.resources.iter().all(has) {
            return Ok(Fit::Pass);
        }
        if let (Some(cap), Some(key)) = (&spec.cap, &row.cap_key)
            && leased_with(tx.db, key)? >= cap.limit
        {
            park(tx, row)?;
            return Ok(Fit::Pass);
        }
        if slots > self.free {
            // Slots are kept for it: lighter units must not overtake it for ever.
            self.claimed.heavy_waiting = slots > 1;
            return Ok(match slots {
                1 if spec.cap.is_none() && spec.resources.is_empty() => self.fit_plain(lane),
                1 => Fit::Pass,
                _ => Fit::Stop,
            });
        }
        self.free -= slots;
        for (name, amount) in &spec.resources {
            if let Some(left) = self.resources.get_mut(name) {
                *left -= amount;
            }
        }
        Ok(Fit::Start)
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

/// Fails a unit whose deadline has passed; whether it did.
fn expire(tx: &mut Tx<'_>, row: &UnitRow) -> Result<bool> {
    if row.deadline.is_none_or(|deadline| deadline > tx.now.as_micros()) {
        return Ok(false);
    }
    let step = next(&row.head()?, &Event::Expired, &Policy::default(), tx.now)?;
    apply(tx, row, &step, row.fence, None)?;
    Ok(true)
}

fn leased_with(db: &Connection, key: &str) -> Result<u32> {
    db.prepare_cached(
        "SELECT count(*) FROM longshore_unit INDEXED BY longshore_unit_cap
         WHERE cap_key = ?1 AND state = 3 AND state IN (3, 7)",
    )
    .or_translate()?
    .query_row([key], |row| row.get(0))
    .or_translate()
}

/// Puts a unit out of the way until another of its key leaves.
fn park(tx: &Tx<'_>, row: &UnitRow) -> Result<()> {
    tx.db
        .prepare_cached("UPDATE longshore_unit SET state = ?2 WHERE id = ?1")
        .or_translate()?
        .execute((row.id.as_bytes(), PARKED))
        .or_translate()?;
    Ok(())
}
