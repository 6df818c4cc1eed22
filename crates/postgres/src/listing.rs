//! Pages of units and batches by cursor.
//!
//! With a state, the index by stream and state yields a page without reading other rows. Without
//! one, the newest rows are scanned and filtered, a limited number per page: a page may then be
//! short, or empty, and still have a next one.

use std::collections::HashMap;

use longshore_core::batch::Sums;
use longshore_core::page::{BatchCursor, MAX_PAGE_BYTES, UnitCursor};
use longshore_core::store::{Page, UnitFilter};
use longshore_core::{Batch, BatchStatus, Result, Scope, Unit, UnitId, UnitState};
use uuid::Uuid;

use crate::batch;
use crate::queries::{assemble_units, tenant};
use crate::row::{Columns, UnitParts, UnitRow, state_code, state_codes, value};
use crate::tx::Tx;
use crate::typed_params::{unit_id, uuid, uuids};

/// Rows scanned for one page without a state.
const MAX_SCANNED_ROWS: i64 = 20_000;

/// The streams that match a [`NameFilter`].
const STREAMS: &str = "SELECT s.stream FROM longshore_stream_count s JOIN longshore_lane l ON l.num = s.lane
    JOIN longshore_queue q ON q.num = l.queue LEFT JOIN longshore_batch b ON b.num = s.batch
    WHERE ($1 IS NULL OR l.tenant = $1) AND ($2 IS NULL OR q.name = $2)
    AND ($3 IS NULL OR s.kind = $3) AND ($4 IS NULL OR b.name = $4)";

/// Names to filter by: tenant, queue, kind, batch.
type NameFilter<'f> = [Option<&'f str>; 4];

/// A page of units.
pub(crate) async fn units(
    tx: &mut Tx<'_>,
    scope: &Scope,
    filter: &UnitFilter,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<Unit>> {
    let batch = filter.batch.as_ref().map(|id| scope.batch_id(id));
    let names = [
        tenant(scope),
        filter.queue.as_ref().map(AsRef::as_ref),
        filter.kind.as_ref().map(AsRef::as_ref),
        batch.as_ref().map(AsRef::as_ref),
    ];
    let after = UnitCursor::parse(after)?;
    match filter.state {
        Some(state) => by_state(tx, names, state, after, limit).await,
        None => by_id(tx, names, after, limit).await,
    }
}

async fn by_state(
    tx: &mut Tx<'_>,
    names: NameFilter<'_>,
    state: UnitState,
    after: UnitCursor,
    limit: u32,
) -> Result<Page<Unit>> {
    // The planner knows neither how few streams have the newest units nor how many units one stream
    // may have: it would compile the plan with JIT, and sort a whole stream for one page.
    tx.batch("SET LOCAL jit = off; SET LOCAL enable_bitmapscan = off").await?;
    let mut found: Vec<UnitCursor> = Vec::new();
    for code in state_codes(state) {
        let sql = match state {
            UnitState::Leased => newest_leased(),
            _ => newest_in(state, *code),
        };
        let [owner, queue, kind, batch] = &names;
        let max_rows = i64::from(limit) + 1;
        let rows =
            tx.query(&sql, &[owner, queue, kind, batch, &after.sort_key, &uuid(after.id), &max_rows]).await?;
        for row in &rows {
            found.push(UnitCursor { sort_key: value(row, 0)?, id: unit_id(value(row, 1)?) });
        }
    }
    found.sort_by(|a, b| b.cmp(a));
    let Page { items, next } = Page::first(found, limit, ToString::to_string);
    let cursors: HashMap<UnitId, UnitCursor> = items.iter().map(|at| (at.id, *at)).collect();
    let ids = uuids(items.iter().map(|at| &at.id));
    let page = Page { items: load_summaries(tx, ids).await?, next };
    Ok(page.within_bytes(|_, unit| cursors[&unit.id].to_string()))
}

/// The newest units of one state. A page of n units can only contain units of the n streams with
/// the most recent units. One index lookup per stream finds those.
fn newest_in(state: UnitState, code: u8) -> String {
    let counted = match state.is_final() {
        true => format!("s.{state} > s.pruned_{state}"),
        false => format!("s.{state} > 0"),
    };
    let ready = code == state_code(UnitState::Ready);
    let table = if ready { "longshore_ready u WHERE" } else { "longshore_unit u WHERE u.state = {code} AND" };
    let table = table.replace("{code}", &code.to_string());
    let units = |stream: &str, max_rows: &str| {
        let rows = format!(
            "SELECT u.sort_key, u.id FROM {table} u.stream = {stream}
             AND u.sort_key <= $5 AND (u.sort_key, u.id) < ($5, $6)
             ORDER BY u.sort_key DESC, u.id DESC LIMIT {max_rows}"
        );
        match state {
            // A group has at most 64 units, all of them with one time.
            UnitState::Done => format!(
                "SELECT d.sort_key, d.id FROM (({rows}) UNION ALL (
                   SELECT g.ended_at, i.id FROM (SELECT g.ended_at, g.units FROM longshore_done_group g
                     WHERE g.stream = {stream} AND g.ended_at <= $5
                     AND (g.ended_at < $5 OR EXISTS (SELECT 1 FROM unnest(g.units) i WHERE i < $6))
                     ORDER BY g.ended_at DESC FETCH FIRST ({max_rows}) ROWS WITH TIES) g
                   CROSS JOIN LATERAL unnest(g.units) AS i (id)
                   WHERE (g.ended_at, i.id) < ($5, $6))) d
                 ORDER BY d.sort_key DESC, d.id DESC LIMIT {max_rows}"
            ),
            _ => rows,
        }
    };
    format!(
        "WITH stream AS ({STREAMS} AND {counted}), head AS (
           SELECT s.stream FROM stream s CROSS JOIN LATERAL ({}) h
           ORDER BY h.sort_key DESC, h.id DESC LIMIT $7)
         SELECT p.sort_key, p.id FROM head h CROSS JOIN LATERAL ({}) p
         ORDER BY p.sort_key DESC, p.id DESC LIMIT $7",
        units("s.stream", "1"),
        units("h.stream", "$7")
    )
}

