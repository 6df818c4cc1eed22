//! What the seam asks for, each in one transaction.

use std::time::Duration;

use longshore_core::permits::{Answer, Ask, Grant, Leaving, Otherwise};
use longshore_core::{Error, PermitId, PoolName, Result, Timestamp};
use rusqlite::{OptionalExtension, params};

use super::pool::{Place, Pool, moment};
use super::steady;
use crate::error::Translate;
use crate::tx::Tx;

/// What is known of one that asks.
enum Known {
    Holds(Grant),
    Waits(Place),
    Nothing,
}

/// Asks for a permit.
pub(crate) fn ask(tx: &mut Tx<'_>, name: &PoolName, ask: &Ask) -> Result<Answer> {
    if ask.weight == 0 {
        return Err(Error::Invalid("a permit weighs at least 1".to_owned()));
    }
    let now = steady::now();
    let mut pool = Pool::find_or_make(tx.db, name, ask.max)?;
    let swept = pool.sweep(now)?;
    let known = known(tx, &pool, ask.id)?;
    if let Known::Holds(grant) = known {
        set_end(tx, &mut pool, ask.id, now + ask.ttl)?;
        return close(tx, pool, Answer::Granted(grant));
    }
    if ask.weight > pool.max {
        let answer = Answer::TooHeavy { max: pool.max };
        return go(tx, pool, ask.id, answer, swept);
    }
    let place = match known {
        Known::Waits(place) => place,
        _ => pool.next_place(ask.priority, now),
    };
    let is_first = pool.first()?.is_none_or(|first| place <= first);
    if is_first && ask.weight <= pool.free() {
        let grant = grant(tx, &mut pool, ask, place, now)?;
        return close(tx, pool, Answer::Granted(grant));
    }
    match ask.otherwise {
        Otherwise::GoAway => go(tx, pool, ask.id, Answer::Full, swept),
        Otherwise::Wait(keeps) => {
            let answer = wait(tx, &mut pool, ask, place, now, keeps)?;
            close(tx, pool, answer)
        }
    }
}

fn known(tx: &Tx<'_>, pool: &Pool<'_>, id: PermitId) -> Result<Known> {
    let found = tx
        .db
        .prepare_cached(
            "SELECT came, rank, fence, since FROM longshore_permit WHERE pool = ?1 AND id = ?2",
        )
        .or_translate()?
        .query_row((pool.num, id.as_bytes()), |row| {
            let (came, fence): (_, Option<u64>) = (moment(row, 0)?, row.get(2)?);
            Ok(match fence {
                Some(fence) => Known::Holds(Grant { fence, waited: moment(row, 3)?.since(came) }),
                None => Known::Waits(Place { rank: moment(row, 1)?, came }),
            })
        })
        .optional()
        .or_translate()?;
    Ok(found.unwrap_or(Known::Nothing))
}

/// Ends a verb: writes the pool, and passes on who was told.
fn close<T>(tx: &mut Tx<'_>, pool: Pool<'_>, answer: T) -> Result<T> {
    pool.write()?;
    tx.told.extend(pool.told);
    Ok(answer)
}

/// One goes without a permit. Where nothing was there and nothing changed, nothing is committed.
fn go(
    tx: &mut Tx<'_>,
    mut pool: Pool<'_>,
    id: PermitId,
    answer: Answer,
    swept: bool,
) -> Result<Answer> {
    let left = pool.remove(id)?;
    if left {
        pool.tell()?;
    }
    // A pool that was made just now was swept.
    tx.abandon = !left && !swept;
    close(tx, pool, answer)
}

fn grant(
    tx: &Tx<'_>,
    pool: &mut Pool<'_>,
    ask: &Ask,
    place: Place,
    now: Timestamp,
) -> Result<Grant> {
    // At least the time: a power failure may take the last fences with it.
    let wall = u64::try_from(tx.now.as_micros()).unwrap_or(0);
    pool.fence = wall.max(pool.fence + 1);
    pool.in_use += ask.weight;
    pool.acquired += 1;
    let waited = now.since(place.came);
    pool.waits.add(waited);
    let ends = now + ask.ttl;
    pool.next_end = pool.next_end.min(ends);
    // Who comes and is served at once came no later than now.
    let came = place.came.min(now);
    tx.db
        .prepare_cached(
            "INSERT OR REPLACE INTO longshore_permit
             (pool, id, owner, weight, priority, came, ends, fence, since)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )
        .or_translate()?
        .execute(params![
            pool.num,
            ask.id.as_bytes(),
            &*ask.owner,
            ask.weight,
            ask.priority.level(),
            came.as_micros(),
            ends.as_micros(),
            pool.fence,
            now.as_micros(),
        ])
        .or_translate()?;
    Ok(Grant { fence: pool.fence, waited })
}

fn wait(
    tx: &Tx<'_>,
    pool: &mut Pool<'_>,
    ask: &Ask,
    place: Place,
    now: Timestamp,
    keeps: Duration,
) -> Result<Answer> {
    pool.joined(place);
    let ends = now + keeps;
    pool.next_end = pool.next_end.min(ends);
    tx.db
        .prepare_cached(
            "INSERT INTO longshore_permit (pool, id, owner, weight, priority, came, ends, rank)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
             ON CONFLICT (pool, id) DO UPDATE SET ends = excluded.ends, told = 0",
        )
        .or_translate()?
        .execute(params![
            pool.num,
            ask.id.as_bytes(),
            &*ask.owner,
            ask.weight,
            ask.priority.level(),
            place.came.as_micros(),
            ends.as_micros(),
            place.rank.as_micros(),
        ])
        .or_translate()?;
    let (before, place_ends) = pool.before(place)?;
    // Leases are for the first in line to watch, places for those behind.
    let look = place_ends.unwrap_or(pool.next_end);
    Ok(Answer::Waiting { before, look_again: look.since(now) })
}

