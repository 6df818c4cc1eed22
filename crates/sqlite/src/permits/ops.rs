//! The operations of [`longshore_core::Permits`], each in one transaction.

use std::time::Duration;

use longshore_core::permits::{AcquireRequest, AcquireResult, IfFull, PermitGrant, PoolChange};
use longshore_core::{Error, PermitId, PoolName, Result, Timestamp};
use rusqlite::{OptionalExtension, params};

use super::boot_clock;
use super::pool::{Pool, QueuePosition, read_timestamp};
use crate::error::Translate;
use crate::tx::Tx;

/// The stored state of a permit.
enum PermitState {
    Held(PermitGrant),
    Waiting(QueuePosition),
    Absent,
}

/// Asks for a permit.
pub(crate) fn ask(tx: &mut Tx<'_>, name: &PoolName, ask: &AcquireRequest) -> Result<AcquireResult> {
    if ask.weight == 0 {
        return Err(Error::Invalid("a permit weighs at least 1".to_owned()));
    }
    let now = boot_clock::now();
    let mut pool = Pool::find_or_create(tx.db, name, ask.max)?;
    let expired = pool.expire(now)?;
    let state = permit_state(tx, &pool, ask.id)?;
    if let PermitState::Held(grant) = state {
        set_end(tx, &mut pool, ask.id, now + ask.ttl)?;
        return save(tx, pool, AcquireResult::Granted(grant));
    }
    if ask.weight > pool.max {
        let answer = AcquireResult::TooHeavy { max: pool.max };
        return leave_without_permit(tx, pool, ask.id, answer, expired);
    }
    let position = match state {
        PermitState::Waiting(position) => position,
        _ => pool.next_position(ask.priority, now),
    };
    let is_first = pool.head()?.is_none_or(|first| position <= first);
    if is_first && ask.weight <= pool.free() {
        let grant = grant(tx, &mut pool, ask, position, now)?;
        return save(tx, pool, AcquireResult::Granted(grant));
    }
    match ask.if_full {
        IfFull::Fail => leave_without_permit(tx, pool, ask.id, AcquireResult::Full, expired),
        IfFull::Wait(queue_ttl) => {
            let answer = wait(tx, &mut pool, ask, position, now, queue_ttl)?;
            save(tx, pool, answer)
        }
    }
}

fn permit_state(tx: &Tx<'_>, pool: &Pool<'_>, id: PermitId) -> Result<PermitState> {
    let found = tx
        .db
        .prepare_cached(
            "SELECT arrived_at, rank, fence, acquired_at FROM longshore_permit WHERE pool = ?1 AND
             id = ?2",
        )
        .or_translate()?
        .query_row((pool.num, id.as_bytes()), |row| {
            let (arrived_at, fence): (_, Option<u64>) = (read_timestamp(row, 0)?, row.get(2)?);
            Ok(match fence {
                Some(fence) => PermitState::Held(PermitGrant {
                    fence,
                    waited: read_timestamp(row, 3)?.since(arrived_at),
                }),
                None => PermitState::Waiting(QueuePosition { rank: read_timestamp(row, 1)?, arrived_at }),
            })
        })
        .optional()
        .or_translate()?;
    Ok(found.unwrap_or(PermitState::Absent))
}

/// Ends an operation: writes the pool, and passes on the notified waiters.
fn save<T>(tx: &mut Tx<'_>, pool: Pool<'_>, answer: T) -> Result<T> {
    pool.write()?;
    tx.woken_permits.extend(pool.woken);
    Ok(answer)
}

/// Answers a request without a permit. Rolls back if nothing was stored and nothing changed.
fn leave_without_permit(
    tx: &mut Tx<'_>,
    mut pool: Pool<'_>,
    id: PermitId,
    answer: AcquireResult,
    expired: bool,
) -> Result<AcquireResult> {
    let left = pool.remove(id)?;
    if left {
        pool.notify_next()?;
    }
    // A new pool counts as changed: `expire` looked at it.
    tx.roll_back = !left && !expired;
    save(tx, pool, answer)
}

