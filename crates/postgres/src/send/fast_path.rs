//! The fast path of a send: one statement, if all units are plain and no lane has a limit.

use std::collections::BTreeSet;
use std::sync::Arc;

use longshore_core::store::SendResult;
use longshore_core::{NewUnit, Result, Scope, UnitState};

use super::insert::{self, NewRow, chunk_len};
use super::{created, is_plain, key, lanes, unit_streams};
use crate::store::StoreInner;
use crate::streams::Stream;
use crate::tx::PostCommit;

/// Sends units, or returns `None` if the full send is needed.
pub(crate) async fn try_fast_path(
    inner: &Arc<StoreInner>,
    scope: &Scope,
    units: &Arc<Vec<NewUnit>>,
) -> Result<Option<Vec<SendResult>>> {
    scope.check_units(units)?;
    let simple = !units.is_empty() && units.iter().all(is_plain);
    if !simple || chunk_len(units.iter()) < units.len() {
        return Ok(None);
    }
    let cached = |unit: &NewUnit| inner.streams.cached(&key(unit, 0));
    let Some(streams) = unit_streams(units, cached) else { return Ok(None) };
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

async fn insert(
    inner: &StoreInner,
    units: &[NewUnit],
    streams: &[Arc<Stream>],
) -> Result<(PostCommit, bool)> {
    let (now, lanes) = (inner.now(), lanes(streams));
    let rows: Vec<NewRow<'_>> =
        units.iter().zip(streams).map(|(unit, stream)| NewRow::new(now, unit, stream, 0)).collect();
    let (inserted, all) = insert::insert_plain_autocommit(inner, now, &rows, &lanes).await?;
    if !all && inserted.is_empty() {
        inner.streams.set_gated(&lanes, true);
        inner.streams.evict(streams.iter().map(|stream| stream.num));
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
