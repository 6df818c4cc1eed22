//! Lanes, and the next units of each.

use std::collections::{HashMap, VecDeque};

use longshore_core::stride_scheduler::{LaneShare, TenantShare};
use longshore_core::{Result, TenantId, UnitState};
use rusqlite::Connection;

use super::candidate_streams::Stream;
use crate::error::Translate;
use crate::row::state_code;

/// One lane in a claim.
pub(super) struct Lane<'s> {
    pub(super) capped: bool,
    pub(super) streams: Vec<&'s Stream>,
    /// Its next units, and where to continue.
    pub(super) window: VecDeque<(Candidate, &'s Stream)>,
    pub(super) after: Candidate,
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
        }
    }

    /// The lane's next unit by rank; reads up to `limit` units at once.
    pub(super) fn next(&mut self, db: &Connection, limit: u64) -> Result<Option<(Candidate, &'s Stream)>> {
        if self.window.is_empty() {
            self.refill(db, limit)?;
        }
        Ok(self.window.pop_front())
    }

    pub(super) fn refill(&mut self, db: &Connection, limit: u64) -> Result<()> {
        for stream in &self.streams {
            let found = candidates(db, stream.num, state_code(UnitState::Ready), self.after, limit)?;
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
