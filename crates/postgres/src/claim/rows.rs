//! The statements of a claim that touch units.
//!
//! A claim does not wait for the disk. A crash of the server can undo it, and the next claim then
//! finds the unit with its old fence. The new fence must differ from the lost one; else the holder
//! from before the crash would pass for the new one. So a claim sets the fence to the time, or to
//! the last fence plus one if that is greater. Lease groups take theirs from
//! [`FenceSequence`](crate::stride::FenceSequence).

use std::collections::HashMap;
use std::time::Instant;

use longshore_core::store::{ClaimRequest, LeasedUnit};
use longshore_core::worker_session::Lease;
use longshore_core::{Payload, Priority, Result, UnitState};
use tokio_postgres::Row;
use uuid::Uuid;

use super::candidate_streams::CandidateStream;
use super::plan::RoundPlan;
use crate::error::{conflict, damaged, is_unique_violation};
use crate::row::{Columns, READY_ALONE, READY_CAPPED, UnitParts, UnitRow, count, state_code, unit, value};
use crate::streams::Stream;
use crate::stride::FenceSequence;
use crate::tx::Tx;
use crate::typed_params::{SqlParam, unit_id, uuid};

/// The first column after those of [`UnitRow`] and [`UnitParts`].
const RANK_COLUMN: usize = UnitRow::WIDTH + 5;
/// The first column of a lease group.
const GROUP_COLUMNS: usize = RANK_COLUMN + 2;
/// The first column after those of a lease group.
pub(super) const SUMMARY_COLUMNS: usize = GROUP_COLUMNS + 8;

/// A unit that was claimed, or locked to be checked.
pub(super) struct CandidateUnit {
    pub(super) row: UnitRow,
    pub(super) parts: UnitParts,
    /// Its rank before the claim.
    pub(super) rank: i64,
    /// Whether it is claimed, or only locked.
    pub(super) claimed: bool,
    /// Index of its stream among the claim's sources.
    pub(super) source: usize,
}

impl CandidateUnit {
    /// Its position in the order of its stream.
    pub(super) fn key(&self) -> (i64, Uuid) {
        (self.rank, uuid(self.row.id))
    }

    /// The source and rank of a unit that was not claimed.
    pub(super) fn source_and_rank(&self) -> (usize, i64) {
        (self.source, self.rank)
    }

    fn read_all(rows: &[Row], sources: &[CandidateStream]) -> Result<Vec<Self>> {
        let index: HashMap<i64, usize> =
            sources.iter().enumerate().map(|(at, source)| (source.stream.num, at)).collect();
        let mut units = Vec::new();
        for row in rows {
            let source = index.get(&value(row, 1)?).copied();
            let source = source.ok_or_else(|| damaged("a unit of an unexpected stream"))?;
            Self::read_into(&mut units, row, source)?;
        }
        Ok(units)
    }

    /// Reads a unit, or the units of a lease group, of a known source.
    pub(super) fn read_into(units: &mut Vec<Self>, row: &Row, source: usize) -> Result<()> {
        if value::<Option<Uuid>>(row, 0)?.is_none() {
            return Self::read_group(units, row, source);
        }
        let unit = UnitRow::read(&Columns(row))?;
        units.push(Self {
            parts: UnitParts::read(&Columns(row), UnitRow::WIDTH)?,
            rank: value(row, RANK_COLUMN)?,
            claimed: value(row, RANK_COLUMN + 1)?,
            source,
            row: unit,
        });
        Ok(())
    }

