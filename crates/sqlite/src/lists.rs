//! Reading many: pages of units and batches by cursor.
//!
//! With a state, the index by stream and state gives a page without looking at other rows. With
//! none, the newest rows are walked and filtered, a bounded number per page: a page may then be
//! short, or empty, and still have a next one.

use std::collections::HashMap;
use std::sync::Arc;

use longshore_core::store::{Page, UnitFilter};
use longshore_core::{
    Batch, BatchId, BatchStatus, Error, Kind, QueueName, Result, Scope, TenantId, Unit, UnitState,
};
use rusqlite::{Connection, Row};

use crate::error::{Translate, damaged};
use crate::inspect::{session_id, tenant};
use crate::row::{StreamNames, UnitParts, UnitRow, codes, unit};
use crate::{batch, checkpoint};

/// Rows walked for one page without a state.
const WALK: u32 = 20_000;

type Streams = HashMap<i64, Arc<StreamNames>>;

/// A page of units.
pub(crate) fn units(
    db: &Connection,
    scope: &Scope,
    filter: &UnitFilter,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<Unit>> {
    let streams = streams(db, scope, filter)?;
    let after = after.map(Cursor::parse).transpose()?;
    match filter.state {
        Some(state) => by_state(db, &streams, codes(state), after, limit),
        None => by_id(db, &streams, after, limit),
    }
}

/// The streams that a filter allows and that have units in its state: few, however many units there are.
fn streams(db: &Connection, scope: &Scope, filter: &UnitFilter) -> Result<Streams> {
    let mut statement = db
        .prepare_cached(
            "SELECT s.num, s.kind, l.tenant, q.name, b.name FROM longshore_stream s
             JOIN longshore_lane l ON l.num = s.lane
             JOIN longshore_queue q ON q.num = l.queue LEFT JOIN longshore_batch b ON b.num = s.batch
             WHERE (?1 IS NULL OR l.tenant = ?1) AND (?2 IS NULL OR q.name = ?2)
             AND (?3 IS NULL OR s.kind = ?3)
             AND (?4 IS NULL OR s.batch = (SELECT num FROM longshore_batch WHERE name = ?4))
             AND CASE ?5 WHEN 'blocked' THEN s.blocked WHEN 'scheduled' THEN s.scheduled
             WHEN 'ready' THEN s.ready WHEN 'leased' THEN s.leased WHEN 'done' THEN s.done
             WHEN 'failed' THEN s.failed WHEN 'cancelled' THEN s.cancelled ELSE 1 END > 0",
        )
        .or_translate()?;
    let mut rows = statement
        .query((
            tenant(scope),
            filter.queue.as_ref().map(AsRef::as_ref),
            filter.kind.as_ref().map(AsRef::as_ref),
            filter.batch.as_ref().map(AsRef::as_ref),
            filter.state.map(UnitState::as_str),
        ))
        .or_translate()?;
    let mut streams = Streams::new();
    while let Some(row) = rows.next().or_translate()? {
        streams.insert(row.get(0).or_translate()?, Arc::new(names(row)?));
    }
    Ok(streams)
}

fn names(row: &Row<'_>) -> Result<StreamNames> {
    let text = |at: usize| row.get::<_, String>(at).or_translate();
    let batch = row.get::<_, Option<String>>(4).or_translate()?;
    Ok(StreamNames {
        kind: Kind::new(text(1)?).map_err(damaged)?,
        tenant: TenantId::new(text(2)?).map_err(damaged)?,
        queue: QueueName::new(text(3)?).map_err(damaged)?,
        batch: batch.map(BatchId::new).transpose().map_err(damaged)?,
    })
}

/// Where a page ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cursor {
    place: i64,
    id: [u8; 16],
}

impl Cursor {
    fn parse(text: &str) -> Result<Self> {
        let bad = || Error::Invalid(format!("`{text}` is not a page cursor"));
        let (place, id) = text.split_once('.').ok_or_else(bad)?;
        let id = id.parse::<longshore_core::UnitId>().map_err(|_| bad())?;
        Ok(Self { place: place.parse().map_err(|_| bad())?, id: *id.as_bytes() })
    }

    fn text(self) -> String {
        format!("{}.{}", self.place, longshore_core::UnitId::from_bytes(self.id))
    }
}

