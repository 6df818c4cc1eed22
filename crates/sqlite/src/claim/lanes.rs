//! Lanes, and the next units of each.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use longshore_core::fair::LaneShare;
use longshore_core::{Result, TenantId, UnitState};
use rusqlite::Connection;

use super::candidate_streams::Stream;
use crate::error::Translate;
use crate::row::code;
use crate::stride_state;
use crate::tenants;

/// One lane in a claim.
pub(super) struct Lane<'s> {
    pub(super) num: i64,
    pub(super) share: LaneShare,
    pub(super) joins: bool,
    pub(super) capped: bool,
    /// How many more units its tenant may lease, over all its lanes; `None` without a cap.
    pub(super) tenant_remaining: Option<u64>,
    pub(super) taken: u64,
    pub(super) streams: Vec<&'s Stream>,
    /// Its next units, and where to continue.
    pub(super) window: VecDeque<(Candidate, &'s Stream)>,
    pub(super) after: Candidate,
}

pub(super) fn group_by_lane<'s>(db: &Connection, streams: &'s [Stream]) -> Result<Vec<Lane<'s>>> {
    let mut lanes: Vec<Lane<'s>> = Vec::new();
    let mut index_by_lane: HashMap<i64, usize> = HashMap::new();
    for stream in streams {
        let at = *index_by_lane.entry(stream.lane).or_insert_with(|| {
            lanes.push(Lane::new(stream));
            lanes.len() - 1
        });
        lanes[at].share.available += stream.ready;
        lanes[at].streams.push(stream);
    }
    let level = stride_state::entry_level(lanes.iter().map(|lane| (&lane.share, lane.joins)));
    for lane in &mut lanes {
        if lane.joins {
            stride_state::level_up(&mut lane.share, level);
        }
        if let Some(cap) = lane.streams.first().and_then(|stream| stream.cap) {
            let free = cap.saturating_sub(leased(db, lane.num)?);
            lane.share.available = lane.share.available.min(free);
        }
    }
    limit_by_tenant_caps(db, &mut lanes)?;
    Ok(lanes)
}

/// Sets what capped tenants may still lease, on each of their lanes.
pub(super) fn limit_by_tenant_caps(db: &Connection, lanes: &mut [Lane<'_>]) -> Result<()> {
    let mut remaining_by_tenant: HashMap<&TenantId, u64> = HashMap::new();
    for lane in lanes {
        let Some(stream) = lane.streams.first() else { continue };
        let Some(cap) = stream.tenant_cap else { continue };
        let remaining = match remaining_by_tenant.entry(&stream.names.tenant) {
            Entry::Occupied(cached) => *cached.get(),
            Entry::Vacant(new) => {
                let leased = tenants::leased(db, &stream.names.tenant)?;
                *new.insert(cap.saturating_sub(leased))
            }
        };
        lane.limit_by_tenant(remaining);
    }
    Ok(())
}

/// Reduces what the tenant may still lease, on all its lanes, after a unit of one lane was taken.
pub(super) fn charge_tenant(lanes: &mut [Lane<'_>], at: usize) {
    let Some(left) = lanes[at].tenant_remaining.map(|remaining| remaining.saturating_sub(1)) else {
        return;
    };
    let tenant = lanes[at].tenant().cloned();
    for lane in lanes.iter_mut().filter(|lane| lane.tenant() == tenant.as_ref()) {
        lane.limit_by_tenant(left);
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
            tenant_remaining: None,
            taken: 0,
            streams: Vec::new(),
            window: VecDeque::new(),
            after: Candidate::FIRST,
        }
    }

    pub(super) fn tenant(&self) -> Option<&'s TenantId> {
        self.streams.first().map(|stream| &stream.names.tenant)
    }

    pub(super) fn limit_by_tenant(&mut self, remaining: u64) {
        self.tenant_remaining = Some(remaining);
        self.share.available = self.share.available.min(remaining);
    }

    /// The lane's next unit by rank; reads up to `limit` units at once.
    pub(super) fn next(
        &mut self,
        db: &Connection,
        limit: u64,
    ) -> Result<Option<(Candidate, &'s Stream)>> {
        if self.window.is_empty() {
            self.refill(db, limit)?;
        }
        Ok(self.window.pop_front())
    }

    pub(super) fn refill(&mut self, db: &Connection, limit: u64) -> Result<()> {
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

/// A unit's sort key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    pub(super) place: i64,
    pub(super) id: [u8; 16],
}

impl Candidate {
    /// Before all units.
    pub(super) const FIRST: Self = Self { place: i64::MIN, id: [0; 16] };
}

/// Reads from the index alone: it holds stream, state, place and id.
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
    .query_map((stream, state, after.place, after.id, limit), |row| {
        Ok(Candidate { place: row.get(0)?, id: row.get(1)? })
    })
    .or_translate()?
    .collect::<rusqlite::Result<_>>()
    .or_translate()
}
