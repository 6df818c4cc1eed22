//! The stored stride-scheduling positions of lanes.
//!
//! A lane without ready units earns no credit. When it has ready units again it is marked as
//! joining; the next claim that covers it together with other lanes moves it level with them. Only
//! lanes of the same claim count: other workers serve the others, at another speed.

use longshore_core::Result;
use longshore_core::fair::{LaneShare, entry_pass};
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

/// The pass at which joining lanes start: that of the next lane, or, if all are joining, the
/// largest.
pub(crate) fn entry_level<'l>(
    lanes: impl Iterator<Item = (&'l LaneShare, bool)> + Clone,
) -> Option<u64> {
    let settled = lanes.clone().filter(|(_, joins)| !joins).map(|(share, _)| share.pass);
    settled.min().or_else(|| lanes.map(|(share, _)| share.pass).max())
}

/// Moves a joining lane level with the others.
pub(crate) fn level_up(share: &mut LaneShare, level: Option<u64>) {
    share.pass = entry_pass(share.pass, level);
}

/// Stores a lane's pass.
pub(crate) fn save(db: &Connection, lane: i64, share: LaneShare) -> Result<()> {
    db.prepare_cached("UPDATE longshore_lane SET pass = ?2, pass_stale = 0 WHERE num = ?1")
        .or_translate()?
        .execute((lane, share.pass))
        .or_translate()?;
    Ok(())
}
