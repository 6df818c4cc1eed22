//! Finishing runs: writes what the state machine decided, together with all effects, or nothing.

use std::collections::{BTreeMap, HashMap};

use longshore_accounts::CallRecord;
use longshore_core::effect_budget::EffectBudget;
use longshore_core::outcome::{KEPT_FAILURES, KeptFailures};
use longshore_core::store::{FinishRequest, FinishResult};
use longshore_core::unit_state::{Event, Transition, transition};
use longshore_core::worker_session::Lease;
use longshore_core::{Error, Outcome, Payload, Policy, Result, SessionId, UnitId, UnitState};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::advisory_lock::{self, AdvisoryLock};
use crate::dependency_outbox;
use crate::effects;
use crate::error::damaged;
use crate::ledger::calls::record_with;
use crate::row::{
    BULK, Columns, READY_CAPPED, UnitAttributes, UnitRow, entry_code, flag, small, state_code, to_json, value,
};
use crate::session::{self, PolicyCache};
use crate::store::StoreInner;
use crate::tx::Tx;
use crate::typed_params::{SqlParam, replace_nul, session_uuid, unit_id, uuid, uuids};

mod fast_path;

pub(crate) use fast_path::{EndedLeases, try_fast_path};

/// Rejects calls with amounts that cannot be added up.
pub(crate) fn check_calls(finishes: &[FinishRequest]) -> Result<()> {
    finishes.iter().flat_map(|end| &end.calls).try_for_each(CallRecord::check)
}

/// Settles the leases of finishes that the fast path does not handle, in a transaction of its own. Otherwise effects, or
/// a caller's transaction, would keep other units of the same lease group from ending.
pub(crate) async fn settle_slow(
    inner: &StoreInner,
    session: SessionId,
    finishes: &[FinishRequest],
    all: bool,
) -> Result<()> {
    // Effects run after the fast path, in the same transaction.
    let all = all || finishes.iter().any(|end| !end.effects.is_empty());
    let slow = finishes.iter().filter(|end| all || !fast_path::may_use_fast_path(end));
    let leases: Vec<Lease> = slow.map(|end| end.lease).collect();
    session::settle_leases(inner, session, &leases).await
}

/// Records finishes, each independently of the others.
pub(crate) async fn finish(
    tx: &mut Tx<'_>,
    session: SessionId,
    finishes: &[FinishRequest],
    budget: &mut EffectBudget,
) -> Result<Vec<FinishResult>> {
    let ended = fast_path::finish(tx, session, finishes).await?;
    let calls = finishes.iter().filter(|end| ended.contains(end)).flat_map(|end| &end.calls);
    let calls: Vec<&CallRecord> = calls.collect();
    let answers = finish_others(tx, session, finishes, &ended, calls, budget).await?;
    // Nothing else used up the time of this call: the worker retries it as an outcome that takes too long alone.
    if answers[..] == [FinishResult::Deferred] {
        return Err(Error::timed_out("an effect waits for a lock that another transaction holds"));
    }
    Ok(answers)
}

/// Records the finishes that `ended` does not contain.
pub(crate) async fn finish_rest(
    tx: &mut Tx<'_>,
    session: SessionId,
    finishes: &[FinishRequest],
    ended: &EndedLeases,
) -> Result<Vec<FinishResult>> {
    // The fast path has no effects.
    finish_others(tx, session, finishes, ended, Vec::new(), &mut EffectBudget::unlimited()).await
}

/// Records the finishes that `ended` does not contain, then writes `calls` and the calls of these
/// finishes in one statement. Units come before calls, as when a session ends, so that locks are
/// taken in one order.
async fn finish_others<'f>(
    tx: &mut Tx<'_>,
    session: SessionId,
    finishes: &'f [FinishRequest],
    ended: &EndedLeases,
    mut calls: Vec<&'f CallRecord>,
    budget: &mut EffectBudget,
) -> Result<Vec<FinishResult>> {
    let rest: Vec<&FinishRequest> = finishes.iter().filter(|end| !ended.contains(end)).collect();
    let (holder, rows) = match rest.is_empty() {
        true => (None, HashMap::new()),
        false => {
            let holder = session::find(tx, session).await?;
            (holder, lock_rows(tx, rest.iter().map(|end| &end.lease.unit)).await?)
        }
    };
    let (policies, changes) = (PolicyCache::default(), Vec::new());
    let mut slow = SlowFinish { session, holder, rows, policies, changes };
    let mut answers = Vec::with_capacity(finishes.len());
    for end in finishes {
        let before = slow.changes.len();
        answers.push(match ended.contains(end) {
            true => FinishResult::Recorded(UnitState::Done),
            false => slow.finish(tx, end, budget).await?,
        });
        // Not for a repeat: its calls are written.
        if slow.changes.len() > before {
            calls.extend(&end.calls);
        }
    }
    apply(tx, slow.changes).await?;
    record_with(tx, calls.into_iter());
    Ok(answers)
}

