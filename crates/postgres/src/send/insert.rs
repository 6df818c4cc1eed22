//! Rows of new units as arrays, one per column: one statement inserts thousands.

use longshore_core::sql_encoding::{flag, flags};
use longshore_core::{NewUnit, Result, Timestamp, UnitState};
use tokio_postgres::Row;
use uuid::Uuid;

use super::lane_key;
use crate::error::{conflict, damaged};
use crate::row::{BULK, UnitAttributes, count, state, state_code, value};
use crate::store::StoreInner;
use crate::streams::Stream;
use crate::tx::Tx;
use crate::typed_params::{SqlParam, uuid};

/// Units per statement at most.
const MAX_CHUNK_UNITS: usize = 5_000;
/// Bytes of units per statement at most. PostgreSQL accepts a gigabyte.
const MAX_CHUNK_BYTES: u64 = 32 << 20;

/// Bytes of a bulk unit at most.
const MAX_BULK_BYTES: u64 = 16 << 10;

/// How many of the units one statement inserts: at least one.
pub(super) fn chunk_len<'u>(units: impl Iterator<Item = &'u NewUnit>) -> usize {
    let mut bytes = 0;
    let fits = |unit: &&NewUnit| {
        bytes += unit.stored_bytes();
        bytes <= MAX_CHUNK_BYTES
    };
    units.take(MAX_CHUNK_UNITS).take_while(fits).count().max(1)
}

/// A unit to insert.
pub(super) struct NewRow<'u> {
    pub(super) unit: &'u NewUnit,
    pub(super) stream: i64,
    pub(super) state: UnitState,
    pub(super) dedup: Option<Vec<u8>>,
    cap_key: Option<Vec<u8>>,
    sort_key: Timestamp,
    waits_for: usize,
}

impl<'u> NewRow<'u> {
    /// A unit with `waits_for` open dependencies.
    pub(super) fn new(now: Timestamp, unit: &'u NewUnit, stream: &Stream, waits_for: usize) -> Self {
        let (state, sort_key) = unit.initial_state(waits_for > 0, now);
        Self {
            unit,
            stream: stream.num,
            state,
            dedup: unit.dedup.as_ref().map(|dedup| lane_key(stream.lane, &dedup.key)),
            cap_key: unit.cap.as_ref().map(|cap| lane_key(stream.lane, &cap.key)),
            sort_key,
            waits_for,
        }
    }

    fn bytes(&self) -> i64 {
        i64::try_from(self.unit.stored_bytes()).unwrap_or(i64::MAX)
    }

    /// The code of its state. A unit that only has to run once is a bulk unit, unless it is large: claims return bulk
    /// units in arrays.
    fn state_code(&self, flags: i64) -> u8 {
        let plain = flags & !flag::SENT_BY_TENANT == 0 && self.dedup.is_none();
        let plain = plain && self.unit.stored_bytes() <= MAX_BULK_BYTES;
        if plain && self.state == UnitState::Ready { BULK } else { state_code(self.state) }
    }
}

/// One array per column.
#[derive(Default)]
struct NewUnitColumns<'r> {
    id: Vec<Uuid>,
    stream: Vec<i64>,
    state: Vec<i16>,
    sort_key: Vec<i64>,
    priority: Vec<i16>,
    deadline: Vec<Option<i64>>,
    flags: Vec<i64>,
    waits_for: Vec<i32>,
    bytes: Vec<i32>,
    dedup: Vec<Option<&'r [u8]>>,
    cap_key: Vec<Option<&'r [u8]>>,
    spec: Vec<Option<String>>,
    payload: Vec<&'r [u8]>,
}

