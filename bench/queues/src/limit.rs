//! The limit: the store's own statements in a plain loop. No engine, no batches, no change feed,
//! one connection, the same durability. Nothing built on these statements can be faster.

use anyhow::Result;
use longshore_sqlite::rusqlite::config::DbConfig;
use longshore_sqlite::rusqlite::{Connection, params};

/// Rows per transaction, as in the engine's bulk send.
const SEND: usize = 1000;
/// Rows per claim and per finish.
const CLAIM: usize = 500;

/// Opens a connection with the settings of the store's writer.
pub(crate) fn connect(path: &std::path::Path) -> Result<Connection> {
    let db = Connection::open(path)?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "wal_autocheckpoint", 4000)?;
    db.pragma_update(None, "cache_size", -16_000)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    synchronous(&db, "FULL")?;
    db.execute_batch(
        "INSERT OR IGNORE INTO longshore_queue (num, name) VALUES (1, 'default');
         INSERT OR IGNORE INTO longshore_lane (num, queue, tenant) VALUES (1, 1, 'default');
         INSERT OR IGNORE INTO longshore_stream (num, lane, kind) VALUES (1, 1, 'noop');",
    )?;
    Ok(db)
}

fn synchronous(db: &Connection, level: &str) -> Result<()> {
    Ok(db.pragma_update(None, "synchronous", level)?)
}

/// Inserts `count` units.
pub(crate) fn send(db: &Connection, count: usize) -> Result<()> {
    synchronous(db, "FULL")?;
    let mut insert = db.prepare(
        "INSERT OR IGNORE INTO longshore_unit (id, stream, state, sort_key, priority, created_at,
         deadline, flags, open_dependencies, bytes, dedup_key, cap_key, spec, payload)
         VALUES (?1, 1, 2, ?2, 5, ?2, NULL, 0, 0, ?3, NULL, NULL, NULL, ?4)",
    )?;
    let mut tally =
        db.prepare("UPDATE longshore_stream SET ready = ready + ?1, bytes = bytes + ?2 WHERE num = 1")?;
    let mut sent = 0;
    while sent < count {
        let part = SEND.min(count - sent);
        db.execute_batch("BEGIN IMMEDIATE")?;
        let mut bytes = 0;
        for i in sent..sent + part {
            let payload = format!("{{\"i\":{i}}}");
            bytes += payload.len();
            let id = longshore::UnitId::new();
            insert.execute(params![id.as_bytes(), i as i64, payload.len(), payload.as_bytes()])?;
        }
        tally.execute(params![part, bytes])?;
        db.execute_batch("COMMIT")?;
        sent += part;
    }
    Ok(())
}

/// Claims and finishes all ready units; returns their number.
pub(crate) fn process(db: &Connection) -> Result<usize> {
    db.execute_batch(
        "INSERT OR IGNORE INTO longshore_session (num, id, label, version, kinds, slots, ttl,
         opened_at, heartbeat_at) VALUES (1, zeroblob(16), '', '', '{}', 1, 1, 0, 0)",
    )?;
    let mut done = 0;
    loop {
        synchronous(db, "NORMAL")?;
        let units = claim(db)?;
        if units.is_empty() {
            return Ok(done);
        }
        synchronous(db, "FULL")?;
        finish(db, &units)?;
        done += units.len();
    }
}

/// A claimed unit: its id and its bytes.
type Claimed = ([u8; 16], i64);

fn claim(db: &Connection) -> Result<Vec<Claimed>> {
    let mut find = db.prepare_cached(
        "SELECT sort_key, id, flags & ~6144 = 0 AND attempt = 0 AND lost = 0 AND spec IS NULL
         AND failure IS NULL, priority, fence, created_at, bytes, flags, payload
         FROM longshore_unit INDEXED BY longshore_unit_sort
         WHERE stream = 1 AND state = 2 ORDER BY sort_key, id LIMIT ?1",
    )?;
    let mut lease = db.prepare_cached(
        "UPDATE longshore_unit SET state = 3, sort_key = ?2, session = ?3, fence = ?4, attempt = ?5,
         started_at = ?6 WHERE id = ?1",
    )?;
    db.execute_batch("BEGIN IMMEDIATE")?;
    let units: Vec<Claimed> = find
        .query_map([CLAIM], |row| {
            std::hint::black_box(row.get::<_, Vec<u8>>("payload")?);
            Ok((row.get("id")?, row.get("bytes")?))
        })?
        .collect::<longshore_sqlite::rusqlite::Result<_>>()?;
    for (id, _) in &units {
        lease.execute(params![id, 1, 1, 1, 1, 1])?;
    }
    db.prepare_cached("UPDATE longshore_stream SET ready = ready - ?1, leased = leased + ?1 WHERE num = 1")?
        .execute([units.len()])?;
    db.execute_batch("COMMIT")?;
    Ok(units)
}

fn finish(db: &Connection, units: &[Claimed]) -> Result<()> {
    let mut end = db.prepare_cached(
        "UPDATE longshore_unit SET state = 4, sort_key = ?2, session = NULL, started_at = NULL,
         attempt = attempt + (started_at IS NULL), lost = 0, progress = NULL, failure = NULL,
         result = ?5
         WHERE id = ?1 AND session = ?3 AND fence = ?4 AND flags & ~6144 = 0 AND cap_key IS NULL",
    )?;
    db.execute_batch("BEGIN IMMEDIATE")?;
    let mut bytes = 0;
    for (id, size) in units {
        bytes += size;
        end.execute(params![id, 2, 1, 1, None::<&[u8]>])?;
    }
    db.prepare_cached(
        "UPDATE longshore_stream SET leased = leased - ?1, done = done + ?1, bytes = bytes - ?2
         WHERE num = 1",
    )?
    .execute(params![units.len(), bytes])?;
    db.execute_batch("COMMIT")?;
    Ok(())
}

/// Writes `count` ended units, as the history of the store.
pub(crate) fn past(db: &Connection, count: usize) -> Result<()> {
    synchronous(db, "OFF")?;
    let mut insert = db.prepare(
        "INSERT INTO longshore_unit (id, stream, state, sort_key, priority, created_at, bytes,
         payload)
         VALUES (?1, 1, 4, ?2, 5, ?2, 8, x'7b2269223a317d20')",
    )?;
    for start in (0..count).step_by(50_000) {
        db.execute_batch("BEGIN IMMEDIATE")?;
        for i in start..(start + 50_000).min(count) {
            insert.execute(params![longshore::UnitId::new().as_bytes(), i as i64])?;
        }
        db.execute_batch("COMMIT")?;
    }
    db.execute("UPDATE longshore_stream SET done = done + ?1 WHERE num = 1", [count])?;
    synchronous(db, "FULL")?;
    // The history must be on disk before the measurement, or its write-back would be measured.
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(())
}
