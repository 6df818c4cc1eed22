//! Stores new units.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use longshore_core::admission::UnitDependencies;
use longshore_core::sql_encoding::dedup_window;
use longshore_core::store::{SendRejection, SendResult};
use longshore_core::unit::DedupWindow;
use longshore_core::unit_state::{Event, TransitionInput, transition};
use longshore_core::{NewUnit, Policy, Result, Scope, Timestamp, UnitId, UnitState};
use rusqlite::OptionalExtension;

use crate::error::Translate;
use crate::overflow_values::{self, ValueKind};
use crate::prepared::PreparedSql;
use crate::queries::stream_names;
use crate::queue_limits::QueueLimits;
use crate::row::{UnitAttributes, decode_state, flag, flags, state_code, to_json};
use crate::tx::Tx;
use crate::{batch, finish};

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
        answers.push(send_one(tx, (&mut streams, &mut capacity), scope, unit, batch, admission)?);
    }
    streams.remove_unused(tx)?;
    Ok(answers)
}

fn send_one(
    tx: &mut Tx<'_>,
    (streams, capacity): (&mut StreamCache, &mut QueueLimits),
    scope: &Scope,
    unit: &NewUnit,
    batch: i64,
    admission: Admission,
) -> Result<SendResult> {
    if admission == Admission::Bounded
        && let Some(suspended) = capacity.suspended_rejection(tx, unit)?
    {
        return Ok(SendResult::Rejected(suspended));
    }
    let target = match streams.resolve(tx, scope, unit, batch)? {
        Ok(found) => found,
        Err(too_many) => return Ok(SendResult::Rejected(too_many)),
    };
    let Target { stream, lane, .. } = *target;
    let dedup = unit.dedup.as_ref().map(|dedup| lane_key(lane, &dedup.key));
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
        Err(rejection) => return Ok(SendResult::Rejected(rejection)),
    };
    if admission == Admission::Bounded
        && let Some(full) = capacity.admit(tx, lane, unit)?
    {
        return Ok(SendResult::Rejected(full));
    }
    if !insert(tx, unit, dependencies.open.len(), &target, dedup)? {
        // The sender repeats a send, or the id is another tenant's.
        if dependency_state(tx, unit, unit.id)?.is_none() {
            return Ok(SendResult::Rejected(SendRejection::IdTaken(unit.id)));
        }
    } else {
        streams.used.insert(stream);
        record_dependencies(tx, unit, &dependencies)?;
        if dependencies.failed.is_some() && admission == Admission::Bounded {
            capacity.release(lane, unit);
        }
    }
    Ok(SendResult::Created(unit.id))
}

