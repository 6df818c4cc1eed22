//! Sessions: heartbeats, leases and their end.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use longshore_core::failure_detector::SessionBeats;
use longshore_core::sql_row::{LEASED_ROWS, parse_kinds, read_session, session_columns};
use longshore_core::store::{Heartbeat, HeartbeatReply, LeasedUnit, ProgressNote};
use longshore_core::unit_state::{Event, transition};
use longshore_core::worker_session::{Lease, NewSession, Session, SessionEnd, WorkerCommand};
use longshore_core::{Error, Kind, Policy, Result, SessionId, Timestamp, UnitId, UnitState};
use rusqlite::{Connection, OptionalExtension};

use crate::error::{Translate, damaged};
use crate::finish::{apply, find as find_unit};
use crate::ledger::{calls, reply_queues};
use crate::prepared::PreparedSql;
use crate::queries;
use crate::row::{Columns, StreamNames, UnitAttributes, UnitRow, flag, to_json};
use crate::tx::Tx;

/// Opens a session.
pub(crate) fn open(tx: &mut Tx<'_>, session: &NewSession) -> Result<()> {
    tx.db
        .execute(
            "INSERT INTO longshore_session (id, label, version, kinds, slots, ttl, opened_at,
             heartbeat_at, process)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?8) ON CONFLICT (id) DO NOTHING",
            (
                session.id.as_bytes(),
                &session.label,
                &session.version,
                to_json(&session.kinds)?,
                session.slots,
                micros(session.ttl),
                tx.now.as_micros(),
                &session.process,
            ),
        )
        .or_translate()?;
    tx.announce("session", session.id.to_string(), None);
    Ok(())
}

/// A session's row number, if it is open.
pub(crate) fn find(db: &Connection, session: SessionId) -> Result<Option<i64>> {
    db.prepare_cached("SELECT num FROM longshore_session WHERE id = ?1")
        .or_translate()?
        .query_row([session.as_bytes()], |row| row.get(0))
        .optional()
        .or_translate()
}

/// A session's row number; an error if it has ended.
pub(crate) fn number(db: &Connection, session: SessionId) -> Result<i64> {
    find(db, session)?.ok_or(Error::SessionGone(session))
}

/// Records a heartbeat.
pub(crate) fn beat(tx: &mut Tx<'_>, session: SessionId, beat: &Heartbeat) -> Result<HeartbeatReply> {
    let num = number(tx.db, session)?;
    tx.db
        .prepare_cached(
            "UPDATE longshore_session SET heartbeats = heartbeats + 1, heartbeat_at = ?2, cpu =
             coalesce(?3, cpu)
             WHERE num = ?1",
        )
        .or_translate()?
        .execute((num, tx.now.as_micros(), beat.cpu.map(micros)))
        .or_translate()?;
    progress(tx, num, &beat.progress)?;
    let (wanted, held): (String, u64) = tx
        .db
        .prepare_cached(
            "SELECT command, (SELECT count(*) FROM longshore_unit u WHERE u.session = s.num)
             FROM longshore_session s WHERE num = ?1",
        )
        .or_translate()?
        .query_row([num], |row| Ok((row.get(0)?, row.get(1)?)))
        .or_translate()?;
    let cancel = held_units(tx.db, "u.flags & 4", num)?;
    let unwanted = held_units(
        tx.db,
        "u.started_at IS NULL AND (l.paused OR q.paused OR coalesce(t.suspended, 0)
         OR coalesce(b.status, 'running') NOT IN ('queued', 'running'))",
        num,
    )?;
    Ok(HeartbeatReply { order: wanted.parse().map_err(damaged)?, cancel, to_release: unwanted, held })
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

fn held_units(db: &Connection, condition: &str, session: i64) -> Result<Vec<UnitId>> {
    let sql = format!(
        "SELECT u.id FROM longshore_unit u JOIN longshore_stream s ON s.num = u.stream
         JOIN longshore_lane l ON l.num = s.lane JOIN longshore_queue q ON q.num = l.queue
         LEFT JOIN longshore_batch b ON b.num = s.batch
         LEFT JOIN longshore_tenant t ON t.name = l.tenant WHERE u.session = ?1 AND ({condition})"
    );
    db.prepare_cached(&sql)
        .or_translate()?
        .query_map([session], |row| Ok(UnitId::from_bytes(row.get(0)?)))
        .or_translate()?
        .collect::<rusqlite::Result<_>>()
        .or_translate()
}

