//! Reads units, failures, queues, totals and changes.

use std::sync::Arc;

use longshore_core::sql_row::{FAILURE_COLUMNS, read_failure, read_queue};
use longshore_core::store::{Change, ChangeSet, LeasedUnit, QueueInfo, Queues, Topic, Totals, UnitFailure};
use longshore_core::worker_session::Lease;
use longshore_core::{
    BatchId, Error, Kind, Priority, QueueName, Result, Scope, SessionId, TenantId, Timestamp, Unit, UnitId,
};
use rusqlite::{Connection, OptionalExtension, Row, Statement};

use crate::error::{Translate, damaged};
use crate::overflow_values::{self, ValueKind};
use crate::prepared::{PreparedSql, PreparedStatements};
use crate::row::{Columns, StreamNames, UnitParts, UnitRow, flag, parse_policy, unit};

/// All columns of a unit.
pub(crate) struct FullRow {
    pub(crate) row: UnitRow,
    pub(crate) parts: UnitParts,
}

impl FullRow {
    /// A unit that must exist, by [`PreparedSql::FindFull`].
    pub(crate) fn load(statement: &mut Statement<'_>, id: UnitId) -> Result<Self> {
        let mut rows = statement.query([id.as_bytes()]).or_translate()?;
        let row = rows.next().or_translate()?.ok_or_else(|| Error::not_found("unit", id))?;
        let row = Columns(row);
        Ok(Self { row: UnitRow::read(&row)?, parts: UnitParts::read(&row, UnitRow::WIDTH)? })
    }
}

/// Loads the values of a unit that are in the overflow table.
pub(crate) fn load_overflow(db: &Connection, row: &UnitRow, parts: &mut UnitParts) -> Result<()> {
    if row.flags & (flag::OVERFLOW[0] | flag::OVERFLOW[1] | flag::OVERFLOW[2]) == 0 {
        return Ok(());
    }
    for (kind, value) in [
        (ValueKind::Payload, &mut parts.payload),
        (ValueKind::Checkpoint, &mut parts.checkpoint),
        (ValueKind::Result, &mut parts.result),
    ] {
        if row.has(kind.flag()) {
            *value = overflow_values::load(db, row.id, kind)?;
        }
    }
    Ok(())
}

/// What a stream's units share.
pub(crate) fn stream_names(db: &Connection, stream: i64) -> Result<Arc<StreamNames>> {
    let (kind, tenant, queue, batch, policy): (String, String, String, Option<String>, Option<String>) = db
        .prepare_cached(
            "SELECT s.kind, l.tenant, q.name, b.name, s.policy FROM longshore_stream s
             JOIN longshore_lane l ON l.num = s.lane JOIN longshore_queue q ON q.num = l.queue
             LEFT JOIN longshore_batch b ON b.num = s.batch WHERE s.num = ?1",
        )
        .or_translate()?
        .query_row([stream], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)))
        .or_translate()?;
    Ok(Arc::new(StreamNames {
        policy: parse_policy(policy.as_deref())?,
        tenant: TenantId::new(tenant).map_err(damaged)?,
        queue: QueueName::new(queue).map_err(damaged)?,
        kind: Kind::new(kind).map_err(damaged)?,
        batch: batch.map(BatchId::new).transpose().map_err(damaged)?,
    }))
}

/// A session's id.
pub(crate) fn session_id(db: &Connection, num: Option<i64>) -> Result<Option<SessionId>> {
    let Some(num) = num else { return Ok(None) };
    db.prepare_cached("SELECT id FROM longshore_session WHERE num = ?1")
        .or_translate()?
        .query_row([num], |row| Ok(SessionId::from_bytes(row.get(0)?)))
        .optional()
        .or_translate()
}

/// One unit with all its values.
pub(crate) fn one_unit(db: &Connection, scope: &Scope, id: UnitId) -> Result<Unit> {
    let mut statements = PreparedStatements::default();
    let FullRow { row, mut parts } = FullRow::load(statements.get(db, PreparedSql::FindFull)?, id)?;
    let names = stream_names(db, row.stream)?;
    if !scope.covers(&names.tenant) {
        return Err(Error::not_found("unit", id));
    }
    load_overflow(db, &row, &mut parts)?;
    let session = session_id(db, row.session)?;
    unit(row, parts, &names, session)
}

/// A unit leased by `session`.
pub(crate) fn held_unit(db: &Connection, id: UnitId, session: SessionId) -> Result<LeasedUnit> {
    let unit = one_unit(db, &Scope::All, id)?;
    let lease = Lease { unit: id, fence: unit.fence };
    let alone = longshore_core::unit_state::runs_alone(unit.lost);
    Ok(LeasedUnit {
        lease,
        started: unit.started_at.is_some(),
        alone,
        unit: Unit { session: Some(session), ..unit },
    })
}

/// The runs of a unit that did not succeed.
pub(crate) fn failures(db: &Connection, scope: &Scope, id: UnitId) -> Result<Vec<UnitFailure>> {
    one_unit(db, scope, id)?;
    let sql = format!("SELECT {FAILURE_COLUMNS} FROM longshore_failure WHERE unit = ?1 ORDER BY num");
    let mut statement = db.prepare_cached(&sql).or_translate()?;
    let mut rows = statement.query([id.as_bytes()]).or_translate()?;
    let mut failures = Vec::new();
    while let Some(row) = rows.next().or_translate()? {
        failures.push(read_failure(&Columns(row))?);
    }
    Ok(failures)
}

