//! Sessions: who works, their signs of life, and what each holds.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::str::FromStr;
use std::time::Duration;

use longshore_core::machine::{Event, next};
use longshore_core::session::{Lease, NewSession, Order, Session};
use longshore_core::store::{Beat, BeatAnswer, HeldUnit, ProgressNote};
use longshore_core::{
    Error, Kind, Outcome, Policy, Result, SessionId, Timestamp, UnitId, UnitState,
};
use rusqlite::{Connection, OptionalExtension, Row};

use crate::error::{Translate, damaged};
use crate::finish::{apply, find as find_unit, own_policy};
use crate::hot::Hot;
use crate::inspect;
use crate::ledger::{calls, replies};
use crate::row::{UnitRow, flag, to_json};
use crate::tx::Tx;

/// Announces a worker.
pub(crate) fn open(tx: &mut Tx<'_>, session: &NewSession) -> Result<()> {
    tx.db
        .execute(
            "INSERT INTO longshore_session (id, label, version, kinds, slots, ttl, opened_at, beat_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7) ON CONFLICT (id) DO NOTHING",
            (
                session.id.as_bytes(),
                &session.label,
                &session.version,
                to_json(&session.kinds)?,
                session.slots,
                micros(session.ttl),
                tx.now.as_micros(),
            ),
        )
        .or_translate()?;
    tx.announce("session", session.id.to_string(), None);
    Ok(())
}

/// A session's number, if it lives.
pub(crate) fn find(db: &Connection, session: SessionId) -> Result<Option<i64>> {
    db.prepare_cached("SELECT num FROM longshore_session WHERE id = ?1")
        .or_translate()?
        .query_row([session.as_bytes()], |row| row.get(0))
        .optional()
        .or_translate()
}

/// A session's number; gone is an error.
pub(crate) fn number(db: &Connection, session: SessionId) -> Result<i64> {
    find(db, session)?.ok_or(Error::SessionGone(session))
}

/// A sign of life.
pub(crate) fn beat(tx: &mut Tx<'_>, session: SessionId, beat: &Beat) -> Result<BeatAnswer> {
    let num = number(tx.db, session)?;
    tx.db
        .prepare_cached(
            "UPDATE longshore_session SET beats = beats + 1, beat_at = ?2, cpu = coalesce(?3, cpu)
             WHERE num = ?1",
        )
        .or_translate()?
        .execute((num, tx.now.as_micros(), beat.cpu.map(micros)))
        .or_translate()?;
    progress(tx, num, &beat.progress)?;
    let (wanted, held): (String, u64) = tx
        .db
        .prepare_cached(
            "SELECT wanted, (SELECT count(*) FROM longshore_unit u WHERE u.session = s.num)
             FROM longshore_session s WHERE num = ?1",
        )
        .or_translate()?
        .query_row([num], |row| Ok((row.get(0)?, row.get(1)?)))
        .or_translate()?;
    let cancel = ids(tx.db, "u.flags & 4", num)?;
    let unwanted = ids(
        tx.db,
        "u.started_at IS NULL AND (l.paused OR q.paused OR coalesce(t.suspended, 0)
         OR coalesce(b.status, 'running') NOT IN ('queued', 'running'))",
        num,
    )?;
    Ok(BeatAnswer { order: order(&wanted)?, cancel, unwanted, held })
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

fn ids(db: &Connection, condition: &str, session: i64) -> Result<Vec<UnitId>> {
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

/// Keeps how far units are.
pub(crate) fn progress(tx: &mut Tx<'_>, session: i64, notes: &[ProgressNote]) -> Result<()> {
    for note in notes {
        tx.db
            .prepare_cached(
                "UPDATE longshore_unit SET progress = ?4 WHERE id = ?1 AND session = ?2 AND fence = ?3",
            )
            .or_translate()?
            .execute((
                note.lease.unit.as_bytes(),
                session,
                note.lease.fence,
                to_json(&note.progress)?,
            ))
            .or_translate()?;
    }
    Ok(())
}

/// How a session's units leave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// In good order: no attempt is used.
    Closed,
    /// It died.
    Lost,
}

/// Ends a session; returns how many of its units go on and how many failed.
pub(crate) fn end(tx: &mut Tx<'_>, session: SessionId, leaving: Leaving) -> Result<(u64, u64)> {
    let Some(num) = find(tx.db, session)? else { return Ok((0, 0)) };
    let mut policies = Policies::default();
    let (mut rescued, mut failed) = (0, 0);
    for lease in leases(tx.db, num)? {
        let Some(row) = find_unit(tx, lease.unit)? else { continue };
        let interrupted = Outcome::Interrupted;
        let event = match leaving {
            Leaving::Lost => Event::Lost,
            Leaving::Closed if row.started_at.is_some() => Event::Finished(&interrupted),
            Leaving::Closed => Event::Released,
        };
        let policy = policies.of(tx, &row)?;
        let step = next(&row.head()?, &event, &policy, tx.now)?;
        apply(tx, &row, &step, row.fence + 1, Some(session))?;
        failed += u64::from(step.state == UnitState::Failed);
        rescued += u64::from(!step.state.is_final());
    }
    calls::give_up(tx, session)?;
    replies::close_all(tx, num)?;
    tx.db.execute("DELETE FROM longshore_session WHERE num = ?1", [num]).or_translate()?;
    tx.db
        .execute("DELETE FROM longshore_leader WHERE session = ?1", [session.as_bytes()])
        .or_translate()?;
    tx.announce("session", session.to_string(), None);
    Ok((rescued, failed))
}

