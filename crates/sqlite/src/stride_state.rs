//! The stored stride-scheduling positions of lanes.
//!
//! A lane without ready units earns no credit. When it has ready units again it is marked as
//! joining; the next claim that covers it together with other lanes moves it level with them. Only
//! lanes of the same claim count: other workers serve the others, at another speed.

use longshore_core::Result;
use rusqlite::Connection;

use crate::error::Translate;

/// A stream of this lane has ready units again: if the lane had none, marks it as joining.
pub(crate) fn mark_if_joining(db: &Connection, lane: i64, stream: i64) -> Result<()> {
    db.prepare_cached(
        "UPDATE longshore_lane SET pass_stale = 1 WHERE num = ?1 AND pass_stale = 0 AND NOT EXISTS
         (SELECT 1 FROM longshore_stream INDEXED BY longshore_stream_ready
          WHERE lane = ?1 AND ready > 0 AND num <> ?2)",
    )
    .or_translate()?
    .execute([lane, stream])
    .or_translate()?;
    Ok(())
}

/// Stores a lane's pass.
pub(crate) fn save(db: &Connection, lane: i64, pass: u64) -> Result<()> {
    db.prepare_cached("UPDATE longshore_lane SET pass = ?2, pass_stale = 0 WHERE num = ?1")
        .or_translate()?
        .execute((lane, pass))
        .or_translate()?;
    Ok(())
}