/// The newest leased units, by the index on sessions, and of lease groups: there are few.
fn newest_leased() -> String {
    format!(
        "SELECT u.sort_key, u.id FROM (
           SELECT u.sort_key, u.id, u.stream FROM longshore_unit u WHERE u.session IS NOT NULL AND u.state = 3
           UNION ALL SELECT g.claimed_at, unnest(g.units), g.stream FROM longshore_lease_group g) u
         WHERE (u.sort_key, u.id) < ($5, $6) AND u.stream IN ({STREAMS})
         ORDER BY u.sort_key DESC, u.id DESC LIMIT $7"
    )
}

async fn by_id(tx: &mut Tx<'_>, names: NameFilter<'_>, after: UnitCursor, limit: u32) -> Result<Page<Unit>> {
    let max_rows = i64::from(limit) + 1;
    // Without a filter no row is scanned in vain.
    let scan_limit =
        if names.iter().all(Option::is_none) { max_rows } else { MAX_SCANNED_ROWS.max(max_rows) };
    let sql = format!(
        "WITH walked AS MATERIALIZED (
           SELECT u.id, u.stream FROM longshore_unit u WHERE u.id < $5 ORDER BY u.id DESC LIMIT $6 + 1),
         found AS (
           SELECT w.id FROM walked w WHERE w.stream IN ({STREAMS}) ORDER BY w.id DESC LIMIT $7)
         SELECT f.id, false FROM found f
         UNION ALL (SELECT w.id, true FROM walked w
           WHERE (SELECT count(*) FROM walked) > $6 ORDER BY w.id LIMIT 2)"
    );
    let [owner, queue, kind, batch] = &names;
    let rows = tx.query(&sql, &[owner, queue, kind, batch, &uuid(after.id), &scan_limit, &max_rows]).await?;
    // The last row of the scan and the one after it, if the scan ended before the list.
    let (mut ids, mut scan_end): (Vec<Uuid>, Vec<Uuid>) = (Vec::new(), Vec::new());
    for row in &rows {
        let list = if value(row, 1)? { &mut scan_end } else { &mut ids };
        list.push(value(row, 0)?);
    }
    scan_end.sort_unstable();
    ids.sort_unstable_by(|a, b| b.cmp(a));
    let mut next = None;
    if let [after_scan, last] = scan_end[..] {
        ids.retain(|id| *id != after_scan);
        next = Some(UnitCursor::between(unit_id(last), unit_id(after_scan)));
    }
    if ids.len() > limit as usize {
        // There is more than one page: the next begins after its last unit, not at the end of the
        // scan.
        ids.truncate(limit as usize);
        next = ids.last().map(|id| UnitCursor::by_id(unit_id(*id)));
    }
    let next = next.map(|next| next.to_string());
    let page = Page { items: load_summaries(tx, ids).await?, next };
    Ok(page.within_bytes(|_, unit| UnitCursor::by_id(unit.id).to_string()))
}

