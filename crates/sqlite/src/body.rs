//! Payloads, checkpoints and results: in the row while small, beside it when large.
//!
//! SQLite rewrites a whole row when its state changes. A large payload in the row would be
//! rewritten three times in a unit's life; in a table of its own it is written once.

use longshore_core::{Payload, Result, UnitId};
use rusqlite::{Connection, OptionalExtension};

use crate::error::Translate;
use crate::row::flag;

/// Larger ones go beside the row. A quarter of a page: rows stay several to a page.
const INLINE: usize = 1024;

/// Which bytes of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Payload = 0,
    Checkpoint = 1,
    Result = 2,
}

impl Part {
    /// The flag that says it is beside the row.
    pub(crate) fn flag(self) -> i64 {
        flag::BODY[self as usize]
    }
}

/// Whether bytes are small enough for the row.
pub(crate) fn fits_in_row(bytes: &Payload) -> bool {
    bytes.len() <= INLINE
}

/// Puts bytes away. Returns what belongs in the row, and the flag to set if it is not there.
pub(crate) fn put<'b>(
    db: &Connection,
    unit: UnitId,
    part: Part,
    bytes: &'b Payload,
) -> Result<(Option<&'b [u8]>, i64)> {
    if fits_in_row(bytes) {
        return Ok((Some(bytes.as_bytes()), 0));
    }
    db.prepare_cached(
        "INSERT INTO longshore_body (unit, part, data) VALUES (?1, ?2, ?3)
         ON CONFLICT (unit, part) DO UPDATE SET data = excluded.data",
    )
    .or_translate()?
    .execute((unit.as_bytes(), part as u8, bytes.as_bytes()))
    .or_translate()?;
    Ok((None, part.flag()))
}

/// Fetches bytes that lie beside the row.
pub(crate) fn fetch(db: &Connection, unit: UnitId, part: Part) -> Result<Option<Payload>> {
    db.prepare_cached("SELECT data FROM longshore_body WHERE unit = ?1 AND part = ?2")
        .or_translate()?
        .query_row((unit.as_bytes(), part as u8), |row| {
            Ok(Payload::from(row.get_ref(0)?.as_blob()?))
        })
        .optional()
        .or_translate()
}