/// Finishes that the fast path does not handle.
struct SlowFinish {
    session: SessionId,
    holder: Option<i64>,
    rows: HashMap<UnitId, UnitRow>,
    policies: PolicyCache,
    changes: Vec<UnitChange>,
}

impl SlowFinish {
    async fn finish(
        &mut self,
        tx: &mut Tx<'_>,
        end: &FinishRequest,
        budget: &mut EffectBudget,
    ) -> Result<FinishResult> {
        let Some(row) = self.rows.get(&end.lease.unit) else { return Ok(FinishResult::LeaseLost) };
        let (fence, state) = (row.fence, row.state()?);
        if let Some(answer) = end.answer_without_write(self.holder, fence, state, row.session) {
            return Ok(answer);
        }
        end.check_sizes()?;
        if budget.defers(&end.effects) {
            return Ok(FinishResult::Deferred);
        }
        if let Some(result) = effects::run(tx, &end.effects, budget).await? {
            return Ok(result);
        }
        let policy = match end.outcome {
            // Most runs succeed, and their transition needs no policy.
            Outcome::Done(_) => Policy::default(),
            _ => self.policies.of(tx, row).await?,
        };
        let mut row = row.clone();
        row.count_attempt(tx.now);
        let step = transition(&row.transition_input()?, &Event::Finished(&end.outcome), &policy, tx.now)?;
        let (state, fence) = (step.state, row.fence);
        let mut change = UnitChange::new(row, step, fence, Some(self.session));
        if let Outcome::Done(Some(result)) = &end.outcome {
            change.result = Some(result.clone());
        }
        change.checkpoint.clone_from(&end.checkpoint);
        self.changes.push(change);
        if let Some(row) = self.rows.get_mut(&end.lease.unit) {
            // A second finish of the same lease in this call is a repeat.
            (row.session, row.code) = (None, state_code(state));
        }
        Ok(FinishResult::Recorded(state))
    }
}

/// A transition of the state machine to be written.
pub(crate) struct UnitChange {
    pub(crate) row: UnitRow,
    pub(crate) step: Transition,
    /// The unit's new fence.
    pub(crate) fence: u64,
    /// The session that ran the unit.
    pub(crate) session: Option<SessionId>,
    /// The result of the run.
    pub(crate) result: Option<Payload>,
    /// The checkpoint for the next run.
    pub(crate) checkpoint: Option<Payload>,
}

impl UnitChange {
    /// A transition without result and checkpoint.
    pub(crate) fn new(row: UnitRow, step: Transition, fence: u64, session: Option<SessionId>) -> Self {
        Self { row, step, fence, session, result: None, checkpoint: None }
    }

    /// A transition that keeps the fence.
    pub(crate) fn step(row: UnitRow, step: Transition) -> Self {
        let fence = row.fence;
        Self::new(row, step, fence, None)
    }
}

/// Locks units in the order of their ids, and reads the columns that decisions need.
pub(crate) async fn lock_rows<'u>(
    tx: &mut Tx<'_>,
    units: impl IntoIterator<Item = &'u UnitId>,
) -> Result<HashMap<UnitId, UnitRow>> {
    let rows = lock_rows_where(tx, "u.id = ANY($1) ORDER BY u.id FOR UPDATE", &[&uuids(units)]).await?;
    Ok(rows.into_iter().map(|row| (row.id, row)).collect())
}

