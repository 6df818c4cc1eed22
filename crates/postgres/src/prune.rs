//! Pruning: deletes records after their retention, in bulk, and counts what it deleted.

use std::time::Duration;

use longshore_accounts::BudgetState;
use longshore_accounts::token_bucket::UNUSED_BUCKET_TTL;
use longshore_core::admission::ROW_BYTES;
use longshore_core::permits::UNUSED_POOL_TTL;
use longshore_core::store::{PruneResult, Retention};
use longshore_core::{Result, UnitState};

use crate::advisory_lock::{self, AdvisoryLock};
use crate::ledger::calls;
use crate::row::{count, state_code, value};
use crate::tx::Tx;
use crate::{counter_rollup, queue_limits};

/// Deletes records after their retention.
pub(crate) async fn prune(tx: &mut Tx<'_>, retention: Retention, limit: u32) -> Result<PruneResult> {
    let now = tx.read_clock().await?.as_micros();
    let left = format!(
        "DELETE FROM longshore_capacity_reservation WHERE num IN (SELECT r.num FROM
         longshore_capacity_reservation r
         WHERE NOT {} AND r.expires_at <= $1 FOR UPDATE SKIP LOCKED)",
        queue_limits::active_reservation_sql("$1")
    );
    tx.execute(&left, &[&now]).await?;
    // Only rollups and pruning change the row of a stream. Both take this lock.
    advisory_lock::acquire(tx, &[AdvisoryLock::Rollup]).await?;
    for batch in counter_rollup::roll_up(tx).await?.batches {
        tx.touch_batch(batch);
    }
    let mut pruned = PruneResult::default();
    let keeps = [
        (UnitState::Done, retention.done),
        (UnitState::Failed, retention.failed),
        (UnitState::Cancelled, retention.done),
    ];
    for (state, keep) in keeps {
        let left = u64::from(limit).saturating_sub(pruned.units);
        pruned.units += units(tx, state, keep, left).await?;
    }
    pruned.batches = batches(tx, retention.batches, limit).await?;
    pruned.audit_entries = prune_audit_log(tx, retention.audit_log, limit).await?;
    pruned.calls = calls::prune(tx, retention.calls_until(tx.now), limit).await?;
    let streams = prune_streams(tx, retention.done, limit).await?;
    pruned.lanes = prune_lanes(tx, limit).await?;
    prune_leftovers(tx, retention).await?;
    let counts = [pruned.units, pruned.batches, pruned.audit_entries, pruned.calls, streams, pruned.lanes];
    pruned.more = counts.iter().any(|n| *n >= limit.into());
    Ok(pruned)
}

/// How long a stream is retired before its deletion is prepared: longer than any statement that had seen it open runs
/// before it inserts its first unit.
const RETIRED_FOR: Duration = Duration::from_secs(600);

/// Deletes streams that have had no units for `keep`, and returns how many. Batches delete their own.
///
/// Processes cache the numbers of streams, and a user's transaction that has sent a unit may stay open, so this takes
/// several rounds:
/// 1. A stream without units is marked as idle. If all streams of a lane are, and it has no settings, lists leave it out.
/// 2. After `keep` it is retired. Inserts of units check that, and reopen the stream.
/// 3. After [`RETIRED_FOR`] every transaction that may have inserted a unit all the same has an id below `retired_xid`.
/// 4. Once all of these have ended, the stream is deleted if it has no units still. A user's transaction with an older
///    snapshot may still see it open, so its sends lock the stream. Two statements: the second one sees what a
///    transaction has committed that held the lock while the first one ran.
async fn prune_streams(tx: &mut Tx<'_>, keep: Duration, limit: u32) -> Result<u64> {
    let empty = "(s.batch = 0 AND s.blocked + s.scheduled + s.ready + s.leased = 0
        AND s.done = s.pruned_done AND s.failed = s.pruned_failed AND s.cancelled = s.pruned_cancelled
        AND s.num <> ALL(ARRAY(SELECT d.stream FROM longshore_stream_delta d)))";
    let mark = format!(
        "UPDATE longshore_stream s SET idle_since = CASE WHEN {empty} THEN $1 END, retired_at = NULL,
         retired_xid = NULL WHERE (s.idle_since IS NULL) = {empty}"
    );
    let (now, idle_until) = (tx.now.as_micros(), (tx.now - keep).as_micros());
    tx.execute(&mark, &[&now]).await?;
    let retire = "UPDATE longshore_stream SET retired_at = $1 WHERE idle_since <= $2 AND retired_at IS NULL";
    tx.execute(retire, &[&now, &idle_until]).await?;
    let prepare = "UPDATE longshore_stream SET retired_xid = pg_current_xact_id()
        WHERE retired_at <= $1 AND retired_xid IS NULL";
    tx.execute(prepare, &[&(tx.now - RETIRED_FOR).as_micros()]).await?;
    let lock = format!(
        "SELECT s.num FROM longshore_stream s WHERE s.retired_xid < pg_snapshot_xmin(pg_current_snapshot())
         AND {empty} LIMIT $1 FOR UPDATE SKIP LOCKED"
    );
    let rows = tx.query(&lock, &[&i64::from(limit)]).await?;
    let nums: Vec<i64> = rows.iter().map(|row| value(row, 0)).collect::<Result<_>>()?;
    let delete = format!("DELETE FROM longshore_stream s WHERE s.num = ANY($1) AND {empty}");
    tx.execute(&delete, &[&nums]).await
}

