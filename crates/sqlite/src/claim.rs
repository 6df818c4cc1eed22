//! Claiming: streams first, then rows by index.
//!
//! Paused queues, lanes and batches, suspended tenants, kinds the worker does not have and other
//! tenants fall away with their streams, before any row is looked at. Lanes share by stride; within a lane the
//! smallest rank goes first, whichever stream it is in.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use longshore_core::fair::{LaneShare, share, turn};
use longshore_core::machine::{Event, next};
use longshore_core::session::Lease;
use longshore_core::store::{Claim, Claimed, HeldUnit, Queues};
use longshore_core::{
    BatchId, Kind, Payload, Policy, Priority, QueueName, Result, Scope, TenantId, UnitId, UnitState,
};
use rusqlite::Connection;

use crate::error::{Translate, damaged};
use crate::fairness;
use crate::finish::apply;
use crate::hot::Hot;
use crate::inspect::FullRow;
use crate::known::Facts;
use crate::row::{ALONE, PARKED, Spec, StreamNames, UnitParts, UnitRow, code, flag, unit};
use crate::tenants;
use crate::tx::Tx;

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

/// A stream that this claim may take from.
struct Stream {
    num: i64,
    lane: i64,
    names: Arc<StreamNames>,
    ready: u64,
    weight: u32,
    cap: Option<u64>,
    tenant_cap: Option<u64>,
    pass: u64,
    joins: bool,
}

fn eligible(db: &Connection, claim: &Claim) -> Result<Vec<Stream>> {
    let mut statement = db
        .prepare_cached(
            "SELECT s.num, s.lane, s.kind, s.ready, l.tenant, l.weight, l.cap, l.pass, q.name,
             b.name, l.joins, coalesce(t.weight, 1), t.cap
             FROM longshore_stream s INDEXED BY longshore_stream_ready
             JOIN longshore_lane l ON l.num = s.lane JOIN longshore_queue q ON q.num = l.queue
             LEFT JOIN longshore_batch b ON b.num = s.batch
             LEFT JOIN longshore_tenant t ON t.name = l.tenant
             WHERE s.ready > 0 AND NOT l.paused AND NOT q.paused AND NOT coalesce(t.suspended, 0)
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
            weight: share(row.get(5).or_translate()?, row.get(11).or_translate()?),
            cap: row.get(6).or_translate()?,
            tenant_cap: row.get(12).or_translate()?,
            pass: row.get(7).or_translate()?,
            joins: row.get(10).or_translate()?,
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

/// One lane's part in this claim.
struct Lane<'s> {
    num: i64,
    share: LaneShare,
    joins: bool,
    capped: bool,
    /// How many more its tenant may lease, over all its lanes; `None` if it has no cap.
    tenant_room: Option<u64>,
    taken: u64,
    streams: Vec<&'s Stream>,
    /// Its next units, and where to look for more.
    window: VecDeque<(Candidate, &'s Stream)>,
    after: Candidate,
}

fn by_lane<'s>(db: &Connection, streams: &'s [Stream]) -> Result<Vec<Lane<'s>>> {
    let mut lanes: Vec<Lane<'s>> = Vec::new();
    let mut known: HashMap<i64, usize> = HashMap::new();
    for stream in streams {
        let at = *known.entry(stream.lane).or_insert_with(|| {
            lanes.push(Lane::new(stream));
            lanes.len() - 1
        });
        lanes[at].share.available += stream.ready;
        lanes[at].streams.push(stream);
    }
    let level = fairness::level(lanes.iter().map(|lane| (&lane.share, lane.joins)));
    for lane in &mut lanes {
        if lane.joins {
            fairness::join(&mut lane.share, level);
        }
        if let Some(cap) = lane.streams.first().and_then(|stream| stream.cap) {
            let free = cap.saturating_sub(leased(db, lane.num)?);
            lane.share.available = lane.share.available.min(free);
        }
    }
    bound_tenants(db, &mut lanes)?;
    Ok(lanes)
}

/// Notes how much room capped tenants have left, on each of their lanes.
fn bound_tenants(db: &Connection, lanes: &mut [Lane<'_>]) -> Result<()> {
    let mut rooms: HashMap<&TenantId, u64> = HashMap::new();
    for lane in lanes {
        let Some(stream) = lane.streams.first() else { continue };
        let Some(cap) = stream.tenant_cap else { continue };
        let room = match rooms.entry(&stream.names.tenant) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let leased = tenants::leased(db, &stream.names.tenant)?;
                *new.insert(cap.saturating_sub(leased))
            }
        };
        lane.bound_by_tenant(room);
    }
    Ok(())
}