/// Reads the columns that decisions need of the units that `which` selects and locks. It settles bulk units first.
pub(crate) async fn lock_rows_where(
    tx: &mut Tx<'_>,
    which: &str,
    params: &[&dyn SqlParam],
) -> Result<Vec<UnitRow>> {
    let columns = UnitRow::COLUMNS;
    let read = |row: &Row| UnitRow::read(&Columns(row));
    let rows = tx.query(&format!("SELECT {columns} FROM longshore_unit u WHERE {which}"), params).await?;
    let mut rows: Vec<UnitRow> = rows.iter().map(read).collect::<Result<_>>()?;
    let bulk = |row: &&mut UnitRow| row.code == BULK;
    let mut bulk: HashMap<UnitId, &mut UnitRow> =
        rows.iter_mut().filter(bulk).map(|row| (row.id, row)).collect();
    if bulk.is_empty() {
        return Ok(rows);
    }
    let ids = uuids(bulk.keys());
    settle(tx, &ids).await?;
    let sql = format!("SELECT {columns} FROM longshore_unit u WHERE u.id = ANY($1)");
    for row in tx.query(&sql, &[&ids]).await? {
        let settled = read(&row)?;
        if let Some(row) = bulk.remove(&settled.id) {
            *row = settled;
        }
    }
    Ok(rows)
}

/// Writes the state of the bulk units among `ids` into their rows, which must be locked.
pub(crate) async fn settle(tx: &mut Tx<'_>, ids: &Vec<Uuid>) -> Result<()> {
    tx.query("SELECT longshore_settle_units($1, NULL, NULL)", &[ids]).await?;
    Ok(())
}

/// Writes transitions: the rows, their counts, and what depends on them. The rows must be locked.
pub(crate) async fn apply(tx: &mut Tx<'_>, changes: Vec<UnitChange>) -> Result<()> {
    if changes.is_empty() {
        return Ok(());
    }
    write_rows(tx, &changes).await?;
    log_failures(tx, &changes).await?;
    for change in &changes {
        let (row, to) = (&change.row, change.step.state);
        tx.count_transition(row.stream, Some(row.state()?), Some(to), row.bytes);
        if to.is_final() && row.has(flag::HAS_DEPENDANTS) {
            tx.note_ended(row.id, to == UnitState::Done);
        }
    }
    announce_awaited(tx, &changes).await?;
    forget_dependencies(tx, &changes).await?;
    unpark(tx, changes.iter().filter_map(|change| change.row.cap_key.as_deref())).await
}

async fn write_rows(tx: &mut Tx<'_>, changes: &[UnitChange]) -> Result<()> {
    let mut columns = ChangeColumns::default();
    for change in changes {
        columns.push(change)?;
    }
    let ChangeColumns {
        id,
        state,
        sort_key,
        attempt,
        lost,
        fence,
        flags,
        failure,
        free,
        result,
        checkpoint,
        stream,
        rank,
        spec,
    } = &columns;
    // Claims find ready units in a table of their own.
    let was_ready = if rank.iter().any(Option::is_some) { NOT_READY } else { "" };
    let is_ready = if columns.is_ready() { READY } else { "" };
    let with = [was_ready, is_ready].join(if was_ready.is_empty() || is_ready.is_empty() { "" } else { "," });
    let with = if with.is_empty() { with } else { format!("WITH {with} ") };
    tx.query(
        &format!(
            "{with}UPDATE longshore_unit u SET state = f.state, sort_key = f.sort_key, attempt = f.attempt,
         lost = f.lost, fence = f.fence, session = NULL, started_at = NULL, open_dependencies = 0,
         progress = NULL, flags = f.flags,
         failure = CASE WHEN f.state = 4 THEN NULL ELSE coalesce(f.failure, u.failure) END,
         dedup_key = CASE WHEN f.free THEN NULL ELSE u.dedup_key END,
         result = coalesce(f.result, u.result),
         checkpoint = CASE WHEN f.state <> 4 THEN coalesce(f.checkpoint, u.checkpoint) END,
         spec = coalesce(f.spec, u.spec)
         FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $14)
         AS f (id, state, sort_key, attempt, lost, fence, flags, failure, free, result, checkpoint, spec)
         WHERE u.id = f.id"
        ),
        &[
            id, state, sort_key, attempt, lost, fence, flags, failure, free, result, checkpoint, stream,
            rank, spec,
        ],
    )
    .await?;
    Ok(())
}

