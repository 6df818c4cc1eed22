//! Payloads, checkpoints and results: small payloads and results in the unit's row, everything else
//! in a table of its own.
//!
//! SQLite rewrites a whole row when its state changes. A large payload in the row would be
//! rewritten three times in a unit's life; in its own table it is written once. A checkpoint is
//! deleted when its unit is done. In the row it would leave a gap that no other row fills.

use longshore_core::{Payload, Result, UnitId};
use rusqlite::{Connection, OptionalExtension};

use crate::error::Translate;
use crate::row::flag;

/// Larger values go to the overflow table. A quarter of a page, so that several rows fit on a page.
const MAX_INLINE_BYTES: usize = 1024;

/// A value of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueKind {
    Payload = 0,
    Checkpoint = 1,
    Result = 2,
}

impl ValueKind {
    /// The flag for a value in the overflow table.
    pub(crate) fn flag(self) -> i64 {
        flag::OVERFLOW[self as usize]
    }
}

/// Whether a payload or result is small enough for the row.
pub(crate) fn fits_in_row(bytes: &Payload) -> bool {
    bytes.len() <= MAX_INLINE_BYTES
}

/// Stores a value that is not for the row. Returns the value for the row, or the flag to set if it is not in the row.
pub(crate) fn store<'b>(
    db: &Connection,
    unit: UnitId,
    kind: ValueKind,
    bytes: &'b Payload,
) -> Result<(Option<&'b [u8]>, i64)> {
    if kind != ValueKind::Checkpoint && fits_in_row(bytes) {
        return Ok((Some(bytes.as_bytes()), 0));
    }
    db.prepare_cached(
        "INSERT INTO longshore_overflow_value (unit, field, value) VALUES (?1, ?2, ?3)
         ON CONFLICT (unit, field) DO UPDATE SET value = excluded.value",
    )
    .or_translate()?
    .execute((unit.as_bytes(), kind as u8, bytes.as_bytes()))
    .or_translate()?;
    Ok((None, kind.flag()))
}

/// Loads a value from the overflow table.
pub(crate) fn load(db: &Connection, unit: UnitId, kind: ValueKind) -> Result<Option<Payload>> {
    db.prepare_cached("SELECT value FROM longshore_overflow_value WHERE unit = ?1 AND field = ?2")
        .or_translate()?
        .query_row((unit.as_bytes(), kind as u8), |row| Ok(Payload::from(row.get_ref(0)?.as_blob()?)))
        .optional()
        .or_translate()
}

/// Deletes a unit's checkpoint.
pub(crate) fn delete_checkpoint(db: &Connection, unit: UnitId) -> Result<()> {
    db.prepare_cached("DELETE FROM longshore_overflow_value WHERE unit = ?1 AND field = 1")
        .or_translate()?
        .execute([unit.as_bytes()])
        .or_translate()?;
    Ok(())
}