/// Stores the progress of units.
pub(crate) fn progress(tx: &mut Tx<'_>, session: i64, notes: &[ProgressNote]) -> Result<()> {
    for note in notes {
        tx.db
            .prepare_cached(
                "UPDATE longshore_unit SET progress = ?4 WHERE id = ?1 AND session = ?2 AND fence
                 = ?3",
            )
            .or_translate()?
            .execute((note.lease.unit.as_bytes(), session, note.lease.fence, to_json(&note.progress)?))
            .or_translate()?;
    }
    Ok(())
}

/// Ends a session; returns how many of its units run again and how many failed.
pub(crate) fn end(tx: &mut Tx<'_>, session: SessionId, how: SessionEnd) -> Result<(u64, u64)> {
    let Some(num) = find(tx.db, session)? else { return Ok((0, 0)) };
    let mut policies = Policies::default();
    let (mut rescued, mut failed) = (0, 0);
    for lease in leases(tx.db, num)? {
        let Some(row) = find_unit(tx, lease.unit)? else { continue };
        let event = how.event(row.started_at.is_some());
        let policy = policies.of(tx, &row)?;
        let step = transition(&row.transition_input()?, &event, &policy, tx.now)?;
        apply(tx, &row, &step, row.fence + 1, Some(session))?;
        failed += u64::from(step.state == UnitState::Failed);
        rescued += u64::from(!step.state.is_final());
    }
    calls::mark_lost(tx, session)?;
    reply_queues::close_all(tx, num)?;
    tx.db.execute("DELETE FROM longshore_session WHERE num = ?1", [num]).or_translate()?;
    tx.db.execute("DELETE FROM longshore_leader WHERE session = ?1", [session.as_bytes()]).or_translate()?;
    tx.announce("session", session.to_string(), None);
    Ok((rescued, failed))
}

/// Moves the leases of a session to the next run of its process, with new fences.
pub(crate) fn adopt(tx: &mut Tx<'_>, from: SessionId, to: SessionId) -> Result<Vec<LeasedUnit>> {
    if from == to {
        return Err(Error::Invalid("a session cannot adopt from itself".to_owned()));
    }
    let to_num = number(tx.db, to)?;
    let Some(num) = find(tx.db, from)? else {
        // A repeat after a lost answer: the leases were moved already.
        let held = leases(tx.db, to_num)?;
        if held.is_empty() {
            return Err(Error::SessionGone(from));
        }
        return held.iter().map(|lease| queries::held_unit(tx.db, lease.unit, to)).collect();
    };
    let held = leases(tx.db, num)?;
    tx.db
        .execute(
            "UPDATE longshore_unit SET session = ?2, fence = fence + 1 WHERE session = ?1",
            (num, to_num),
        )
        .or_translate()?;
    // Its calls ended with its process; its replies are still wanted.
    calls::mark_lost(tx, from)?;
    reply_queues::transfer(tx, num, to_num)?;
    tx.db.execute("DELETE FROM longshore_session WHERE num = ?1", [num]).or_translate()?;
    tx.announce("session", from.to_string(), None);
    held.iter().map(|lease| queries::held_unit(tx.db, lease.unit, to)).collect()
}

/// All leases of a session.
pub(crate) fn leases(db: &Connection, session: i64) -> Result<Vec<Lease>> {
    db.prepare_cached("SELECT id, fence FROM longshore_unit WHERE session = ?1")
        .or_translate()?
        .query_map([session], |row| Ok(Lease { unit: UnitId::from_bytes(row.get(0)?), fence: row.get(1)? }))
        .or_translate()?
        .collect::<rusqlite::Result<_>>()
        .or_translate()
}