const NOT_READY: &str =
    "gone AS (DELETE FROM longshore_ready r USING unnest($1, $12, $13) AS f (id, stream, rank)
    WHERE r.stream = f.stream AND r.sort_key = f.rank AND r.id = f.id)";

const READY: &str = "entered AS (INSERT INTO longshore_ready (stream, sort_key, id, claim)
    SELECT f.stream, f.sort_key, f.id, 1 + (f.flags & 1)
    FROM unnest($1, $2, $3, $7, $12) AS f (id, state, sort_key, flags, stream) WHERE f.state = 2)";

/// Changes as arrays, one per column.
#[derive(Default)]
struct ChangeColumns<'c> {
    id: Vec<Uuid>,
    state: Vec<i16>,
    sort_key: Vec<i64>,
    attempt: Vec<i32>,
    lost: Vec<i32>,
    fence: Vec<i64>,
    flags: Vec<i64>,
    failure: Vec<Option<String>>,
    free: Vec<bool>,
    result: Vec<Option<&'c [u8]>>,
    checkpoint: Vec<Option<&'c [u8]>>,
    stream: Vec<i64>,
    /// The rank of a unit that was ready.
    rank: Vec<Option<i64>>,
    /// The rare attributes, if they change.
    spec: Vec<Option<String>>,
}

impl<'c> ChangeColumns<'c> {
    fn push(&mut self, change: &'c UnitChange) -> Result<()> {
        let UnitChange { row, step, .. } = change;
        let checkpointed = if change.checkpoint.is_some() { flag::CHECKPOINTED } else { 0 };
        self.id.push(uuid(row.id));
        self.state.push(i16::from(entry_code(step.state, step.lost)));
        self.sort_key.push(step.sort_key.as_micros());
        self.attempt.push(i32::try_from(step.attempt).map_err(damaged)?);
        self.lost.push(i32::try_from(step.lost).map_err(damaged)?);
        self.fence.push(change.fence.cast_signed());
        self.flags.push(row.flags & !flag::CANCEL_REQUESTED | checkpointed);
        self.failure.push(step.failure.as_ref().map(to_json).transpose()?);
        self.free.push(step.state.is_final() && row.has(flag::KEY_WHILE_LIVE));
        self.result.push(change.result.as_ref().map(Payload::as_bytes));
        self.checkpoint.push(change.checkpoint.as_ref().map(Payload::as_bytes));
        self.stream.push(row.stream);
        self.rank.push((row.code == state_code(UnitState::Ready)).then_some(row.sort_key));
        self.spec.push(row.spec_after(step)?);
        Ok(())
    }

    fn is_ready(&self) -> bool {
        self.state.contains(&i16::from(state_code(UnitState::Ready)))
    }
}

async fn log_failures(tx: &mut Tx<'_>, changes: &[UnitChange]) -> Result<()> {
    let (mut units, mut attempts, mut sessions) = (Vec::new(), Vec::new(), Vec::new());
    let (mut codes, mut messages) = (Vec::new(), Vec::new());
    for change in changes {
        let Some(failure) = &change.step.failure else { continue };
        units.push(uuid(change.row.id));
        attempts.push(i32::try_from(change.row.attempt).map_err(damaged)?);
        sessions.push(change.session.map(session_uuid));
        codes.push(replace_nul(&failure.code));
        messages.push(replace_nul(&failure.message));
    }
    if units.is_empty() {
        return Ok(());
    }
    tx.query(
        "INSERT INTO longshore_failure (unit, attempt, failed_at, session, code, message)
         SELECT f.unit, f.attempt, $6, f.session, f.code, f.message
         FROM unnest($1, $2, $3, $4, $5) AS f (unit, attempt, session, code, message)",
        &[&units, &attempts, &sessions, &codes, &messages, &tx.now.as_micros()],
    )
    .await?;
    drop_middle_failures(tx, &units).await
}