/// Deletes lanes and queues without streams and settings, and returns the number of lanes. The first lane of a queue with
/// settings stays, so that the queue is listed. Two statements each: the second one sees what a transaction has
/// committed that held the row while the first one ran.
async fn prune_lanes(tx: &mut Tx<'_>, limit: u32) -> Result<u64> {
    let unused_lane =
        "NOT l.paused AND l.weight = 1 AND l.cap IS NULL AND num_nonnulls(l.max_units, l.max_bytes) = 0
        AND NOT EXISTS (SELECT 1 FROM longshore_stream s WHERE s.lane = l.num)
        AND (EXISTS (SELECT 1 FROM longshore_queue q WHERE q.num = l.queue AND NOT q.paused
            AND num_nonnulls(q.max_units, q.max_bytes) = 0)
          OR EXISTS (SELECT 1 FROM longshore_lane o WHERE o.queue = l.queue AND o.num < l.num))";
    let unused_queue = "NOT l.paused AND num_nonnulls(l.max_units, l.max_bytes) = 0
        AND NOT EXISTS (SELECT 1 FROM longshore_lane n WHERE n.queue = l.num)";
    let mut pruned = [0; 2];
    for (at, (table, unused)) in
        [("longshore_lane", unused_lane), ("longshore_queue", unused_queue)].into_iter().enumerate()
    {
        let lock = format!("SELECT l.num FROM {table} l WHERE {unused} LIMIT $1 FOR UPDATE SKIP LOCKED");
        let rows = tx.query(&lock, &[&i64::from(limit)]).await?;
        let nums: Vec<i64> = rows.iter().map(|row| value(row, 0)).collect::<Result<_>>()?;
        let delete = format!("DELETE FROM {table} l WHERE l.num = ANY($1) AND {unused}");
        pruned[at] = tx.execute(&delete, &[&nums]).await?;
    }
    Ok(pruned[0])
}

/// Deletes sums of months without calls, unused token buckets and bounded pools, and alerts that may be sent again.
async fn prune_leftovers(tx: &mut Tx<'_>, retention: Retention) -> Result<()> {
    let month = BudgetState::month_of(retention.calls_until(tx.now));
    let months =
        "DELETE FROM longshore_monthly_spend WHERE month < $1 AND spent_tokens = 0 AND spent_picos = 0
        AND reserved_tokens = 0 AND reserved_picos = 0";
    tx.execute(months, &[&month]).await?;
    let buckets = "DELETE FROM longshore_token_bucket WHERE updated_at <= $1";
    tx.execute(buckets, &[&(tx.now - UNUSED_BUCKET_TTL).as_micros()]).await?;
    prune_tokens(tx, retention.audit_log).await?;
    tx.execute("DELETE FROM longshore_pool_alert WHERE muted_until <= longshore_now_micros()", &[]).await?;
    prune_pools(tx).await
}

/// Deletes bounded pools that have not been used for [`UNUSED_POOL_TTL`]: `fence_limit` is at least the time of the last
/// grant. As every operation on a pool, this locks its state first, which may have to be created; the second query sees
/// what was committed before.
async fn prune_pools(tx: &mut Tx<'_>) -> Result<()> {
    let unused = "p.fence_limit BETWEEN 1 AND $1 AND p.max_weight > 0 AND NOT EXISTS (
        SELECT 1 FROM longshore_permit g WHERE g.pool = p.name AND g.expires_at > longshore_now_micros())";
    let unused_since = (tx.now - UNUSED_POOL_TTL).as_micros();
    let lock = format!(
        "SELECT s.name FROM (SELECT p.name FROM longshore_bounded_pool p WHERE {unused} LIMIT {MAX_POOLS}) u
         CROSS JOIN LATERAL longshore_permit_lock_pool(u.name, NULL) s
         WHERE s.data_lost_at + s.max_lease <= longshore_now_micros()"
    );
    let rows = tx.query(&lock, &[&unused_since]).await?;
    let locked: Vec<String> = rows.iter().map(|row| value(row, 0)).collect::<Result<_>>()?;
    if locked.is_empty() {
        return Ok(());
    }
    let recheck = format!("SELECT p.name FROM longshore_bounded_pool p WHERE p.name = ANY($2) AND {unused}");
    let rows = tx.query(&recheck, &[&unused_since, &locked]).await?;
    let names: Vec<String> = rows.iter().map(|row| value(row, 0)).collect::<Result<_>>()?;
    for (table, column) in
        [("longshore_permit", "pool"), ("longshore_pool_state", "name"), ("longshore_bounded_pool", "name")]
    {
        tx.execute(&format!("DELETE FROM {table} WHERE {column} = ANY($1)"), &[&names]).await?;
    }
    Ok(())
}

