//! Maintenance: dead sessions, due units, old records. Each operation does a bounded amount of
//! work.

use std::time::Duration;

use longshore_accounts::BudgetState;
use longshore_accounts::token_bucket::UNUSED_BUCKET_TTL;
use longshore_core::admission::ROW_BYTES;
use longshore_core::failure_detector::StalledSession;
use longshore_core::permits::UNUSED_POOL_TTL;
use longshore_core::store::{PromoteResult, PruneResult, ReclaimResult, Retention};
use longshore_core::unit_state::{Event, transition};
use longshore_core::worker_session::SessionEnd;
use longshore_core::{Policy, Result, SessionId, Timestamp, UnitId};
use rusqlite::{Connection, OptionalExtension};

use crate::error::Translate;
use crate::finish::{apply, load, unpark};
use crate::ledger::calls;
use crate::permits::boot_clock;
use crate::session;
use crate::tx::Tx;

/// Bytes of units that one prune deletes, about: SQLite reads every page of a large value to free it.
const MAX_PRUNED_BYTES: i64 = 128 << 20;

/// Free pages that one prune returns to the file system at most: 2 MB. Each may move another page.
const MAX_FREED_PAGES: u32 = 500;

/// Free pages stay in the file for new units while at most one page in this many is free.
const MAX_FREE_SHARE: u32 = 10;

/// Entries of the outbox that one operation takes at most.
const OUTBOX_BATCH: usize = 100;

/// Cap keys that one promotion checks at most.
const MAX_CAP_KEYS: u32 = 1_000;

/// Ends a dead session, unless its heartbeat has moved since.
pub(crate) fn reclaim(tx: &mut Tx<'_>, dead: StalledSession) -> Result<ReclaimResult> {
    let still: bool = tx
        .db
        .query_row(
            "SELECT EXISTS (SELECT 1 FROM longshore_session WHERE id = ?1 AND heartbeats = ?2)",
            (dead.session.as_bytes(), dead.beats),
            |row| row.get(0),
        )
        .or_translate()?;
    if !still {
        return Ok(ReclaimResult::default());
    }
    let (rescued, failed) = session::end(tx, dead.session, SessionEnd::Lost)?;
    Ok(ReclaimResult { sessions: 1, requeued: rescued, failed })
}

/// Makes due units ready, fails expired ones, cancels units of batches that failed or were
/// cancelled.
pub(crate) fn promote(tx: &mut Tx<'_>, limit: u32) -> Result<PromoteResult> {
    let now = tx.now.as_micros();
    drain_dependency_outbox(tx)?;
    let due = apply_event(tx, DUE, now, limit, &Event::Due)?;
    let expired = apply_event(tx, EXPIRED, now, limit, &Event::Expired)?;
    let swept = cancel_given_up(tx, limit)?;
    unpark_uncapped(tx)?;
    tx.flush()?;
    let has_outbox = tx
        .db
        .query_row("SELECT EXISTS (SELECT 1 FROM longshore_dependency_outbox)", [], |row| row.get(0))
        .or_translate()?;
    let more = has_outbox || [due, expired, swept].iter().any(|count| *count >= u64::from(limit));
    let next_due = if more { None } else { next_due(tx)? };
    Ok(PromoteResult { due, expired, cancelled: swept, more, next_due })
}

/// Continues with the dependants of units that ended with many of them.
pub(crate) fn drain_dependency_outbox(tx: &mut Tx<'_>) -> Result<()> {
    let ended: Vec<([u8; 16], bool)> = tx
        .db
        .prepare_cached(
            "DELETE FROM longshore_dependency_outbox WHERE unit IN (SELECT unit FROM
             longshore_dependency_outbox LIMIT ?1) RETURNING unit, succeeded",
        )
        .or_translate()?
        .query_map([OUTBOX_BATCH], |row| Ok((row.get(0)?, row.get(1)?)))
        .or_translate()?
        .collect::<rusqlite::Result<_>>()
        .or_translate()?;
    tx.outbox |= ended.len() == OUTBOX_BATCH;
    for (unit, succeeded) in ended {
        tx.record_end(UnitId::from_bytes(unit), succeeded);
    }
    Ok(())
}

/// Few streams have scheduled units; the index provides the first due ones of each.
const DUE: &str = "SELECT u.id FROM longshore_stream s INDEXED BY longshore_stream_live
    JOIN longshore_unit u INDEXED BY longshore_unit_sort ON u.stream = s.num AND u.state = 1
    AND u.sort_key <= ?1 WHERE s.blocked + s.scheduled + s.ready + s.leased > 0 AND s.scheduled > 0
    LIMIT ?2";

