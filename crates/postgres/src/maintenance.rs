//! Maintenance: stalled sessions, due units, batches that a crash left open. Each operation does a
//! bounded amount of work. `prune` removes old records.
//!
//! In an idle store each round costs one statement, which tells which parts have work.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use longshore_core::failure_detector::StalledSession;
use longshore_core::store::{PromoteResult, ReclaimResult};
use longshore_core::unit_state::{Event, transition};
use longshore_core::worker_session::SessionEnd;
use longshore_core::{Policy, Result, SessionId, Timestamp};

use crate::counter_rollup;
use crate::dependency_outbox;
use crate::finish::{UnitChange, apply, lock_rows_where, unpark};
use crate::row::{UnitAttributes, count, flag, value};
use crate::session;
use crate::start_log;
use crate::tx::Tx;
use crate::typed_params::{SqlParam, session_uuid};

/// Time limit of a reclaim. Under a long-running reader, the index of leases still contains everything that the session
/// ever held, and all of it is read once.
pub(crate) const RECLAIM_TIMEOUT: Duration = Duration::from_secs(300);

/// Ends a stalled session, if it has not sent a heartbeat since the watcher last read it. A
/// concurrent heartbeat waits for this transaction and then learns that its session is gone.
pub(crate) async fn reclaim(tx: &mut Tx<'_>, stalled: StalledSession) -> Result<ReclaimResult> {
    tx.batch(&format!("SET LOCAL statement_timeout = '{}s'", RECLAIM_TIMEOUT.as_secs())).await?;
    let still = tx
        .query_opt(
            "SELECT 1 FROM longshore_session WHERE id = $1 AND heartbeats = $2 FOR UPDATE",
            &[&session_uuid(stalled.session), &stalled.beats.cast_signed()],
        )
        .await?;
    if still.is_none() {
        return Ok(ReclaimResult::default());
    }
    let (rescued, failed) = session::end(tx, stalled.session, SessionEnd::Lost).await?;
    Ok(ReclaimResult { sessions: 1, requeued: rescued, failed })
}

/// What maintenance remembers between rounds.
#[derive(Debug, Default)]
pub(crate) struct MaintenanceCache(Mutex<CacheState>);

#[derive(Debug, Default)]
struct CacheState {
    /// The last cap key that was checked.
    cap_key: Vec<u8>,
    /// When batches that a crash may have left open were last checked.
    batches: Option<Instant>,
    /// The result of the last round, if it found no work.
    idle: Option<(IdleUntil, ChangeSeq, Instant)>,
}

/// Counts changes, of this process and of others as far as they notify. While it stays the same,
/// nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChangeSeq {
    /// Commits of this process that changed anything.
    pub(crate) commits: u64,
    /// Notifications of changes.
    pub(crate) notifications: u64,
}

/// Nothing is to be promoted before one of these times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IdleUntil {
    /// When the next scheduled unit is due.
    next_due: Option<Timestamp>,
    next_deadline: Option<Timestamp>,
    /// The time until the next schedule fires, by the server's clock at the time of the query.
    next_fire_in: Option<Duration>,
}

/// How often batches that a crash may have left open are checked.
const BATCH_RECHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Cap keys checked in one round.
const MAX_CAP_KEYS: i64 = 1000;