/// Bounded pools that one round deletes at most.
const MAX_POOLS: u32 = 100;

/// Deletes ended units with their failures. Counters tell which streams have units in this state;
/// of each stream the oldest are found by index.
async fn units(tx: &mut Tx<'_>, state: UnitState, keep: Duration, limit: u64) -> Result<u64> {
    let (code, column) = (state_code(state), state.as_str());
    let before = (tx.now - keep).as_micros();
    let sql = format!(
        "WITH old AS MATERIALIZED (
           SELECT o.id FROM longshore_stream s CROSS JOIN LATERAL (
             SELECT u.id FROM longshore_unit u WHERE u.stream = s.num AND u.state = {code}
             AND u.sort_key <= $1 ORDER BY u.sort_key LIMIT $2 FOR UPDATE SKIP LOCKED) o
           WHERE s.{column} > s.pruned_{column} LIMIT $2),
         gone AS (DELETE FROM longshore_unit WHERE id IN (SELECT id FROM old)
           RETURNING id, stream, bytes),
         failures AS (DELETE FROM longshore_failure WHERE unit IN (SELECT id FROM gone)),
         counted AS (
           UPDATE longshore_stream s SET pruned_{column} = s.pruned_{column} + g.units,
             stored_bytes = s.stored_bytes - g.bytes
           FROM (SELECT stream, count(*) AS units, sum(bytes + {ROW_BYTES})::bigint AS bytes
             FROM gone GROUP BY stream) g
           WHERE s.num = g.stream)
         SELECT count(*) FROM gone"
    );
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let by_row: u64 = count(&tx.query_one(&sql, &[&before, &limit]).await?, 0)?;
    let left = limit - by_row.cast_signed();
    match state {
        UnitState::Done if left > 0 => {
            let sql = "SELECT longshore_prune_done_groups($1, $2)";
            Ok(by_row + count::<u64>(&tx.query_one(sql, &[&before, &left]).await?, 0)?)
        }
        _ => Ok(by_row),
    }
}

/// Deletes tokens that expired or were revoked so long ago that no entry of the audit log names them.
async fn prune_tokens(tx: &mut Tx<'_>, keep: Duration) -> Result<()> {
    let before = (tx.now - keep).as_micros();
    let ended = "revoked_at <= $1 OR expires_at <= $1";
    let sessions = format!(
        "DELETE FROM longshore_browser_session WHERE token IN (SELECT id FROM longshore_api_token WHERE {ended})"
    );
    tx.execute(&sessions, &[&before]).await?;
    tx.execute(&format!("DELETE FROM longshore_api_token WHERE {ended}"), &[&before]).await?;
    Ok(())
}

/// Deletes the oldest entries of the audit log. They have the lowest numbers, so no index by time
/// is needed.
async fn prune_audit_log(tx: &mut Tx<'_>, keep: Duration, limit: u32) -> Result<u64> {
    let before = (tx.now - keep).as_micros();
    let sql = "DELETE FROM longshore_audit_entry WHERE recorded_at <= $1
         AND seq = ANY(ARRAY(SELECT seq FROM longshore_audit_entry ORDER BY seq LIMIT $2))";
    tx.execute(sql, &[&before, &i64::from(limit)]).await
}

/// Deletes ended batches with their streams, once all their units are pruned. A stream in a
/// process's cache receives no more units, since sending to a batch locks the batch's row. Counters
/// were rolled up just now; batches with newer deltas wait for the next round.
async fn batches(tx: &mut Tx<'_>, keep: Duration, limit: u32) -> Result<u64> {
    let before = (tx.now - keep).as_micros();
    let rows = tx
        .query(
            "SELECT b.num FROM longshore_batch b WHERE b.completed_at <= $1
             AND b.status IN ('complete', 'failed', 'cancelled')
             AND NOT EXISTS (SELECT 1 FROM longshore_stream s WHERE s.batch = b.num
               AND s.batch <> 0 AND (s.blocked + s.scheduled + s.ready + s.leased > 0
               OR s.done > s.pruned_done OR s.failed > s.pruned_failed
               OR s.cancelled > s.pruned_cancelled
               OR s.num = ANY(ARRAY(SELECT d.stream FROM longshore_stream_delta d))))
             ORDER BY b.num LIMIT $2 FOR UPDATE OF b SKIP LOCKED",
            &[&before, &i64::from(limit)],
        )
        .await?;
    let nums: Vec<i64> = rows.iter().map(|row| value(row, 0)).collect::<Result<_>>()?;
    if !nums.is_empty() {
        for table in ["longshore_stream", "longshore_batch_sum"] {
            tx.execute(&format!("DELETE FROM {table} WHERE batch = ANY($1)"), &[&nums]).await?;
        }
        tx.execute("DELETE FROM longshore_batch WHERE num = ANY($1)", &[&nums]).await?;
    }
    Ok(nums.len() as u64)
}
