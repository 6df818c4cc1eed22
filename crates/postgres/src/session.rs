//! Sessions: the workers, their heartbeats and their leases.
//!
//! A transaction that leases units to a session holds the session's row `FOR KEY SHARE` until the
//! commit; one that ends the session holds it `FOR UPDATE`. So no unit can be leased to a session
//! that is ending. Heartbeats and claims do not wait for each other.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_core::failure_detector::SessionBeats;
use longshore_core::sql_row::{LEASED_ROWS, parse_kinds, read_session, session_columns};
use longshore_core::unit_state::transition;
use longshore_core::worker_session::{Lease, NewSession, Session, SessionEnd, WorkerCommand};
use longshore_core::{Error, Kind, Policy, Result, SessionId, UnitState};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::finish::{self, UnitChange, own_policy};
use crate::ledger::{calls, reply_queues};
use crate::row::{Columns, UnitRow, count, flag, readable, to_json, value};
use crate::start_log;
use crate::store::StoreInner;
use crate::streams::StreamCache;
use crate::tx::Tx;
use crate::typed_params::{replace_nul, session_uuid, unit_id, uuid, uuids};

mod heartbeat;
mod takeover;

pub(crate) use heartbeat::{beat, release};
pub(crate) use takeover::adopt;

/// The streams from which nothing may start, as an array that is computed once per statement.
pub(crate) const PAUSED_STREAMS: &str = "(SELECT longshore_paused_streams())";

/// Registers a worker's session.
pub(crate) async fn open(tx: &mut Tx<'_>, session: &NewSession) -> Result<()> {
    let ttl = i64::try_from(session.ttl.as_micros()).unwrap_or(i64::MAX);
    tx.execute(
        "INSERT INTO longshore_session (id, label, version, kinds, slots, ttl, opened_at,
         heartbeat_at, process)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $7, $8) ON CONFLICT (id) DO NOTHING",
        &[
            &session_uuid(session.id),
            &replace_nul(&session.label),
            &replace_nul(&session.version),
            &to_json(&session.kinds)?,
            &i64::from(session.slots),
            &ttl,
            &tx.now.as_micros(),
            &session.process.as_deref().map(replace_nul),
        ],
    )
    .await?;
    tx.announce("session", session.id.to_string(), None);
    Ok(())
}

/// A session's number, if it exists.
pub(crate) async fn find(tx: &mut Tx<'_>, session: SessionId) -> Result<Option<i64>> {
    let sql = "SELECT num FROM longshore_session WHERE id = $1";
    let row = tx.query_opt(sql, &[&session_uuid(session)]).await?;
    row.map(|row| value(&row, 0)).transpose()
}

/// A session's number, or [`Error::SessionGone`].
pub(crate) async fn number(tx: &mut Tx<'_>, session: SessionId) -> Result<i64> {
    find(tx, session).await?.ok_or(Error::SessionGone(session))
}

/// Ends a session. Returns how many of its units go on and how many failed.
pub(crate) async fn end(tx: &mut Tx<'_>, session: SessionId, how: SessionEnd) -> Result<(u64, u64)> {
    let sql = "SELECT num FROM longshore_session WHERE id = $1 FOR UPDATE";
    let Some(row) = tx.query_opt(sql, &[&session_uuid(session)]).await? else { return Ok((0, 0)) };
    let num: i64 = value(&row, 0)?;
    let mut policies = PolicyCache::default();
    let (mut rescued, mut failed) = (0, 0);
    let mut changes = Vec::new();
    let mut held = lock_held(tx, num).await?;
    start_log::merge_and_delete(tx, num, &mut held).await?;
    for row in held {
        let event = how.event(row.started_at.is_some());
        let policy = policies.of(tx, &row).await?;
        let step = transition(&row.transition_input()?, &event, &policy, tx.now)?;
        failed += u64::from(step.state == UnitState::Failed);
        rescued += u64::from(!step.state.is_final());
        let fence = row.fence + 1;
        changes.push(UnitChange::new(row, step, fence, Some(session)));
    }
    finish::apply(tx, changes).await?;
    calls::mark_maybe_billed(tx, session).await?;
    reply_queues::close_all(tx, session).await?;
    tx.execute("DELETE FROM longshore_session WHERE num = $1", &[&num]).await?;
    let sql = "DELETE FROM longshore_leader WHERE session = $1";
    tx.execute(sql, &[&session_uuid(session)]).await?;
    tx.announce("session", session.to_string(), None);
    Ok((rescued, failed))
}

/// Locks the units that a session holds, in the order in which every transaction locks units.
async fn lock_held(tx: &mut Tx<'_>, session: i64) -> Result<Vec<UnitRow>> {
    tx.query("SELECT longshore_settle_session($1)", &[&session]).await?;
    let columns = UnitRow::COLUMNS;
    let sql = format!("SELECT {columns} FROM longshore_unit u WHERE u.session = $1 ORDER BY u.id FOR UPDATE");
    tx.query(&sql, &[&session]).await?.iter().map(|row| UnitRow::read(&Columns(row))).collect()
}

/// All leases of a session.
pub(crate) async fn leases(tx: &mut Tx<'_>, session: i64) -> Result<Vec<Lease>> {
    let sql = "SELECT id, fence FROM longshore_unit WHERE session = $1
        UNION ALL SELECT unnest(units), fence FROM longshore_lease_group WHERE session = $1";
    let rows = tx.query(sql, &[&session]).await?;
    let lease = |row: &Row| Ok(Lease { unit: unit_id(value(row, 0)?), fence: count(row, 1)? });
    rows.iter().map(lease).collect()
}