/// Deletes the failures that [`KEPT_FAILURES`] does not keep.
async fn drop_middle_failures(tx: &mut Tx<'_>, units: &Vec<Uuid>) -> Result<()> {
    let KeptFailures { first, last } = KEPT_FAILURES;
    let sql = "DELETE FROM longshore_failure WHERE num IN (SELECT num FROM (
           SELECT num, row_number() OVER (PARTITION BY unit ORDER BY num) AS nth,
             count(*) OVER (PARTITION BY unit) AS total
           FROM longshore_failure WHERE unit = ANY($1)) f
         WHERE nth > $2 AND nth <= total - $3)";
    let (first, last) = (i64::try_from(first).map_err(damaged)?, i64::try_from(last).map_err(damaged)?);
    tx.execute(sql, &[units, &first, &last]).await?;
    Ok(())
}

async fn announce_awaited(tx: &mut Tx<'_>, changes: &[UnitChange]) -> Result<()> {
    for change in changes {
        if change.step.state.is_final() && change.row.has(flag::AWAITED) {
            let cache = std::sync::Arc::clone(&tx.streams);
            let stream = cache.one(tx, change.row.stream).await?;
            tx.announce("unit", change.row.id.to_string(), Some(stream.tenant.as_str()));
        }
    }
    Ok(())
}

/// Deletes the dependencies of units that are no longer blocked. Otherwise the end of a dependency
/// would find units that may be pruned by then.
async fn forget_dependencies(tx: &mut Tx<'_>, changes: &[UnitChange]) -> Result<()> {
    let blocked = state_code(UnitState::Blocked);
    let units: Vec<Uuid> = changes
        .iter()
        .filter(|change| change.row.code == blocked)
        .map(|change| uuid(change.row.id))
        .collect();
    if !units.is_empty() {
        tx.query("DELETE FROM longshore_dependency WHERE unit = ANY($1)", &[&units]).await?;
    }
    Ok(())
}

/// Unparks the next units of each cap key. A caller's transaction leaves this for after its commit,
/// since claims would wait for its locks.
pub(crate) async fn unpark<'k>(tx: &mut Tx<'_>, keys: impl Iterator<Item = &'k [u8]>) -> Result<()> {
    let mut leaving: BTreeMap<Vec<u8>, i64> = BTreeMap::new();
    for key in keys {
        *leaving.entry(key.to_vec()).or_default() += 1;
    }
    if tx.is_caller_transaction() {
        for (key, units) in leaving {
            *tx.after.unparks.entry(key).or_default() += units;
        }
        return Ok(());
    }
    unpark_counted(tx, &leaving).await
}

/// Unparks this many units of each stream with each cap key, under the keys' locks. Without the lock,
/// a concurrent claim could park a unit behind the one that ends now, and nothing would unpark it. A
/// stream may have no worker, or its batch may be paused, so units of the first stream alone would not
/// do. A claim parks the units that it cannot take.
pub(crate) async fn unpark_counted(tx: &mut Tx<'_>, leaving: &BTreeMap<Vec<u8>, i64>) -> Result<()> {
    if leaving.is_empty() {
        return Ok(());
    }
    let locks: Vec<AdvisoryLock<'_>> = leaving.keys().map(|key| AdvisoryLock::CapKey(key)).collect();
    advisory_lock::acquire(tx, &locks).await?;
    let counts: Vec<i64> = leaving.values().copied().collect();
    let keys: Vec<&[u8]> = leaving.keys().map(Vec::as_slice).collect();
    let woken = tx
        .query(
            "WITH RECURSIVE head (key, leaving, stream) AS (
               SELECT k.key, k.leaving, (SELECT u.stream FROM longshore_unit u
                 WHERE u.cap_key = k.key AND u.state = $3 AND u.state IN (3, 7)
                 ORDER BY u.stream LIMIT 1)
               FROM unnest($1, $2) AS k (key, leaving)
               UNION ALL SELECT h.key, h.leaving, (SELECT u.stream FROM longshore_unit u
                 WHERE u.cap_key = h.key AND u.state = $3 AND u.state IN (3, 7)
                 AND u.stream > h.stream ORDER BY u.stream LIMIT 1)
               FROM head h WHERE h.stream IS NOT NULL),
             woken AS (UPDATE longshore_unit SET state = 2 WHERE id IN (
               SELECT p.id FROM head h CROSS JOIN LATERAL (
                 SELECT u.id FROM longshore_unit u WHERE u.cap_key = h.key AND u.state = $3
                 AND u.state IN (3, 7) AND u.stream = h.stream
                 ORDER BY u.sort_key LIMIT h.leaving FOR UPDATE SKIP LOCKED) p)
               RETURNING stream, sort_key, id)
             INSERT INTO longshore_ready (stream, sort_key, id, claim)
             SELECT w.stream, w.sort_key, w.id, 2 FROM woken w RETURNING id",
            &[&keys, &counts, &i16::from(READY_CAPPED)],
        )
        .await?;
    tx.after.wake_workers |= !woken.is_empty();
    Ok(())
}