impl<'r> NewUnitColumns<'r> {
    fn of(rows: &'r [NewRow<'_>]) -> Result<Self> {
        let mut columns = Self::default();
        for row in rows {
            columns.push(row)?;
        }
        Ok(columns)
    }

    fn push(&mut self, row: &'r NewRow<'_>) -> Result<()> {
        let (unit, flags) = (row.unit, flags(row.unit));
        self.id.push(uuid(unit.id));
        self.stream.push(row.stream);
        self.state.push(i16::from(row.state_code(flags)));
        self.sort_key.push(row.sort_key.as_micros());
        self.priority.push(i16::from(unit.priority.level()));
        self.deadline.push(unit.deadline.map(Timestamp::as_micros));
        self.flags.push(flags);
        self.waits_for.push(i32::try_from(row.waits_for).map_err(damaged)?);
        self.bytes.push(i32::try_from(unit.stored_bytes()).map_err(damaged)?);
        self.dedup.push(row.dedup.as_deref());
        self.cap_key.push(row.cap_key.as_deref());
        self.spec.push(UnitAttributes::encode(unit)?);
        self.payload.push(unit.payload.as_bytes());
        Ok(())
    }

    /// The arrays as parameters 1 to 13, then `more`.
    fn params<'a>(&'a self, more: &[&'a dyn SqlParam]) -> Vec<&'a dyn SqlParam> {
        let columns: [&dyn SqlParam; 13] = [
            &self.id,
            &self.stream,
            &self.state,
            &self.sort_key,
            &self.priority,
            &self.deadline,
            &self.flags,
            &self.waits_for,
            &self.bytes,
            &self.dedup,
            &self.cap_key,
            &self.spec,
            &self.payload,
        ];
        [&columns, more].concat()
    }
}

/// Parameters 1 to 13 are the arrays, 14 is the time. Returns how many rows were inserted.
const INSERT: &str = "WITH inserted AS (
      INSERT INTO longshore_unit (id, stream, state, sort_key, priority, deadline,
        flags, open_dependencies, bytes, dedup_key, cap_key, spec, payload, created_at)
      SELECT n.*, $14 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) n
      WHERE NOT (SELECT longshore_is_retired($2))
      ON CONFLICT DO NOTHING RETURNING id, stream, state, sort_key, flags),
    ready AS (
      INSERT INTO longshore_ready (stream, sort_key, id, claim)
      SELECT i.stream, i.sort_key, i.id, CASE WHEN i.state = 9 THEN 0 ELSE 1 + (i.flags & 1) END
      FROM inserted i WHERE i.state IN (2, 9))
    SELECT count(*) FROM inserted";

/// Further parameters: 15 are the lanes, 16 is whether the statement commits by itself.
const SEND_PLAIN: &str = "SELECT * FROM longshore_enqueue_fast($1, $2, $3, $4, $5, $6, $7, $8, $9, $10,
    $11, $12, $13, $14, $15, $16)";

/// Bulk units that differ in nothing but id and payload.
struct UniformRows<'r> {
    stream: i64,
    sort_key: i64,
    priority: i16,
    flags: i64,
    ids: Vec<Uuid>,
    sizes: Vec<i32>,
    payloads: Vec<&'r [u8]>,
}

/// Parameter 8 is the time, 9 are the lanes, 10 is whether the statement commits by itself.
const SEND_BULK: &str = "SELECT longshore_enqueue_bulk($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

impl<'r> UniformRows<'r> {
    fn of(rows: &'r [NewRow<'_>]) -> Result<Option<Self>> {
        let Some(first) = rows.first() else { return Ok(None) };
        let (flags, stream, sort_key) = (flags(first.unit), first.stream, first.sort_key);
        let same = |row: &NewRow<'_>| {
            (row.stream, row.sort_key, row.unit.priority) == (stream, sort_key, first.unit.priority)
                && self::flags(row.unit) == flags
                && row.state_code(flags) == BULK
        };
        let (mut ids, mut sizes, mut payloads) = (Vec::new(), Vec::new(), Vec::new());
        for row in rows {
            if !same(row) || UnitAttributes::encode(row.unit)?.is_some() {
                return Ok(None);
            }
            ids.push(uuid(row.unit.id));
            sizes.push(i32::try_from(row.unit.stored_bytes()).map_err(damaged)?);
            payloads.push(row.unit.payload.as_bytes());
        }
        let priority = i16::from(first.unit.priority.level());
        Ok(Some(Self { stream, sort_key: sort_key.as_micros(), priority, flags, ids, sizes, payloads }))
    }

    fn params<'a>(&'a self, more: &[&'a dyn SqlParam]) -> Vec<&'a dyn SqlParam> {
        let Self { stream, sort_key, priority, flags, ids, sizes, payloads } = self;
        let own: [&dyn SqlParam; 7] = [stream, sort_key, priority, flags, ids, sizes, payloads];
        [&own, more].concat()
    }
}

