//! Queries: a unit, its failures, queues, totals, changes.

use std::collections::HashMap;
use std::sync::Arc;

use longshore_core::sql_row::{FAILURE_COLUMNS, read_counts, read_failure, read_queue};
use longshore_core::store::{Change, ChangeSet, QueueInfo, Queues, Topic, Totals, UnitFailure};
use longshore_core::{BatchId, Error, Priority, QueueName, Result, Scope, TenantId, Timestamp, Unit, UnitId};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::error::damaged;
use crate::row::{Columns, UnitParts, UnitRow, count, unit, value};
use crate::start_log;
use crate::tx::Tx;
use crate::typed_params::{session_id, uuid};

/// The tenant to filter by; `None` for all.
pub(crate) fn tenant(scope: &Scope) -> Option<&str> {
    scope.tenant().map(TenantId::as_str)
}

/// Assembles units from rows that begin with [`UnitRow::COLUMNS`]. `holder` is the column with the
/// session's id.
pub(crate) async fn assemble_units(
    tx: &mut Tx<'_>,
    rows: &[Row],
    parts: impl Fn(&Columns<'_>, usize) -> Result<UnitParts>,
    holder: usize,
) -> Result<Vec<Unit>> {
    let mut unit_rows: Vec<UnitRow> =
        rows.iter().map(|row| UnitRow::read(&Columns(row))).collect::<Result<_>>()?;
    start_log::merge_into(tx, &mut unit_rows).await?;
    let cache = Arc::clone(&tx.streams);
    let streams = cache.by_num(tx, unit_rows.iter().map(|unit_row| unit_row.stream)).await?;
    let mut units = Vec::with_capacity(rows.len());
    for (row, unit_row) in rows.iter().zip(unit_rows) {
        let names = streams.get(&unit_row.stream).ok_or_else(|| damaged("a unit without its stream"))?;
        let session = value::<Option<Uuid>>(row, holder)?.map(session_id);
        units.push(unit(unit_row, parts(&Columns(row), UnitRow::WIDTH)?, names, session)?);
    }
    Ok(units)
}

/// One unit with payload, checkpoint and result.
pub(crate) async fn one_unit(tx: &mut Tx<'_>, scope: &Scope, id: UnitId) -> Result<Unit> {
    let sql = format!(
        "SELECT {}, {}, h.id FROM longshore_unit_current u
         LEFT JOIN longshore_session h ON h.num = u.session WHERE u.id = $1",
        UnitRow::COLUMNS,
        UnitParts::COLUMNS
    );
    let rows = tx.query(&sql, &[&uuid(id)]).await?;
    let parts = |row: &Columns<'_>, at| UnitParts::read(row, at);
    let found = assemble_units(tx, &rows, parts, UnitRow::WIDTH + 5).await?.pop();
    found.filter(|unit| scope.covers(&unit.tenant)).ok_or_else(|| Error::not_found("unit", id))
}

/// The failed runs of a unit.
pub(crate) async fn failures(tx: &mut Tx<'_>, scope: &Scope, id: UnitId) -> Result<Vec<UnitFailure>> {
    let owner = "SELECT l.tenant FROM longshore_unit u JOIN longshore_stream s ON s.num = u.stream
        JOIN longshore_lane l ON l.num = s.lane WHERE u.id = $1";
    let owner = tx.query_opt(owner, &[&uuid(id)]).await?;
    let owner = owner.map(|row| TenantId::new(value::<&str>(&row, 0)?).map_err(damaged));
    if !owner.transpose()?.is_some_and(|owner| scope.covers(&owner)) {
        return Err(Error::not_found("unit", id));
    }
    let sql = format!("SELECT {FAILURE_COLUMNS} FROM longshore_failure WHERE unit = $1 ORDER BY num");
    let rows = tx.query(&sql, &[&uuid(id)]).await?;
    rows.iter().map(|row| read_failure(&Columns(row))).collect()
}

/// The seven counts and the live bytes, added up over streams `c`.
pub(crate) const SUMS: &str = "coalesce(sum(c.blocked), 0)::bigint,
    coalesce(sum(c.scheduled), 0)::bigint, coalesce(sum(c.ready), 0)::bigint,
    coalesce(sum(c.leased), 0)::bigint, coalesce(sum(c.done), 0)::bigint,
    coalesce(sum(c.failed), 0)::bigint, coalesce(sum(c.cancelled), 0)::bigint,
    coalesce(sum(c.bytes), 0)::bigint";

/// Every lane that `scope` covers.
/// Lanes with settings, with live units, or with ended units that were not pruned yet.
const IS_LISTED: &str = "(l.paused OR l.weight <> 1 OR l.cap IS NOT NULL OR q.paused
    OR num_nonnulls(l.max_units, l.max_bytes, q.max_units, q.max_bytes) > 0
    OR EXISTS (SELECT 1 FROM longshore_stream s WHERE s.lane = l.num AND s.idle_since IS NULL)
    OR NOT EXISTS (SELECT 1 FROM longshore_stream s WHERE s.lane = l.num)
    OR EXISTS (SELECT 1 FROM longshore_stream_count s WHERE s.lane = l.num
      AND s.blocked + s.scheduled + s.ready + s.leased > 0))";

