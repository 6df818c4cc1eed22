//! The short way of a send: one statement, where no unit needs a second look and no lane has a bound.

use std::collections::BTreeSet;
use std::sync::Arc;

use longshore_core::store::Sent;
use longshore_core::{NewUnit, Result, Scope, UnitState};

use super::insert::{self, CHUNK, NewRow, chunk_end};
use super::{check, created, is_plain, key, lanes, same_stream};
use crate::store::Shared;
use crate::streams::{Stream, Streams};
use crate::tx::Aftermath;

/// Takes units in, or says that the long way must be gone.
pub(crate) async fn shortly(
    shared: &Arc<Shared>,
    scope: &Scope,
    units: &Arc<Vec<NewUnit>>,
) -> Result<Option<Vec<Sent>>> {
    check(scope, units)?;
    let simple = !units.is_empty() && units.iter().all(is_plain);
    if !simple || chunk_end(units, 0, CHUNK) < units.len() {
        return Ok(None);
    }
    let Some(streams) = met(&shared.streams, units) else { return Ok(None) };
    if shared.streams.may_be_gated(&lanes(&streams)) {
        return Ok(None);
    }
    let (store, units) = (Arc::clone(shared), Arc::clone(units));
    let errand = async move {
        let Some(after) = insert(&store, &units, &streams).await? else { return Ok(None) };
        store.follow(after).await?;
        Ok(Some(created(&units)))
    };
    shared.see_to(errand).await
}

/// Each unit's stream, if this process has met them all.
fn met(known: &Streams, units: &[NewUnit]) -> Option<Vec<Arc<Stream>>> {
    let mut streams: Vec<Arc<Stream>> = Vec::with_capacity(units.len());
    for (at, unit) in units.iter().enumerate() {
        let before = streams.last().filter(|_| at > 0 && same_stream(&units[at - 1], unit));
        let stream = before.cloned().or_else(|| known.met(&key(unit, 0)))?;
        streams.push(stream);
    }
    Some(streams)
}

async fn insert(
    shared: &Shared,
    units: &[NewUnit],
    streams: &[Arc<Stream>],
) -> Result<Option<Aftermath>> {
    let (now, lanes) = (shared.options.clock.now(), lanes(streams));
    let rows: Vec<NewRow<'_>> =
        units.iter().zip(streams).map(|(unit, stream)| NewRow::new(now, unit, stream, 0)).collect();
    let made = insert::alone(shared, now, &rows, &lanes).await?;
    let Some(made) = made else {
        shared.streams.note_gate(&lanes, true);
        return Ok(None);
    };
    let woke = made.iter().any(|(_, state)| *state == UnitState::Ready);
    let nums: BTreeSet<i64> = made.iter().map(|(stream, _)| *stream).collect();
    let mut after = Aftermath { woke, deltas: nums.len(), ..Aftermath::default() };
    for num in nums {
        if let Some(stream) = streams.iter().find(|stream| stream.num == num) {
            after.tell(&shared.streams, stream, false);
        }
    }
    Ok(Some(after))
}
