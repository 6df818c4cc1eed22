//! Outbox for dependencies of callers' transactions.
//!
//! Adding or resolving a dependency locks the dependency's row. A caller's transaction can stay
//! open for long, and other transactions must not wait for it. So it locks no existing unit: it
//! writes the unit's id here. The outbox is drained after the commit
//! (`PostgresStore::run_post_commit`), or by maintenance.

use std::collections::HashSet;

use longshore_core::{Result, UnitId, UnitState};
use uuid::Uuid;

use crate::finish::lock_rows_where;
use crate::row::{flag, value};
use crate::tx::Tx;
use crate::typed_params::{unit_id, uuid, uuids};

/// Rows drained in one transaction.
const MAX_BATCH: i64 = 1_000;

/// Adds units that have new dependants or have ended.
pub(crate) async fn enqueue<'u>(tx: &mut Tx<'_>, units: impl IntoIterator<Item = &'u UnitId>) -> Result<()> {
    let units = uuids(units);
    tx.execute("INSERT INTO longshore_dependency_outbox (unit) SELECT DISTINCT unnest($1)", &[&units])
        .await?;
    tx.after.outbox = true;
    Ok(())
}

/// Drains the outbox: releases the dependants of units that have ended, and marks the others, so
/// that their end releases them.
pub(crate) async fn drain(tx: &mut Tx<'_>) -> Result<()> {
    let sql = "DELETE FROM longshore_dependency_outbox WHERE num IN (SELECT num FROM
               longshore_dependency_outbox
        ORDER BY num LIMIT $1 FOR UPDATE SKIP LOCKED) RETURNING unit";
    let queued = tx.query(sql, &[&MAX_BATCH]).await?;
    let queued: HashSet<Uuid> = queued.iter().map(|row| value(row, 0)).collect::<Result<_>>()?;
    if queued.is_empty() {
        return Ok(());
    }
    let mut unlocked = queued.clone();
    let queued: Vec<Uuid> = queued.into_iter().collect();
    // A unit that another transaction has locked is requeued.
    let which = "u.id = ANY($1) ORDER BY u.id FOR UPDATE SKIP LOCKED";
    let mut live = Vec::new();
    for row in lock_rows_where(tx, which, &[&queued]).await? {
        unlocked.remove(&uuid(row.id));
        let state = row.state()?;
        match state.is_final() {
            true => tx.note_ended(row.id, state == UnitState::Done),
            false => live.push(uuid(row.id)),
        }
    }
    let sql = "UPDATE longshore_unit SET flags = flags | $2 WHERE id = ANY($1) AND flags & $2 = 0";
    tx.execute(sql, &[&live, &flag::HAS_DEPENDANTS]).await?;
    if !unlocked.is_empty() {
        requeue(tx, unlocked).await?;
    }
    Ok(())
}

/// Requeues units that still exist. How a pruned unit ended is unknown: its dependants are treated
/// as if it had failed.
async fn requeue(tx: &mut Tx<'_>, mut unlocked: HashSet<Uuid>) -> Result<()> {
    let ids: Vec<Uuid> = unlocked.iter().copied().collect();
    let sql = "INSERT INTO longshore_dependency_outbox (unit)
        SELECT id FROM longshore_unit WHERE id = ANY($1) RETURNING unit";
    for row in tx.query(sql, &[&ids]).await? {
        unlocked.remove(&value::<Uuid>(&row, 0)?);
    }
    for pruned in unlocked {
        tx.note_ended(unit_id(pruned), false);
    }
    Ok(())
}