    fn read_group(units: &mut Vec<Self>, row: &Row, source: usize) -> Result<()> {
        let (stream, claimed_at, fence) = (value(row, 1)?, value(row, 3)?, count(row, 7)?);
        let (session, started_at) = (value(row, 8)?, value::<Option<i64>>(row, 9)?);
        let at = |nth: usize| GROUP_COLUMNS + nth;
        let (ids, ranks): (Vec<Uuid>, Vec<i64>) = (value(row, at(0))?, value(row, at(1))?);
        let (priorities, created_at): (Vec<i16>, Vec<i64>) = (value(row, at(2))?, value(row, at(3))?);
        let (flags, sizes): (Vec<i64>, Vec<i32>) = (value(row, at(4))?, value(row, at(5))?);
        let (specs, payloads): (Vec<Option<&str>>, Vec<&[u8]>) = (value(row, at(6))?, value(row, at(7))?);
        for (nth, id) in ids.into_iter().enumerate() {
            let level = u8::try_from(priorities[nth]).map_err(damaged)?;
            let row = UnitRow {
                id: unit_id(id),
                stream,
                code: state_code(UnitState::Leased),
                sort_key: claimed_at,
                priority: Priority::new(level).map_err(damaged)?,
                attempt: u32::from(started_at.is_some()),
                lost: 0,
                fence,
                session,
                started_at,
                created_at: created_at[nth],
                deadline: None,
                flags: flags[nth],
                bytes: sizes[nth].into(),
                cap_key: None,
                spec: specs[nth].map(str::to_owned),
            };
            let parts = UnitParts { payload: Some(Payload::from(payloads[nth])), ..UnitParts::default() };
            units.push(Self { row, parts, rank: ranks[nth], claimed: true, source });
        }
        Ok(())
    }

    /// Applies to this row what [`lease`] writes to the database.
    pub(super) fn lease(&mut self, now: i64, started: bool) {
        let row = &mut self.row;
        row.code = state_code(UnitState::Leased);
        row.sort_key = now;
        row.fence = (row.fence + 1).max(now.unsigned_abs());
        row.attempt += u32::from(started);
        row.started_at = started.then_some(now);
    }

    /// Converts it into the unit that its holder receives.
    pub(super) fn into_held(self, claim: &ClaimRequest, stream: &Stream, alone: bool) -> Result<LeasedUnit> {
        let lease = Lease { unit: self.row.id, fence: self.row.fence };
        let started = self.row.started_at.is_some();
        let unit = unit(self.row, self.parts, stream, Some(claim.session))?;
        Ok(LeasedUnit { lease, started, alone, unit })
    }
}

/// The ranks of the next units of some streams, without locking. Each request is `(lane, source,
/// limit)`.
pub(super) async fn peek(
    tx: &mut Tx<'_>,
    sources: &[CandidateStream],
    requests: &[(usize, usize, u64)],
) -> Result<Vec<Vec<i64>>> {
    if requests.is_empty() {
        return Ok(Vec::new());
    }
    let (mut streams, mut limits, mut sort_keys, mut ids) = (vec![], vec![], vec![], vec![]);
    for (_, at, limit) in requests {
        streams.push(sources[*at].stream.num);
        limits.push(i64::try_from(*limit).unwrap_or(i64::MAX));
        sort_keys.push(sources[*at].after.0);
        ids.push(sources[*at].after.1);
    }
    let rows = tx
        .query(
            "SELECT w.at, ARRAY(
               SELECT u.sort_key FROM longshore_ready u WHERE u.stream = w.stream
               AND (u.sort_key, u.id) > (w.sort_key, w.id) ORDER BY u.sort_key, u.id LIMIT w.units)
             FROM unnest($1, $2, $3, $4) WITH ORDINALITY AS w (stream, units, sort_key, id, at)
             ORDER BY w.at",
            &[&streams, &limits, &sort_keys, &ids],
        )
        .await?;
    rows.iter().map(|row| value(row, 1)).collect()
}

/// Claims the units of a plan and skips locked rows. If a unit is not plain, or `lock_only` is set,
/// all are only locked. Columns are those of [`UnitRow`] and [`UnitParts`].
pub(super) async fn claim(
    tx: &mut Tx<'_>,
    sources: &[CandidateStream],
    plan: &RoundPlan,
    session: i64,
    fences: &FenceSequence,
    lock_only: bool,
) -> Result<Vec<CandidateUnit>> {
    let (mut streams, mut units, mut started) = (vec![], vec![], vec![]);
    let (mut sort_keys, mut ids) = (vec![], vec![]);
    for quota in &plan.quotas {
        let source = &sources[quota.source];
        streams.push(source.stream.num);
        units.push(i64::try_from(quota.units).unwrap_or(i64::MAX));
        started.push(i64::try_from(quota.started).unwrap_or(i64::MAX));
        sort_keys.push(source.after.0);
        ids.push(source.after.1);
    }
    let sql = "SELECT * FROM longshore_claim_units($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    let now = tx.now.as_micros();
    let fence = fences.reserve(tx.now, units.iter().fold(0, |sum, units| sum.saturating_add(*units)));
    let settled = tx.streams.settled(Instant::now());
    let settled: Vec<i64> = settled.into_iter().filter(|num| streams.contains(num)).collect();
    let params: [&dyn SqlParam; 10] =
        [&streams, &units, &started, &sort_keys, &ids, &now, &session, &fence, &settled, &lock_only];
    // Another process that claims for the same session has used one of the fences: the next attempt reserves others.
    let rows = tx.query(sql, &params).await;
    let rows = rows.map_err(|error| if is_unique_violation(&error) { conflict() } else { error })?;
    CandidateUnit::read_all(&rows, sources)
}

