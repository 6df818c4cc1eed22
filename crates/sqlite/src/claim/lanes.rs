//! Lanes, and the next units of each.

use std::collections::{HashMap, VecDeque};

use longshore_core::stride_scheduler::{LaneShare, TenantShare};
use longshore_core::{Payload, Priority, Result, TenantId, UnitId, UnitState};
use rusqlite::{Connection, Row};

use super::candidate_streams::Stream;
use crate::error::{Translate, damaged};
use crate::queries::FullRow;
use crate::row::{UnitParts, UnitRow, state_code};

/// One lane in a claim.
pub(super) struct Lane<'s> {
    pub(super) capped: bool,
    pub(super) streams: Vec<&'s Stream>,
    /// Its next units, and where to continue.
    pub(super) window: VecDeque<ReadyUnit<'s>>,
    pub(super) after: Candidate,
    /// How many units the last read requested.
    requested: u64,
}

/// Lanes, the shares of their tenants, and the share of each lane.
type LanesAndShares<'s> = (Vec<Lane<'s>>, Vec<TenantShare>, Vec<LaneShare<i64>>);

/// The lanes of these streams, and the shares of their tenants and of each lane within the caps.
pub(super) fn group_by_lane<'s>(db: &Connection, streams: &'s [Stream]) -> Result<LanesAndShares<'s>> {
    let (mut lanes, mut tenants, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    let mut index_by_lane: HashMap<i64, usize> = HashMap::new();
    let mut index_by_tenant: HashMap<&TenantId, usize> = HashMap::new();
    for stream in streams {
        let at = *index_by_lane.entry(stream.lane).or_insert_with(|| {
            let id = &stream.names.tenant;
            let tenant = *index_by_tenant.entry(id).or_insert_with(|| {
                tenants.push(TenantShare::new(id.clone(), stream.tenant_weight));
                tenants.len() - 1
            });
            lanes.push(Lane::new(stream));
            shares.push(LaneShare::new(stream.lane, tenant, stream.weight));
            lanes.len() - 1
        });
        shares[at].available += stream.ready;
        lanes[at].streams.push(stream);
    }
    for (lane, share) in lanes.iter().zip(&mut shares) {
        if let Some(cap) = lane.streams[0].cap {
            share.available = share.available.min(cap.saturating_sub(leased(db, share.key)?));
        }
        let tenant = &mut tenants[share.tenant];
        if let Some(cap) = lane.streams[0].tenant_cap
            && tenant.allowed == u64::MAX
        {
            tenant.allowed = cap.saturating_sub(crate::tenants::leased(db, &tenant.id)?);
        }
    }
    Ok((lanes, tenants, shares))
}

pub(super) fn leased(db: &Connection, lane: i64) -> Result<u64> {
    db.prepare_cached(
        "SELECT coalesce(sum(leased), 0) FROM longshore_stream INDEXED BY longshore_stream_live
         WHERE lane = ?1 AND blocked + scheduled + ready + leased > 0",
    )
    .or_translate()?
    .query_row([lane], |row| row.get(0))
    .or_translate()
}

impl<'s> Lane<'s> {
    pub(super) fn new(stream: &Stream) -> Self {
        Self {
            capped: stream.cap.is_some() || stream.tenant_cap.is_some(),
            streams: Vec::new(),
            window: VecDeque::new(),
            after: Candidate::FIRST,
            requested: 0,
        }
    }

    /// The lane's next unit by rank. The first read requests `share` units, each further read twice as many as
    /// the one before, up to `limit`: a claim that read `limit` units of each of 100 lanes would use few of them.
    pub(super) fn next(&mut self, db: &Connection, share: u64, limit: u64) -> Result<Option<ReadyUnit<'s>>> {
        if self.window.is_empty() {
            self.requested = (self.requested * 2).clamp(share.min(limit), limit);
            self.refill(db, self.requested)?;
        }
        Ok(self.window.pop_front())
    }

    fn refill(&mut self, db: &Connection, limit: u64) -> Result<()> {
        for stream in &self.streams {
            read_ready(db, stream, self.after, limit, &mut self.window)?;
        }
        if self.streams.len() > 1 {
            self.window.make_contiguous().sort_by_key(|unit| unit.candidate);
            self.window.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        }
        if let Some(last) = self.window.back() {
            self.after = last.candidate;
        }
        Ok(())
    }
}