/// Loads units without payload, checkpoint and result, in the order of `ids`.
async fn load_summaries(tx: &mut Tx<'_>, ids: Vec<Uuid>) -> Result<Vec<Unit>> {
    let sql = format!(
        "SELECT {}, {}, h.id FROM longshore_unit_current u
         LEFT JOIN longshore_session h ON h.num = u.session WHERE u.id = ANY($1)",
        UnitRow::COLUMNS,
        UnitParts::SHORT_COLUMNS
    );
    let rows = tx.query(&sql, &[&ids]).await?;
    let parts = |row: &Columns<'_>, at| UnitParts::read_short(row, at);
    let units = assemble_units(tx, &rows, parts, UnitRow::WIDTH + 2).await?;
    let mut units: HashMap<Uuid, Unit> = units.into_iter().map(|unit| (uuid(unit.id), unit)).collect();
    Ok(ids.iter().filter_map(|id| units.remove(id)).collect())
}

/// A page of batches.
pub(crate) async fn batches(
    tx: &mut Tx<'_>,
    scope: &Scope,
    status: Option<BatchStatus>,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<Batch>> {
    let BatchCursor { opened_at, id } = BatchCursor::parse(after)?;
    // Select the page first, so that only its batches are counted, and no more is read than about
    // twice what a page may have.
    let sql = batch::select(
        "WHERE b.num IN (SELECT p.num FROM (SELECT p.num, sum(octet_length(p.notes)
             + coalesce(octet_length(p.callback), 0)) OVER (ORDER BY p.initiated_at DESC,
             p.name COLLATE \"C\" DESC ROWS UNBOUNDED PRECEDING) AS bytes FROM longshore_batch p
           WHERE (p.initiated_at, p.name COLLATE \"C\") < ($1, $2)
           AND ($3 IS NULL OR p.tenant = $3) AND ($4 IS NULL OR p.status = $4)
           ORDER BY p.initiated_at DESC, p.name COLLATE \"C\" DESC LIMIT $5) p
           WHERE p.bytes < $6) ORDER BY b.initiated_at DESC, b.name COLLATE \"C\" DESC",
    );
    let status = status.map(BatchStatus::as_str);
    let (max_rows, max_bytes) = (i64::from(limit) + 1, 2 * MAX_PAGE_BYTES as i64);
    let rows = tx.query(&sql, &[&opened_at, &id, &tenant(scope), &status, &max_rows, &max_bytes]).await?;
    let nums: Vec<i64> = rows.iter().map(|row| value(row, 0)).collect::<Result<_>>()?;
    let mut sums = sums(tx, &nums).await?;
    let mut items = Vec::with_capacity(rows.len());
    for (row, num) in rows.iter().zip(&nums) {
        items.push(Batch { sums: sums.remove(num).unwrap_or_default(), ..batch::read(row)? });
    }
    let cursor = |batch: &Batch| BatchCursor::of(batch).to_string();
    Ok(Page::first(items, limit, cursor).within_bytes(|_, batch| cursor(batch)))
}

/// The sums of each batch, rolled up or not.
async fn sums(tx: &mut Tx<'_>, batches: &[i64]) -> Result<HashMap<i64, Sums>> {
    let rows = tx
        .query(
            "SELECT a.batch, a.name, least(greatest(sum(a.amount), -9223372036854775808),
               9223372036854775807)::bigint
             FROM (SELECT batch, name, amount::numeric AS amount FROM longshore_batch_sum
               WHERE batch = ANY($1)
               UNION ALL SELECT s.batch, e.key, e.value::numeric
               FROM longshore_stream s JOIN longshore_stream_delta d ON d.stream = s.num
               CROSS JOIN LATERAL json_each_text(d.sums::json) e
               WHERE s.batch = ANY($1) AND s.batch <> 0 AND d.sums IS NOT NULL) a
             GROUP BY a.batch, a.name",
            &[&batches.to_vec()],
        )
        .await?;
    let mut sums: HashMap<i64, Sums> = HashMap::new();
    for row in &rows {
        sums.entry(value(row, 0)?).or_default().insert(value(row, 1)?, value(row, 2)?);
    }
    Ok(sums)
}