pub(crate) async fn queues(tx: &mut Tx<'_>, scope: &Scope) -> Result<Vec<QueueInfo>> {
    let sql = format!(
        "SELECT l.num, q.name, l.tenant, q.paused, l.weight, l.cap, q.max_units,
         q.max_bytes, l.max_units, l.max_bytes, EXISTS (SELECT 1 FROM longshore_tenant t
         WHERE t.name = l.tenant AND t.suspended), {SUMS}, l.paused
         FROM longshore_lane l JOIN longshore_queue q ON q.num = l.queue
         LEFT JOIN longshore_stream_count c ON c.lane = l.num
         WHERE ($1 IS NULL OR l.tenant = $1) AND {IS_LISTED} GROUP BY l.num, q.num
         ORDER BY q.name COLLATE \"C\", l.tenant COLLATE \"C\""
    );
    let rows = tx.query(&sql, &[&tenant(scope)]).await?;
    let oldest = oldest_ready(tx).await?;
    rows.iter().map(|row| queue_info(row, &oldest)).collect()
}

fn queue_info(row: &Row, oldest: &HashMap<i64, Timestamp>) -> Result<QueueInfo> {
    read_queue(&Columns(row), oldest.get(&value(row, 0)?).copied())
}

/// When the oldest ready unit of each lane became ready, from the first unit of each stream: one
/// lookup per stream with ready units.
async fn oldest_ready(tx: &mut Tx<'_>) -> Result<HashMap<i64, Timestamp>> {
    let unit_rows = tx
        .query(
            "SELECT c.lane, u.priority, u.sort_key FROM longshore_stream_count c CROSS JOIN
             LATERAL (
               SELECT i.priority, r.sort_key FROM (SELECT id, sort_key FROM longshore_ready
               WHERE stream = c.stream ORDER BY sort_key LIMIT 1) r
               JOIN longshore_unit i ON i.id = r.id) u
             WHERE c.ready > 0",
            &[],
        )
        .await?;
    let mut oldest = HashMap::new();
    for unit_row in &unit_rows {
        let level = u8::try_from(value::<i16>(unit_row, 1)?).map_err(damaged)?;
        let priority = Priority::new(level).map_err(damaged)?;
        let since = priority.ready_at(Timestamp::from_micros(value(unit_row, 2)?));
        let first = oldest.entry(value(unit_row, 0)?).or_insert(since);
        *first = since.min(*first);
    }
    Ok(oldest)
}

/// Totals over the named queues, or all. One statement: a client that waits until nothing is left
/// must not miss a unit that moves between two reads.
pub(crate) async fn totals(tx: &mut Tx<'_>, scope: &Scope, queues: &Queues) -> Result<Totals> {
    let (all, names): (bool, Vec<&str>) = match queues {
        Queues::All => (true, Vec::new()),
        Queues::Named(names) => (false, names.iter().map(QueueName::as_str).collect()),
    };
    let sql = format!(
        "SELECT {SUMS}, (SELECT count(*) FROM longshore_batch WHERE completed_at IS NULL
           AND NOT sealed AND status IN ('queued', 'running', 'paused')
           AND ($1 IS NULL OR tenant = $1)), (SELECT count(*) FROM longshore_session)
         FROM longshore_lane l JOIN longshore_queue q ON q.num = l.queue
         JOIN longshore_stream_count c ON c.lane = l.num
         WHERE ($1 IS NULL OR l.tenant = $1) AND ($2 OR q.name = ANY($3))"
    );
    let row = tx.query_one(&sql, &[&tenant(scope), &all, &names]).await?;
    Ok(Totals {
        counts: read_counts(&Columns(&row), 0)?,
        open_batches: count(&row, 8)?,
        sessions: count(&row, 9)?,
    })
}

/// Changes returned at once.
const MAX_CHANGES: usize = 1000;

/// What changed after `since`.
pub(crate) async fn changes(tx: &mut Tx<'_>, scope: &Scope, since: u64) -> Result<ChangeSet> {
    let ends = tx
        .query_one(
            "SELECT coalesce((SELECT min(seq) FROM longshore_change), 1),
             coalesce((SELECT max(seq) FROM longshore_change), 0)",
            &[],
        )
        .await?;
    let (first, last): (u64, u64) = (count(&ends, 0)?, count(&ends, 1)?);
    if since >= last {
        return Ok(ChangeSet { cursor: last, ..ChangeSet::default() });
    }
    let rows = tx
        .query(
            "SELECT seq, topic, name FROM longshore_change WHERE seq > $1 AND seq <= $2
             AND ($3 IS NULL OR tenant = $3 OR (tenant IS NULL AND topic <> 'session'))
             ORDER BY seq LIMIT $4",
            &[&since.cast_signed(), &last.cast_signed(), &tenant(scope), &(MAX_CHANGES as i64)],
        )
        .await?;
    let changes: Vec<Change> = rows.iter().map(read_change).collect::<Result<_>>()?;
    let cursor = match changes.last() {
        Some(change) if changes.len() == MAX_CHANGES => change.seq,
        _ => last,
    };
    Ok(ChangeSet { cursor, changes, missed: since + 1 < first })
}

fn read_change(row: &Row) -> Result<Change> {
    let name: &str = value(row, 2)?;
    let topic = match value::<&str>(row, 1)? {
        "queue" => Topic::Queue(QueueName::new(name).map_err(damaged)?),
        "batch" => Topic::Batch(BatchId::new(name).map_err(damaged)?),
        "session" => Topic::Session(name.parse().map_err(damaged)?),
        "unit" => Topic::Unit(name.parse().map_err(damaged)?),
        "setting" => Topic::Setting(name.to_owned()),
        other => return Err(damaged(format!("a change of `{other}`"))),
    };
    Ok(Change { seq: count(row, 0)?, topic })
}