const EXPIRED: &str = "SELECT id FROM longshore_unit INDEXED BY longshore_unit_deadline
    WHERE deadline IS NOT NULL AND state IN (0, 1, 2, 7, 8) AND deadline <= ?1 LIMIT ?2";

const GIVEN_UP: &str = "SELECT u.id FROM longshore_stream s INDEXED BY longshore_stream_live
    JOIN longshore_batch b ON b.num = s.batch AND b.status IN ('failed', 'cancelled')
    JOIN longshore_unit u INDEXED BY longshore_unit_sort ON u.stream = s.num
    AND u.state IN (0, 1, 2, 7, 8)
    WHERE s.blocked + s.scheduled + s.ready + s.leased > 0 AND ?1 IS NOT NULL LIMIT ?2";

fn apply_event(tx: &mut Tx<'_>, select: &str, now: i64, limit: u32, event: &Event<'_>) -> Result<u64> {
    let ids: Vec<[u8; 16]> = tx
        .db
        .prepare_cached(select)
        .or_translate()?
        .query_map((now, limit), |row| row.get(0))
        .or_translate()?
        .collect::<rusqlite::Result<_>>()
        .or_translate()?;
    for id in &ids {
        let row = load(tx, UnitId::from_bytes(*id))?;
        let step = transition(&row.transition_input()?, event, &Policy::default(), tx.now)?;
        apply(tx, &row, &step, row.fence, None)?;
    }
    Ok(ids.len() as u64)
}

/// Cancels waiting units of batches that failed or were cancelled, and asks running ones to stop.
pub(crate) fn cancel_given_up(tx: &mut Tx<'_>, limit: u32) -> Result<u64> {
    tx.db
        .prepare_cached(
            "UPDATE longshore_unit INDEXED BY longshore_unit_session SET flags = flags | 4
             WHERE session IS NOT NULL AND flags & 4 = 0 AND stream IN (SELECT s.num FROM
             longshore_stream s JOIN longshore_batch b
             ON b.num = s.batch WHERE s.leased > 0 AND b.status IN ('failed', 'cancelled'))",
        )
        .or_translate()?
        .execute([])
        .or_translate()?;
    apply_event(tx, GIVEN_UP, 0, limit, &Event::Cancel)
}

/// Makes units parked behind a cap claimable if no unit holds that cap any more. The unit that leaves
/// does this for the next ones; this repeats it, in case none of them was taken.
fn unpark_uncapped(tx: &mut Tx<'_>) -> Result<()> {
    // From key to key by the index, independent of the number of parked units. The next call
    // continues after the last key.
    let mut after = std::mem::take(&mut tx.claim_cache.unparked_until);
    for _ in 0..MAX_CAP_KEYS {
        let next: Option<(String, bool)> = tx
            .db
            .prepare_cached(
                "SELECT p.cap_key, EXISTS (SELECT 1 FROM longshore_unit l
                   INDEXED BY longshore_unit_cap WHERE l.cap_key = p.cap_key AND l.state = 3
                   AND l.state IN (3, 7))
                 FROM longshore_unit p INDEXED BY longshore_unit_cap
                 WHERE p.cap_key > ?1 AND p.cap_key IS NOT NULL AND p.state IN (3, 7)
                 ORDER BY p.cap_key LIMIT 1",
            )
            .or_translate()?
            .query_row([&after], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
            .or_translate()?;
        let Some((key, held)) = next else { return Ok(()) };
        if !held {
            unpark(tx, &key)?;
        }
        after = key;
    }
    tx.claim_cache.unparked_until = after;
    Ok(())
}

/// Time until the next scheduled unit is due.
fn next_due(tx: &Tx<'_>) -> Result<Option<Duration>> {
    let due: Option<i64> = tx
        .db
        .prepare_cached(
            "SELECT min((SELECT sort_key FROM longshore_unit u INDEXED BY longshore_unit_sort
             WHERE u.stream = s.num AND u.state = 1 ORDER BY sort_key LIMIT 1))
             FROM longshore_stream s INDEXED BY longshore_stream_live
             WHERE s.blocked + s.scheduled + s.ready + s.leased > 0 AND s.scheduled > 0",
        )
        .or_translate()?
        .query_row([], |row| row.get(0))
        .or_translate()?;
    Ok(due.map(|due| Timestamp::from_micros(due).since(tx.now)))
}