/// Units that must run alone, a few of each stream; locked if they may be claimed.
pub(super) async fn alone(
    tx: &mut Tx<'_>,
    sources: &[CandidateStream],
    requests: &[usize],
    lock: bool,
) -> Result<Vec<CandidateUnit>> {
    let streams: Vec<i64> = requests.iter().map(|at| sources[*at].stream.num).collect();
    let (row, parts) = (UnitRow::COLUMNS, UnitParts::COLUMNS);
    let lock = if lock { "FOR UPDATE SKIP LOCKED" } else { "" };
    let sql = format!(
        "SELECT {row}, {parts}, u.sort_key, false
         FROM unnest($1) WITH ORDINALITY AS w (stream, at) CROSS JOIN LATERAL (
           SELECT {row}, {parts} FROM longshore_unit u WHERE u.stream = w.stream AND u.state =
           {READY_ALONE}
           ORDER BY u.sort_key LIMIT {spare} {lock}) u ORDER BY w.at, u.sort_key, u.id",
        spare = super::SPARE
    );
    let rows = tx.query(&sql, &[&streams]).await?;
    CandidateUnit::read_all(&rows, sources)
}

/// Locked units, as arrays for the statements that move them.
#[derive(Default)]
pub(super) struct LockedColumns {
    ids: Vec<Uuid>,
    streams: Vec<i64>,
    ranks: Vec<i64>,
    starts: Vec<bool>,
}

impl LockedColumns {
    /// Adds a unit; `starts` says whether it has a slot and starts.
    pub(super) fn push(&mut self, unit: &CandidateUnit, starts: bool) {
        self.ids.push(uuid(unit.row.id));
        self.streams.push(unit.row.stream);
        self.ranks.push(unit.rank);
        self.starts.push(starts);
    }
}

/// Removes units, given as parameters 1 to 3, from the units that claims may take.
const NOT_READY: &str = "gone AS (DELETE FROM longshore_ready r
    USING unnest($1, $2, $3) AS f (id, stream, sort_key)
    WHERE r.stream = f.stream AND r.sort_key = f.sort_key AND r.id = f.id)";

/// Leases locked units to a session.
pub(super) async fn lease(tx: &mut Tx<'_>, session: i64, units: &LockedColumns) -> Result<()> {
    let LockedColumns { ids, streams, ranks, starts } = units;
    if ids.is_empty() {
        return Ok(());
    }
    let sql = format!(
        "WITH {NOT_READY}
         UPDATE longshore_unit u SET state = 3, sort_key = $5, session = $6,
           fence = greatest(u.fence + 1, $5), attempt = u.attempt + f.starts::int, started_at =
           CASE WHEN f.starts THEN $5 END
         FROM unnest($1, $4) AS f (id, starts) WHERE u.id = f.id"
    );
    tx.query(&sql, &[ids, streams, ranks, starts, &tx.now.as_micros(), &session]).await?;
    Ok(())
}

/// Parks locked units until another unit of their cap key ends.
pub(super) async fn park(tx: &mut Tx<'_>, units: &LockedColumns) -> Result<()> {
    let LockedColumns { ids, streams, ranks, .. } = units;
    if ids.is_empty() {
        return Ok(());
    }
    let sql = format!("WITH {NOT_READY} UPDATE longshore_unit SET state = $4 WHERE id = ANY($1)");
    tx.query(&sql, &[ids, streams, ranks, &i16::from(READY_CAPPED)]).await?;
    Ok(())
}