fn is_held(row: &UnitRow, session: i64, lease: &Lease) -> bool {
    row.session == Some(session) && row.fence == lease.fence
}

/// Settles leases that a session may hold as parts of lease groups, in a transaction of its own.
pub(crate) async fn settle_leases(inner: &StoreInner, session: SessionId, leases: &[Lease]) -> Result<()> {
    if leases.is_empty() {
        return Ok(());
    }
    let (ids, fences) = lease_columns(leases);
    let rows = inner.query_autocommit(SETTLE_LEASES, &[&session_uuid(session), &ids, &fences, &true]).await?;
    record_settled(&inner.streams, &rows)
}

fn record_settled(cache: &StreamCache, rows: &[Row]) -> Result<()> {
    for row in rows {
        cache.set_settled(value::<Option<Vec<i64>>>(row, 0)?.unwrap_or_default(), Instant::now());
    }
    Ok(())
}

/// Settles leases like [`settle_leases`], as part of a short transaction.
pub(crate) async fn settle_leases_in(tx: &mut Tx<'_>, session: SessionId, leases: &[Lease]) -> Result<()> {
    let (ids, fences) = lease_columns(leases);
    let rows = tx.query(SETTLE_LEASES, &[&session_uuid(session), &ids, &fences, &false]).await?;
    record_settled(&tx.streams, &rows)
}

const SETTLE_LEASES: &str = "SELECT longshore_settle_leases($1, $2, $3, $4)";

/// Leases as arrays, one per column.
pub(crate) fn lease_columns(leases: &[Lease]) -> (Vec<Uuid>, Vec<i64>) {
    leases.iter().map(|lease| (uuid(lease.unit), lease.fence.cast_signed())).unzip()
}

/// Asks a worker to go quiet, drain or stop.
pub(crate) async fn send_command(tx: &mut Tx<'_>, session: SessionId, order: WorkerCommand) -> Result<()> {
    let sql = "UPDATE longshore_session SET command = $2 WHERE id = $1";
    let changed = tx.execute(sql, &[&session_uuid(session), &order.as_str()]).await?;
    if changed == 0 {
        return Err(Error::not_found("session", session));
    }
    tx.announce("session", session.to_string(), None);
    Ok(())
}

/// All sessions.
pub(crate) async fn list(tx: &mut Tx<'_>) -> Result<Vec<Session>> {
    let bulk = "(SELECT coalesce(sum(cardinality(g.units)), 0)::bigint FROM longshore_lease_group g
        WHERE g.session = s.num)";
    let columns = session_columns(&format!("{LEASED_ROWS} + {bulk}"));
    let sql = format!("SELECT {columns} FROM longshore_session s ORDER BY s.num");
    let rows = tx.query(&sql, &[]).await?;
    let read = |row| readable("a session", read_session(&Columns(row)));
    Ok(rows.iter().filter_map(read).collect())
}

/// The heartbeat counters of all sessions.
pub(crate) async fn beats(tx: &mut Tx<'_>) -> Result<Vec<SessionBeats>> {
    let rows = tx.query("SELECT id, ttl, heartbeats, process FROM longshore_session", &[]).await?;
    let read = |row: &Row| {
        let session = SessionId::from_bytes(value::<Uuid>(row, 0)?.into_bytes());
        let (ttl, beats) = (Duration::from_micros(count(row, 1)?), count(row, 2)?);
        Ok(SessionBeats { session, ttl, beats, process: value(row, 3)? })
    };
    rows.iter().map(read).collect()
}

/// The policies that apply to units: the sender's, else the session's for the kind.
#[derive(Default)]
pub(crate) struct PolicyCache {
    sessions: HashMap<i64, BTreeMap<Kind, Policy>>,
}

impl PolicyCache {
    /// The policy of a unit that a session holds.
    pub(crate) async fn of(&mut self, tx: &mut Tx<'_>, row: &UnitRow) -> Result<Policy> {
        if let Some(own) = own_policy(row)? {
            return Ok(own);
        }
        let Some(session) = row.session else { return Ok(Policy::default()) };
        let kinds = match self.sessions.entry(session) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(session_kinds(tx, session).await?),
        };
        let cache = Arc::clone(&tx.streams);
        let stream = cache.one(tx, row.stream).await?;
        Ok(kinds.get(&stream.kind).cloned().unwrap_or_default())
    }
}

async fn session_kinds(tx: &mut Tx<'_>, session: i64) -> Result<BTreeMap<Kind, Policy>> {
    let sql = "SELECT kinds FROM longshore_session WHERE num = $1";
    let row = tx.query_opt(sql, &[&session]).await?;
    row.map_or_else(|| Ok(BTreeMap::new()), |row| parse_kinds(value(&row, 0)?))
}

/// Marks running units for cancellation. Their workers learn of it with their next heartbeats.
pub(crate) async fn request_cancels(tx: &mut Tx<'_>, rows: &[UnitRow]) -> Result<()> {
    let units = uuids(rows.iter().map(|row| &row.id));
    let sql = "UPDATE longshore_unit SET flags = flags | $2 WHERE id = ANY($1)";
    tx.execute(sql, &[&units, &flag::CANCEL_REQUESTED]).await?;
    Ok(())
}