/// A unit of this lane was taken: its tenant's other lanes have less room, too.
fn take_from_tenant(lanes: &mut [Lane<'_>], at: usize) {
    let Some(left) = lanes[at].tenant_room.map(|room| room.saturating_sub(1)) else { return };
    let tenant = lanes[at].tenant().cloned();
    for lane in lanes.iter_mut().filter(|lane| lane.tenant() == tenant.as_ref()) {
        lane.bound_by_tenant(left);
    }
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

impl<'s> Lane<'s> {
    fn new(stream: &Stream) -> Self {
        Self {
            num: stream.lane,
            share: LaneShare { pass: stream.pass, weight: stream.weight, available: 0 },
            joins: stream.joins,
            capped: stream.cap.is_some() || stream.tenant_cap.is_some(),
            tenant_room: None,
            taken: 0,
            streams: Vec::new(),
            window: VecDeque::new(),
            after: Candidate::FIRST,
        }
    }

    fn tenant(&self) -> Option<&'s TenantId> {
        self.streams.first().map(|stream| &stream.names.tenant)
    }

    fn bound_by_tenant(&mut self, room: u64) {
        self.tenant_room = Some(room);
        self.share.available = self.share.available.min(room);
    }

    /// The lane's next unit by rank; looks for `limit` more at once when it must look.
    fn next(&mut self, db: &Connection, limit: u64) -> Result<Option<(Candidate, &'s Stream)>> {
        if self.window.is_empty() {
            self.look(db, limit)?;
        }
        Ok(self.window.pop_front())
    }

    fn look(&mut self, db: &Connection, limit: u64) -> Result<()> {
        for stream in &self.streams {
            let found = candidates(db, stream.num, code(UnitState::Ready), self.after, limit)?;
            self.window.extend(found.into_iter().map(|candidate| (candidate, *stream)));
        }
        if self.streams.len() > 1 {
            self.window.make_contiguous().sort_by_key(|(candidate, _)| *candidate);
            self.window.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        }
        if let Some((last, _)) = self.window.back() {
            self.after = *last;
        }
        Ok(())
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
    resources: BTreeMap<String, u32>,
    claimed: Claimed,
}

/// What to do with one candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fit {
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
    fn new(claim: &'c Claim, session: i64) -> Self {
        let (free, ahead, resources) = (claim.free, claim.ahead, claim.resources.clone());
        Self { claim, session, free, ahead, resources, claimed: Claimed::default() }
    }

    /// Gives empty hands a unit that must run alone, before anything else: while others come and
    /// go it would never be its turn. Other hands only hear of it.
    fn take_alone(&mut self, tx: &mut Tx<'_>, lanes: &[Lane<'_>]) -> Result<bool> {
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
    fn fits_alone(&self, tx: &mut Tx<'_>, row: &UnitRow) -> Result<bool> {
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

    fn fits_now(&self, row: &UnitRow) -> Result<bool> {
        let spec = Spec::parse(row.spec.as_deref())?;
        let has = |(name, amount): (&String, &u32)| self.resources.get(name) >= Some(amount);
        Ok(spec.slots.unwrap_or(1) <= self.free && spec.resources.iter().all(has))
    }

    /// Whether the worker has what the unit needs, free or not.
    fn could_run(&self, spec: &Spec) -> bool {
        let all = &self.claim.all_resources;
        spec.slots.unwrap_or(1) <= self.claim.slots
            && spec.resources.iter().all(|(name, amount)| all.get(name) >= Some(amount))
    }

    /// One unit at a time from the lane whose turn it is.
    fn take_by_turns(&mut self, tx: &mut Tx<'_>, lanes: &mut [Lane<'_>]) -> Result<()> {
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

    fn consider(
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

    fn fit_plain(&mut self, capped: bool) -> Fit {
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

    fn fit_special(&mut self, tx: &mut Tx<'_>, capped: bool, row: &UnitRow) -> Result<Fit> {
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
    fn does_not_fit_now(&mut self, capped: bool, slots: u32, spec: &Spec) -> Fit {
        if slots > 1 || self.free > 0 {
            self.claimed.heavy_waiting = true;
            return Fit::Stop;
        }
        let later = spec.cap.is_none() && spec.resources.is_empty();
        if later { self.fit_plain(capped) } else { Fit::Pass }
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
fn fresh(tx: &mut Tx<'_>, stream: &Stream, candidate: Candidate) -> Result<Option<FullRow>> {
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
