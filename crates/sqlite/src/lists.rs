//! Reading many: pages of units and batches by cursor.
//!
//! With a state, the index by stream and state gives a page without looking at other rows. With
//! none, the newest rows are walked and filtered, a bounded number per page: a page may then be
//! short, or empty, and still have a next one.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use longshore_core::store::{Page, UnitFilter};
use longshore_core::{Batch, BatchStatus, Error, Result, Scope, Unit, UnitState};
use rusqlite::Connection;

use crate::error::{Translate, damaged};
use crate::inspect::{session_id, stream_names, tenant};
use crate::row::{StreamNames, UnitParts, UnitRow, codes, unit};
use crate::{batch, checkpoint};

/// Rows walked for one page without a state.
const WALK: u32 = 20_000;

/// Names of streams, as far as they were needed.
type Names = HashMap<i64, Arc<StreamNames>>;

/// What a list is filtered by: tenant, queue, kind, batch.
type Wanted<'f> = (Option<&'f str>, Option<&'f str>, Option<&'f str>, Option<&'f str>);

/// The streams that a filter allows, by its four names.
const ALLOWED: &str = "longshore_stream s JOIN longshore_lane l ON l.num = s.lane
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
    let wanted = (
        tenant(scope),
        filter.queue.as_ref().map(AsRef::as_ref),
        filter.kind.as_ref().map(AsRef::as_ref),
        filter.batch.as_ref().map(AsRef::as_ref),
    );
    let after = after.map(Cursor::parse).transpose()?;
    match filter.state {
        Some(state) => by_state(db, wanted, state, after, limit),
        None => by_id(db, wanted, after, limit),
    }
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
    wanted: Wanted<'_>,
    state: UnitState,
    after: Option<Cursor>,
    limit: u32,
) -> Result<Page<Unit>> {
    let after = after.unwrap_or(Cursor { place: i64::MAX, id: [0xff; 16] });
    let mut found: Vec<Cursor> = Vec::new();
    for code in codes(state) {
        for stream in heads(db, wanted, state, *code, after, limit as usize + 1)? {
            found.extend(newest(db, stream, *code, after, limit + 1)?);
        }
    }
    found.sort_by(|a, b| b.cmp(a));
    let more = found.len() > limit as usize;
    found.truncate(limit as usize);
    let next = found.last().filter(|_| more).map(|last| last.text());
    page(db, found.iter().map(|at| at.id), next)
}

/// The streams whose newest units are the newest: a page of n has units of no others. One look each,
/// in one statement, however many thousands of batches there are; of equals all.
fn heads(
    db: &Connection,
    (tenant, queue, kind, batch): Wanted<'_>,
    state: UnitState,
    code: u8,
    after: Cursor,
    most: usize,
) -> Result<Vec<i64>> {
    // Asked again whether it is null, SQLite would look twice.
    let sql = format!(
        "SELECT s.num, (SELECT u.place FROM longshore_unit u INDEXED BY longshore_unit_place
         WHERE u.stream = s.num AND u.state = ?5 AND (u.place, u.id) < (?6, ?7)
         ORDER BY u.place DESC, u.id DESC LIMIT 1)
         FROM {ALLOWED} AND s.{state} > 0"
    );
    let mut statement = db.prepare_cached(&sql).or_translate()?;
    let mut rows = statement
        .query((tenant, queue, kind, batch, code, after.place, after.id))
        .or_translate()?;
    let mut heads: Vec<(i64, i64)> = Vec::new();
    while let Some(row) = rows.next().or_translate()? {
        if let Some(place) = row.get(1).or_translate()? {
            heads.push((place, row.get(0).or_translate()?));
        }
    }
    heads.sort_unstable_by(|a, b| b.cmp(a));
    let least = heads.get(most - 1).map_or(i64::MIN, |(place, _)| *place);
    Ok(heads.into_iter().take_while(|(place, _)| *place >= least).map(|(_, num)| num).collect())
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
    wanted: Wanted<'_>,
    after: Option<Cursor>,
    limit: u32,
) -> Result<Page<Unit>> {
    let before = after.map_or([0xff; 16], |after| after.id);
    let allowed = allowed(db, wanted)?;
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
            return page(db, ids.into_iter(), next);
        }
        walked += 1;
        last = Some(id);
        let stream = row.get(1).or_translate()?;
        if allowed.as_ref().is_none_or(|allowed| allowed.contains(&stream)) {
            ids.push(id);
        }
    }
    let next = last.filter(|_| walked == WALK).map(|id| Cursor { place: 0, id }.text());
    page(db, ids.into_iter(), next)
}

/// The streams that a filter allows; `None` if it allows all.
fn allowed(db: &Connection, wanted: Wanted<'_>) -> Result<Option<HashSet<i64>>> {
    if wanted == (None, None, None, None) {
        return Ok(None);
    }
    let sql = format!("SELECT s.num FROM {ALLOWED}");
    let mut statement = db.prepare_cached(&sql).or_translate()?;
    let nums = statement.query_map(wanted, |row| row.get(0)).or_translate()?;
    Ok(Some(nums.collect::<rusqlite::Result<_>>().or_translate()?))
}

fn page(
    db: &Connection,
    ids: impl Iterator<Item = [u8; 16]>,
    next: Option<String>,
) -> Result<Page<Unit>> {
    let mut names = Names::new();
    let items = ids.map(|id| light(db, &mut names, id)).collect::<Result<_>>()?;
    Ok(Page { items, next })
}

/// A unit without its bytes.
fn light(db: &Connection, names: &mut Names, id: [u8; 16]) -> Result<Unit> {
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
    let names = match names.entry(row.stream) {
        Entry::Occupied(known) => known.into_mut(),
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
