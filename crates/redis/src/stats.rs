//! Decodes the reply of the script `stats`.

use std::collections::HashMap;
use std::time::Duration;

use longshore_core::permits::{Holder, PERMIT_AGING_PER_LEVEL, PoolStats, WaitHistogram, Waiter};
use longshore_core::{PermitId, Priority, Result};
use redis::{FromRedisValue, Value};

use crate::error::{Translate, damaged};
use crate::server_info::micros;

/// Decodes a reply; `None` if the pool does not exist.
pub(crate) fn parse(raw: Vec<Value>) -> Result<Option<PoolStats>> {
    let Ok([now, left, pool, ends, line]) = <[Value; 5]>::try_from(raw) else {
        return Ok(None);
    };
    let now: u64 = part(now)?;
    let left: u64 = part(left)?;
    let pool: HashMap<String, String> = part(pool)?;
    let ends: HashMap<String, f64> = part(ends)?;
    let line: Vec<String> = part(line)?;
    let mut stats = figures(&pool)?;
    stats.quarantine = (left > 0).then(|| Duration::from_micros(left));
    for (id, record) in &pool {
        if let Some(rest) = record.strip_prefix("h:") {
            stats.holders.push(holder(id, rest, now, ends.get(id).copied().unwrap_or(0.0))?);
        }
    }
    stats.holders.sort_by_key(|holder| (std::cmp::Reverse(holder.held_for), holder.fence));
    for id in &line {
        let record = pool.get(id).ok_or_else(|| damaged("a waiter without a record"))?;
        stats.waiting.push(waiter(id, record, now)?);
    }
    Ok(Some(stats))
}

fn part<T: FromRedisValue>(value: Value) -> Result<T> {
    T::from_redis_value(value).map_err(redis::RedisError::from).or_translate()
}

/// Reads `max:used:waiting:fence:…` and the counters beside it.
fn figures(pool: &HashMap<String, String>) -> Result<PoolStats> {
    let number = |name: &str| pool.get(name).and_then(|text| text.parse().ok()).unwrap_or(0_u64);
    let state = pool.get("state").map_or("", String::as_str);
    let state: Vec<u64> = state.split(':').map_while(|part| part.parse().ok()).take(4).collect();
    let [max, used, _, fence] = state[..] else {
        return Err(damaged("a pool without its state"));
    };
    let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let acquired = fence.saturating_sub(number("first_fence"));
    let mut waits = WaitHistogram::default();
    for (step, count) in waits.0.iter_mut().enumerate().skip(1) {
        *count = number(&format!("waits{step}"));
    }
    // Waits below a millisecond are not counted one by one.
    waits.0[0] = acquired.saturating_sub(waits.0.iter().sum());
    Ok(PoolStats {
        max: small(max),
        in_use: small(used),
        acquired,
        timeouts: number("timeouts"),
        expired: number("expired"),
        waits,
        ..PoolStats::default()
    })
}

/// Reads `weight:fence:acquired_at:waited:owner`, without the `h:`.
fn holder(id: &str, record: &str, now: u64, ends: f64) -> Result<Holder> {
    let bad = || damaged(format_args!("a holder `{record}`"));
    let mut parts = record.splitn(5, ':');
    let mut number = || parts.next().and_then(|part| part.parse::<u64>().ok()).ok_or_else(bad);
    let (weight, fence, acquired_at, _) = (number()?, number()?, number()?, number()?);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole microseconds, exact up to the year 2255"
    )]
    let ends = ends as u64;
    Ok(Holder {
        id: id.parse().map_err(|_| bad())?,
        owner: parts.next().ok_or_else(bad)?.into(),
        weight: u32::try_from(weight).map_err(|_| bad())?,
        fence,
        held_for: Duration::from_micros(now.saturating_sub(acquired_at)),
        expires_in: Duration::from_micros(ends.saturating_sub(now)),
    })
}

/// Reads `state:weight:rank_offset:arrived_at:client:ttl:owner`.
fn waiter(id: &str, record: &str, now: u64) -> Result<Waiter> {
    let bad = || damaged(format_args!("a waiter `{record}`"));
    let mut parts = record.splitn(7, ':').skip(1);
    let mut number = || parts.next().and_then(|part| part.parse::<u64>().ok()).ok_or_else(bad);
    let (weight, rank_offset, arrived_at) = (number()?, number()?, number()?);
    let level = u8::try_from(rank_offset / micros(PERMIT_AGING_PER_LEVEL)).map_err(|_| bad())?;
    Ok(Waiter {
        id: id.parse::<PermitId>().map_err(|_| bad())?,
        owner: parts.nth(2).ok_or_else(bad)?.into(),
        weight: u32::try_from(weight).map_err(|_| bad())?,
        priority: Priority::new(level).map_err(|_| bad())?,
        waited: Duration::from_micros(now.saturating_sub(arrived_at)),
    })
}
