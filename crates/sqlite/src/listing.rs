//! Pages of units and batches by cursor.
//!
//! With a state, the index by stream and state provides a page without reading other rows. Without
//! one, the newest rows are scanned and filtered, a bounded number per page: a page may then be
//! short, or empty, and still have a next one.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use longshore_core::page::{BatchCursor, PageBytes, UnitCursor};
use longshore_core::sql_row::BATCH_COLUMNS;
use longshore_core::store::{Page, UnitFilter};
use longshore_core::{Batch, BatchStatus, Result, Scope, Unit, UnitId, UnitState};
use rusqlite::Connection;

use crate::error::{Translate, damaged};
use crate::queries::{session_id, stream_names, tenant_filter};
use crate::row::{Columns, StreamNames, UnitParts, UnitRow, state_codes, unit};
use crate::{batch, checkpoint};

/// Most rows scanned for one page without a state.
const MAX_SCAN: u32 = 20_000;

/// Names of streams, cached for one page.
type NameCache = HashMap<i64, Arc<StreamNames>>;

/// A filter: tenant, queue, kind, batch.
type StreamFilter<'f> = (Option<&'f str>, Option<&'f str>, Option<&'f str>, Option<&'f str>);

/// The streams that match a filter, by its four names.
const STREAMS_SQL: &str = "longshore_stream s JOIN longshore_lane l ON l.num = s.lane
     JOIN longshore_queue q ON q.num = l.queue
     WHERE (?1 IS NULL OR l.tenant = ?1) AND (?2 IS NULL OR q.name = ?2)
     AND (?3 IS NULL OR s.kind = ?3)
     AND (?4 IS NULL OR s.batch = (SELECT num FROM longshore_batch WHERE name = ?4))";

/// A page of units.
pub(crate) fn units(
    db: &Connection,
    scope: &Scope,
    filter: &UnitFilter,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<Unit>> {
    let batch = filter.batch.as_ref().map(|id| scope.batch_id(id));
    let filter_by = (
        tenant_filter(scope),
        filter.queue.as_ref().map(AsRef::as_ref),
        filter.kind.as_ref().map(AsRef::as_ref),
        batch.as_ref().map(AsRef::as_ref),
    );
    let after = UnitCursor::parse(after)?;
    match filter.state {
        Some(state) => by_state(db, filter_by, state, after, limit),
        None => by_id(db, filter_by, after, limit),
    }
}

fn by_state(
    db: &Connection,
    filter_by: StreamFilter<'_>,
    state: UnitState,
    after: UnitCursor,
    limit: u32,
) -> Result<Page<Unit>> {
    let mut found: Vec<UnitCursor> = Vec::new();
    for code in state_codes(state) {
        for stream in newest_streams(db, filter_by, state, *code, after, limit as usize + 1)? {
            found.extend(newest(db, stream, *code, after, limit + 1)?);
        }
    }
    found.sort_by(|a, b| b.cmp(a));
    let found = Page::first(found, limit, ToString::to_string);
    let page = page(db, found.items.iter().map(|at| at.id), found.next)?;
    Ok(page.within_bytes(|at, _| found.items[at].to_string()))
}

/// The streams with the newest units: a page of n has units of no other stream. One look-up per
/// stream, in one statement, even with thousands of batches; includes ties.
fn newest_streams(
    db: &Connection,
    (tenant, queue, kind, batch): StreamFilter<'_>,
    state: UnitState,
    code: u8,
    after: UnitCursor,
    limit: usize,
) -> Result<Vec<i64>> {
    // Without `IS NOT NULL`: SQLite would run the subquery twice.
    let sql = format!(
        "SELECT s.num, (SELECT u.sort_key FROM longshore_unit u INDEXED BY longshore_unit_sort
         WHERE u.stream = s.num AND u.state = ?5 AND (u.sort_key, u.id) < (?6, ?7)
         ORDER BY u.sort_key DESC, u.id DESC LIMIT 1)
         FROM {STREAMS_SQL} AND s.{state} > 0"
    );
    let mut statement = db.prepare_cached(&sql).or_translate()?;
    let mut rows = statement
        .query((tenant, queue, kind, batch, code, after.sort_key, after.id.as_bytes()))
        .or_translate()?;
    let mut heads: Vec<(i64, i64)> = Vec::new();
    while let Some(row) = rows.next().or_translate()? {
        if let Some(sort_key) = row.get(1).or_translate()? {
            heads.push((sort_key, row.get(0).or_translate()?));
        }
    }
    heads.sort_unstable_by(|a, b| b.cmp(a));
    let least = heads.get(limit - 1).map_or(i64::MIN, |(sort_key, _)| *sort_key);
    Ok(heads.into_iter().take_while(|(sort_key, _)| *sort_key >= least).map(|(_, num)| num).collect())
}

/// The newest units of a stream in a state.
fn newest(db: &Connection, stream: i64, code: u8, after: UnitCursor, limit: u32) -> Result<Vec<UnitCursor>> {
    db.prepare_cached(
        "SELECT sort_key, id FROM longshore_unit INDEXED BY longshore_unit_sort
         WHERE stream = ?1 AND state = ?2 AND (sort_key, id) < (?3, ?4)
         ORDER BY sort_key DESC, id DESC LIMIT ?5",
    )
    .or_translate()?
    .query_map((stream, code, after.sort_key, after.id.as_bytes(), limit), |row| {
        Ok(UnitCursor { sort_key: row.get(0)?, id: UnitId::from_bytes(row.get(1)?) })
    })
    .or_translate()?
    .collect::<rusqlite::Result<_>>()
    .or_translate()
}