fn grant(
    tx: &Tx<'_>,
    pool: &mut Pool<'_>,
    ask: &AcquireRequest,
    position: QueuePosition,
    now: Timestamp,
) -> Result<PermitGrant> {
    // At least the time: a power failure may lose the last fences.
    let wall = u64::try_from(tx.now.as_micros()).unwrap_or(0);
    pool.fence = wall.max(pool.fence + 1);
    pool.in_use += ask.weight;
    pool.acquired += 1;
    let waited = now.since(position.arrived_at);
    pool.waits.add(waited);
    let expires_at = now + ask.ttl;
    pool.next_expiry = pool.next_expiry.min(expires_at);
    // A request that is granted at once arrived no later than now.
    let arrived_at = position.arrived_at.min(now);
    tx.db
        .prepare_cached(
            "INSERT OR REPLACE INTO longshore_permit
             (pool, id, owner, weight, priority, arrived_at, expires_at, fence, acquired_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )
        .or_translate()?
        .execute(params![
            pool.num,
            ask.id.as_bytes(),
            &*ask.owner,
            ask.weight,
            ask.priority.level(),
            arrived_at.as_micros(),
            expires_at.as_micros(),
            pool.fence,
            now.as_micros(),
        ])
        .or_translate()?;
    Ok(PermitGrant { fence: pool.fence, waited })
}

fn wait(
    tx: &Tx<'_>,
    pool: &mut Pool<'_>,
    ask: &AcquireRequest,
    position: QueuePosition,
    now: Timestamp,
    queue_ttl: Duration,
) -> Result<AcquireResult> {
    pool.record_arrival(position);
    let expires_at = now + queue_ttl;
    pool.next_expiry = pool.next_expiry.min(expires_at);
    tx.db
        .prepare_cached(
            "INSERT INTO longshore_permit (pool, id, owner, weight, priority, arrived_at,
             expires_at, rank)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
             ON CONFLICT (pool, id) DO UPDATE SET expires_at = excluded.expires_at, notified = 0",
        )
        .or_translate()?
        .execute(params![
            pool.num,
            ask.id.as_bytes(),
            &*ask.owner,
            ask.weight,
            ask.priority.level(),
            position.arrived_at.as_micros(),
            expires_at.as_micros(),
            position.rank.as_micros(),
        ])
        .or_translate()?;
    let (ahead, ahead_expires_at) = pool.count_before(position)?;
    // The first waiter watches leases; waiters behind it watch the places before them.
    let ask_again = ahead_expires_at.unwrap_or(pool.next_expiry);
    Ok(AcquireResult::Waiting { position: ahead, retry_after: ask_again.since(now) })
}

fn set_end(tx: &Tx<'_>, pool: &mut Pool<'_>, id: PermitId, expires_at: Timestamp) -> Result<bool> {
    pool.next_expiry = pool.next_expiry.min(expires_at);
    let held = tx
        .db
        .prepare_cached(
            "UPDATE longshore_permit SET expires_at = ?3
             WHERE pool = ?1 AND id = ?2 AND fence IS NOT NULL",
        )
        .or_translate()?
        .execute((pool.num, id.as_bytes(), expires_at.as_micros()))
        .or_translate()?;
    Ok(held > 0)
}

/// Renews leases; returns the permits that are not held.
pub(crate) fn extend(
    tx: &mut Tx<'_>,
    name: &PoolName,
    ids: &[PermitId],
    ttl: Duration,
) -> Result<Vec<PermitId>> {
    let Some(mut pool) = Pool::find(tx.db, name)? else { return Ok(ids.to_vec()) };
    let now = boot_clock::now();
    pool.expire(now)?;
    let mut lost = Vec::new();
    for id in ids {
        if !set_end(tx, &mut pool, *id, now + ttl)? {
            lost.push(*id);
        }
    }
    save(tx, pool, lost)
}