impl MaintenanceCache {
    fn with<T>(&self, change: impl FnOnce(&mut CacheState) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records the result of a round that began at `seq`.
    pub(crate) fn record(&self, idle: Option<IdleUntil>, seq: ChangeSeq) {
        self.with(|state| state.idle = idle.map(|idle| (idle, seq, Instant::now())));
    }

    /// The result of the last round, if it is no older than `age` and nothing has changed since.
    pub(crate) fn idle_until(&self, seq: ChangeSeq, age: Duration) -> Option<IdleUntil> {
        let (idle, then, at) = self.with(|state| state.idle)?;
        (then == seq && at.elapsed() <= age).then_some(idle)
    }

    /// The time until the next schedule fires, if the cache knows it and none is due. It subtracts
    /// the elapsed time and ignores this process's wall clock, which may be wrong.
    pub(crate) fn next_fire_in(&self, seq: ChangeSeq, age: Duration) -> Option<Option<Duration>> {
        let (idle, then, at) = self.with(|state| state.idle)?;
        let passed = at.elapsed();
        if then != seq || passed > age {
            return None;
        }
        match idle.next_fire_in {
            Some(wait) => wait.checked_sub(passed).filter(|left| !left.is_zero()).map(Some),
            None => Some(None),
        }
    }

    fn batch_recheck_is_due(&self) -> bool {
        let now = Instant::now();
        self.with(|state| {
            let due = state.batches.is_none_or(|last| now.duration_since(last) >= BATCH_RECHECK_INTERVAL);
            if due {
                state.batches = Some(now);
            }
            due
        })
    }
}

impl IdleUntil {
    /// The time until the next scheduled unit is due.
    pub(crate) fn next_due_in(&self, now: Timestamp) -> Option<Duration> {
        self.next_due.map(|due| due.since(now))
    }

