//! Lanes, and the next units of each.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

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
    streams: Vec<StreamReader<'s>>,
    /// The next unit of each stream that has one, and the stream's position.
    ranked: BinaryHeap<Reverse<(Candidate, usize)>>,
    /// The streams with a next unit that may not be in `ranked` yet.
    unranked: Vec<usize>,
}

/// Reads the ready units of a stream by rank.
struct StreamReader<'s> {
    stream: &'s Stream,
    /// Units that were read and not returned yet.
    units: VecDeque<ReadyUnit<'s>>,
    /// Where to continue.
    after: Candidate,
    /// How many units the last read requested.
    requested: u64,
    /// Whether the last read reached the end.
    at_end: bool,
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
        lanes[at].add(stream);
    }
    for (lane, share) in lanes.iter().zip(&mut shares) {
        let stream = lane.streams[0].stream;
        if let Some(cap) = stream.cap {
            share.available = share.available.min(cap.saturating_sub(leased(db, share.key)?));
        }
        let tenant = &mut tenants[share.tenant];
        if let Some(cap) = stream.tenant_cap
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
    fn new(stream: &Stream) -> Self {
        Self {
            capped: stream.cap.is_some() || stream.tenant_cap.is_some(),
            streams: Vec::new(),
            ranked: BinaryHeap::new(),
            unranked: Vec::new(),
        }
    }

    fn add(&mut self, stream: &'s Stream) {
        self.unranked.push(self.streams.len());
        self.streams.push(StreamReader {
            stream,
            units: VecDeque::new(),
            after: Candidate::FIRST,
            requested: 0,
            at_end: false,
        });
    }

    pub(super) fn streams(&self) -> impl Iterator<Item = &'s Stream> {
        self.streams.iter().map(|reader| reader.stream)
    }

    /// The lane's next unit by rank. The first reads request `share` units in sum, each further read of a stream twice
    /// as many as the one before, up to `limit`: a claim that read `limit` units of each of 100 lanes, or of each of
    /// 100 batches, would use few of them.
    pub(super) fn next(&mut self, db: &Connection, share: u64, limit: u64) -> Result<Option<ReadyUnit<'s>>> {
        let first = share.div_ceil(self.streams.len().max(1) as u64);
        for at in std::mem::take(&mut self.unranked) {
            if let Some(candidate) = self.streams[at].next_candidate(db, first, limit)? {
                self.ranked.push(Reverse((candidate, at)));
            }
        }
        let Some(Reverse((_, at))) = self.ranked.pop() else { return Ok(None) };
        self.unranked.push(at);
        Ok(self.streams[at].units.pop_front())
    }
}

impl StreamReader<'_> {
    fn next_candidate(&mut self, db: &Connection, first: u64, limit: u64) -> Result<Option<Candidate>> {
        if self.units.is_empty() && !self.at_end {
            self.requested = (self.requested * 2).clamp(first.min(limit), limit);
            read_ready(db, self.stream, self.after, self.requested, &mut self.units)?;
            self.at_end = (self.units.len() as u64) < self.requested;
            if let Some(last) = self.units.back() {
                self.after = last.candidate;
            }
        }
        Ok(self.units.front().map(|unit| unit.candidate))
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
    units: &mut VecDeque<ReadyUnit<'s>>,
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
        units.push_back(ReadyUnit { candidate, stream, fresh });
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longshore_core::{Kind, QueueName};

    use super::*;
    use crate::row::StreamNames;

    const UNITS: i64 = 100;

    fn stream(num: i64) -> Stream {
        let names = StreamNames {
            tenant: TenantId::default(),
            queue: QueueName::default(),
            kind: Kind::new("noop").unwrap(),
            batch: None,
            policy: None,
        };
        Stream {
            num,
            lane: 1,
            names: Arc::new(names),
            ready: UNITS as u64,
            weight: 1,
            cap: None,
            tenant_weight: 1,
            tenant_cap: None,
            alone: false,
        }
    }

    /// A database with `streams` streams of [`UNITS`] ready units each; `rank` is a unit's sort key.
    fn database(streams: i64, rank: fn(stream: i64, unit: i64) -> i64) -> Connection {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(include_str!("../../migrations/001_tables.sql")).unwrap();
        for num in 1..=streams {
            for unit in 0..UNITS {
                let id = ((num << 32) + unit) as u128;
                db.execute(
                    "INSERT INTO longshore_unit (id, stream, state, sort_key, priority, created_at, bytes, payload)
                     VALUES (?1, ?2, 2, ?3, 5, 0, 2, x'7b7d')",
                    (id.to_be_bytes(), num, rank(num, unit)),
                )
                .unwrap();
            }
        }
        db
    }

    /// Takes 256 units of a lane; returns their sort keys and how many units were read.
    fn take(db: &Connection, streams: &[Stream]) -> (Vec<i64>, usize) {
        let mut lane = Lane::new(&streams[0]);
        streams.iter().for_each(|stream| lane.add(stream));
        let taken: Vec<i64> =
            (0..256).map(|_| lane.next(db, 272, 272).unwrap().unwrap().candidate.sort_key).collect();
        let unused: usize = lane.streams.iter().map(|reader| reader.units.len()).sum();
        (taken, 256 + unused)
    }

    #[test]
    fn a_claim_among_a_hundred_batches_reads_few_more_units_than_it_takes() {
        let streams: Vec<Stream> = (1..=100).map(stream).collect();
        let ranks: [fn(i64, i64) -> i64; 3] = [
            |stream, unit| unit * 1000 + stream, // all streams by turns
            |stream, unit| stream * 1000 + unit, // one stream after the other
            |stream, unit| (stream * 7919 + unit * 104_729) % 100_003,
        ];
        for rank in ranks {
            let db = database(100, rank);
            let mut expected: Vec<i64> =
                (1..=100).flat_map(|stream| (0..UNITS).map(move |unit| rank(stream, unit))).collect();
            expected.sort_unstable();
            let (taken, read) = take(&db, &streams);
            assert_eq!(taken, expected[..256]);
            assert!(read <= 1100, "{read} units were read for 256");
        }
    }
}
