//! Takeover: a restarted process adopts the leases of its previous session.

use std::sync::Arc;

use longshore_core::store::LeasedUnit;
use longshore_core::unit_state::runs_alone;
use longshore_core::worker_session::Lease;
use longshore_core::{Error, Result, SessionId};
use tokio_postgres::Row;
use uuid::Uuid;

use super::lock_held;
use crate::ledger::{calls, reply_queues};
use crate::row::{Columns, UnitParts, UnitRow, unit, value};
use crate::start_log;
use crate::tx::Tx;
use crate::typed_params::{session_uuid, uuids};

/// Moves the leases of session `from` to session `to`, with new fences.
pub(crate) async fn adopt(tx: &mut Tx<'_>, from: SessionId, to: SessionId) -> Result<Vec<LeasedUnit>> {
    if from == to {
        return Err(Error::Invalid("a session cannot adopt from itself".to_owned()));
    }
    let (old, new) = lock_both(tx, from, to).await?;
    let new = new.ok_or(Error::SessionGone(to))?;
    let (row, parts) = (UnitRow::COLUMNS, UnitParts::COLUMNS);
    let Some(old) = old else {
        // A repeat after a lost reply: the units are adopted already.
        tx.query("SELECT longshore_settle_session($1)", &[&new]).await?;
        let sql = format!("SELECT {row}, {parts} FROM longshore_unit u WHERE u.session = $1");
        let rows = tx.query(&sql, &[&new]).await?;
        return match rows.is_empty() {
            true => Err(Error::SessionGone(from)),
            false => held_units(tx, to, &rows).await,
        };
    };
    let mut held = lock_held(tx, old).await?;
    start_log::merge_and_delete(tx, old, &mut held).await?;
    let units = uuids(held.iter().map(|row| &row.id));
    let started: Vec<Option<i64>> = held.iter().map(|row| row.started_at).collect();
    let sql = format!(
        "UPDATE longshore_unit u SET session = $2, fence = u.fence + 1, started_at = f.at,
         attempt = u.attempt + (u.started_at IS NULL AND f.at IS NOT NULL)::int
         FROM unnest($1, $3) AS f (id, at) WHERE u.id = f.id RETURNING {row}, {parts}"
    );
    let rows = tx.query(&sql, &[&units, &new, &started]).await?;
    // Its calls ended with its process; its replies are still awaited.
    calls::mark_maybe_billed(tx, from).await?;
    reply_queues::transfer(tx, from, to).await?;
    tx.execute("DELETE FROM longshore_session WHERE num = $1", &[&old]).await?;
    tx.announce("session", from.to_string(), None);
    held_units(tx, to, &rows).await
}

/// Locks both sessions, so that neither can end until this is committed. Returns their numbers, if
/// they exist.
async fn lock_both(tx: &mut Tx<'_>, from: SessionId, to: SessionId) -> Result<(Option<i64>, Option<i64>)> {
    let ids = vec![session_uuid(from), session_uuid(to)];
    let sql = "SELECT id, num FROM longshore_session WHERE id = ANY($1) ORDER BY num FOR UPDATE";
    let (mut old, mut new) = (None, None);
    for row in tx.query(sql, &[&ids]).await? {
        let num: i64 = value(&row, 1)?;
        match value::<Uuid>(&row, 0)? == session_uuid(from) {
            true => old = Some(num),
            false => new = Some(num),
        }
    }
    Ok((old, new))
}

/// Units that a session holds.
async fn held_units(tx: &mut Tx<'_>, holder: SessionId, rows: &[Row]) -> Result<Vec<LeasedUnit>> {
    let cache = Arc::clone(&tx.streams);
    let mut held = Vec::with_capacity(rows.len());
    let mut unit_rows: Vec<UnitRow> =
        rows.iter().map(|row| UnitRow::read(&Columns(row))).collect::<Result<_>>()?;
    start_log::merge_into(tx, &mut unit_rows).await?;
    for (found, row) in rows.iter().zip(unit_rows) {
        let parts = UnitParts::read(&Columns(found), UnitRow::WIDTH)?;
        let stream = cache.one(tx, row.stream).await?;
        let lease = Lease { unit: row.id, fence: row.fence };
        let (started, alone) = (row.started_at.is_some(), runs_alone(row.lost));
        let unit = unit(row, parts, &stream, Some(holder))?;
        held.push(LeasedUnit { lease, started, alone, unit });
    }
    Ok(held)
}