    /// Whether nothing is due yet.
    pub(crate) fn holds_at(&self, now: Timestamp) -> bool {
        [self.next_due, self.next_deadline].iter().flatten().all(|at| *at > now)
    }
}

/// Makes due units ready, fails expired ones, cancels units of abandoned batches, and rolls up
/// counters. If there was nothing to do, it also returns until when.
pub(crate) async fn promote(
    tx: &mut Tx<'_>,
    limit: u32,
    cache: &MaintenanceCache,
) -> Result<(PromoteResult, Option<IdleUntil>)> {
    let (now, max_units) = (tx.read_clock().await?.as_micros(), i64::from(limit));
    let pending = PendingWork::query(tx).await?;
    if pending.outbox {
        dependency_outbox::drain(tx).await?;
        tx.flush().await?;
    }
    let has_more_dependants = tx.dependants_left == 0;
    if pending.rollup {
        for batch in counter_rollup::roll_up(tx).await?.batches {
            tx.touch_batch(batch);
        }
    }
    let mut promoted = PromoteResult::default();
    if pending.due {
        promoted.due = apply_event(tx, DUE, &[&now, &max_units], &Event::Due).await?;
    }
    if pending.expired {
        promoted.expired = apply_event(tx, EXPIRED, &[&now, &max_units], &Event::Expired).await?;
    }
    if pending.abandoned {
        promoted.cancelled = sweep(tx, limit).await?;
    }
    if pending.ended && cache.batch_recheck_is_due() {
        touch_ended(tx).await?;
    }
    if pending.parked {
        unpark_below_cap(tx, cache).await?;
    }
    let long_log = pending.starts && start_log::compact(tx).await?;
    let PromoteResult { due, expired, cancelled: swept, .. } = promoted;
    let has_more = long_log || has_more_dependants;
    promoted.more = has_more || [due, expired, swept].iter().any(|count| *count >= u64::from(limit));
    if pending.is_empty() {
        promoted.next_due = pending.idle.next_due_in(tx.now);
        return Ok((promoted, Some(pending.idle)));
    }
    if !promoted.more {
        promoted.next_due = next_due(tx).await?;
    }
    Ok((promoted, None))
}

/// Checks whether there is anything to promote, after the leader's renewal. Batches that a
/// crash left open are left to the next promotion.
pub(crate) async fn probe_idle(tx: &mut Tx<'_>) -> Result<Option<IdleUntil>> {
    let pending = PendingWork::query(tx).await?;
    Ok((pending.is_empty() && !pending.ended).then_some(pending.idle))
}

/// Which parts of a promotion have work.
struct PendingWork {
    rollup: bool,
    due: bool,
    expired: bool,
    abandoned: bool,
    ended: bool,
    parked: bool,
    starts: bool,
    outbox: bool,
    idle: IdleUntil,
}

impl PendingWork {
    async fn query(tx: &mut Tx<'_>) -> Result<Self> {
        let row = tx
            .query_one(
                "SELECT EXISTS (SELECT 1 FROM longshore_stream_delta)
                   OR EXISTS (SELECT 1 FROM longshore_monthly_spend_delta),
                 (SELECT sort_key FROM longshore_unit WHERE state = 1 ORDER BY sort_key LIMIT 1),
                 (SELECT deadline FROM longshore_unit WHERE deadline IS NOT NULL
                   AND state IN (0, 1, 2, 7, 8) ORDER BY deadline LIMIT 1),
                 EXISTS (SELECT 1 FROM longshore_batch WHERE completed_at IS NULL
                   AND status IN ('failed', 'cancelled')),
                 EXISTS (SELECT 1 FROM longshore_batch WHERE completed_at IS NULL
                   AND (sealed OR status IN ('failed', 'cancelled'))),
                 EXISTS (SELECT 1 FROM longshore_unit WHERE cap_key IS NOT NULL
                   AND state IN (3, 7) AND state = 7),
                 EXISTS (SELECT 1 FROM longshore_start_log),
                 EXISTS (SELECT 1 FROM longshore_dependency_outbox),
                 (SELECT min(next_fire) FROM longshore_schedule
                   WHERE NOT paused AND next_fire IS NOT NULL)
                   - (extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
                &[],
            )
            .await?;
        let time = |at| -> Result<Option<Timestamp>> {
            Ok(value::<Option<i64>>(&row, at)?.map(Timestamp::from_micros))
        };
        let next_fire_in = value::<Option<i64>>(&row, 8)?;
        let next_fire_in = next_fire_in.map(|left| Duration::from_micros(left.try_into().unwrap_or(0)));
        let is_past = |time: Option<Timestamp>| time.is_some_and(|time| time <= tx.now);
        let idle = IdleUntil { next_due: time(1)?, next_deadline: time(2)?, next_fire_in };
        Ok(Self {
            rollup: value(&row, 0)?,
            due: is_past(idle.next_due),
            expired: is_past(idle.next_deadline),
            abandoned: value(&row, 3)?,
            ended: value(&row, 4)?,
            parked: value(&row, 5)?,
            starts: value(&row, 6)?,
            outbox: value(&row, 7)?,
            idle,
        })
    }

    /// Whether there is no urgent work. Batches that a crash left open can wait.
    fn is_empty(&self) -> bool {
        let Self { rollup, due, expired, abandoned, parked, starts, outbox, .. } = *self;
        !(rollup || due || expired || abandoned || parked || starts || outbox)
    }
}

// A locked unit is being changed by another transaction; the next round handles it.
const DUE: &str = "u.state = 1 AND u.sort_key <= $1 ORDER BY u.sort_key LIMIT $2 FOR UPDATE SKIP LOCKED";

const EXPIRED: &str = "u.deadline IS NOT NULL AND u.state IN (0, 1, 2, 7, 8) AND u.deadline <= $1
    ORDER BY u.deadline LIMIT $2 FOR UPDATE SKIP LOCKED";

// Two conditions for two tables.
const ABANDONED: [&str; 2] = [
    "u.id = ANY(ARRAY(SELECT r.id FROM longshore_ready r WHERE r.stream = ANY($1) LIMIT $2))
     FOR UPDATE SKIP LOCKED",
    "u.stream = ANY($1) AND u.state IN (0, 1, 7, 8) LIMIT $2 FOR UPDATE SKIP LOCKED",
];

/// Applies an event to all units that `which` selects.
async fn apply_event(
    tx: &mut Tx<'_>,
    which: &str,
    params: &[&dyn SqlParam],
    event: &Event<'_>,
) -> Result<u64> {
    let mut changes = Vec::new();
    for row in lock_rows_where(tx, which, params).await? {
        // A bulk unit may have been claimed, and be done, since it was found.
        if row.session.is_some() || row.state()?.is_final() {
            continue;
        }
        let step = transition(&row.transition_input()?, event, &Policy::default(), tx.now)?;
        changes.push(UnitChange::step(row, step));
    }
    let count = changes.len() as u64;
    apply(tx, changes).await?;
    Ok(count)
}

/// Cancels waiting units of abandoned batches, and requests the cancellation of running ones.
pub(crate) async fn sweep(tx: &mut Tx<'_>, limit: u32) -> Result<u64> {
    let streams = abandoned_streams(tx).await?;
    if streams.is_empty() {
        return Ok(0);
    }
    let leased = "u.id = ANY(ARRAY(SELECT unnest(g.units) FROM longshore_lease_group g
        WHERE g.stream = ANY($1))) ORDER BY u.id FOR UPDATE SKIP LOCKED";
    lock_rows_where(tx, leased, &[&streams]).await?;
    tx.execute(
        "UPDATE longshore_unit SET flags = flags | $2 WHERE id IN (SELECT id FROM longshore_unit
         WHERE session IS NOT NULL AND flags & $2 = 0 AND stream = ANY($1)
         FOR UPDATE SKIP LOCKED)",
        &[&streams, &flag::CANCEL_REQUESTED],
    )
    .await?;
    let mut swept = 0;
    for which in ABANDONED {
        let left = i64::from(limit) - i64::try_from(swept).unwrap_or(0);
        if left > 0 {
            swept += apply_event(tx, which, &[&streams, &left], &Event::Cancel).await?;
        }
    }
    Ok(swept)
}