/// Moves the leases of a former life to a new one, with fresh fences.
pub(crate) fn adopt(tx: &mut Tx<'_>, from: SessionId, to: SessionId) -> Result<Vec<HeldUnit>> {
    if from == to {
        return Err(Error::Invalid("a session cannot adopt from itself".to_owned()));
    }
    let heir = number(tx.db, to)?;
    let Some(num) = find(tx.db, from)? else {
        // Asked again after a lost answer: what it adopted is there already.
        let held = leases(tx.db, heir)?;
        if held.is_empty() {
            return Err(Error::SessionGone(from));
        }
        return held.iter().map(|lease| inspect::held_unit(tx.db, lease.unit, to)).collect();
    };
    let held = leases(tx.db, num)?;
    tx.db
        .execute(
            "UPDATE longshore_unit SET session = ?2, fence = fence + 1 WHERE session = ?1",
            (num, heir),
        )
        .or_translate()?;
    // Its calls ended with its process; its replies are still wanted.
    calls::give_up(tx, from)?;
    replies::hand_over(tx, num, heir)?;
    tx.db.execute("DELETE FROM longshore_session WHERE num = ?1", [num]).or_translate()?;
    tx.announce("session", from.to_string(), None);
    held.iter().map(|lease| inspect::held_unit(tx.db, lease.unit, to)).collect()
}

/// Everything a session holds.
pub(crate) fn leases(db: &Connection, session: i64) -> Result<Vec<Lease>> {
    db.prepare_cached("SELECT id, fence FROM longshore_unit WHERE session = ?1")
        .or_translate()?
        .query_map([session], |row| {
            Ok(Lease { unit: UnitId::from_bytes(row.get(0)?), fence: row.get(1)? })
        })
        .or_translate()?
        .collect::<rusqlite::Result<_>>()
        .or_translate()
}

/// Gives back units that were not started.
pub(crate) fn release(tx: &mut Tx<'_>, session: SessionId, leases: &[Lease]) -> Result<()> {
    let num = number(tx.db, session)?;
    for lease in leases {
        let Some(row) = held(tx, num, lease)? else { continue };
        if row.started_at.is_none() {
            let step = next(&row.head()?, &Event::Released, &Policy::default(), tx.now)?;
            apply(tx, &row, &step, row.fence + 1, Some(session))?;
        }
    }
    Ok(())
}

/// Counts the attempts of units claimed ahead.
pub(crate) fn start(
    tx: &mut Tx<'_>,
    session: SessionId,
    leases: &[Lease],
) -> Result<Vec<Option<Timestamp>>> {
    let num = number(tx.db, session)?;
    let mut open = HashMap::new();
    let calm = !anything_closed(tx.db)?;
    leases
        .iter()
        .map(|lease| match calm && start_plainly(tx, num, lease)? {
            true => Ok(Some(tx.now)),
            false => start_carefully(tx, num, lease, &mut open),
        })
        .collect()
}

/// Starts a unit in one statement if nothing speaks against it, as is nearly always so.
fn start_plainly(tx: &mut Tx<'_>, session: i64, lease: &Lease) -> Result<bool> {
    let now = tx.now.as_micros();
    let started = tx
        .hot(Hot::StartPlainly)?
        .execute((lease.unit.as_bytes(), now, session, lease.fence))
        .or_translate()?;
    Ok(started == 1)
}

fn start_carefully(
    tx: &mut Tx<'_>,
    session: i64,
    lease: &Lease,
    open: &mut HashMap<i64, bool>,
) -> Result<Option<Timestamp>> {
    let now = tx.now;
    let Some(row) = held(tx, session, lease)? else { return Ok(None) };
    if let Some(before) = row.started_at {
        return Ok(Some(Timestamp::from_micros(before)));
    }
    let late = row.deadline.is_some_and(|deadline| deadline <= now.as_micros());
    if late || row.has(flag::CANCEL) || !is_open(tx.db, open, row.stream)? {
        return Ok(None);
    }
    tx.hot(Hot::Start)?.execute((lease.unit.as_bytes(), now.as_micros())).or_translate()?;
    Ok(Some(now))
}

