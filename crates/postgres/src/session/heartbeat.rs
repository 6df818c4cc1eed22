//! Heartbeats, progress, and the release of units.
//!
//! Named units are found by their ids. `coalesce(session, 0)` keeps the planner from finding them
//! by session: under a long-running reader, that index still contains everything a session ever
//! held.

use std::collections::HashMap;

use longshore_core::store::{Heartbeat, HeartbeatReply, ProgressNote};
use longshore_core::unit_state::{Event, transition};
use longshore_core::worker_session::Lease;
use longshore_core::{Error, Policy, Result, SessionId, UnitId};
use uuid::Uuid;

use super::{PAUSED_STREAMS, is_held, lease_columns, number, settle_leases_in};
use crate::error::damaged;
use crate::finish::{self, UnitChange};
use crate::row::{UnitRow, count, flag, to_json, value};
use crate::start_log;
use crate::tx::Tx;
use crate::typed_params::{SqlParam, session_uuid, unit_id};

/// Records a heartbeat, and returns what the worker must know.
pub(crate) async fn beat(tx: &mut Tx<'_>, session: SessionId, beat: &Heartbeat) -> Result<HeartbeatReply> {
    let (rows, groups) = match &beat.leases {
        Some(_) => ("u.id = ANY($5) AND coalesce(u.session, 0) = me.num", "AND g.fence = ANY($6)"),
        // The types of unused parameters would be unknown.
        None => ("u.session = me.num AND $5::uuid[] IS NOT NULL", "AND $6::bigint[] IS NOT NULL"),
    };
    let sql = format!(
        "WITH me AS (
           UPDATE longshore_session SET heartbeats = heartbeats + 1, heartbeat_at = $2, cpu =
           coalesce($4, cpu)
           WHERE id = $1
           RETURNING num, command),
         held AS MATERIALIZED (
           SELECT u.id, u.stream, u.flags, u.started_at
           FROM me JOIN longshore_unit u ON {rows}
           UNION ALL SELECT unnest(g.units), g.stream, 0, CASE WHEN g.started THEN g.claimed_at END
           FROM me JOIN longshore_lease_group g ON g.session = me.num {groups})
         SELECT me.num, me.command, (SELECT count(*) FROM held),
           ARRAY(SELECT id FROM held WHERE flags & $3 <> 0),
           ARRAY(SELECT id FROM held WHERE started_at IS NULL AND stream = ANY
           ({PAUSED_STREAMS}::bigint[])
             AND NOT EXISTS (SELECT 1 FROM longshore_start_log l
               WHERE l.session = me.num AND held.id = ANY(l.units)))
         FROM me"
    );
    let cpu = beat.cpu.map(|cpu| i64::try_from(cpu.as_micros()).unwrap_or(i64::MAX));
    let (ids, fences) = lease_columns(beat.leases.as_deref().unwrap_or_default());
    let (session_id, now) = (session_uuid(session), tx.now.as_micros());
    let params: [&dyn SqlParam; 6] = [&session_id, &now, &flag::CANCEL_REQUESTED, &cpu, &ids, &fences];
    let row = tx.query_opt(&sql, &params).await?.ok_or(Error::SessionGone(session))?;
    progress(tx, session, value(&row, 0)?, &beat.progress).await?;
    let ids =
        |at| -> Result<Vec<UnitId>> { Ok(value::<Vec<Uuid>>(&row, at)?.into_iter().map(unit_id).collect()) };
    Ok(HeartbeatReply {
        order: value::<&str>(&row, 1)?.parse().map_err(damaged)?,
        held: count(&row, 2)?,
        cancel: ids(3)?,
        to_release: ids(4)?,
    })
}

/// Writes the progress of units.
async fn progress(tx: &mut Tx<'_>, session: SessionId, num: i64, notes: &[ProgressNote]) -> Result<()> {
    // Progress is a hint, so a heartbeat skips units that another transaction has locked. Only the
    // latest note of each unit is kept: an update from a list takes an arbitrary one of several
    // rows.
    let latest: HashMap<UnitId, &ProgressNote> = notes.iter().map(|note| (note.lease.unit, note)).collect();
    if latest.is_empty() {
        return Ok(());
    }
    let leases: Vec<Lease> = latest.values().map(|note| note.lease).collect();
    if !try_settle(tx, session, &leases).await? {
        return Ok(());
    }
    let (ids, fences) = lease_columns(&leases);
    let texts: Vec<String> = latest.values().map(|note| to_json(&note.progress)).collect::<Result<_>>()?;
    tx.execute(
        "UPDATE longshore_unit u SET progress = f.progress
         FROM unnest($1, $2, $3) AS f (id, fence, progress)
         WHERE u.id = f.id AND u.fence = f.fence AND coalesce(u.session, 0) = $4
         AND u.id = ANY(ARRAY(
           SELECT id FROM longshore_unit WHERE id = ANY($1) FOR UPDATE SKIP LOCKED))",
        &[&ids, &fences, &texts, &num],
    )
    .await?;
    Ok(())
}

/// Settles leases, unless another transaction holds a lock for long: progress must not keep the heartbeat waiting.
async fn try_settle(tx: &mut Tx<'_>, session: SessionId, leases: &[Lease]) -> Result<bool> {
    tx.batch("SAVEPOINT progress; SET LOCAL lock_timeout = '200ms'").await?;
    match settle_leases_in(tx, session, leases).await {
        Ok(()) => tx.batch("RELEASE SAVEPOINT progress; SET LOCAL lock_timeout = '10s'").await.map(|()| true),
        Err(error) if error.is_retryable() => {
            tx.batch("ROLLBACK TO SAVEPOINT progress").await.map(|()| false)
        }
        Err(error) => Err(error),
    }
}

/// Releases units that were not started.
pub(crate) async fn release(tx: &mut Tx<'_>, session: SessionId, leases: &[Lease]) -> Result<()> {
    let num = number(tx, session).await?;
    settle_leases_in(tx, session, leases).await?;
    let mut rows = finish::lock_rows(tx, leases.iter().map(|lease| &lease.unit)).await?;
    start_log::merge_into(tx, rows.values_mut()).await?;
    let mut changes = Vec::new();
    for lease in leases {
        let free = |row: &&UnitRow| is_held(row, num, lease) && row.started_at.is_none();
        if rows.get(&lease.unit).filter(free).is_none() {
            continue;
        }
        let Some(row) = rows.remove(&lease.unit) else { continue };
        let step = transition(&row.transition_input()?, &Event::Released, &Policy::default(), tx.now)?;
        let fence = row.fence + 1;
        changes.push(UnitChange::new(row, step, fence, Some(session)));
    }
    finish::apply(tx, changes).await
}
