//! Stores new units.

use std::collections::HashMap;

use longshore_core::admission::UnitDependencies;
use longshore_core::sql_encoding::dedup_window;
use longshore_core::store::SendResult;
use longshore_core::unit::DedupWindow;
use longshore_core::unit_state::{Event, TransitionInput, transition};
use longshore_core::{NewUnit, Policy, Result, Scope, Timestamp, UnitId, UnitState};
use rusqlite::OptionalExtension;

use crate::error::Translate;
use crate::finish;
use crate::overflow_values::{self, ValueKind};
use crate::prepared::PreparedSql;
use crate::queue_limits::QueueLimits;
use crate::row::{UnitAttributes, decode_state, flag, flags, state_code};
use crate::tx::Tx;

/// Whether capacity and suspension apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// A sender's units.
    Bounded,
    /// Callbacks: the end of a batch must not wait for capacity.
    Exempt,
}

/// Stores units, in order; one result each.
pub(crate) fn send(
    tx: &mut Tx<'_>,
    scope: &Scope,
    units: &[NewUnit],
    batch: i64,
    admission: Admission,
) -> Result<Vec<SendResult>> {
    let (mut streams, mut capacity) = (StreamCache::default(), QueueLimits::default());
    let mut answers = Vec::with_capacity(units.len());
    scope.check_units(units)?;
    for unit in units {
        answers.push(send_one(tx, (&mut streams, &mut capacity), unit, batch, admission)?);
    }
    Ok(answers)
}

fn send_one(
    tx: &mut Tx<'_>,
    (streams, capacity): (&mut StreamCache, &mut QueueLimits),
    unit: &NewUnit,
    batch: i64,
    admission: Admission,
) -> Result<SendResult> {
    if admission == Admission::Bounded
        && let Some(suspended) = capacity.refuse_suspended(tx, unit)?
    {
        return Ok(SendResult::Refused(suspended));
    }
    let (stream, lane) = streams.resolve(tx, unit, batch)?;
    let dedup = unit.dedup.as_ref().map(|dedup| dedup_key(lane, &dedup.key));
    let taken = match (&unit.dedup, &dedup) {
        (Some(wanted), Some(key)) => key_holder(tx, key, wanted.window)?,
        _ => None,
    };
    if let Some(taken) = taken.filter(|taken| *taken != unit.id) {
        let on_duplicate = unit.dedup.as_ref().map(|dedup| dedup.on_duplicate);
        return Ok(on_duplicate.unwrap_or_default().answer(taken));
    }
    let state_of = |needs| dependency_state(tx, unit, needs);
    let dependencies = match UnitDependencies::resolve(&unit.dependencies, state_of)? {
        Ok(dependencies) => dependencies,
        Err(refusal) => return Ok(SendResult::Refused(refusal)),
    };
    if admission == Admission::Bounded
        && let Some(full) = capacity.admit(tx, lane, unit)?
    {
        return Ok(SendResult::Refused(full));
    }
    if insert(tx, unit, dependencies.open.len(), stream, lane, dedup)? {
        record_dependencies(tx, unit, &dependencies)?;
        if dependencies.failed.is_some() && admission == Admission::Bounded {
            capacity.release(lane, unit);
        }
    }
    Ok(SendResult::Created(unit.id))
}

/// Keys are unique within a lane.
pub(crate) fn dedup_key(lane: i64, key: &str) -> String {
    format!("{lane}:{key}")
}