/// The streams of abandoned batches that have not completed.
async fn abandoned_streams(tx: &mut Tx<'_>) -> Result<Vec<i64>> {
    let rows = tx
        .query(
            "SELECT s.num FROM longshore_batch b JOIN longshore_stream s
             ON s.batch = b.num AND s.batch <> 0
             WHERE b.completed_at IS NULL AND b.status IN ('failed', 'cancelled')",
            &[],
        )
        .await?;
    rows.iter().map(|row| value(row, 0)).collect()
}

/// Finds batches that are still open although all their units have ended, so that they advance: the
/// process that ended the last unit died before its post-commit work.
pub(crate) async fn touch_ended(tx: &mut Tx<'_>) -> Result<()> {
    let rows = tx
        .query(
            "WITH unended AS MATERIALIZED (
               SELECT b.num FROM longshore_batch b WHERE b.completed_at IS NULL
               AND (b.sealed OR b.status IN ('failed', 'cancelled'))),
             live (batch, unended, units) AS (
               SELECT num, true, 0::bigint FROM unended
               UNION ALL SELECT s.batch, false, s.blocked + s.scheduled + s.ready + s.leased
               FROM unended b JOIN longshore_stream s ON s.batch = b.num AND s.batch <> 0
               UNION ALL SELECT s.batch, false, d.blocked + d.scheduled + d.ready + d.leased
               FROM longshore_stream_delta d JOIN longshore_stream s ON s.num = d.stream
               AND s.batch <> 0)
             SELECT batch FROM live GROUP BY batch HAVING bool_or(unended) AND sum(units) = 0",
            &[],
        )
        .await?;
    for row in &rows {
        tx.touch_batch(value(row, 0)?);
    }
    Ok(())
}

