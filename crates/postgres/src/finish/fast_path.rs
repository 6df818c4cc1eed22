//! The fast path of a finish: the run succeeded, without effects, dependants, key or cap, as most
//! do. The server ends such units in one statement. If all finishes of a call may be plain, that
//! statement is the whole transaction. Units that the server finds not to be plain are finished by
//! the full path, each independently of the others.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use longshore_core::store::FinishRequest;
use longshore_core::unit::check_size;
use longshore_core::{Outcome, Payload, Result, SessionId, Timestamp, UnitId, UnitState};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::error::damaged;
use crate::row::{count, value};
use crate::store::StoreInner;
use crate::tx::{PostCommit, Tx};
use crate::typed_params::{SqlParam, session_uuid, unit_id, uuid};

const FINISH_PLAIN: &str = "SELECT * FROM longshore_finish_fast($1, $2, $3, $4, $5, $6, $7)";

/// The leases that the fast path has ended.
#[derive(Default)]
pub(crate) struct EndedLeases {
    /// Every plain finish was recorded; then `fences` is empty.
    all: bool,
    fences: HashMap<UnitId, u64>,
    /// The streams of their units.
    streams: BTreeSet<i64>,
}

impl EndedLeases {
    /// Whether this finish was recorded.
    pub(crate) fn contains(&self, end: &FinishRequest) -> bool {
        match self.all {
            true => plain_result(end).is_some(),
            false => self.fences.get(&end.lease.unit) == Some(&end.lease.fence),
        }
    }

    /// Whether all these finishes were recorded.
    pub(crate) fn contains_all(&self, finishes: &[FinishRequest]) -> bool {
        finishes.iter().all(|end| self.contains(end))
    }

    /// Reads the reply for `requested` finishes.
    fn read(rows: &[Row], requested: usize) -> Result<Self> {
        let (mut ended, mut units) = (Self::default(), 0);
        for row in rows {
            ended.streams.insert(value(row, 0)?);
            units += count::<usize>(row, 1)?;
            if let Some(id) = value::<Option<Uuid>>(row, 2)? {
                ended.fences.insert(unit_id(id), count(row, 3)?);
            }
        }
        ended.all = units == requested;
        Ok(ended)
    }
}

/// Finishes that may be plain, one array per column, in the order of fences and ids: that of lease groups.
struct FinishColumns<'f> {
    ids: Vec<Uuid>,
    fences: Vec<i64>,
    results: Vec<Option<&'f [u8]>>,
    /// How many finishes have this fence or a lower one, for each fence.
    group_ends: Vec<i32>,
    now: i64,
    session: Uuid,
    autocommit: bool,
}

impl<'f> FinishColumns<'f> {
    fn of(
        session: SessionId,
        finishes: &'f [FinishRequest],
        now: Timestamp,
        autocommit: bool,
    ) -> Result<Self> {
        let plain = |end: &'f FinishRequest| plain_result(end).map(|result| (end.lease, result));
        let mut plain: Vec<_> = finishes.iter().filter_map(plain).collect();
        plain.sort_unstable_by_key(|(lease, _)| (lease.fence, uuid(lease.unit)));
        let (mut ids, mut fences, mut results) = (Vec::new(), Vec::new(), Vec::new());
        for (lease, result) in &plain {
            if let Some(result) = result {
                check_size("result", result)?;
            }
            ids.push(uuid(lease.unit));
            fences.push(lease.fence.cast_signed());
            results.push(result.as_ref().map(Payload::as_bytes));
        }
        let mut group_ends = Vec::new();
        for group in plain.chunk_by(|(one, _), (next, _)| one.fence == next.fence) {
            let before = group_ends.last().copied().unwrap_or(0);
            group_ends.push(before + i32::try_from(group.len()).map_err(damaged)?);
        }
        let (now, session) = (now.as_micros(), session_uuid(session));
        Ok(Self { ids, fences, results, group_ends, now, session, autocommit })
    }

    fn params(&self) -> [&dyn SqlParam; 7] {
        let Self { ids, fences, results, group_ends, now, session, autocommit } = self;
        [ids, fences, results, group_ends, now, session, autocommit]
    }
}

/// The result of a successful run without effects and checkpoint.
fn plain_result(end: &FinishRequest) -> Option<&Option<Payload>> {
    match &end.outcome {
        Outcome::Done(result) if end.effects.is_empty() && end.checkpoint.is_none() => Some(result),
        _ => None,
    }
}

/// Whether a finish may be plain and has no calls to write.
pub(super) fn may_use_fast_path(end: &FinishRequest) -> bool {
    plain_result(end).is_some() && end.calls.is_empty()
}

/// Records plain finishes in one statement.
pub(super) async fn finish(
    tx: &mut Tx<'_>,
    session: SessionId,
    finishes: &[FinishRequest],
) -> Result<EndedLeases> {
    let columns = FinishColumns::of(session, finishes, tx.now, false)?;
    if columns.ids.is_empty() {
        return Ok(EndedLeases::default());
    }
    let rows = tx.query(FINISH_PLAIN, &columns.params()).await?;
    let ended = EndedLeases::read(&rows, columns.ids.len())?;
    for stream in &ended.streams {
        tx.note_counted(*stream, Some(UnitState::Leased), UnitState::Done);
    }
    Ok(ended)
}

/// Records plain finishes in autocommit mode, if all of them may be plain and have no calls.
/// Finishes with effects never take this path: if an effect cannot be committed, nothing of the
/// call is recorded.
pub(crate) async fn try_fast_path(
    inner: &Arc<StoreInner>,
    session: SessionId,
    finishes: &Arc<Vec<FinishRequest>>,
) -> Result<Option<EndedLeases>> {
    if finishes.is_empty() || !finishes.iter().all(may_use_fast_path) {
        return Ok(None);
    }
    let (store, finishes) = (Arc::clone(inner), Arc::clone(finishes));
    let task = async move {
        let columns = FinishColumns::of(session, &finishes, store.now(), true)?;
        let rows = store.query_autocommit(FINISH_PLAIN, &columns.params()).await?;
        let ended = EndedLeases::read(&rows, columns.ids.len())?;
        let mut after = PostCommit { deltas: ended.streams.len(), ..PostCommit::default() };
        for stream in store.streams_by_num(ended.streams.clone()).await?.values() {
            after.note_stream(&store.streams, stream, true);
        }
        store.run_post_commit(after).await?;
        Ok(Some(ended))
    };
    inner.run_to_completion(task).await
}