/// Removes records that exceed the retention.
pub(crate) fn prune(tx: &mut Tx<'_>, retention: Retention, limit: u32) -> Result<PruneResult> {
    let mut pruned = PruneResult::default();
    let mut bytes_left = MAX_PRUNED_BYTES;
    let retained =
        [(4, "done", retention.done), (5, "failed", retention.failed), (6, "cancelled", retention.done)];
    for (state, column, keep) in retained {
        let before = (tx.now - keep).as_micros();
        let left = u64::from(limit).saturating_sub(pruned.units);
        pruned.units += prune_state(tx.db, state, column, before, left, &mut bytes_left)?;
    }
    pruned.batches = prune_batches(tx, (tx.now - retention.batches).as_micros(), limit)?;
    pruned.audit_entries = prune_audit_log(tx.db, (tx.now - retention.audit_log).as_micros(), limit)?;
    pruned.calls = calls::prune(tx, retention.calls_until(tx.now), limit)?;
    let streams = prune_streams(tx, retention.done, limit)?;
    pruned.lanes = prune_lanes(tx.db)?;
    prune_leftovers(tx, retention)?;
    let counts = [pruned.units, pruned.batches, pruned.audit_entries, pruned.calls, streams];
    pruned.more = bytes_left <= 0 || counts.iter().any(|n| *n >= limit.into());
    if !pruned.more {
        pruned.more = shrink_file(tx.db)?;
    }
    Ok(pruned)
}

/// Returns free pages to the file system, a bounded number at a time; true if there are more. The
/// file shrinks at the next checkpoint of the log. A file of an application without `auto_vacuum`
/// keeps its free pages and uses them again.
fn shrink_file(db: &Connection) -> Result<bool> {
    let pragma =
        |name: &str| -> Result<u32> { db.pragma_query_value(None, name, |row| row.get(0)).or_translate() };
    let can_shrink = pragma("auto_vacuum")? != 0;
    let is_sparse = || Ok(pragma("freelist_count")? > pragma("page_count")? / MAX_FREE_SHARE);
    if !can_shrink || !is_sparse()? {
        return Ok(false);
    }
    let sql = format!("PRAGMA incremental_vacuum({MAX_FREED_PAGES})");
    let mut statement = db.prepare_cached(&sql).or_translate()?;
    let mut steps = statement.query([]).or_translate()?;
    // SQLite frees one page per step.
    while steps.next().or_translate()?.is_some() {}
    is_sparse()
}

/// Removes streams that have had no units for `keep`. Batches remove their own.
fn prune_streams(tx: &Tx<'_>, keep: Duration, limit: u32) -> Result<u64> {
    let mark = format!(
        "UPDATE longshore_stream SET idle_since = iif({EMPTY_STREAM}, ?1, NULL)
         WHERE (idle_since IS NULL) = ({EMPTY_STREAM})"
    );
    tx.db.prepare_cached(&mark).or_translate()?.execute([tx.now.as_micros()]).or_translate()?;
    let delete = format!(
        "DELETE FROM longshore_stream WHERE num IN (SELECT num FROM longshore_stream
         WHERE idle_since <= ?1 AND {EMPTY_STREAM} LIMIT ?2)"
    );
    let before = (tx.now - keep).as_micros();
    let gone = tx.db.prepare_cached(&delete).or_translate()?.execute((before, limit)).or_translate()?;
    Ok(gone as u64)
}

/// Removes lanes and queues without streams and settings; returns the number of lanes. The first lane of
/// a queue with settings stays, so that the queue is listed.
fn prune_lanes(db: &Connection) -> Result<u64> {
    let lanes = "DELETE FROM longshore_lane AS l WHERE NOT paused AND weight = 1 AND cap IS NULL
         AND max_units IS NULL AND max_bytes IS NULL
         AND NOT EXISTS (SELECT 1 FROM longshore_stream s WHERE s.lane = l.num)
         AND (EXISTS (SELECT 1 FROM longshore_queue q WHERE q.num = l.queue AND NOT q.paused
             AND q.max_units IS NULL AND q.max_bytes IS NULL)
           OR EXISTS (SELECT 1 FROM longshore_lane o WHERE o.queue = l.queue AND o.num < l.num))";
    let queues = "DELETE FROM longshore_queue AS q WHERE NOT paused AND max_units IS NULL
         AND max_bytes IS NULL AND NOT EXISTS (SELECT 1 FROM longshore_lane l WHERE l.queue = q.num)";
    let gone = db.prepare_cached(lanes).or_translate()?.execute([]).or_translate()?;
    db.prepare_cached(queues).or_translate()?.execute([]).or_translate()?;
    Ok(gone as u64)
}