/// A unit that a claim may take.
pub(super) struct ReadyUnit<'s> {
    pub(super) candidate: Candidate,
    pub(super) stream: &'s Stream,
    /// Its row, if it has not run and has no special attributes.
    pub(super) fresh: Option<FullRow>,
}

/// Reads the next ready units of a stream. The row of a unit that has not run and has no special
/// attributes, as most have, is read with its index entry: a statement of its own would cost more.
fn read_ready<'s>(
    db: &Connection,
    stream: &'s Stream,
    after: Candidate,
    limit: u64,
    window: &mut VecDeque<ReadyUnit<'s>>,
) -> Result<()> {
    let mut statement = db
        .prepare_cached(
            "SELECT sort_key, id, flags & ~6144 = 0 AND attempt = 0 AND lost = 0 AND spec IS NULL
             AND failure IS NULL, priority, fence, created_at, bytes, flags, payload
             FROM longshore_unit INDEXED BY longshore_unit_sort
             WHERE stream = ?1 AND state = 2 AND (sort_key, id) > (?2, ?3)
             ORDER BY sort_key, id LIMIT ?4",
        )
        .or_translate()?;
    let mut rows = statement.query((stream.num, after.sort_key, after.id, limit)).or_translate()?;
    while let Some(row) = rows.next().or_translate()? {
        let candidate = Candidate { sort_key: row.get(0).or_translate()?, id: row.get(1).or_translate()? };
        let is_fresh = row.get(2).or_translate()?;
        let fresh = if is_fresh { Some(fresh_row(row, stream, candidate)?) } else { None };
        window.push_back(ReadyUnit { candidate, stream, fresh });
    }
    Ok(())
}

fn fresh_row(row: &Row<'_>, stream: &Stream, candidate: Candidate) -> Result<FullRow> {
    let payload = row.get_ref(8).or_translate()?.as_blob().map_err(damaged)?;
    let parts = UnitParts { payload: Some(Payload::from(payload)), ..UnitParts::default() };
    let row = UnitRow {
        id: UnitId::from_bytes(candidate.id),
        stream: stream.num,
        code: state_code(UnitState::Ready),
        sort_key: candidate.sort_key,
        priority: Priority::new(row.get(3).or_translate()?).map_err(damaged)?,
        attempt: 0,
        lost: 0,
        fence: row.get(4).or_translate()?,
        session: None,
        started_at: None,
        created_at: row.get(5).or_translate()?,
        deadline: None,
        flags: row.get(7).or_translate()?,
        bytes: row.get(6).or_translate()?,
        cap_key: None,
        spec: None,
    };
    Ok(FullRow { row, parts })
}

/// A unit's sort key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    pub(super) sort_key: i64,
    pub(super) id: [u8; 16],
}

impl Candidate {
    /// Before all units.
    pub(super) const FIRST: Self = Self { sort_key: i64::MIN, id: [0; 16] };
}

/// Reads from the index alone: it holds stream, state, sort key and id.
pub(super) fn candidates(
    db: &Connection,
    stream: i64,
    state: u8,
    after: Candidate,
    limit: u64,
) -> Result<Vec<Candidate>> {
    db.prepare_cached(
        "SELECT sort_key, id FROM longshore_unit INDEXED BY longshore_unit_sort
         WHERE stream = ?1 AND state = ?2 AND (sort_key, id) > (?3, ?4) ORDER BY sort_key, id
         LIMIT ?5",
    )
    .or_translate()?
    .query_map((stream, state, after.sort_key, after.id, limit), |row| {
        Ok(Candidate { sort_key: row.get(0)?, id: row.get(1)? })
    })
    .or_translate()?
    .collect::<rusqlite::Result<_>>()
    .or_translate()
}
