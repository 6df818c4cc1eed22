//! Log of the starts of units claimed ahead, instead of an update of each unit's row.
//!
//! Without it a short unit's row would be written three times: claimed, started, finished. One row
//! of the log records that a session started a list of units; the finish writes the start into the
//! unit's row. For runs that outlive the log's row, [`compact`] does. Code that reads leased units,
//! or decides on them, merges the log first ([`merge_into`], [`merge_and_delete`]).

use std::collections::HashMap;

use longshore_core::worker_session::Lease;
use longshore_core::{Error, Result, SessionId, Timestamp};
use uuid::Uuid;

use crate::finish::lock_rows_where;
use crate::row::{UnitRow, count, flag, value};
use crate::session::lease_columns;
use crate::store::StoreInner;
use crate::tx::Tx;
use crate::typed_params::{session_uuid, unit_id, uuid};

/// Rows of the log are compacted after this time, when most of their runs have ended.
const MIN_AGE_MICROS: i64 = 2_000_000;
/// Rows compacted in one round.
const MAX_ROWS: i64 = 500;

/// Records that the session started units it had claimed ahead. A repeat after a lost reply adds a
/// second row, which counts once. The session cannot end before this is committed.
pub(crate) async fn record_starts(
    inner: &StoreInner,
    session: SessionId,
    leases: &[Lease],
) -> Result<Vec<Option<Timestamp>>> {
    let (ids, fences) = lease_columns(leases);
    let sql = "SELECT * FROM longshore_start_units($1, $2, $3, $4, $5)";
    let now = inner.now();
    let rows = inner
        .query_autocommit(
            sql,
            &[&session_uuid(session), &ids, &fences, &now.as_micros(), &flag::CANCEL_REQUESTED],
        )
        .await?;
    let first = rows.first().ok_or(Error::SessionGone(session))?;
    if value(first, 0)? {
        return Ok(vec![Some(now); leases.len()]);
    }
    let mut times: HashMap<Lease, Timestamp> = HashMap::with_capacity(rows.len());
    for row in &rows {
        let Some(id) = value::<Option<Uuid>>(row, 1)? else { continue };
        let before = value::<Option<i64>>(row, 3)?.map(Timestamp::from_micros);
        times.insert(Lease { unit: unit_id(id), fence: count(row, 2)? }, before.unwrap_or(now));
    }
    Ok(leases.iter().map(|lease| times.get(lease).copied()).collect())
}

/// Merges the log into the rows of all units that a session holds, and deletes the session's log.
/// The session's row must be locked, so that it starts nothing more.
pub(crate) async fn merge_and_delete(tx: &mut Tx<'_>, session: i64, held: &mut [UnitRow]) -> Result<()> {
    merge_into(tx, held).await?;
    tx.query("DELETE FROM longshore_start_log WHERE session = $1", &[&session]).await?;
    Ok(())
}

/// Compacts the log: deletes rows when all their runs have ended, and copies runs that continue
/// into the rows of their units, so that the next round can delete those rows too. Skips locked
/// rows. Returns whether there may be more rows to compact.
pub(crate) async fn compact(tx: &mut Tx<'_>) -> Result<bool> {
    let before = tx.now.as_micros() - MIN_AGE_MICROS;
    let bulk = "u.id = ANY(ARRAY(SELECT s.id FROM (
          SELECT session, units, fences FROM longshore_start_log WHERE started_at < $1 LIMIT $2) l
        CROSS JOIN LATERAL unnest(l.units, l.fences) AS s (id, fence)
        JOIN longshore_lease_group g ON g.session = l.session AND g.fence = s.fence
        AND s.id = ANY(g.units))) ORDER BY u.id FOR UPDATE SKIP LOCKED";
    lock_rows_where(tx, bulk, &[&before, &MAX_ROWS]).await?;
    let row = tx
        .query_one(
            "WITH old AS MATERIALIZED (
           SELECT session, num, started_at, units, fences FROM longshore_start_log WHERE
           started_at < $1
           LIMIT $2 FOR UPDATE SKIP LOCKED),
         going AS MATERIALIZED (
           -- The limit keeps the planner from reading all units first.
           SELECT DISTINCT ON (u.id) o.session, o.num, o.started_at, u.id FROM old o
           CROSS JOIN LATERAL unnest(o.units, o.fences) AS s (id, fence)
           CROSS JOIN LATERAL (
             SELECT u.id FROM longshore_unit u WHERE u.id = s.id AND u.fence = s.fence
             AND u.started_at IS NULL AND coalesce(u.session, 0) = o.session LIMIT 1) u
           ORDER BY u.id, o.started_at),
         bulk AS MATERIALIZED (
           SELECT DISTINCT o.session, o.num FROM old o
           CROSS JOIN LATERAL unnest(o.units, o.fences) AS s (id, fence)
           JOIN longshore_lease_group g ON g.session = o.session AND g.fence = s.fence
           AND s.id = ANY(g.units)),
         forgotten AS (
           DELETE FROM longshore_start_log l USING old o WHERE l.session = o.session AND l.num =
           o.num
           AND NOT EXISTS (SELECT 1 FROM bulk b WHERE b.session = o.session AND b.num = o.num)
           AND NOT EXISTS (SELECT 1 FROM going g WHERE g.session = o.session AND g.num = o.num)),
         free AS MATERIALIZED (
           SELECT u.id FROM longshore_unit u WHERE u.id = ANY (ARRAY(SELECT id FROM going))
           AND u.started_at IS NULL FOR UPDATE SKIP LOCKED),
         written AS (
           UPDATE longshore_unit u SET started_at = g.started_at, attempt = u.attempt + 1
           FROM free f JOIN going g ON g.id = f.id WHERE u.id = f.id AND u.started_at IS NULL
           AND coalesce(u.session, 0) = g.session)
         SELECT count(*) FROM old",
            &[&before, &MAX_ROWS],
        )
        .await?;
    Ok(value::<i64>(&row, 0)? >= MAX_ROWS)
}

/// Merges the log into unit rows that were read.
pub(crate) async fn merge_into<'r>(
    tx: &mut Tx<'_>,
    rows: impl IntoIterator<Item = &'r mut UnitRow>,
) -> Result<()> {
    let open = |row: &&'r mut UnitRow| row.session.is_some() && row.started_at.is_none();
    let rows: Vec<&'r mut UnitRow> = rows.into_iter().filter(open).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = rows.iter().map(|row| uuid(row.id)).collect();
    let sessions: Vec<i64> = rows.iter().filter_map(|row| row.session).collect();
    let found = tx
        .query(
            "SELECT s.id, s.fence, min(l.started_at) FROM longshore_start_log l
             CROSS JOIN LATERAL unnest(l.units, l.fences) AS s (id, fence)
             WHERE l.session = ANY($1) AND s.id = ANY($2) GROUP BY s.id, s.fence",
            &[&sessions, &ids],
        )
        .await?;
    let mut times: HashMap<Lease, Timestamp> = HashMap::with_capacity(found.len());
    for row in &found {
        let lease = Lease { unit: unit_id(value(row, 0)?), fence: count(row, 1)? };
        times.insert(lease, Timestamp::from_micros(value(row, 2)?));
    }
    for row in rows {
        if let Some(at) = times.get(&Lease { unit: row.id, fence: row.fence }) {
            row.count_attempt(*at);
        }
    }
    Ok(())
}
