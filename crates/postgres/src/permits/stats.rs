//! Statistics of a pool. Read-only: expired permits and requests that are not deleted yet are
//! omitted.

use longshore_core::permits::{Holder, PoolStats, WaitHistogram, Waiter};
use longshore_core::{PoolName, Priority, Result};
use tokio_postgres::Row;

use super::{duration, number, permit_id};
use crate::error::damaged;
use crate::row::value;
use crate::store::StoreInner;

/// One statement, so that the rows are consistent. The first use after a loss of data starts the
/// quarantine. A pool without a state was not used since.
const STATS: &str = "WITH noticed AS (
    INSERT INTO longshore_permit_epoch (began_at) VALUES (longshore_now_micros()) ON CONFLICT DO NOTHING
    RETURNING began_at)
  SELECT p.max_weight, coalesce(s.acquired, 0), coalesce(s.timeouts, 0), coalesce(s.expired, 0),
    coalesce(s.wait_histogram, '{}'), g.id, g.owner, g.weight, g.priority, t.now - g.arrived_at,
    g.expires_at - t.now, g.fence, coalesce(t.now - g.acquired_at, 0),
    coalesce(s.data_lost_at, e.began_at, noticed.began_at) + p.max_lease - t.now
  FROM (SELECT longshore_now_micros() AS now) t
  CROSS JOIN longshore_bounded_pool p LEFT JOIN longshore_pool_state s ON s.name = p.name
  LEFT JOIN longshore_permit g ON g.pool = p.name
  LEFT JOIN longshore_permit_epoch e ON true LEFT JOIN noticed ON true
  WHERE p.name = $1 ORDER BY g.fence, g.rank, g.arrived_at";

/// Reads a pool's statistics.
async fn stats(inner: &StoreInner, pool: &PoolName) -> Result<Option<PoolStats>> {
    let rows = inner.query_autocommit(STATS, &[&pool.as_str()]).await?;
    let Some(first) = rows.first() else { return Ok(None) };
    let mut stats = PoolStats {
        max: number(first, 0)?,
        acquired: number(first, 1)?,
        timeouts: number(first, 2)?,
        expired: number(first, 3)?,
        waits: waits(first)?,
        quarantine: Some(duration(first, 13)?).filter(|left| !left.is_zero()),
        ..PoolStats::default()
    };
    for row in &rows {
        add_permit(row, &mut stats)?;
    }
    Ok(Some(stats))
}

fn waits(row: &Row) -> Result<WaitHistogram> {
    let counts: Vec<i64> = value(row, 4)?;
    let mut waits = WaitHistogram::default();
    for (count, stored) in waits.0.iter_mut().zip(counts) {
        *count = stored.unsigned_abs();
    }
    Ok(waits)
}

fn add_permit(row: &Row, stats: &mut PoolStats) -> Result<()> {
    let Some(id) = value(row, 5)? else { return Ok(()) };
    let fence: Option<i64> = value(row, 11)?;
    if value::<i64>(row, 10)? <= 0 {
        stats.expired += u64::from(fence.is_some());
        return Ok(());
    }
    let (id, owner, weight) = (permit_id(id), value(row, 6)?, number(row, 7)?);
    match fence {
        Some(fence) => {
            let (fence, held, left) = (fence.unsigned_abs(), duration(row, 12)?, duration(row, 10)?);
            stats.in_use += weight;
            stats.holders.push(Holder { id, owner, weight, fence, held_for: held, expires_in: left });
        }
        None => {
            let level: i16 = value(row, 8)?;
            let priority = u8::try_from(level).map_err(damaged)?;
            let priority = Priority::new(priority).map_err(damaged)?;
            stats.waiting.push(Waiter { id, owner, weight, priority, waited: duration(row, 9)? });
        }
    }
    Ok(())
}

/// The statistics of all pools, or of one.
pub(crate) async fn list(inner: &StoreInner, only: Option<&PoolName>) -> Result<Vec<(PoolName, PoolStats)>> {
    let names = match only {
        Some(name) => vec![name.clone()],
        None => names(inner).await?,
    };
    let mut pools = Vec::new();
    for name in names {
        pools.extend(stats(inner, &name).await?.map(|stats| (name, stats)));
    }
    Ok(pools)
}

async fn names(inner: &StoreInner) -> Result<Vec<PoolName>> {
    let rows = inner
        .query_autocommit("SELECT name FROM longshore_bounded_pool ORDER BY name COLLATE \"C\"", &[])
        .await?;
    rows.iter().map(|row| PoolName::new(value::<&str>(row, 0)?).map_err(damaged)).collect()
}
