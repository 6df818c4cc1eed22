//! Rolls up delta rows into the counters of streams, batches and months.
//!
//! Any process may roll up, one at a time under a lock; a process that finds the lock taken skips
//! the rollup. Readers add the remaining deltas to the counters, so the time of a rollup changes
//! only how many rows they add.

use std::sync::atomic::{AtomicUsize, Ordering};

use longshore_core::Result;

use crate::advisory_lock::{self, AdvisoryLock};
use crate::row::{count, value};
use crate::tx::Tx;

/// Delta rows after which a process rolls up by itself, in case no leader does.
const MIN_DELTAS: usize = 500;
/// Readers add up at most about as many remaining deltas.
const MAX_DELTAS: usize = 20_000;
/// Delta rows per counter that a rollup writes. With one row per counter a rollup would cost as much as it saves.
const DELTAS_PER_STREAM: usize = 8;

/// The delta rows of this process since its last rollup, and after how many it rolls up again.
#[derive(Debug)]
pub(crate) struct PendingDeltas {
    written: AtomicUsize,
    threshold: AtomicUsize,
}

impl PendingDeltas {
    pub(crate) fn new() -> Self {
        Self { written: AtomicUsize::new(0), threshold: AtomicUsize::new(MIN_DELTAS) }
    }

    /// Counts rows, and returns whether it is time to roll up. Then it starts to count again.
    pub(crate) fn add(&self, rows: usize) -> bool {
        let written = self.written.fetch_add(rows, Ordering::Relaxed) + rows;
        let is_due = written >= self.threshold.load(Ordering::Relaxed);
        if is_due {
            self.written.store(0, Ordering::Relaxed);
        }
        is_due
    }

    /// Adapts to the number of streams that the last rollup wrote. None: another process has the lock.
    pub(crate) fn rolled_up(&self, streams: usize) {
        if streams > 0 {
            let threshold = streams.saturating_mul(DELTAS_PER_STREAM).clamp(MIN_DELTAS, MAX_DELTAS);
            self.threshold.store(threshold, Ordering::Relaxed);
        }
    }
}

/// What a rollup changed.
#[derive(Debug, Default)]
pub(crate) struct RollupResult {
    /// Batches with changed counters.
    pub(crate) batches: Vec<i64>,
    /// How many streams have changed counters.
    pub(crate) streams: usize,
}

/// Rolls up all delta rows.
pub(crate) async fn roll_up(tx: &mut Tx<'_>) -> Result<RollupResult> {
    if !advisory_lock::try_acquire(tx, AdvisoryLock::Rollup).await? {
        return Ok(RollupResult::default());
    }
    roll_up_months(tx).await?;
    let rows = tx
        .query(
            "WITH gone AS (DELETE FROM longshore_stream_delta RETURNING *),
             moved AS (
               SELECT stream, sum(blocked)::bigint AS blocked, sum(scheduled)::bigint AS scheduled,
                 sum(ready)::bigint AS ready, sum(leased)::bigint AS leased,
                 sum(done)::bigint AS done, sum(failed)::bigint AS failed,
                 sum(cancelled)::bigint AS cancelled, sum(bytes)::bigint AS bytes,
                 sum(stored_bytes)::bigint AS stored_bytes
               FROM gone GROUP BY stream),
             counted AS (
               UPDATE longshore_stream s SET blocked = s.blocked + m.blocked,
                 scheduled = s.scheduled + m.scheduled, ready = s.ready + m.ready,
                 leased = s.leased + m.leased, done = s.done + m.done,
                 failed = s.failed + m.failed, cancelled = s.cancelled + m.cancelled,
                 bytes = s.bytes + m.bytes, stored_bytes = s.stored_bytes + m.stored_bytes
               FROM moved m WHERE s.num = m.stream RETURNING s.num, s.batch),
             added AS (
               -- A sum saturates at the limits of bigint.
               INSERT INTO longshore_batch_sum AS kept (batch, name, amount)
               SELECT s.batch, e.key, least(greatest(sum(e.value::numeric), -9223372036854775808),
                 9223372036854775807)::bigint
               FROM gone g JOIN longshore_stream s ON s.num = g.stream AND s.batch <> 0
               CROSS JOIN LATERAL json_each_text(g.sums::json) e
               WHERE g.sums IS NOT NULL GROUP BY s.batch, e.key
               ON CONFLICT (batch, name) DO UPDATE SET amount = least(greatest(
                 kept.amount::numeric + excluded.amount, -9223372036854775808),
                 9223372036854775807)::bigint)
             SELECT count(*), coalesce(array_agg(DISTINCT batch) FILTER (WHERE batch <> 0), '{}') FROM counted",
            &[],
        )
        .await?;
    let Some(row) = rows.first() else { return Ok(RollupResult::default()) };
    Ok(RollupResult { batches: value(row, 1)?, streams: count(row, 0)? })
}

/// Adds what calls reserved and spent to the totals of their months.
async fn roll_up_months(tx: &mut Tx<'_>) -> Result<()> {
    tx.query(
        "WITH gone AS (DELETE FROM longshore_monthly_spend_delta RETURNING *)
         INSERT INTO longshore_monthly_spend AS kept
         SELECT tenant, month, sum(spent_tokens), sum(spent_picos), sum(reserved_tokens),
           sum(reserved_picos) FROM gone GROUP BY tenant, month
         ON CONFLICT (tenant, month) DO UPDATE SET
           spent_tokens = kept.spent_tokens + excluded.spent_tokens,
           spent_picos = kept.spent_picos + excluded.spent_picos,
           reserved_tokens = kept.reserved_tokens + excluded.reserved_tokens,
           reserved_picos = kept.reserved_picos + excluded.reserved_picos",
        &[],
    )
    .await?;
    Ok(())
}