/// Every lane within `scope`.
pub(crate) fn queues(db: &Connection, scope: &Scope) -> Result<Vec<QueueInfo>> {
    let mut statement = db
        .prepare_cached(
            "SELECT l.num, q.name, l.tenant, q.paused, l.weight, l.cap, q.max_units,
             q.max_bytes, l.max_units, l.max_bytes, EXISTS (SELECT 1 FROM longshore_tenant t
             WHERE t.name = l.tenant AND t.suspended), coalesce(sum(s.blocked), 0),
             coalesce(sum(s.scheduled), 0), coalesce(sum(s.ready), 0), coalesce(sum(s.leased), 0),
             coalesce(sum(s.done), 0), coalesce(sum(s.failed), 0), coalesce(sum(s.cancelled), 0),
             coalesce(sum(s.bytes), 0), l.paused
             FROM longshore_lane l JOIN longshore_queue q ON q.num = l.queue
             LEFT JOIN longshore_stream s ON s.lane = l.num
             WHERE ?1 IS NULL OR l.tenant = ?1 GROUP BY l.num ORDER BY q.name, l.tenant",
        )
        .or_translate()?;
    let mut rows = statement.query([tenant_filter(scope)]).or_translate()?;
    let mut queues = Vec::new();
    while let Some(row) = rows.next().or_translate()? {
        queues.push(queue_info(db, row)?);
    }
    Ok(queues)
}

/// The tenant to filter by; `None` for all.
pub(crate) fn tenant_filter(scope: &Scope) -> Option<&str> {
    scope.tenant().map(TenantId::as_str)
}

fn queue_info(db: &Connection, row: &Row<'_>) -> Result<QueueInfo> {
    read_queue(&Columns(row), oldest_ready(db, row.get(0).or_translate()?)?)
}

/// Looks up the first unit of each stream with ready units.
fn oldest_ready(db: &Connection, lane: i64) -> Result<Option<Timestamp>> {
    let heads: Vec<(u8, i64)> = db
        .prepare_cached(
            "SELECT u.priority, u.sort_key FROM longshore_stream s INDEXED BY longshore_stream_ready
             JOIN longshore_unit u ON u.id = (SELECT id FROM longshore_unit
             WHERE stream = s.num AND state = 2 ORDER BY sort_key LIMIT 1)
             WHERE s.lane = ?1 AND s.ready > 0",
        )
        .or_translate()?
        .query_map([lane], |row| Ok((row.get(0)?, row.get(1)?)))
        .or_translate()?
        .collect::<rusqlite::Result<_>>()
        .or_translate()?;
    let mut oldest = None;
    for (priority, sort_key) in heads {
        let priority = Priority::new(priority).map_err(damaged)?;
        let since = priority.ready_at(Timestamp::from_micros(sort_key));
        oldest = Some(oldest.map_or(since, |other: Timestamp| other.min(since)));
    }
    Ok(oldest)
}

/// Totals over the named queues, or all.
pub(crate) fn totals(db: &Connection, scope: &Scope, queues: &Queues) -> Result<Totals> {
    let mut totals = Totals::default();
    for info in self::queues(db, scope)? {
        let selected = match queues {
            Queues::All => true,
            Queues::Named(names) => names.contains(&info.queue),
        };
        if selected {
            totals.counts += info.counts;
        }
    }
    totals.open_batches = db
        .prepare_cached(
            "SELECT count(*) FROM longshore_batch WHERE status <> 'complete' AND sealed = 0
             AND status NOT IN ('failed', 'cancelled') AND (?1 IS NULL OR tenant = ?1)",
        )
        .or_translate()?
        .query_row([tenant_filter(scope)], |row| row.get(0))
        .or_translate()?;
    totals.sessions =
        db.query_row("SELECT count(*) FROM longshore_session", [], |row| row.get(0)).or_translate()?;
    Ok(totals)
}

/// Changes after `since`.
pub(crate) fn changes(db: &Connection, scope: &Scope, since: u64) -> Result<ChangeSet> {
    let (first, last): (u64, u64) = db
        .prepare_cached(
            "SELECT coalesce((SELECT min(seq) FROM longshore_change), 1),
             coalesce((SELECT max(seq) FROM longshore_change), 0)",
        )
        .or_translate()?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
        .or_translate()?;
    if since >= last {
        return Ok(ChangeSet { cursor: last, ..ChangeSet::default() });
    }
    let mut statement = db
        .prepare_cached(
            "SELECT seq, topic, name FROM longshore_change
             WHERE seq > ?1 AND (?2 IS NULL OR tenant = ?2 OR (tenant IS NULL AND topic <>
             'session'))
             ORDER BY seq LIMIT 1000",
        )
        .or_translate()?;
    let mut rows = statement.query((since, tenant_filter(scope))).or_translate()?;
    let mut changes = Vec::new();
    while let Some(row) = rows.next().or_translate()? {
        let topic = topic(row.get(1).or_translate()?, row.get(2).or_translate()?)?;
        changes.push(Change { seq: row.get(0).or_translate()?, topic });
    }
    let cursor = if changes.len() < 1000 { last } else { changes.last().map_or(last, |c| c.seq) };
    Ok(ChangeSet { cursor, changes, missed: since + 1 < first })
}

fn topic(topic: String, name: String) -> Result<Topic> {
    Ok(match topic.as_str() {
        "queue" => Topic::Queue(QueueName::new(name).map_err(damaged)?),
        "batch" => Topic::Batch(BatchId::new(name).map_err(damaged)?),
        "session" => Topic::Session(name.parse().map_err(damaged)?),
        "unit" => Topic::Unit(name.parse().map_err(damaged)?),
        "setting" => Topic::Setting(name),
        other => return Err(damaged(format!("a change of `{other}`"))),
    })
}
