//! What people do: cancel, retry, pause, resume.

use longshore_core::batch::{self as machine, BatchAction};
use longshore_core::machine::{Event, next};
use longshore_core::store::{Capacity, LaneChange, Operated, QueueChange, UnitAction};
use longshore_core::{
    Batch, BatchId, Error, Policy, QueueName, Result, Scope, TenantId, UnitId, UnitState,
};
use rusqlite::Connection;

use crate::error::Translate;
use crate::finish::{apply, find, load};
use crate::inspect::{stream_names, tenant};
use crate::row::{Spec, UnitRow, codes, flag};
use crate::tx::Tx;
use crate::{batch, send, session};

/// Units moved in one transaction.
pub(crate) const CHUNK: u32 = 5_000;

/// Cancels or retries units, all or none.
pub(crate) fn units(
    tx: &mut Tx<'_>,
    scope: &Scope,
    ids: &[UnitId],
    action: UnitAction,
) -> Result<Operated> {
    let mut operated = Operated::default();
    for id in ids {
        let row = load(tx, *id)?;
        if !scope.covers(&stream_names(tx.db, row.stream)?.tenant) {
            return Err(Error::not_found("unit", id));
        }
        one(tx, &row, action, &mut operated)?;
    }
    Ok(operated)
}

/// Cancels or retries those units that are still there.
pub(crate) fn those_left(tx: &mut Tx<'_>, ids: &[UnitId], action: UnitAction) -> Result<Operated> {
    let mut operated = Operated::default();
    for id in ids {
        if let Some(row) = find(tx, *id)? {
            one(tx, &row, action, &mut operated)?;
        }
    }
    Ok(operated)
}

/// The units of a queue in one state.
pub(crate) fn in_queue(
    db: &Connection,
    scope: &Scope,
    queue: &QueueName,
    state: UnitState,
) -> Result<Vec<UnitId>> {
    let mut ids = Vec::new();
    for code in codes(state) {
        let mut statement = db
            .prepare_cached(
                "SELECT u.id FROM longshore_queue q JOIN longshore_lane l ON l.queue = q.num
                 JOIN longshore_stream s ON s.lane = l.num
                 JOIN longshore_unit u INDEXED BY longshore_unit_place
                 ON u.stream = s.num AND u.state = ?3
                 WHERE q.name = ?1 AND (?2 IS NULL OR l.tenant = ?2)",
            )
            .or_translate()?;
        let rows = statement
            .query_map((queue.as_str(), tenant(scope), code), |row| {
                Ok(UnitId::from_bytes(row.get(0)?))
            })
            .or_translate()?;
        for row in rows {
            ids.push(row.or_translate()?);
        }
    }
    Ok(ids)
}

fn one(tx: &mut Tx<'_>, row: &UnitRow, action: UnitAction, operated: &mut Operated) -> Result<()> {
    let state = row.state()?;
    if action == UnitAction::Cancel && state == UnitState::Leased {
        session::request_cancel(tx, row)?;
        operated.requested += 1;
        return Ok(());
    }
    let event = match action {
        UnitAction::Retry => Event::Retry,
        UnitAction::Wake => Event::Wake,
        _ => Event::Cancel,
    };
    match next(&row.head()?, &event, &Policy::default(), tx.now) {
        Err(_) => operated.skipped += 1,
        Ok(step) => {
            if action == UnitAction::Retry && state.is_final() {
                if !take_key_again(tx, row)? {
                    operated.skipped += 1;
                    return Ok(());
                }
                reopen_batch(tx, row.stream)?;
            }
            apply(tx, row, &step, row.fence, None)?;
            operated.changed += 1;
        }
    }
    Ok(())
}

/// A retried unit needs its dedup key back; false if another has it now.
fn take_key_again(tx: &Tx<'_>, row: &UnitRow) -> Result<bool> {
    let lent = row.has(flag::KEY_WHILE_LIVE) || row.has(flag::KEY_SINCE);
    let Some(key) = Spec::parse(row.spec.as_deref())?.key.filter(|_| lent) else {
        return Ok(true);
    };
    let lane: i64 = tx
        .db
        .query_row("SELECT lane FROM longshore_stream WHERE num = ?1", [row.stream], |row| {
            row.get(0)
        })
        .or_translate()?;
    let taken = tx
        .db
        .execute(
            "UPDATE OR IGNORE longshore_unit SET dedup = ?2 WHERE id = ?1",
            (row.id.as_bytes(), send::dedup_key(lane, &key)),
        )
        .or_translate()?;
    Ok(taken > 0)
}

/// A unit that runs again after its batch's end opens a new generation of the batch.
fn reopen_batch(tx: &mut Tx<'_>, stream: i64) -> Result<()> {
    let Some(id) = stream_names(tx.db, stream)?.batch.clone() else { return Ok(()) };
    // Counters of units moved before are still on their way.
    tx.flush()?;
    let batch = batch::load(tx.db, batch::number(tx.db, &Scope::All, &id)?)?;
    if batch.status.is_final() {
        batch::reopen(tx, &id)?;
    }
    Ok(())
}