/// Whether any queue, lane, tenant or batch with leased units is paused, suspended or given up.
fn anything_closed(db: &Connection) -> Result<bool> {
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

/// Whether nothing that a stream belongs to is paused, suspended or given up. Asked once per stream and call.
fn is_open(db: &Connection, known: &mut HashMap<i64, bool>, stream: i64) -> Result<bool> {
    if let Some(open) = known.get(&stream) {
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
    known.insert(stream, open);
    Ok(open)
}

/// The row of a unit, if this lease still holds it.
pub(crate) fn held(tx: &mut Tx<'_>, session: i64, lease: &Lease) -> Result<Option<UnitRow>> {
    let row = find_unit(tx, lease.unit)?;
    Ok(row.filter(|row| row.session == Some(session) && row.fence == lease.fence))
}

/// Asks a worker to go quiet, drain or stop.
pub(crate) fn give_order(tx: &mut Tx<'_>, session: SessionId, order: Order) -> Result<()> {
    let changed = tx
        .db
        .execute(
            "UPDATE longshore_session SET wanted = ?2 WHERE id = ?1",
            (session.as_bytes(), order_name(order)),
        )
        .or_translate()?;
    if changed == 0 {
        return Err(Error::not_found("session", session));
    }
    tx.announce("session", session.to_string(), None);
    Ok(())
}

fn order_name(order: Order) -> &'static str {
    match order {
        Order::Work => "work",
        Order::Quiet => "quiet",
        Order::Drain => "drain",
        Order::Stop => "stop",
    }
}

fn order(name: &str) -> Result<Order> {
    [Order::Work, Order::Quiet, Order::Drain, Order::Stop]
        .into_iter()
        .find(|order| order_name(*order) == name)
        .ok_or_else(|| damaged(format!("the order `{name}`")))
}

/// All workers.
pub(crate) fn list(db: &Connection) -> Result<Vec<Session>> {
    let mut statement = db
        .prepare_cached(
            "SELECT id, label, version, kinds, slots, ttl, beats, opened_at, beat_at, wanted,
             (SELECT count(*) FROM longshore_unit u WHERE u.session = s.num), cpu
             FROM longshore_session s ORDER BY num",
        )
        .or_translate()?;
    let mut rows = statement.query([]).or_translate()?;
    let mut sessions = Vec::new();
    while let Some(row) = rows.next().or_translate()? {
        sessions.push(read(row)?);
    }
    Ok(sessions)
}

fn read(row: &Row<'_>) -> Result<Session> {
    let ttl: i64 = row.get(5).or_translate()?;
    let wanted: String = row.get(9).or_translate()?;
    let kinds: String = row.get(3).or_translate()?;
    Ok(Session {
        id: SessionId::from_bytes(row.get(0).or_translate()?),
        label: row.get(1).or_translate()?,
        version: row.get(2).or_translate()?,
        kinds: kinds_of(&kinds)?.into_keys().collect(),
        slots: row.get(4).or_translate()?,
        ttl: Duration::from_micros(u64::try_from(ttl).unwrap_or(0)),
        beats: row.get(6).or_translate()?,
        opened_at: Timestamp::from_micros(row.get(7).or_translate()?),
        beat_at: Timestamp::from_micros(row.get(8).or_translate()?),
        cpu: row.get::<_, Option<u64>>(11).or_translate()?.map(Duration::from_micros),
        held: row.get(10).or_translate()?,
        order: order(&wanted)?,
    })
}

fn kinds_of(text: &str) -> Result<BTreeMap<Kind, Policy>> {
    serde_json::from_str(text).map_err(|error| damaged(format!("bad session kinds: {error}")))
}

/// The policies that judge units: the sender's, else what the session says of the kind.
#[derive(Default)]
pub(crate) struct Policies {
    sessions: HashMap<i64, BTreeMap<Kind, Policy>>,
    kinds: HashMap<i64, Kind>,
}

impl Policies {
    /// The policy of a unit that a session holds.
    pub(crate) fn of(&mut self, tx: &Tx<'_>, row: &UnitRow) -> Result<Policy> {
        if let Some(own) = own_policy(row)? {
            return Ok(own);
        }
        let Some(session) = row.session else { return Ok(Policy::default()) };
        let kinds = match self.sessions.entry(session) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(session_kinds(tx.db, session)?),
        };
        let kind = match self.kinds.entry(row.stream) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(stream_kind(tx.db, row.stream)?),
        };
        Ok(kinds.get(kind).cloned().unwrap_or_default())
    }
}

fn session_kinds(db: &Connection, session: i64) -> Result<BTreeMap<Kind, Policy>> {
    let text: Option<String> = db
        .query_row("SELECT kinds FROM longshore_session WHERE num = ?1", [session], |row| {
            row.get(0)
        })
        .optional()
        .or_translate()?;
    text.map_or_else(|| Ok(BTreeMap::new()), |text| kinds_of(&text))
}

fn stream_kind(db: &Connection, stream: i64) -> Result<Kind> {
    let kind: String = db
        .query_row("SELECT kind FROM longshore_stream WHERE num = ?1", [stream], |row| row.get(0))
        .or_translate()?;
    Kind::from_str(&kind).map_err(damaged)
}

/// Marks a running unit for cancellation; its worker hears of it with its next beat.
pub(crate) fn request_cancel(tx: &mut Tx<'_>, row: &UnitRow) -> Result<()> {
    tx.db
        .prepare_cached("UPDATE longshore_unit SET flags = flags | ?2 WHERE id = ?1")
        .or_translate()?
        .execute((row.id.as_bytes(), flag::CANCEL))
        .or_translate()?;
    Ok(())
}
