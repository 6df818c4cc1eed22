//! The lanes' places in the order of turns (stride scheduling), as they are kept.

use longshore_core::Result;
use longshore_core::fair::{LaneShare, entry_pass};
use rusqlite::Connection;

use crate::error::Translate;

/// A stream of this lane has ready units again. If the lane had none at all, it joins the others
/// level with the one that is next: silence earns no credit.
pub(crate) fn join_in(db: &Connection, lane: i64, stream: i64) -> Result<()> {
    let was_silent: bool = db
        .prepare_cached(
            "SELECT NOT EXISTS (SELECT 1 FROM longshore_stream INDEXED BY longshore_stream_ready
             WHERE lane = ?1 AND ready > 0 AND num <> ?2)",
        )
        .or_translate()?
        .query_row([lane, stream], |row| row.get(0))
        .or_translate()?;
    if !was_silent {
        return Ok(());
    }
    let (own, smallest): (u64, Option<u64>) = db
        .prepare_cached(
            "SELECT pass, (SELECT min(o.pass) FROM longshore_stream s
               INDEXED BY longshore_stream_ready JOIN longshore_lane o ON o.num = s.lane
               WHERE s.ready > 0 AND s.lane <> ?1)
             FROM longshore_lane WHERE num = ?1",
        )
        .or_translate()?
        .query_row([lane], |row| Ok((row.get(0)?, row.get(1)?)))
        .or_translate()?;
    let pass = entry_pass(own, smallest);
    if pass == own { Ok(()) } else { save(db, lane, pass) }
}

/// Keeps the places of lanes that gave units.
pub(crate) fn save_all(
    db: &Connection,
    lanes: impl Iterator<Item = (i64, LaneShare)>,
) -> Result<()> {
    lanes.into_iter().try_for_each(|(lane, share)| save(db, lane, share.pass))
}

fn save(db: &Connection, lane: i64, pass: u64) -> Result<()> {
    db.prepare_cached("UPDATE longshore_lane SET pass = ?2 WHERE num = ?1")
        .or_translate()?
        .execute((lane, pass))
        .or_translate()?;
    Ok(())
}
