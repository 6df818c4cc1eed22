//! Lanes, and the units that come next in each.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use longshore_core::fair::LaneShare;
use longshore_core::{Result, TenantId, UnitState};
use rusqlite::Connection;

use super::streams::Stream;
use crate::error::Translate;
use crate::fairness;
use crate::row::code;
use crate::tenants;

/// One lane's part in this claim.
pub(super) struct Lane<'s> {
    pub(super) num: i64,
    pub(super) share: LaneShare,
    pub(super) joins: bool,
    pub(super) capped: bool,
    /// How many more its tenant may lease, over all its lanes; `None` if it has no cap.
    pub(super) tenant_room: Option<u64>,
    pub(super) taken: u64,
    pub(super) streams: Vec<&'s Stream>,
    /// Its next units, and where to look for more.
    pub(super) window: VecDeque<(Candidate, &'s Stream)>,
    pub(super) after: Candidate,
}

pub(super) fn by_lane<'s>(db: &Connection, streams: &'s [Stream]) -> Result<Vec<Lane<'s>>> {
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
pub(super) fn bound_tenants(db: &Connection, lanes: &mut [Lane<'_>]) -> Result<()> {
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
pub(super) fn take_from_tenant(lanes: &mut [Lane<'_>], at: usize) {
    let Some(left) = lanes[at].tenant_room.map(|room| room.saturating_sub(1)) else { return };
    let tenant = lanes[at].tenant().cloned();
    for lane in lanes.iter_mut().filter(|lane| lane.tenant() == tenant.as_ref()) {
        lane.bound_by_tenant(left);
    }
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

    pub(super) fn tenant(&self) -> Option<&'s TenantId> {
        self.streams.first().map(|stream| &stream.names.tenant)
    }

    pub(super) fn bound_by_tenant(&mut self, room: u64) {
        self.tenant_room = Some(room);
        self.share.available = self.share.available.min(room);
    }

    /// The lane's next unit by rank; looks for `limit` more at once when it must look.
    pub(super) fn next(
        &mut self,
        db: &Connection,
        limit: u64,
    ) -> Result<Option<(Candidate, &'s Stream)>> {
        if self.window.is_empty() {
            self.look(db, limit)?;
        }
        Ok(self.window.pop_front())
    }

    pub(super) fn look(&mut self, db: &Connection, limit: u64) -> Result<()> {
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
pub(super) struct Candidate {
    pub(super) place: i64,
    pub(super) id: [u8; 16],
}

impl Candidate {
    /// Before all others.
    pub(super) const FIRST: Self = Self { place: i64::MIN, id: [0; 16] };
}

/// Read from the index alone: it holds stream, state, place and id.
pub(super) fn candidates(
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