/// Deletes sums of months without calls, unused token buckets and bounded pools, and alerts that may be
/// sent again.
fn prune_leftovers(tx: &Tx<'_>, retention: Retention) -> Result<()> {
    let month = BudgetState::month_of(retention.calls_until(tx.now));
    let months =
        "DELETE FROM longshore_monthly_spend WHERE month < ?1 AND spent_tokens = 0 AND spent_picos = 0
         AND reserved_tokens = 0 AND reserved_picos = 0";
    tx.db.prepare_cached(months).or_translate()?.execute([month]).or_translate()?;
    let buckets = "DELETE FROM longshore_token_bucket WHERE updated_at <= ?1";
    let unused_since = (tx.now - UNUSED_BUCKET_TTL).as_micros();
    tx.db.prepare_cached(buckets).or_translate()?.execute([unused_since]).or_translate()?;
    prune_tokens(tx.db, (tx.now - retention.audit_log).as_micros())?;
    let alerts = "DELETE FROM longshore_pool_alert WHERE muted_until <= ?1";
    tx.db.prepare_cached(alerts).or_translate()?.execute([boot_clock::now().as_micros()]).or_translate()?;
    prune_pools(tx)
}

/// Deletes bounded pools that have not been used for [`UNUSED_POOL_TTL`]: their last fence is the time
/// of their last grant.
fn prune_pools(tx: &Tx<'_>) -> Result<()> {
    let unused = "SELECT num FROM longshore_bounded_pool AS p WHERE fence BETWEEN 1 AND ?1
         AND max_weight > 0 AND NOT EXISTS (SELECT 1 FROM longshore_permit g WHERE g.pool = p.num AND g.expires_at > ?2)";
    let (unused_since, now) = ((tx.now - UNUSED_POOL_TTL).as_micros(), boot_clock::now().as_micros());
    for delete in [
        format!("DELETE FROM longshore_permit WHERE pool IN ({unused})"),
        format!("DELETE FROM longshore_bounded_pool WHERE num IN ({unused})"),
    ] {
        tx.db.prepare_cached(&delete).or_translate()?.execute([unused_since, now]).or_translate()?;
    }
    Ok(())
}

/// A stream of no batch without units.
const EMPTY_STREAM: &str = "batch = 0 AND blocked + scheduled + ready + leased = 0
    AND done = pruned_done AND failed = pruned_failed AND cancelled = pruned_cancelled";

fn prune_state(
    db: &Connection,
    state: u8,
    column: &str,
    before: i64,
    limit: u64,
    bytes_left: &mut i64,
) -> Result<u64> {
    let streams: Vec<i64> = db
        .prepare_cached(&format!("SELECT num FROM longshore_stream WHERE {column} > pruned_{column}"))
        .or_translate()?
        .query_map([], |row| row.get(0))
        .or_translate()?
        .collect::<rusqlite::Result<_>>()
        .or_translate()?;
    let mut pruned = 0;
    for stream in streams {
        let (gone, stored) = delete_ended(db, stream, state, before, limit - pruned, bytes_left)?;
        if gone > 0 {
            db.prepare_cached(&format!(
                "UPDATE longshore_stream SET pruned_{column} = pruned_{column} + ?2,
                 stored_bytes = stored_bytes - ?3 WHERE num = ?1"
            ))
            .or_translate()?
            .execute((stream, gone, stored))
            .or_translate()?;
        }
        pruned += gone;
        if pruned >= limit || *bytes_left <= 0 {
            break;
        }
    }
    Ok(pruned)
}