/// Unparks units below their cap. The end of a unit normally unparks the next one of its cap key.
/// This handles the exception that the unit ended in a caller's transaction and the caller did not
/// run the post-commit work. It steps from key to key by index, however many units are parked for
/// each, and checks a limited number of keys per round.
async fn unpark_below_cap(tx: &mut Tx<'_>, cache: &MaintenanceCache) -> Result<()> {
    let after = cache.with(|state| state.cap_key.clone());
    let rows = tx
        .query(
            "WITH RECURSIVE key (at, name) AS (
               SELECT 0::bigint, $1 UNION ALL
               SELECT k.at + 1, (SELECT u.cap_key FROM longshore_unit u WHERE u.cap_key > k.name
                 AND u.cap_key IS NOT NULL AND u.state IN (3, 7) ORDER BY u.cap_key LIMIT 1)
               FROM key k WHERE k.name IS NOT NULL AND k.at < $2)
             SELECT k.name, (SELECT count(*) FROM longshore_unit l WHERE l.cap_key = k.name
               AND l.state = 3 AND l.state IN (3, 7)),
               (SELECT p.spec FROM longshore_unit p WHERE p.cap_key = k.name
               AND p.state = 7 AND p.state IN (3, 7) ORDER BY p.stream, p.sort_key LIMIT 1)
             FROM key k WHERE k.name IS NOT NULL AND k.at > 0 ORDER BY k.at",
            &[&after, &MAX_CAP_KEYS],
        )
        .await?;
    let mut free: Vec<Vec<u8>> = Vec::new();
    let mut last = Vec::new();
    for row in &rows {
        last = value(row, 0)?;
        let (leased, spec): (u32, _) = (count(row, 1)?, value::<Option<&str>>(row, 2)?);
        let Some(spec) = spec else { continue };
        if UnitAttributes::parse(Some(spec))?.cap.is_none_or(|cap| leased < cap.limit) {
            free.push(last.clone());
        }
    }
    let wrapped = rows.len() < usize::try_from(MAX_CAP_KEYS).unwrap_or(0);
    cache.with(|state| state.cap_key = if wrapped { Vec::new() } else { last });
    unpark(tx, free.iter().map(Vec::as_slice)).await
}

/// When the next scheduled unit is due.
async fn next_due(tx: &mut Tx<'_>) -> Result<Option<Duration>> {
    let sql = "SELECT sort_key FROM longshore_unit WHERE state = 1 ORDER BY sort_key LIMIT 1";
    let Some(row) = tx.query_opt(sql, &[]).await? else { return Ok(None) };
    Ok(Some(Timestamp::from_micros(value(&row, 0)?).since(tx.now)))
}

/// Claims or renews the leadership of a role. If another session leads, it only reads.
pub(crate) async fn lead(tx: &mut Tx<'_>, role: &str, session: SessionId, ttl: Duration) -> Result<bool> {
    let now = tx.read_clock().await?;
    let until = (now + ttl).as_micros();
    let (session, now) = (session_uuid(session), now.as_micros());
    // A term that ends later than a new one would was set before the clock was set back.
    let led = "SELECT 1 FROM longshore_leader WHERE role = $1 AND session <> $2 AND expires_at > $3
        AND expires_at <= $4";
    if tx.query_opt(led, &[&role, &session, &now, &until]).await?.is_some() {
        return Ok(false);
    }
    let won = tx
        .query_opt(
            "INSERT INTO longshore_leader AS l (role, session, expires_at) VALUES ($1, $2, $4)
             ON CONFLICT (role) DO UPDATE SET session = excluded.session, expires_at =
             excluded.expires_at
             WHERE l.session = $2 OR l.expires_at <= $3 OR l.expires_at > $4 RETURNING 1",
            &[&role, &session, &now, &until],
        )
        .await?;
    Ok(won.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEQ: ChangeSeq = ChangeSeq { commits: 1, notifications: 1 };
    const LONG: Duration = Duration::from_secs(600);

    fn cache(next_fire_in: Option<Duration>) -> MaintenanceCache {
        let cache = MaintenanceCache::default();
        cache.record(Some(IdleUntil { next_due: None, next_deadline: None, next_fire_in }), SEQ);
        cache
    }

    #[test]
    fn when_the_next_schedule_fires_is_known_until_something_happens() {
        assert_eq!(cache(None).next_fire_in(SEQ, LONG), Some(None), "no schedule");
        let cache = cache(Some(LONG));
        let left = cache.next_fire_in(SEQ, LONG).flatten();
        assert!(left.is_some_and(|left| left <= LONG && !left.is_zero()));
        let more = ChangeSeq { notifications: 2, ..SEQ };
        assert_eq!(cache.next_fire_in(more, LONG), None, "another process changed something");
        assert_eq!(cache.next_fire_in(SEQ, Duration::ZERO), None, "too old");
    }

    #[test]
    fn a_schedule_that_is_due_is_not_answered_from_memory() {
        assert_eq!(cache(Some(Duration::ZERO)).next_fire_in(SEQ, LONG), None);
    }
}