/// Applies an action to a batch's record and moves its failed units if it asks for that. Waiting
/// units of a batch given up are cancelled afterwards, in chunks.
pub(crate) fn batch(
    tx: &mut Tx<'_>,
    scope: &Scope,
    id: &BatchId,
    action: &BatchAction,
) -> Result<Batch> {
    let before = batch::load(tx.db, batch::number(tx.db, scope, id)?)?;
    let num = batch::act(tx, scope, id, action)?;
    if *action == BatchAction::RetryFailed
        && retry_failed(tx, num)? == 0
        && before.status.is_final()
        && before.counts.failed > 0
    {
        return Err(machine::nothing_to_retry(&before).into());
    }
    tx.flush()?;
    batch::show(tx.db, num)
}

/// Makes a batch's failed units ready, save those whose key went to another; how many.
fn retry_failed(tx: &mut Tx<'_>, batch: i64) -> Result<u64> {
    let mut retried = 0;
    for id in failed(tx.db, batch)? {
        let row = load(tx, id)?;
        if take_key_again(tx, &row)? {
            let step = next(&row.head()?, &Event::Retry, &Policy::default(), tx.now)?;
            apply(tx, &row, &step, row.fence, None)?;
            retried += 1;
        }
    }
    Ok(retried)
}

fn failed(db: &Connection, batch: i64) -> Result<Vec<UnitId>> {
    db.prepare_cached(
        "SELECT u.id FROM longshore_stream s JOIN longshore_unit u INDEXED BY longshore_unit_place
         ON u.stream = s.num AND u.state = 5 WHERE s.batch = ?1 AND s.batch <> 0",
    )
    .or_translate()?
    .query_map([batch], |row| Ok(UnitId::from_bytes(row.get(0)?)))
    .or_translate()?
    .collect::<rusqlite::Result<_>>()
    .or_translate()
}

/// Changes a queue, which need not exist yet.
pub(crate) fn queue(
    tx: &mut Tx<'_>,
    scope: &Scope,
    name: &QueueName,
    change: QueueChange,
) -> Result<()> {
    let owner =
        name.owner().map(TenantId::new).transpose().map_err(|e| Error::Invalid(e.to_string()))?;
    let allowed = match (&owner, scope) {
        (_, Scope::All) => true,
        (Some(owner), scope) => scope.covers(owner),
        (None, Scope::Tenant(_)) => false,
    };
    if !allowed {
        return Err(Error::not_found("queue", name));
    }
    // A lane as well, so that the queue is listed before its first unit.
    send::lane(tx, name.as_str(), owner.unwrap_or_default().as_str())?;
    let num = send::queue(tx, name.as_str())?;
    set(tx, "longshore_queue", num, change.paused, change.capacity)?;
    tx.announce("queue", name.as_str(), None);
    Ok(())
}

/// Changes one tenant's lane.
pub(crate) fn lane(
    tx: &mut Tx<'_>,
    scope: &Scope,
    name: &QueueName,
    tenant: &TenantId,
    change: LaneChange,
) -> Result<()> {
    if !scope.covers(tenant) || !name.admits(tenant) {
        return Err(Error::not_found("queue", name));
    }
    let settings = change.weight.is_some() || change.cap.is_some() || change.capacity.is_some();
    if settings && name.owner().is_none() && *scope != Scope::All {
        // Its share of a shared queue is not a tenant's own to set.
        return Err(Error::not_found("queue", name));
    }
    if change.weight == Some(0) {
        return Err(Error::Invalid("a lane's weight is at least 1".to_owned()));
    }
    let num = send::lane(tx, name.as_str(), tenant.as_str())?;
    set(tx, "longshore_lane", num, change.paused, change.capacity)?;
    if let Some(weight) = change.weight {
        let sql = "UPDATE longshore_lane SET weight = ?2 WHERE num = ?1";
        tx.db.execute(sql, (num, weight)).or_translate()?;
    }
    if let Some(cap) = change.cap {
        let sql = "UPDATE longshore_lane SET cap = ?2 WHERE num = ?1";
        tx.db.execute(sql, (num, cap)).or_translate()?;
    }
    tx.announce("queue", name.as_str(), Some(tenant.as_str()));
    Ok(())
}

fn set(
    tx: &mut Tx<'_>,
    table: &str,
    num: i64,
    paused: Option<bool>,
    capacity: Option<Capacity>,
) -> Result<()> {
    if let Some(paused) = paused {
        let sql = format!("UPDATE {table} SET paused = ?2 WHERE num = ?1");
        tx.db.execute(&sql, (num, paused)).or_translate()?;
        if !paused {
            level_again(tx, table, num)?;
        }
    }
    if let Some(Capacity { units, bytes }) = capacity {
        let sql = format!("UPDATE {table} SET max_units = ?2, max_bytes = ?3 WHERE num = ?1");
        tx.db.execute(&sql, (num, units, bytes)).or_translate()?;
    }
    tx.woke = true;
    Ok(())
}

/// What was paused earned no credit by that: its lanes join the others anew.
fn level_again(tx: &Tx<'_>, table: &str, num: i64) -> Result<()> {
    let column = if table == "longshore_lane" { "num" } else { "queue" };
    let sql = format!("UPDATE longshore_lane SET joins = 1 WHERE {column} = ?1");
    tx.db.execute(&sql, [num]).or_translate()?;
    Ok(())
}