fn by_state(
    db: &Connection,
    streams: &Streams,
    codes: &[u8],
    after: Option<Cursor>,
    limit: u32,
) -> Result<Page<Unit>> {
    let after = after.unwrap_or(Cursor { place: i64::MAX, id: [0xff; 16] });
    // A page has units of few streams: those whose newest units are the newest. Of thousands of batches
    // only those are looked into any further.
    let mut heads: Vec<(Cursor, i64, u8)> = Vec::new();
    for stream in streams.keys() {
        for code in codes {
            let head = newest(db, *stream, *code, after, 1)?;
            heads.extend(head.first().map(|head| (*head, *stream, *code)));
        }
    }
    heads.sort_by(|a, b| b.cmp(a));
    heads.truncate(limit as usize + 1);
    let mut found: Vec<Cursor> = Vec::new();
    for (_, stream, code) in heads {
        found.extend(newest(db, stream, code, after, limit + 1)?);
    }
    found.sort_by(|a, b| b.cmp(a));
    let more = found.len() > limit as usize;
    found.truncate(limit as usize);
    let next = found.last().filter(|_| more).map(|last| last.text());
    let items = found.iter().map(|at| light(db, streams, at.id)).collect::<Result<_>>()?;
    Ok(Page { items, next })
}

/// The newest units of a stream in a state.
fn newest(
    db: &Connection,
    stream: i64,
    code: u8,
    after: Cursor,
    limit: u32,
) -> Result<Vec<Cursor>> {
    db.prepare_cached(
        "SELECT place, id FROM longshore_unit INDEXED BY longshore_unit_place
         WHERE stream = ?1 AND state = ?2 AND (place, id) < (?3, ?4)
         ORDER BY place DESC, id DESC LIMIT ?5",
    )
    .or_translate()?
    .query_map((stream, code, after.place, after.id, limit), |row| {
        Ok(Cursor { place: row.get(0)?, id: row.get(1)? })
    })
    .or_translate()?
    .collect::<rusqlite::Result<_>>()
    .or_translate()
}

fn by_id(
    db: &Connection,
    streams: &Streams,
    after: Option<Cursor>,
    limit: u32,
) -> Result<Page<Unit>> {
    let before = after.map_or([0xff; 16], |after| after.id);
    let mut statement = db
        .prepare_cached(
            "SELECT id, stream FROM longshore_unit WHERE id < ?1 ORDER BY id DESC LIMIT ?2",
        )
        .or_translate()?;
    let mut rows = statement.query((before, WALK)).or_translate()?;
    let (mut ids, mut walked, mut last) = (Vec::new(), 0, None);
    while let Some(row) = rows.next().or_translate()? {
        let id: [u8; 16] = row.get(0).or_translate()?;
        if ids.len() == limit as usize {
            let next = last.map(|id| Cursor { place: 0, id }.text());
            return page(db, streams, &ids, next);
        }
        walked += 1;
        last = Some(id);
        if streams.contains_key(&row.get(1).or_translate()?) {
            ids.push(id);
        }
    }
    let next = last.filter(|_| walked == WALK).map(|id| Cursor { place: 0, id }.text());
    page(db, streams, &ids, next)
}

fn page(
    db: &Connection,
    streams: &Streams,
    ids: &[[u8; 16]],
    next: Option<String>,
) -> Result<Page<Unit>> {
    let items = ids.iter().map(|id| light(db, streams, *id)).collect::<Result<_>>()?;
    Ok(Page { items, next })
}

/// A unit without its bytes.
fn light(db: &Connection, streams: &Streams, id: [u8; 16]) -> Result<Unit> {
    let sql = format!(
        "SELECT {}, u.failure, u.progress FROM longshore_unit u WHERE u.id = ?1",
        UnitRow::COLUMNS
    );
    let mut statement = db.prepare_cached(&sql).or_translate()?;
    let mut rows = statement.query([id]).or_translate()?;
    let found = rows.next().or_translate()?.ok_or_else(|| damaged("an index without its row"))?;
    let row = UnitRow::read(found)?;
    let parts = UnitParts {
        failure: found.get(16).or_translate()?,
        progress: found.get(17).or_translate()?,
        payload: None,
        checkpoint: None,
        result: None,
    };
    let names = streams.get(&row.stream).ok_or_else(|| damaged("a unit without its stream"))?;
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
    let before: i64 = match after {
        None => i64::MAX,
        Some(text) => {
            text.parse().map_err(|_| Error::Invalid(format!("`{text}` is not a page cursor")))?
        }
    };
    let sql = format!(
        "SELECT {} FROM longshore_batch b WHERE b.num < ?1 AND (?2 IS NULL OR b.tenant = ?2)
         AND (?3 IS NULL OR b.status = ?3) ORDER BY b.num DESC LIMIT ?4",
        batch::COLUMNS
    );
    let mut statement = db.prepare_cached(&sql).or_translate()?;
    let status = status.map(BatchStatus::as_str);
    let mut rows = statement.query((before, tenant(scope), status, limit + 1)).or_translate()?;
    let mut items = Vec::new();
    let mut last = 0;
    while let Some(row) = rows.next().or_translate()? {
        if items.len() == limit as usize {
            return Ok(Page { items, next: Some(last.to_string()) });
        }
        last = row.get::<_, i64>(0).or_translate()?;
        items.push(Batch { sums: checkpoint::sums(db, last)?, ..batch::read(db, row)? });
    }
    Ok(Page { items, next: None })
}
