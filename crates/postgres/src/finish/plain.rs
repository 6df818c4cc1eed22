//! Ends that have nothing more to them, as most: the run went well, no effects, nobody waits for the
//! unit, no key, no cap. The server ends them in one statement, and where all ends of a call may be
//! such, that statement is the whole transaction. Those that it finds to be more are recorded the long
//! way; each end stands for itself.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use longshore_core::store::Finish;
use longshore_core::unit::check_size;
use longshore_core::{Outcome, Payload, Result, SessionId, Timestamp, UnitId, UnitState};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::param::{Param, session_uuid, unit_id, uuid};
use crate::row::{count, value};
use crate::store::Shared;
use crate::tx::{Aftermath, Tx};

const PLAINLY: &str = "SELECT * FROM longshore_end_plainly($1, $2, $3, $4, $5, $6)";

/// The leases that have ended.
#[derive(Default)]
pub(crate) struct Ended {
    /// All that could be: the others are not listed then.
    every: bool,
    fences: HashMap<UnitId, u64>,
    /// Whose units they were.
    streams: BTreeSet<i64>,
}

impl Ended {
    /// Whether the one that this is the end of has.
    pub(crate) fn has(&self, end: &Finish) -> bool {
        match self.every {
            true => plain_result(end).is_some(),
            false => self.fences.get(&end.lease.unit) == Some(&end.lease.fence),
        }
    }

    /// Whether all of these have.
    pub(crate) fn has_all(&self, finishes: &[Finish]) -> bool {
        finishes.iter().all(|end| self.has(end))
    }

    /// The answer for `asked` of them.
    fn read(rows: &[Row], asked: usize) -> Result<Self> {
        let (mut ended, mut units) = (Self::default(), 0);
        for row in rows {
            ended.streams.insert(value(row, 0)?);
            units += count::<usize>(row, 1)?;
            if let Some(id) = value::<Option<Uuid>>(row, 2)? {
                ended.fences.insert(unit_id(id), count(row, 3)?);
            }
        }
        ended.every = units == asked;
        Ok(ended)
    }
}

/// Ends that may be plain, as arrays.
struct Columns<'f> {
    ids: Vec<Uuid>,
    fences: Vec<i64>,
    results: Vec<Option<&'f [u8]>>,
    now: i64,
    session: Uuid,
    lone: bool,
}

impl<'f> Columns<'f> {
    fn of(session: SessionId, finishes: &'f [Finish], now: Timestamp, lone: bool) -> Result<Self> {
        let (mut ids, mut fences, mut results) = (Vec::new(), Vec::new(), Vec::new());
        for end in finishes {
            let Some(result) = plain_result(end) else { continue };
            if let Some(result) = result {
                check_size("result", result)?;
            }
            ids.push(uuid(end.lease.unit));
            fences.push(end.lease.fence.cast_signed());
            results.push(result.as_ref().map(Payload::as_bytes));
        }
        let (now, session) = (now.as_micros(), session_uuid(session));
        Ok(Self { ids, fences, results, now, session, lone })
    }

    fn params(&self) -> [&dyn Param; 6] {
        let Self { ids, fences, results, now, session, lone } = self;
        [ids, fences, results, now, session, lone]
    }
}

/// The result of a run that went well and left nothing else.
fn plain_result(end: &Finish) -> Option<&Option<Payload>> {
    match &end.outcome {
        Outcome::Done(result) if end.effects.is_empty() && end.checkpoint.is_none() => Some(result),
        _ => None,
    }
}

/// Whether an end may be plain and nothing else is to be written with it.
fn is_alone(end: &Finish) -> bool {
    plain_result(end).is_some() && end.calls.is_empty()
}

/// Ends what can be ended in one statement.
pub(super) async fn finish(
    tx: &mut Tx<'_>,
    session: SessionId,
    finishes: &[Finish],
) -> Result<Ended> {
    let columns = Columns::of(session, finishes, tx.now, false)?;
    if columns.ids.is_empty() {
        return Ok(Ended::default());
    }
    let rows = tx.query(PLAINLY, &columns.params()).await?;
    let ended = Ended::read(&rows, columns.ids.len())?;
    for stream in &ended.streams {
        tx.counted(*stream, Some(UnitState::Leased), UnitState::Done);
    }
    Ok(ended)
}

/// The same as a transaction of its own, if all may be plain and came without calls. Effects are
/// never among them: a finish with one that cannot be committed records nothing.
pub(crate) async fn shortly(
    shared: &Arc<Shared>,
    session: SessionId,
    finishes: &Arc<Vec<Finish>>,
) -> Result<Option<Ended>> {
    if finishes.is_empty() || !finishes.iter().all(is_alone) {
        return Ok(None);
    }
    let (store, finishes) = (Arc::clone(shared), Arc::clone(finishes));
    let errand = async move {
        let now = store.options.clock.now();
        let columns = Columns::of(session, &finishes, now, true)?;
        let rows = store.ask(PLAINLY, &columns.params()).await?;
        let ended = Ended::read(&rows, columns.ids.len())?;
        let mut after = Aftermath { deltas: ended.streams.len(), ..Aftermath::default() };
        for stream in store.streams(ended.streams.clone()).await?.values() {
            after.tell(&store.streams, stream, true);
        }
        store.follow(after).await?;
        Ok(Some(ended))
    };
    shared.see_to(errand).await
}