/// Requeues units that were not started.
pub(crate) fn release(tx: &mut Tx<'_>, session: SessionId, leases: &[Lease]) -> Result<()> {
    let num = number(tx.db, session)?;
    for lease in leases {
        let Some(row) = held_row(tx, num, lease)? else { continue };
        if row.started_at.is_none() {
            let step = transition(&row.transition_input()?, &Event::Released, &Policy::default(), tx.now)?;
            apply(tx, &row, &step, row.fence + 1, Some(session))?;
        }
    }
    Ok(())
}

/// Counts the attempts of units that were claimed ahead.
pub(crate) fn start(tx: &mut Tx<'_>, session: SessionId, leases: &[Lease]) -> Result<Vec<Option<Timestamp>>> {
    let num = number(tx.db, session)?;
    let mut open = HashMap::new();
    let none_paused = !any_paused(tx.db)?;
    leases
        .iter()
        .map(|lease| match none_paused && try_fast_start(tx, num, lease)? {
            true => Ok(Some(tx.now)),
            false => start_slow(tx, num, lease, &mut open),
        })
        .collect()
}

/// Starts a unit in one statement if nothing prevents it, which is nearly always the case.
fn try_fast_start(tx: &mut Tx<'_>, session: i64, lease: &Lease) -> Result<bool> {
    let now = tx.now.as_micros();
    let started = tx
        .prepared(PreparedSql::StartFast)?
        .execute((lease.unit.as_bytes(), now, session, lease.fence))
        .or_translate()?;
    Ok(started == 1)
}

fn start_slow(
    tx: &mut Tx<'_>,
    session: i64,
    lease: &Lease,
    open: &mut HashMap<i64, bool>,
) -> Result<Option<Timestamp>> {
    let now = tx.now;
    let Some(row) = held_row(tx, session, lease)? else { return Ok(None) };
    if let Some(before) = row.started_at {
        return Ok(Some(Timestamp::from_micros(before)));
    }
    let late = row.deadline.is_some_and(|deadline| deadline <= now.as_micros());
    if late || row.has(flag::CANCEL_REQUESTED) || !is_stream_open(tx.db, open, row.stream)? {
        return Ok(None);
    }
    tx.prepared(PreparedSql::Start)?.execute((lease.unit.as_bytes(), now.as_micros())).or_translate()?;
    Ok(Some(now))
}

/// Whether any queue or lane is paused, any tenant suspended, or any batch with live units paused
/// or ended.
fn any_paused(db: &Connection) -> Result<bool> {
    db.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM longshore_queue WHERE paused)
         OR EXISTS (SELECT 1 FROM longshore_lane WHERE paused)
         OR EXISTS (SELECT 1 FROM longshore_tenant WHERE suspended)
         OR EXISTS (SELECT 1 FROM longshore_stream s INDEXED BY longshore_stream_live
           JOIN longshore_batch b ON b.num = s.batch
           WHERE s.blocked + s.scheduled + s.ready + s.leased > 0
           AND b.status NOT IN ('queued', 'running'))",
    )
    .or_translate()?
    .query_row([], |row| row.get(0))
    .or_translate()
}

/// Whether a stream's queue, lane, tenant and batch all permit a start. Queried once per stream and
/// call.
fn is_stream_open(db: &Connection, cache: &mut HashMap<i64, bool>, stream: i64) -> Result<bool> {
    if let Some(open) = cache.get(&stream) {
        return Ok(*open);
    }
    let open = db
        .prepare_cached(
            "SELECT NOT (l.paused OR q.paused OR coalesce(t.suspended, 0)
             OR coalesce(b.status, 'running') NOT IN ('queued', 'running')) FROM longshore_stream s
             JOIN longshore_lane l ON l.num = s.lane JOIN longshore_queue q ON q.num = l.queue
             LEFT JOIN longshore_batch b ON b.num = s.batch
             LEFT JOIN longshore_tenant t ON t.name = l.tenant WHERE s.num = ?1",
        )
        .or_translate()?
        .query_row([stream], |row| row.get(0))
        .or_translate()?;
    cache.insert(stream, open);
    Ok(open)
}