fn set_end(tx: &Tx<'_>, pool: &mut Pool<'_>, id: PermitId, ends: Timestamp) -> Result<bool> {
    pool.next_end = pool.next_end.min(ends);
    let held = tx
        .db
        .prepare_cached(
            "UPDATE longshore_permit SET ends = ?3
             WHERE pool = ?1 AND id = ?2 AND fence IS NOT NULL",
        )
        .or_translate()?
        .execute((pool.num, id.as_bytes(), ends.as_micros()))
        .or_translate()?;
    Ok(held > 0)
}

/// Begins leases anew; those that are not held.
pub(crate) fn extend(
    tx: &mut Tx<'_>,
    name: &PoolName,
    ids: &[PermitId],
    ttl: Duration,
) -> Result<Vec<PermitId>> {
    let Some(mut pool) = Pool::find(tx.db, name)? else { return Ok(ids.to_vec()) };
    let now = steady::now();
    pool.sweep(now)?;
    let mut lost = Vec::new();
    for id in ids {
        if !set_end(tx, &mut pool, *id, now + ttl)? {
            lost.push(*id);
        }
    }
    close(tx, pool, lost)
}

/// Gives permits back, and leaves the line.
pub(crate) fn release(tx: &mut Tx<'_>, name: &PoolName, ids: &[PermitId]) -> Result<()> {
    let Some(mut pool) = Pool::find(tx.db, name)? else { return Ok(()) };
    let mut any = false;
    for id in ids {
        any |= pool.remove(*id)?;
    }
    if any {
        pool.tell()?;
    }
    tx.abandon = !any;
    close(tx, pool, ())
}

/// Leaves the line.
pub(crate) fn leave(tx: &mut Tx<'_>, name: &PoolName, id: PermitId, why: Leaving) -> Result<()> {
    let Some(mut pool) = Pool::find(tx.db, name)? else { return Ok(()) };
    if !pool.remove(id)? {
        tx.abandon = true;
        return Ok(());
    }
    if why == Leaving::TimedOut {
        pool.timeouts += 1;
    }
    pool.tell()?;
    close(tx, pool, ())
}

/// Makes a pool known if it is not; else its maximum.
pub(crate) fn init(tx: &mut Tx<'_>, name: &PoolName, max: u32) -> Result<Option<u32>> {
    if let Some(pool) = Pool::find(tx.db, name)? {
        tx.abandon = true;
        return Ok(Some(pool.max));
    }
    let pool = Pool::find_or_make(tx.db, name, max)?;
    close(tx, pool, None)
}

/// Sets the maximum. Those that are too heavy now leave the line, to be told so when they ask again.
pub(crate) fn resize(tx: &mut Tx<'_>, name: &PoolName, max: u32) -> Result<()> {
    let mut pool = Pool::find_or_make(tx.db, name, max)?;
    pool.sweep(steady::now())?;
    pool.max = max;
    let sql = "DELETE FROM longshore_permit WHERE pool = ?1 AND rank IS NOT NULL AND weight > ?2
        RETURNING id";
    send_off(tx, &mut pool, sql, max)?;
    pool.tell()?;
    close(tx, pool, ())
}

/// Forgets everything but the maximum, and that fences go on.
pub(crate) fn reset(tx: &mut Tx<'_>, name: &PoolName) -> Result<()> {
    let Some(mut pool) = Pool::find(tx.db, name)? else { return Ok(()) };
    let sql = "DELETE FROM longshore_permit WHERE pool = ?1 AND ?2 = 0 RETURNING id";
    send_off(tx, &mut pool, sql, 0)?;
    (pool.in_use, pool.acquired, pool.timeouts, pool.expired) = (0, 0, 0, 0);
    pool.waits = longshore_core::permits::Waits::default();
    close(tx, pool, ())
}

fn send_off(tx: &Tx<'_>, pool: &mut Pool<'_>, sql: &str, limit: u32) -> Result<()> {
    let mut statement = tx.db.prepare_cached(sql).or_translate()?;
    let gone: Vec<PermitId> = statement
        .query_map((pool.num, limit), |row| row.get(0).map(PermitId::from_bytes))
        .and_then(Iterator::collect)
        .or_translate()?;
    pool.told.extend(gone);
    Ok(())
}

/// Whether an alert may be told now.
pub(crate) fn may_alert(
    tx: &mut Tx<'_>,
    name: &PoolName,
    alert: &str,
    every: Duration,
) -> Result<bool> {
    let now = steady::now();
    let told = tx
        .db
        .execute(
            "INSERT INTO longshore_alert (pool, alert, until) VALUES (?1, ?2, ?3)
             ON CONFLICT (pool, alert) DO UPDATE SET until = excluded.until WHERE until <= ?4",
            params![name.as_str(), alert, (now + every).as_micros(), now.as_micros()],
        )
        .or_translate()?;
    tx.abandon = told == 0;
    Ok(told > 0)
}