/// A dedup or cap key, which is unique within a lane.
pub(crate) fn lane_key(lane: i64, key: &str) -> String {
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
    let Some((id, flags, code, sort_key)) = found else { return Ok(None) };
    let id = UnitId::from_bytes(id);
    let sort_key = Timestamp::from_micros(sort_key);
    let ended = decode_state(code)?.is_final().then_some(sort_key);
    if dedup_window(flags, sort_key).keeps_key_against(ended, window) {
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
    target: &Target,
    dedup: Option<String>,
) -> Result<bool> {
    let Target { stream, lane, policy } = target;
    let mut attributes = UnitAttributes::of(unit);
    let mut flags = flags(unit);
    if policy.is_some() && attributes.policy == *policy {
        attributes.policy = None;
        flags |= flag::STREAM_POLICY;
    }
    let inline = overflow_values::fits_in_row(&unit.payload).then(|| unit.payload.as_bytes());
    let overflow = if inline.is_some() { 0 } else { ValueKind::Payload.flag() };
    let bytes = i64::try_from(unit.stored_bytes()).unwrap_or(i64::MAX);
    let cap_key = unit.cap.as_ref().map(|cap| lane_key(*lane, &cap.key));
    let (state, sort_key) = unit.initial_state(waits_for > 0, tx.now);
    let now = tx.now.as_micros();
    let inserted = tx
        .prepared(PreparedSql::Insert)?
        .execute((
            unit.id.as_bytes(),
            stream,
            state_code(state),
            sort_key.as_micros(),
            unit.priority.level(),
            now,
            unit.deadline.map(Timestamp::as_micros),
            flags | overflow,
            waits_for,
            bytes,
            dedup,
            cap_key,
            attributes.to_column()?,
            inline,
        ))
        .or_translate()?;
    if inserted == 1 {
        // Only now: the id may belong to another unit, and its payload must not be overwritten.
        overflow_values::store(tx.db, unit.id, ValueKind::Payload, &unit.payload)?;
        tx.count_transition(*stream, None, Some(state), bytes);
    }
    Ok(inserted == 1)
}

/// The state of a unit, if it belongs to the tenant of `unit`.
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

/// Records the units that a blocked unit waits for.
pub(crate) fn write_edges(tx: &Tx<'_>, unit: UnitId, open: &[UnitId]) -> Result<()> {
    for needs in open {
        tx.db
            .prepare_cached("INSERT INTO longshore_dependency (depends_on, unit) VALUES (?1, ?2)")
            .or_translate()?
            .execute((needs.as_bytes(), unit.as_bytes()))
            .or_translate()?;
        tx.db
            .prepare_cached("UPDATE longshore_unit SET flags = flags | ?2 WHERE id = ?1")
            .or_translate()?
            .execute((needs.as_bytes(), flag::HAS_DEPENDANTS))
            .or_translate()?;
    }
    Ok(())
}

fn record_dependencies(tx: &mut Tx<'_>, unit: &NewUnit, dependencies: &UnitDependencies) -> Result<()> {
    write_edges(tx, unit.id, &dependencies.open)?;
    let Some(failed) = dependencies.failed else { return Ok(()) };
    let row = finish::load(tx, unit.id)?;
    let input = TransitionInput { state: UnitState::Blocked, ..row.transition_input()? };
    let step = transition(&input, &Event::DependencyFailed(failed), &Policy::default(), tx.now)?;
    finish::apply(tx, &row, &step, row.fence, None)
}

/// Streams, looked up once per call.
#[derive(Default)]
struct StreamCache {
    streams: HashMap<StreamKey, Arc<Target>>,
    last: Option<(StreamKey, Arc<Target>)>,
    /// Rows that this call has inserted.
    new_queues: Vec<i64>,
    new_lanes: Vec<i64>,
    new_streams: Vec<i64>,
    /// Streams that have received a unit.
    used: HashSet<i64>,
    /// How many streams and batches the sender's tenant has.
    existing: Option<(u64, u64)>,
}

/// Where a unit is stored: its stream, with its policy, and its lane.
struct Target {
    stream: i64,
    lane: i64,
    policy: Option<Policy>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct StreamKey {
    queue: longshore_core::QueueName,
    tenant: longshore_core::TenantId,
    kind: longshore_core::Kind,
}

impl StreamCache {
    /// The unit's stream and lane, created if necessary and if the tenant may have another one.
    fn resolve(
        &mut self,
        tx: &mut Tx<'_>,
        scope: &Scope,
        unit: &NewUnit,
        batch: i64,
    ) -> Result<Result<Arc<Target>, SendRejection>> {
        // Nearly always the stream of the previous unit.
        if let Some((key, found)) = &self.last
            && key.queue == unit.queue
            && key.tenant == unit.tenant
            && key.kind == unit.kind
        {
            return Ok(Ok(Arc::clone(found)));
        }
        let key =
            StreamKey { queue: unit.queue.clone(), tenant: unit.tenant.clone(), kind: unit.kind.clone() };
        let found = match self.streams.get(&key) {
            Some(found) => Arc::clone(found),
            None => match self.find_or_create(tx, scope, unit, batch)? {
                Ok(found) => found,
                Err(too_many) => return Ok(Err(too_many)),
            },
        };
        self.streams.insert(key.clone(), Arc::clone(&found));
        self.last = Some((key, Arc::clone(&found)));
        Ok(Ok(found))
    }

    fn find_or_create(
        &mut self,
        tx: &Tx<'_>,
        scope: &Scope,
        unit: &NewUnit,
        batch: i64,
    ) -> Result<Result<Arc<Target>, SendRejection>> {
        let (queue, is_new) = QUEUE.find_or_insert(tx, [unit.queue.as_str()])?;
        self.new_queues.extend(is_new.then_some(queue));
        let key = (queue, unit.tenant.as_str());
        if LANE.find(tx, key)?.is_none() {
            let sql = "SELECT count(*) FROM longshore_lane WHERE tenant = ?1";
            if let Some(rejection) = scope.check_new_queue(count(tx, sql, [unit.tenant.as_str()])?) {
                return Ok(Err(rejection));
            }
        }
        let (lane, is_new) = LANE.find_or_insert(tx, key)?;
        self.new_lanes.extend(is_new.then_some(lane));
        let key = (lane, unit.kind.as_str(), batch);
        if STREAM.find(tx, key)?.is_none()
            && let Some(rejection) = self.check_new_stream(tx, scope)?
        {
            return Ok(Err(rejection));
        }
        let (stream, is_new) = STREAM.find_or_insert(tx, key)?;
        self.new_streams.extend(is_new.then_some(stream));
        if is_new && let Some(policy) = &unit.policy {
            let sql = "UPDATE longshore_stream SET policy = ?2 WHERE num = ?1";
            tx.db.execute(sql, (stream, to_json(policy)?)).or_translate()?;
        }
        let policy = stream_names(tx.db, stream)?.policy.clone();
        Ok(Ok(Arc::new(Target { stream, lane, policy })))
    }

    /// Why the sender's tenant may not have another stream. Streams and batches are counted once per
    /// call.
    fn check_new_stream(&mut self, tx: &Tx<'_>, scope: &Scope) -> Result<Option<SendRejection>> {
        let Some(tenant) = scope.tenant() else { return Ok(None) };
        let (streams, batches) = match self.existing {
            Some(counted) => counted,
            None => {
                let sql = "SELECT count(*) FROM longshore_lane l JOIN longshore_stream s ON s.lane = l.num
                     WHERE l.tenant = ?1";
                (count(tx, sql, [tenant.as_str()])?, batch::count_of(tx.db, tenant)?)
            }
        };
        let rejection = scope.check_new_stream(streams, batches);
        self.existing = Some((streams + u64::from(rejection.is_none()), batches));
        Ok(rejection)
    }

    /// Deletes the rows that this call has inserted for units that were rejected.
    fn remove_unused(&self, tx: &Tx<'_>) -> Result<()> {
        for stream in self.new_streams.iter().filter(|stream| !self.used.contains(*stream)) {
            tx.db.execute("DELETE FROM longshore_stream WHERE num = ?1", [stream]).or_translate()?;
        }
        let unused = [
            (&self.new_lanes, "longshore_lane", "longshore_stream WHERE lane = ?1"),
            (&self.new_queues, "longshore_queue", "longshore_lane WHERE queue = ?1"),
        ];
        for (nums, table, parts) in unused {
            let sql = format!("DELETE FROM {table} WHERE num = ?1 AND NOT EXISTS (SELECT 1 FROM {parts})");
            for num in nums {
                tx.db.execute(&sql, [num]).or_translate()?;
            }
        }
        Ok(())
    }
}

fn count(tx: &Tx<'_>, sql: &str, params: impl rusqlite::Params) -> Result<u64> {
    tx.db.query_row(sql, params, |row| row.get(0)).or_translate()
}

/// A queue's row number; inserted if it is new.
pub(crate) fn queue(tx: &Tx<'_>, name: &str) -> Result<i64> {
    Ok(QUEUE.find_or_insert(tx, [name])?.0)
}

/// A lane's row number; inserted if it is new.
pub(crate) fn lane(tx: &Tx<'_>, queue_name: &str, tenant: &str) -> Result<i64> {
    Ok(LANE.find_or_insert(tx, (queue(tx, queue_name)?, tenant))?.0)
}

/// The statements that find a row by its unique columns, and insert it.
struct NamedRow {
    find: &'static str,
    insert: &'static str,
}

const QUEUE: NamedRow = NamedRow {
    find: "SELECT num FROM longshore_queue WHERE name = ?1",
    insert: "INSERT INTO longshore_queue (name) VALUES (?1)",
};
const LANE: NamedRow = NamedRow {
    find: "SELECT num FROM longshore_lane WHERE queue = ?1 AND tenant = ?2",
    insert: "INSERT INTO longshore_lane (queue, tenant) VALUES (?1, ?2)",
};
const STREAM: NamedRow = NamedRow {
    find: "SELECT num FROM longshore_stream WHERE lane = ?1 AND kind = ?2 AND batch = ?3",
    insert: "INSERT INTO longshore_stream (lane, kind, batch) VALUES (?1, ?2, ?3)",
};

impl NamedRow {
    /// The row's number, if it exists.
    fn find(&self, tx: &Tx<'_>, params: impl rusqlite::Params) -> Result<Option<i64>> {
        let mut statement = tx.db.prepare_cached(self.find).or_translate()?;
        statement.query_row(params, |row| row.get(0)).optional().or_translate()
    }

    /// The row's number, and whether it was inserted.
    fn find_or_insert(&self, tx: &Tx<'_>, params: impl rusqlite::Params + Clone) -> Result<(i64, bool)> {
        if let Some(num) = self.find(tx, params.clone())? {
            return Ok((num, false));
        }
        tx.db.prepare_cached(self.insert).or_translate()?.execute(params).or_translate()?;
        Ok((tx.db.last_insert_rowid(), true))
    }
}