/// The row of a unit, if this lease still holds it.
pub(crate) fn held_row(tx: &mut Tx<'_>, session: i64, lease: &Lease) -> Result<Option<UnitRow>> {
    let row = find_unit(tx, lease.unit)?;
    Ok(row.filter(|row| row.session == Some(session) && row.fence == lease.fence))
}

/// Commands a worker to go quiet, drain or stop.
pub(crate) fn set_command(tx: &mut Tx<'_>, session: SessionId, order: WorkerCommand) -> Result<()> {
    let changed = tx
        .db
        .execute(
            "UPDATE longshore_session SET command = ?2 WHERE id = ?1",
            (session.as_bytes(), order.as_str()),
        )
        .or_translate()?;
    if changed == 0 {
        return Err(Error::not_found("session", session));
    }
    tx.announce("session", session.to_string(), None);
    Ok(())
}

/// All sessions.
pub(crate) fn list(db: &Connection) -> Result<Vec<Session>> {
    let columns = session_columns(LEASED_ROWS);
    let sql = format!("SELECT {columns} FROM longshore_session s ORDER BY s.num");
    let mut statement = db.prepare_cached(&sql).or_translate()?;
    let mut rows = statement.query([]).or_translate()?;
    let mut sessions = Vec::new();
    while let Some(row) = rows.next().or_translate()? {
        sessions.push(read_session(&Columns(row))?);
    }
    Ok(sessions)
}

/// The heartbeat counters of all sessions.
pub(crate) fn beats(db: &Connection) -> Result<Vec<SessionBeats>> {
    db.prepare_cached("SELECT id, ttl, heartbeats, process FROM longshore_session")
        .or_translate()?
        .query_map([], |row| {
            let session = SessionId::from_bytes(row.get(0)?);
            let (ttl, beats) = (Duration::from_micros(row.get(1)?), row.get(2)?);
            Ok(SessionBeats { session, ttl, beats, process: row.get(3)? })
        })
        .or_translate()?
        .collect::<rusqlite::Result<_>>()
        .or_translate()
}

/// The policies of units: the sender's, else the session's for the kind.
#[derive(Default)]
pub(crate) struct Policies {
    sessions: HashMap<i64, BTreeMap<Kind, Policy>>,
    streams: HashMap<i64, Arc<StreamNames>>,
}

impl Policies {
    /// The policy of a leased unit.
    pub(crate) fn of(&mut self, tx: &Tx<'_>, row: &UnitRow) -> Result<Policy> {
        if let Some(own) = UnitAttributes::parse(row.spec.as_deref())?.policy {
            return Ok(own);
        }
        let stream = match self.streams.entry(row.stream) {
            Entry::Occupied(cached) => cached.into_mut(),
            Entry::Vacant(new) => new.insert(queries::stream_names(tx.db, row.stream)?),
        };
        if let Some(shared) = stream.policy.as_ref().filter(|_| row.has(flag::STREAM_POLICY)) {
            return Ok(shared.clone());
        }
        let Some(session) = row.session else { return Ok(Policy::default()) };
        let kinds = match self.sessions.entry(session) {
            Entry::Occupied(cached) => cached.into_mut(),
            Entry::Vacant(new) => new.insert(session_kinds(tx.db, session)?),
        };
        Ok(kinds.get(&stream.kind).cloned().unwrap_or_default())
    }
}

fn session_kinds(db: &Connection, session: i64) -> Result<BTreeMap<Kind, Policy>> {
    let text: Option<String> = db
        .query_row("SELECT kinds FROM longshore_session WHERE num = ?1", [session], |row| row.get(0))
        .optional()
        .or_translate()?;
    text.map_or_else(|| Ok(BTreeMap::new()), |text| parse_kinds(&text))
}

/// Marks a running unit for cancellation; its worker learns of it with its next heartbeat.
pub(crate) fn request_cancel(tx: &mut Tx<'_>, row: &UnitRow) -> Result<()> {
    tx.db
        .prepare_cached("UPDATE longshore_unit SET flags = flags | ?2 WHERE id = ?1")
        .or_translate()?
        .execute((row.id.as_bytes(), flag::CANCEL_REQUESTED))
        .or_translate()?;
    Ok(())
}
