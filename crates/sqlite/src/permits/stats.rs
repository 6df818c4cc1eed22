//! The state of a pool. Only reads: expired records that were not removed yet are left out.

use longshore_core::permits::{Holder, PoolStats, Waiter};
use longshore_core::{PermitId, PoolName, Priority, Result, Timestamp};
use rusqlite::{Connection, Row};

use super::boot_clock;
use super::pool::{Pool, read_timestamp};
use crate::error::{Translate, damaged};

fn stats(db: &Connection, name: &PoolName) -> Result<Option<PoolStats>> {
    let Some(pool) = Pool::find(db, name)? else { return Ok(None) };
    let now = boot_clock::now();
    let mut stats = PoolStats {
        max: pool.max,
        acquired: pool.acquired,
        timeouts: pool.timeouts,
        expired: pool.expired,
        waits: pool.waits,
        ..PoolStats::default()
    };
    let mut statement = db
        .prepare_cached(
            "SELECT id, owner, weight, priority, arrived_at, expires_at, fence, acquired_at FROM
             longshore_permit
             WHERE pool = ?1 ORDER BY fence, rank, arrived_at",
        )
        .or_translate()?;
    let mut rows = statement.query([pool.num]).or_translate()?;
    while let Some(row) = rows.next().or_translate()? {
        add_permit(row, now, &mut stats)?;
    }
    Ok(Some(stats))
}

fn add_permit(row: &Row<'_>, now: Timestamp, stats: &mut PoolStats) -> Result<()> {
    let fence: Option<u64> = row.get(6).or_translate()?;
    let expires_at = read_timestamp(row, 5).or_translate()?;
    if expires_at <= now {
        stats.expired += u64::from(fence.is_some());
        return Ok(());
    }
    let id = PermitId::from_bytes(row.get(0).or_translate()?);
    let (owner, weight) = (row.get(1).or_translate()?, row.get(2).or_translate()?);
    match fence {
        Some(fence) => {
            let held = now.since(read_timestamp(row, 7).or_translate()?);
            stats.in_use += weight;
            stats.holders.push(Holder {
                id,
                owner,
                weight,
                fence,
                held_for: held,
                expires_in: expires_at.since(now),
            });
        }
        None => {
            let priority = Priority::new(row.get(3).or_translate()?).map_err(damaged)?;
            let waited = now.since(read_timestamp(row, 4).or_translate()?);
            stats.waiting.push(Waiter { id, owner, weight, priority, waited });
        }
    }
    Ok(())
}

/// The states of all pools, or of one.
pub(crate) fn list(db: &Connection, only: Option<&PoolName>) -> Result<Vec<(PoolName, PoolStats)>> {
    let names = only.map_or_else(|| names(db), |name| Ok(vec![name.clone()]))?;
    let found = names.into_iter().map(|name| Ok(stats(db, &name)?.map(|stats| (name, stats))));
    found.filter_map(Result::transpose).collect()
}

fn names(db: &Connection) -> Result<Vec<PoolName>> {
    let mut statement =
        db.prepare_cached("SELECT name FROM longshore_bounded_pool ORDER BY name").or_translate()?;
    let names = statement.query_map([], |row| row.get::<_, String>(0)).or_translate()?;
    names.map(|name| PoolName::new(name.or_translate()?).map_err(damaged)).collect()
}