/// Releases permits, and removes waiters.
pub(crate) fn release(tx: &mut Tx<'_>, name: &PoolName, ids: &[PermitId], timed_out: bool) -> Result<()> {
    let Some(mut pool) = Pool::find(tx.db, name)? else { return Ok(()) };
    let mut any = false;
    for id in ids {
        let removed = pool.remove(*id)?;
        pool.timeouts += u64::from(removed && timed_out);
        any |= removed;
    }
    if any {
        pool.notify_next()?;
    }
    tx.roll_back = !any;
    save(tx, pool, ())
}

/// Creates, resizes or resets a pool.
pub(crate) fn change(tx: &mut Tx<'_>, name: &PoolName, change: PoolChange) -> Result<Option<u32>> {
    match change {
        PoolChange::Create(max) => init(tx, name, max),
        PoolChange::Resize(max) => resize(tx, name, max).map(|()| None),
        PoolChange::Reset => reset(tx, name).map(|()| None),
    }
}

/// Creates a pool; if it exists, returns its maximum.
fn init(tx: &mut Tx<'_>, name: &PoolName, max: u32) -> Result<Option<u32>> {
    if let Some(pool) = Pool::find(tx.db, name)? {
        tx.roll_back = true;
        return Ok(Some(pool.max));
    }
    let pool = Pool::find_or_create(tx.db, name, max)?;
    save(tx, pool, None)
}

/// Sets the maximum. Waiters that are too heavy now are removed, and get the reason when they ask
/// again.
fn resize(tx: &mut Tx<'_>, name: &PoolName, max: u32) -> Result<()> {
    let mut pool = Pool::find_or_create(tx.db, name, max)?;
    pool.expire(boot_clock::now())?;
    pool.max = max;
    let sql = "DELETE FROM longshore_permit WHERE pool = ?1 AND rank IS NOT NULL AND weight > ?2
        RETURNING id";
    delete_and_wake(tx, &mut pool, sql, max)?;
    pool.notify_next()?;
    save(tx, pool, ())
}

/// Resets everything but the maximum and the fence.
fn reset(tx: &mut Tx<'_>, name: &PoolName) -> Result<()> {
    let Some(mut pool) = Pool::find(tx.db, name)? else { return Ok(()) };
    let sql = "DELETE FROM longshore_permit WHERE pool = ?1 AND ?2 = 0 RETURNING id";
    delete_and_wake(tx, &mut pool, sql, 0)?;
    (pool.in_use, pool.acquired, pool.timeouts, pool.expired) = (0, 0, 0, 0);
    pool.waits = longshore_core::permits::WaitHistogram::default();
    save(tx, pool, ())
}

fn delete_and_wake(tx: &Tx<'_>, pool: &mut Pool<'_>, sql: &str, limit: u32) -> Result<()> {
    let mut statement = tx.db.prepare_cached(sql).or_translate()?;
    let gone: Vec<PermitId> = statement
        .query_map((pool.num, limit), |row| row.get(0).map(PermitId::from_bytes))
        .and_then(Iterator::collect)
        .or_translate()?;
    pool.woken.extend(gone);
    Ok(())
}

/// Whether an alert may be sent now.
pub(crate) fn may_alert(tx: &mut Tx<'_>, name: &PoolName, alert: &str, every: Duration) -> Result<bool> {
    let now = boot_clock::now();
    let updated = tx
        .db
        .execute(
            "INSERT INTO longshore_pool_alert (pool, alert, muted_until) VALUES (?1, ?2, ?3)
             ON CONFLICT (pool, alert) DO UPDATE SET muted_until = excluded.muted_until WHERE
             muted_until <= ?4",
            params![name.as_str(), alert, (now + every).as_micros(), now.as_micros()],
        )
        .or_translate()?;
    tx.roll_back = updated == 0;
    Ok(updated > 0)
}