/// The unit that has a dedup key. A unit that does not keep it against `window` loses it.
fn key_holder(tx: &Tx<'_>, dedup: &str, window: DedupWindow) -> Result<Option<UnitId>> {
    let found: Option<([u8; 16], i64, u8, i64)> = tx
        .db
        .prepare_cached(
            "SELECT id, flags, state, sort_key FROM longshore_unit WHERE dedup_key =
                         ?1",
        )
        .or_translate()?
        .query_row([dedup], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
        .optional()
        .or_translate()?;
    let Some((id, flags, code, place)) = found else { return Ok(None) };
    let id = UnitId::from_bytes(id);
    let place = Timestamp::from_micros(place);
    let ended = decode_state(code)?.is_final().then_some(place);
    if dedup_window(flags, place).keeps_key_against(ended, window) {
        return Ok(Some(id));
    }
    finish::release_dedup_key(tx, id)?;
    Ok(None)
}

/// Inserts the row; false if the id exists already.
fn insert(
    tx: &mut Tx<'_>,
    unit: &NewUnit,
    waits_for: usize,
    stream: i64,
    lane: i64,
    dedup: Option<String>,
) -> Result<bool> {
    let inline = overflow_values::fits_in_row(&unit.payload).then(|| unit.payload.as_bytes());
    let overflow = if inline.is_some() { 0 } else { ValueKind::Payload.flag() };
    let bytes = i64::try_from(unit.payload.len()).unwrap_or(i64::MAX);
    let cap_key = unit.cap.as_ref().map(|cap| dedup_key(lane, &cap.key));
    let (state, place) = unit.initial_state(waits_for > 0, tx.now);
    let now = tx.now.as_micros();
    let inserted = tx
        .prepared(PreparedSql::Insert)?
        .execute((
            unit.id.as_bytes(),
            stream,
            state_code(state),
            place.as_micros(),
            unit.priority.level(),
            now,
            unit.deadline.map(Timestamp::as_micros),
            flags(unit) | overflow,
            waits_for,
            bytes,
            dedup,
            cap_key,
            UnitAttributes::encode(unit)?,
            inline,
        ))
        .or_translate()?;
    if inserted == 1 {
        // Only now: the id may belong to another unit, and its payload must not be overwritten.
        overflow_values::store(tx.db, unit.id, ValueKind::Payload, &unit.payload)?;
        tx.count_transition(stream, None, Some(state), bytes);
    }
    Ok(inserted == 1)
}

/// The state of a unit that a new one depends on, if it belongs to the same tenant.
fn dependency_state(tx: &Tx<'_>, unit: &NewUnit, needs: UnitId) -> Result<Option<UnitState>> {
    let found: Option<u8> = tx
        .db
        .prepare_cached(
            "SELECT u.state FROM longshore_unit u JOIN longshore_stream s ON s.num = u.stream
             JOIN longshore_lane l ON l.num = s.lane WHERE u.id = ?1 AND l.tenant = ?2",
        )
        .or_translate()?
        .query_row((needs.as_bytes(), unit.tenant.as_str()), |row| row.get(0))
        .optional()
        .or_translate()?;
    found.map(decode_state).transpose()
}

fn record_dependencies(tx: &mut Tx<'_>, unit: &NewUnit, dependencies: &UnitDependencies) -> Result<()> {
    for needs in &dependencies.open {
        tx.db
            .prepare_cached("INSERT INTO longshore_dependency (depends_on, unit) VALUES (?1, ?2)")
            .or_translate()?
            .execute((needs.as_bytes(), unit.id.as_bytes()))
            .or_translate()?;
        tx.db
            .prepare_cached("UPDATE longshore_unit SET flags = flags | ?2 WHERE id = ?1")
            .or_translate()?
            .execute((needs.as_bytes(), flag::HAS_DEPENDANTS))
            .or_translate()?;
    }
    let Some(failed) = dependencies.failed else { return Ok(()) };
    let row = finish::load(tx, unit.id)?;
    let head = TransitionInput { state: UnitState::Blocked, ..row.transition_input()? };
    let step = transition(&head, &Event::DependencyFailed(failed), &Policy::default(), tx.now)?;
    finish::apply(tx, &row, &step, row.fence, None)
}

/// Streams, looked up once per call.
#[derive(Default)]
struct StreamCache {
    streams: HashMap<StreamKey, (i64, i64)>,
    last: Option<(StreamKey, (i64, i64))>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct StreamKey {
    queue: longshore_core::QueueName,
    tenant: longshore_core::TenantId,
    kind: longshore_core::Kind,
}

impl StreamCache {
    /// The unit's stream and lane, created if necessary.
    fn resolve(&mut self, tx: &mut Tx<'_>, unit: &NewUnit, batch: i64) -> Result<(i64, i64)> {
        // Nearly always the stream of the previous unit.
        if let Some((key, found)) = &self.last
            && key.queue == unit.queue
            && key.tenant == unit.tenant
            && key.kind == unit.kind
        {
            return Ok(*found);
        }
        let key =
            StreamKey { queue: unit.queue.clone(), tenant: unit.tenant.clone(), kind: unit.kind.clone() };
        let found = match self.streams.get(&key) {
            Some(found) => *found,
            None => {
                let lane = lane(tx, unit.queue.as_str(), unit.tenant.as_str())?;
                (stream(tx, lane, unit.kind.as_str(), batch)?, lane)
            }
        };
        self.streams.insert(key.clone(), found);
        self.last = Some((key, found));
        Ok(found)
    }
}

/// A queue's row number; inserted if it is new.
pub(crate) fn queue(tx: &Tx<'_>, name: &str) -> Result<i64> {
    find_or_insert(
        tx,
        "SELECT num FROM longshore_queue WHERE name = ?1",
        "INSERT INTO longshore_queue (name) VALUES (?1)",
        [name],
    )
}

/// A lane's row number; inserted if it is new.
pub(crate) fn lane(tx: &Tx<'_>, queue_name: &str, tenant: &str) -> Result<i64> {
    let queue = queue(tx, queue_name)?;
    find_or_insert(
        tx,
        "SELECT num FROM longshore_lane WHERE queue = ?1 AND tenant = ?2",
        "INSERT INTO longshore_lane (queue, tenant) VALUES (?1, ?2)",
        (queue, tenant),
    )
}

fn stream(tx: &Tx<'_>, lane: i64, kind: &str, batch: i64) -> Result<i64> {
    find_or_insert(
        tx,
        "SELECT num FROM longshore_stream WHERE lane = ?1 AND kind = ?2 AND batch = ?3",
        "INSERT INTO longshore_stream (lane, kind, batch) VALUES (?1, ?2, ?3)",
        (lane, kind, batch),
    )
}

fn find_or_insert(tx: &Tx<'_>, find: &str, make: &str, params: impl rusqlite::Params + Clone) -> Result<i64> {
    let found = tx
        .db
        .prepare_cached(find)
        .or_translate()?
        .query_row(params.clone(), |row| row.get(0))
        .optional()
        .or_translate()?;
    if let Some(num) = found {
        return Ok(num);
    }
    tx.db.prepare_cached(make).or_translate()?.execute(params).or_translate()?;
    Ok(tx.db.last_insert_rowid())
}