/// Releases the dependants of units that ended; the flag says whether the unit succeeded. In a
/// caller's transaction this goes to the outbox, since other transactions may need the same units;
/// and so does what exceeds [`Tx::dependants_left`].
pub(crate) async fn release_dependants(tx: &mut Tx<'_>, ended: Vec<(UnitId, bool)>) -> Result<()> {
    if tx.is_caller_transaction() {
        return dependency_outbox::enqueue(tx, ended.iter().map(|(unit, _)| unit)).await;
    }
    let well: HashMap<UnitId, bool> = ended.into_iter().collect();
    let needs = uuids(well.keys());
    let (sql, limit) =
        ("SELECT unit FROM longshore_dependency WHERE depends_on = ANY($1) LIMIT $2", tx.dependants_left);
    let waiting = tx.query(sql, &[&needs, &limit]).await?;
    let waiting: Vec<Uuid> = waiting.iter().map(|row| value(row, 0)).collect::<Result<_>>()?;
    tx.dependants_left -= waiting.len() as i64;
    if tx.dependants_left == 0 {
        dependency_outbox::enqueue(tx, well.keys()).await?;
    }
    // Lock dependants before dependencies, as cancelling does.
    let sql = format!(
        "SELECT {}, u.open_dependencies FROM longshore_unit u WHERE u.state = 0 AND u.id = ANY($1)
         ORDER BY u.id FOR UPDATE",
        UnitRow::COLUMNS
    );
    let found = tx.query(&sql, &[&waiting]).await?;
    if found.is_empty() {
        return Ok(());
    }
    let units: Vec<Uuid> = found.iter().map(|row| value(row, 0)).collect::<Result<_>>()?;
    let edges = tx
        .query(
            "DELETE FROM longshore_dependency WHERE depends_on = ANY($1) AND unit = ANY($2)
             RETURNING unit, depends_on",
            &[&needs, &units],
        )
        .await?;
    let mut waiting: BTreeMap<UnitId, Vec<UnitId>> = BTreeMap::new();
    for edge in &edges {
        waiting.entry(unit_id(value(edge, 0)?)).or_default().push(unit_id(value(edge, 1)?));
    }
    let mut changes = Vec::new();
    let (mut still, mut left) = (Vec::new(), Vec::new());
    for found in found {
        let row = UnitRow::read(&Columns(&found))?;
        let waits_for: usize = small(&found, UnitRow::WIDTH)?;
        // Another transaction released it just before we had its lock.
        let Some(over) = waiting.remove(&row.id) else { continue };
        let failed = over.iter().find(|needs| well.get(needs) == Some(&false));
        let event = match failed.filter(|_| !row.has(flag::RELEASED_BY_FAILURE)) {
            Some(failed) => Event::DependencyFailed(*failed),
            None if waits_for <= over.len() => Event::Unblocked,
            None => {
                still.push(uuid(row.id));
                left.push(i32::try_from(waits_for - over.len()).map_err(damaged)?);
                continue;
            }
        };
        let step = transition(&row.transition_input()?, &event, &Policy::default(), tx.now)?;
        changes.push(UnitChange::step(row, step));
    }
    if !still.is_empty() {
        tx.query(
            "UPDATE longshore_unit u SET open_dependencies = f.open_dependencies
             FROM unnest($1, $2) AS f (id, open_dependencies) WHERE u.id = f.id",
            &[&still, &left],
        )
        .await?;
    }
    apply(tx, changes).await
}

/// The unit's own policy, if its sender set one.
pub(crate) fn own_policy(row: &UnitRow) -> Result<Option<Policy>> {
    Ok(UnitAttributes::parse(row.spec.as_deref())?.policy)
}