fn by_id(db: &Connection, filter_by: StreamFilter<'_>, after: UnitCursor, limit: u32) -> Result<Page<Unit>> {
    let streams = matching_streams(db, filter_by)?;
    let mut statement = db
        .prepare_cached("SELECT id, stream FROM longshore_unit WHERE id < ?1 ORDER BY id DESC LIMIT ?2")
        .or_translate()?;
    let mut rows = statement.query((after.id.as_bytes(), MAX_SCAN + 1)).or_translate()?;
    let (mut ids, mut scanned, mut last) = (Vec::new(), 0, after.id);
    while let Some(row) = rows.next().or_translate()? {
        let id = UnitId::from_bytes(row.get(0).or_translate()?);
        if ids.len() == limit as usize {
            return page_by_id(db, ids, Some(UnitCursor::by_id(last)));
        }
        if scanned == MAX_SCAN {
            return page_by_id(db, ids, Some(UnitCursor::between(last, id)));
        }
        scanned += 1;
        last = id;
        let stream = row.get(1).or_translate()?;
        if streams.as_ref().is_none_or(|streams| streams.contains(&stream)) {
            ids.push(id);
        }
    }
    page_by_id(db, ids, None)
}

fn page_by_id(db: &Connection, ids: Vec<UnitId>, next: Option<UnitCursor>) -> Result<Page<Unit>> {
    let page = page(db, ids.into_iter(), next.map(|next| next.to_string()))?;
    Ok(page.within_bytes(|_, unit| UnitCursor::by_id(unit.id).to_string()))
}

/// The streams that match a filter; `None` if all do.
fn matching_streams(db: &Connection, filter_by: StreamFilter<'_>) -> Result<Option<HashSet<i64>>> {
    if filter_by == (None, None, None, None) {
        return Ok(None);
    }
    let sql = format!("SELECT s.num FROM {STREAMS_SQL}");
    let mut statement = db.prepare_cached(&sql).or_translate()?;
    let nums = statement.query_map(filter_by, |row| row.get(0)).or_translate()?;
    Ok(Some(nums.collect::<rusqlite::Result<_>>().or_translate()?))
}

fn page(db: &Connection, ids: impl Iterator<Item = UnitId>, next: Option<String>) -> Result<Page<Unit>> {
    let mut names = NameCache::new();
    let items = ids.map(|id| load_without_values(db, &mut names, id)).collect::<Result<_>>()?;
    Ok(Page { items, next })
}

/// A unit without payload, checkpoint and result.
fn load_without_values(db: &Connection, names: &mut NameCache, id: UnitId) -> Result<Unit> {
    let sql = format!(
        "SELECT {}, {} FROM longshore_unit u WHERE u.id = ?1",
        UnitRow::COLUMNS,
        UnitParts::SHORT_COLUMNS
    );
    let mut statement = db.prepare_cached(&sql).or_translate()?;
    let mut rows = statement.query([id.as_bytes()]).or_translate()?;
    let found = rows.next().or_translate()?.ok_or_else(|| damaged("an index without its row"))?;
    let found = Columns(found);
    let row = UnitRow::read(&found)?;
    let parts = UnitParts::read_short(&found, UnitRow::WIDTH)?;
    let names = match names.entry(row.stream) {
        Entry::Occupied(cached) => cached.into_mut(),
        Entry::Vacant(new) => new.insert(stream_names(db, row.stream)?),
    };
    let session = session_id(db, row.session)?;
    unit(row, parts, names, session)
}

/// A page of batches.
pub(crate) fn batches(
    db: &Connection,
    scope: &Scope,
    status: Option<BatchStatus>,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<Batch>> {
    let BatchCursor { opened_at, id } = BatchCursor::parse(after)?;
    let sql = format!(
        "SELECT {BATCH_COLUMNS} FROM longshore_batch b INDEXED BY longshore_batch_age
         WHERE (b.initiated_at, b.name) < (?1, ?2) AND (?3 IS NULL OR b.tenant = ?3)
         AND (?4 IS NULL OR b.status = ?4) ORDER BY b.initiated_at DESC, b.name DESC LIMIT ?5"
    );
    let mut statement = db.prepare_cached(&sql).or_translate()?;
    let status = status.map(BatchStatus::as_str);
    let mut rows =
        statement.query((opened_at, id, tenant_filter(scope), status, limit + 1)).or_translate()?;
    let (mut items, mut bytes) = (Vec::new(), PageBytes::default());
    while let Some(row) = rows.next().or_translate()? {
        let num = row.get(0).or_translate()?;
        let batch = Batch { sums: checkpoint::sums(db, num)?, ..batch::read(db, row)? };
        let fits = bytes.fits(&batch);
        items.push(batch);
        // The page ends before this batch.
        if !fits && items.len() > 1 {
            break;
        }
    }
    let cursor = |batch: &Batch| BatchCursor::of(batch).to_string();
    Ok(Page::first(items, limit, cursor).within_bytes(|_, batch| cursor(batch)))
}