/// Deletes ended units of a stream; returns how many, and the bytes that they took.
fn delete_ended(
    db: &Connection,
    stream: i64,
    state: u8,
    before: i64,
    limit: u64,
    bytes_left: &mut i64,
) -> Result<(u64, i64)> {
    let mut units: Vec<([u8; 16], i64)> = db
        .prepare_cached(
            "SELECT id, bytes FROM longshore_unit INDEXED BY longshore_unit_sort
             WHERE stream = ?1 AND state = ?2 AND sort_key <= ?3 ORDER BY sort_key LIMIT ?4",
        )
        .or_translate()?
        .query_map((stream, state, before, limit), |row| Ok((row.get(0)?, row.get(1)?)))
        .or_translate()?
        .collect::<rusqlite::Result<_>>()
        .or_translate()?;
    units.retain(|(_, bytes)| {
        let fits = *bytes_left > 0;
        *bytes_left -= bytes;
        fits
    });
    for (id, _) in &units {
        for sql in [
            "DELETE FROM longshore_overflow_value WHERE unit = ?1",
            "DELETE FROM longshore_failure WHERE unit = ?1",
            "DELETE FROM longshore_unit WHERE id = ?1",
        ] {
            db.prepare_cached(sql).or_translate()?.execute([id]).or_translate()?;
        }
    }
    let stored = units.iter().map(|(_, bytes)| bytes + ROW_BYTES.cast_signed()).sum();
    Ok((units.len() as u64, stored))
}

/// Removes tokens that expired or were revoked so long ago that no entry of the audit log names them.
fn prune_tokens(db: &Connection, before: i64) -> Result<()> {
    for sql in [
        "DELETE FROM longshore_browser_session WHERE token IN
         (SELECT id FROM longshore_api_token WHERE revoked_at <= ?1 OR expires_at <= ?1)",
        "DELETE FROM longshore_api_token WHERE revoked_at <= ?1 OR expires_at <= ?1",
    ] {
        db.prepare_cached(sql).or_translate()?.execute([before]).or_translate()?;
    }
    Ok(())
}

/// Removes the oldest entries of the audit log. They have the smallest numbers, so no index by time
/// is needed.
fn prune_audit_log(db: &Connection, before: i64, limit: u32) -> Result<u64> {
    let gone = db
        .prepare_cached(
            "DELETE FROM longshore_audit_entry WHERE recorded_at <= ?1
             AND seq IN (SELECT seq FROM longshore_audit_entry ORDER BY seq LIMIT ?2)",
        )
        .or_translate()?
        .execute((before, limit))
        .or_translate()?;
    Ok(gone as u64)
}

/// Removes ended batches after all their units were pruned, with their streams.
fn prune_batches(tx: &mut Tx<'_>, before: i64, limit: u32) -> Result<u64> {
    let nums: Vec<i64> = tx
        .db
        .prepare_cached(
            "SELECT num FROM longshore_batch b WHERE completed_at <= ?1
             AND status IN ('complete', 'failed', 'cancelled')
             AND NOT EXISTS (SELECT 1 FROM longshore_stream s WHERE s.batch = b.num
               AND s.batch <> 0 AND (s.blocked + s.scheduled + s.ready + s.leased > 0
               OR s.done > s.pruned_done OR s.failed > s.pruned_failed
               OR s.cancelled > s.pruned_cancelled)) LIMIT ?2",
        )
        .or_translate()?
        .query_map((before, limit), |row| row.get(0))
        .or_translate()?
        .collect::<rusqlite::Result<_>>()
        .or_translate()?;
    for num in &nums {
        tx.db.execute("DELETE FROM longshore_stream WHERE batch = ?1", [num]).or_translate()?;
        tx.db.execute("DELETE FROM longshore_batch_sum WHERE batch = ?1", [num]).or_translate()?;
        tx.db.execute("DELETE FROM longshore_batch WHERE num = ?1", [num]).or_translate()?;
    }
    Ok(nums.len() as u64)
}

/// Acquires or renews the leadership of a role.
pub(crate) fn lead(tx: &mut Tx<'_>, role: &str, session: SessionId, ttl: Duration) -> Result<bool> {
    let holder: Option<([u8; 16], i64)> = tx
        .db
        .prepare_cached("SELECT session, expires_at FROM longshore_leader WHERE role = ?1")
        .or_translate()?
        .query_row([role], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()
        .or_translate()?;
    // A term that ends later than a term starting now was set before the clock was set back.
    let in_term = tx.now.as_micros() + 1..=(tx.now + ttl).as_micros();
    let has_leader =
        |(other, until): &([u8; 16], i64)| other != session.as_bytes() && in_term.contains(until);
    if holder.as_ref().is_some_and(has_leader) {
        return Ok(false);
    }
    tx.db
        .prepare_cached(
            "INSERT INTO longshore_leader (role, session, expires_at) VALUES (?1, ?2, ?3)
             ON CONFLICT (role) DO UPDATE SET session = excluded.session, expires_at =
             excluded.expires_at",
        )
        .or_translate()?
        .execute((role, session.as_bytes(), (tx.now + ttl).as_micros()))
        .or_translate()?;
    Ok(true)
}
