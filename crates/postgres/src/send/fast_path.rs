//! The fast path of a send: one statement, if all units are plain and no lane has a limit.

use std::collections::BTreeSet;
use std::sync::Arc;

use longshore_core::store::SendResult;
use longshore_core::{NewUnit, Result, Scope, UnitState};

use super::insert::{self, MAX_CHUNK_UNITS, NewRow, chunk_end};
use super::{created, is_plain, key, lanes, same_stream};
use crate::store::StoreInner;
use crate::streams::{Stream, StreamCache};
use crate::tx::PostCommit;

/// Sends units, or returns `None` if the full send is needed.
pub(crate) async fn try_fast_path(
    inner: &Arc<StoreInner>,
    scope: &Scope,
    units: &Arc<Vec<NewUnit>>,
) -> Result<Option<Vec<SendResult>>> {
    scope.check_units(units)?;
    let simple = !units.is_empty() && units.iter().all(is_plain);
    if !simple || chunk_end(units, 0, MAX_CHUNK_UNITS) < units.len() {
        return Ok(None);
    }
    let Some(streams) = cached_streams(&inner.streams, units) else { return Ok(None) };
    if inner.streams.may_be_gated(&lanes(&streams)) {
        return Ok(None);
    }
    let (store, units) = (Arc::clone(inner), Arc::clone(units));
    let task = async move {
        let (after, all) = insert(&store, &units, &streams).await?;
        store.run_post_commit(after).await?;
        // The full send recognises the units that were inserted.
        Ok(all.then(|| created(&units)))
    };
    inner.run_to_completion(task).await
}

/// Each unit's stream, if all are in the cache.
fn cached_streams(cache: &StreamCache, units: &[NewUnit]) -> Option<Vec<Arc<Stream>>> {
    let mut streams: Vec<Arc<Stream>> = Vec::with_capacity(units.len());
    for (at, unit) in units.iter().enumerate() {
        let before = streams.last().filter(|_| at > 0 && same_stream(&units[at - 1], unit));
        let stream = before.cloned().or_else(|| cache.cached(&key(unit, 0)))?;
        streams.push(stream);
    }
    Some(streams)
}

async fn insert(
    inner: &StoreInner,
    units: &[NewUnit],
    streams: &[Arc<Stream>],
) -> Result<(PostCommit, bool)> {
    let (now, lanes) = (inner.options.clock.now(), lanes(streams));
    let rows: Vec<NewRow<'_>> =
        units.iter().zip(streams).map(|(unit, stream)| NewRow::new(now, unit, stream, 0)).collect();
    let (inserted, all) = insert::insert_plain_autocommit(inner, now, &rows, &lanes).await?;
    if !all && inserted.is_empty() {
        inner.streams.set_gated(&lanes, true);
    }
    let wake_workers = inserted.iter().any(|(_, state)| *state == UnitState::Ready);
    let nums: BTreeSet<i64> = inserted.iter().map(|(stream, _)| *stream).collect();
    let mut after = PostCommit { wake_workers, deltas: nums.len(), ..PostCommit::default() };
    for num in nums {
        if let Some(stream) = streams.iter().find(|stream| stream.num == num) {
            after.note_stream(&inner.streams, stream, false);
        }
    }
    Ok((after, all))
}
