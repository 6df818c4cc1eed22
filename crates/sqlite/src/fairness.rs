//! The lanes' places in the order of turns (stride scheduling), as they are kept.
//!
//! A lane that had nothing ready earns no credit by that. When it has something again it is marked
//! as joining; the next claim that sees it beside other lanes levels it with them. Only lanes of the
//! same claim count: others are served by other workers, faster or slower.

use longshore_core::Result;
use longshore_core::fair::{LaneShare, entry_pass};
use rusqlite::Connection;

use crate::error::Translate;

/// A stream of this lane has ready units again; if the lane had none at all, it joins anew.
pub(crate) fn mark_if_joining(db: &Connection, lane: i64, stream: i64) -> Result<()> {
    db.prepare_cached(
        "UPDATE longshore_lane SET joins = 1 WHERE num = ?1 AND joins = 0 AND NOT EXISTS
         (SELECT 1 FROM longshore_stream INDEXED BY longshore_stream_ready
          WHERE lane = ?1 AND ready > 0 AND num <> ?2)",
    )
    .or_translate()?
    .execute([lane, stream])
    .or_translate()?;
    Ok(())
}

/// Where a joining lane starts: level with the lane that is next, or with the furthest of those
/// that join together.
pub(crate) fn level<'l>(lanes: impl Iterator<Item = (&'l LaneShare, bool)> + Clone) -> Option<u64> {
    let settled = lanes.clone().filter(|(_, joins)| !joins).map(|(share, _)| share.pass);
    settled.min().or_else(|| lanes.map(|(share, _)| share.pass).max())
}

/// Moves a joining lane to the others' level.
pub(crate) fn join(share: &mut LaneShare, level: Option<u64>) {
    share.pass = entry_pass(share.pass, level);
}

/// Keeps a lane's place.
pub(crate) fn save(db: &Connection, lane: i64, share: LaneShare) -> Result<()> {
    db.prepare_cached("UPDATE longshore_lane SET pass = ?2, joins = 0 WHERE num = ?1")
        .or_translate()?
        .execute((lane, share.pass))
        .or_translate()?;
    Ok(())
}
