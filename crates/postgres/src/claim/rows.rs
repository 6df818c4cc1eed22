//! The statements of a claim that touch units.
//!
//! A claim does not wait for the disk, so a crash of the server takes it back, and the next one
//! finds the unit with its old fence. It must not come to the same fence: whoever held the unit
//! before the crash would be taken for the one that holds it now. So a claim's fence is the time,
//! or one more than the last if that is later.

use longshore_core::session::Lease;
use longshore_core::store::{Claim, HeldUnit};
use longshore_core::{Result, UnitState};
use tokio_postgres::Row;
use uuid::Uuid;

use super::candidate_streams::CandidateStream;
use super::plan::RoundPlan;
use crate::error::damaged;
use crate::row::{ALONE, PARKED, UnitParts, UnitRow, code, unit, value};
use crate::streams::Stream;
use crate::tx::Tx;
use crate::typed_params::uuid;

/// A unit that was taken, or locked to be judged.
pub(super) struct CandidateUnit {
    pub(super) row: UnitRow,
    pub(super) parts: UnitParts,
    /// Its rank before it was taken.
    pub(super) rank: i64,
    /// Whether it is taken, or only locked.
    pub(super) claimed: bool,
    /// Its stream, as a position among the claim's sources.
    pub(super) source: usize,
}

impl CandidateUnit {
    /// Its place in the order of its stream.
    pub(super) fn key(&self) -> (i64, Uuid) {
        (self.rank, uuid(self.row.id))
    }

    /// It is still where it was: its source and rank.
    pub(super) fn source_and_rank(&self) -> (usize, i64) {
        (self.source, self.rank)
    }

    fn read(row: &Row, sources: &[CandidateStream]) -> Result<Self> {
        let stream: i64 = value(row, 1)?;
        let source = sources.iter().position(|source| source.stream.num == stream);
        Self::read_from(row, source.ok_or_else(|| damaged("a unit of another stream"))?)
    }

    /// A unit of a source that is known.
    pub(super) fn read_from(row: &Row, source: usize) -> Result<Self> {
        let unit = UnitRow::read(row)?;
        // Behind the five columns of `UnitParts`.
        let after = UnitRow::WIDTH + 5;
        Ok(Self {
            parts: UnitParts::read(row, UnitRow::WIDTH)?,
            rank: value(row, after)?,
            claimed: value(row, after + 1)?,
            source,
            row: unit,
        })
    }

    /// What becomes of it when it is taken by hand.
    pub(super) fn lease(&mut self, now: i64, started: bool) {
        let row = &mut self.row;
        row.code = code(UnitState::Leased);
        row.place = now;
        row.fence = (row.fence + 1).max(now.unsigned_abs());
        row.attempt += u32::from(started);
        row.started_at = started.then_some(now);
    }

    /// As its holder gets it.
    pub(super) fn into_held(self, claim: &Claim, stream: &Stream, alone: bool) -> Result<HeldUnit> {
        let lease = Lease { unit: self.row.id, fence: self.row.fence };
        let started = self.row.started_at.is_some();
        let unit = unit(self.row, self.parts, stream, Some(claim.session))?;
        Ok(HeldUnit { lease, started, alone, unit })
    }
}

/// The ranks of the next units of some streams, `(lane, source, limit)` each. Nothing is locked.
pub(super) async fn peek(
    tx: &mut Tx<'_>,
    sources: &[CandidateStream],
    requests: &[(usize, usize, u64)],
) -> Result<Vec<Vec<i64>>> {
    if requests.is_empty() {
        return Ok(Vec::new());
    }
    let (mut streams, mut limits, mut places, mut ids) = (vec![], vec![], vec![], vec![]);
    for (_, at, limit) in requests {
        streams.push(sources[*at].stream.num);
        limits.push(i64::try_from(*limit).unwrap_or(i64::MAX));
        places.push(sources[*at].after.0);
        ids.push(sources[*at].after.1);
    }
    let rows = tx
        .query(
            "SELECT w.at, ARRAY(
               SELECT u.place FROM longshore_unit u WHERE u.stream = w.stream AND u.state = 2
               AND (u.place, u.id) > (w.place, w.id) ORDER BY u.place, u.id LIMIT w.units)
             FROM unnest($1, $2, $3, $4) WITH ORDINALITY AS w (stream, units, place, id, at)
             ORDER BY w.at",
            &[&streams, &limits, &places, &ids],
        )
        .await?;
    rows.iter().map(|row| value(row, 1)).collect()
}

/// Takes the units of a plan, those that others are not at. If one of them has more to it than a
/// plain one, or only a look was asked for, all are merely locked. The columns are those of
/// [`UnitRow`] and [`UnitParts`].
pub(super) async fn claim(
    tx: &mut Tx<'_>,
    sources: &[CandidateStream],
    plan: &RoundPlan,
    session: i64,
    lock_only: bool,
) -> Result<Vec<CandidateUnit>> {
    let (mut streams, mut units, mut started) = (vec![], vec![], vec![]);
    let (mut places, mut ids) = (vec![], vec![]);
    for quota in &plan.quotas {
        let source = &sources[quota.source];
        streams.push(source.stream.num);
        units.push(i64::try_from(quota.units).unwrap_or(i64::MAX));
        started.push(i64::try_from(quota.started).unwrap_or(i64::MAX));
        places.push(source.after.0);
        ids.push(source.after.1);
    }
    let sql = "SELECT * FROM longshore_take($1, $2, $3, $4, $5, $6, $7, $8)";
    let now = tx.now.as_micros();
    let rows = tx
        .query(sql, &[&streams, &units, &started, &places, &ids, &now, &session, &lock_only])
        .await?;
    rows.iter().map(|row| CandidateUnit::read(row, sources)).collect()
}

/// Units that must run alone, a few of each of these streams; locked if they may be taken.
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
        "SELECT {row}, {parts}, u.place, false
         FROM unnest($1) WITH ORDINALITY AS w (stream, at) CROSS JOIN LATERAL (
           SELECT {row}, {parts} FROM longshore_unit u WHERE u.stream = w.stream AND u.state = {ALONE}
           ORDER BY u.place LIMIT {spare} {lock}) u ORDER BY w.at, u.place, u.id",
        spare = super::SPARE
    );
    let rows = tx.query(&sql, &[&streams]).await?;
    rows.iter().map(|row| CandidateUnit::read(row, sources)).collect()
}

/// Gives locked units to a session; for each, whether it has a slot.
pub(super) async fn lease(tx: &mut Tx<'_>, session: i64, units: &[(Uuid, bool)]) -> Result<()> {
    if units.is_empty() {
        return Ok(());
    }
    let (ids, starts): (Vec<Uuid>, Vec<bool>) = units.iter().copied().unzip();
    tx.query(
        "UPDATE longshore_unit u SET state = 3, place = $3, session = $4,
           fence = greatest(u.fence + 1, $3), attempt = u.attempt + f.starts::int, started_at = CASE WHEN f.starts THEN $3 END
         FROM unnest($1, $2) AS f (id, starts) WHERE u.id = f.id",
        &[&ids, &starts, &tx.now.as_micros(), &session],
    )
    .await?;
    Ok(())
}

/// Puts locked units out of the way until another of their key leaves.
pub(super) async fn park(tx: &mut Tx<'_>, units: &Vec<Uuid>) -> Result<()> {
    if !units.is_empty() {
        let sql = "UPDATE longshore_unit SET state = $2 WHERE id = ANY($1)";
        tx.query(sql, &[units, &i16::from(PARKED)]).await?;
    }
    Ok(())
}