/// Inserts rows without dedup keys, and returns true. Returns false if one of `lanes` has a limit, its
/// tenant is suspended or a stream is retired: then nothing is inserted; or if an id exists: then the
/// others are.
pub(super) async fn insert_plain(tx: &mut Tx<'_>, rows: &[NewRow<'_>], lanes: &Vec<i64>) -> Result<bool> {
    if let Some(uniform) = UniformRows::of(rows)? {
        let now = tx.now.as_micros();
        if value(&tx.query_one(SEND_BULK, &uniform.params(&[&now, lanes, &false])).await?, 0)? {
            tx.note_counted(uniform.stream, None, UnitState::Ready);
            return Ok(true);
        }
    }
    let columns = NewUnitColumns::of(rows)?;
    let rows = tx.query(SEND_PLAIN, &columns.params(&[&tx.now.as_micros(), lanes, &false])).await?;
    let (inserted, all) = inserted_streams(&rows)?;
    for (stream, to) in inserted {
        tx.note_counted(stream, None, to);
    }
    Ok(all)
}

/// Inserts rows without dedup keys in autocommit mode, like [`insert_plain`]. Returns the streams that
/// received units, with their state, and whether all rows were inserted.
pub(super) async fn insert_plain_autocommit(
    inner: &StoreInner,
    now: Timestamp,
    rows: &[NewRow<'_>],
    lanes: &Vec<i64>,
) -> Result<(Vec<(i64, UnitState)>, bool)> {
    let now = now.as_micros();
    if let Some(uniform) = UniformRows::of(rows)? {
        let answer = inner.query_autocommit(SEND_BULK, &uniform.params(&[&now, lanes, &true])).await?;
        if answer.first().map_or(Ok(false), |row| value(row, 0))? {
            return Ok((vec![(uniform.stream, UnitState::Ready)], true));
        }
    }
    let columns = NewUnitColumns::of(rows)?;
    inserted_streams(&inner.query_autocommit(SEND_PLAIN, &columns.params(&[&now, lanes, &true])).await?)
}

/// The streams that received units, with their state, and whether all rows were inserted.
fn inserted_streams(rows: &[Row]) -> Result<(Vec<(i64, UnitState)>, bool)> {
    let (mut inserted, mut all) = (Vec::with_capacity(rows.len()), true);
    for row in rows {
        match value(row, 0)? {
            0 => all = false,
            stream => inserted.push((stream, state(value(row, 1)?)?)),
        }
    }
    Ok((inserted, all))
}

/// Inserts admitted rows. If a row conflicts, another transaction has taken its id or its key in
/// the meantime, or its cached stream was retired, and the whole send must be decided again.
pub(super) async fn insert_admitted(tx: &mut Tx<'_>, rows: &[NewRow<'_>]) -> Result<()> {
    let mut rest = rows;
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(chunk_len(rest.iter().map(|row| row.unit)));
        let columns = NewUnitColumns::of(chunk)?;
        let inserted = tx.query_one(INSERT, &columns.params(&[&tx.now.as_micros()])).await?;
        if count::<usize>(&inserted, 0)? != chunk.len() {
            tx.streams.evict(chunk.iter().map(|row| row.stream));
            return Err(conflict());
        }
        for row in chunk {
            tx.count_transition(row.stream, None, Some(row.state), row.bytes());
        }
        rest = after;
    }
    Ok(())
}
