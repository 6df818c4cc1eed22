//! Permits of bounded pools, for programs that have no other way to hold one.
//!
//! A permit is a lease: it ends by itself if it is not extended, and its fence says which of two
//! holders is the later one. Whoever knows a permit's id (its asker made it, or was told it) may
//! extend and release it. Pools belong to no tenant; one that nobody has set up is not made by asking
//! for its permits.

use std::time::Duration;

use longshore::permits::{Answer as Word, Ask, Grant, Leaving, Otherwise};
use longshore::{Error, PermitId, PoolName, Priority};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout};

use crate::call::{Call, json};
use crate::problem::Problem;
use crate::table::Answer;

/// A permit's life without extension, if nobody says.
const TTL: u32 = 60;
/// The longest life that one may ask for.
const LONGEST: u32 = 3_600;
/// A place in the line of somebody who does not ask again is lost after so long.
const PLACE: Duration = Duration::from_secs(10);
/// Longest name of a holder that is kept.
const OWNER: usize = 200;

/// What is asked for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Typed {
    id: Option<PermitId>,
    #[serde(default = "one")]
    weight: u32,
    ttl_seconds: Option<u32>,
    #[serde(default)]
    priority: Priority,
    owner: Option<String>,
}

fn one() -> u32 {
    1
}

/// A permit that is held.
#[derive(Serialize)]
struct Held {
    permit: PermitId,
    pool: PoolName,
    fence: u64,
    ttl_seconds: u32,
    waited_seconds: f64,
}

pub(super) async fn acquire(mut call: Call) -> Answer {
    let pool: PoolName = call.path("pool")?;
    let typed: Typed = call.json().await?;
    let ttl_seconds = life(typed.ttl_seconds)?;
    if typed.weight == 0 {
        return Err(Problem::bad("`weight` is at least 1"));
    }
    let max = known(&call, &pool).await?;
    let wait = Duration::from_secs(call.query::<u64>("wait")?.unwrap_or(0));
    let otherwise = if wait.is_zero() { Otherwise::GoAway } else { Otherwise::Wait(PLACE) };
    let ask = Ask {
        id: typed.id.unwrap_or_else(PermitId::new),
        max,
        weight: typed.weight,
        priority: typed.priority,
        owner: owner(&call, typed.owner.as_deref()).into(),
        ttl: Duration::from_secs(ttl_seconds.into()),
        otherwise,
    };
    call.note(call.caller.own.as_ref(), &pool, ask.id.to_string()).await?;
    let Grant { fence, waited } = granted(&call, &pool, &ask, wait).await?;
    let waited_seconds = waited.as_secs_f64();
    json(&Held { permit: ask.id, pool, fence, ttl_seconds, waited_seconds })
}

/// A pool's maximum, if it is one.
async fn known(call: &Call, pool: &PoolName) -> Result<u32, Problem> {
    if let Some(stats) = call.house.permits.stats(pool).await? {
        return Ok(stats.max);
    }
    let max = call.house.pools.get(pool).copied();
    max.ok_or_else(|| Error::not_found("pool", pool).into())
}

fn life(asked: Option<u32>) -> Result<u32, Problem> {
    let seconds = asked.unwrap_or(TTL);
    match (1..=LONGEST).contains(&seconds) {
        true => Ok(seconds),
        false => Err(Problem::bad(format!("`ttl_seconds` is from 1 to {LONGEST}"))),
    }
}

/// Who holds, for people: who asks, and what they say of themselves.
fn owner(call: &Call, said: Option<&str>) -> String {
    let said = said.unwrap_or_default().chars().filter(|one| !one.is_control());
    let said: String = said.take(OWNER).collect();
    match said.is_empty() {
        true => call.caller.by.clone(),
        false => format!("{} ({said})", call.caller.by),
    }
}

/// Asks until there is one, or `wait` is over.
async fn granted(
    call: &Call,
    pool: &PoolName,
    ask: &Ask,
    wait: Duration,
) -> Result<Grant, Problem> {
    let permits = &call.house.permits;
    let end = Instant::now() + wait;
    loop {
        let again = match permits.ask(pool, ask).await? {
            Word::Granted(grant) => return Ok(grant),
            Word::Full => return Err(full(pool)),
            Word::TooHeavy { max } => {
                return Err(Problem::bad(format!("pool `{pool}` has only {max} permits")));
            }
            Word::Waiting { look_again, .. } => look_again.min(PLACE / 3),
        };
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            permits.leave(pool, ask.id, Leaving::TimedOut).await?;
            return Err(full(pool));
        }
        // A hint, or the time at which asking is worth it without one.
        let _ = timeout(again.min(left), permits.turn(pool, ask.id)).await;
    }
}

fn full(pool: &PoolName) -> Problem {
    Problem::too_many(format!("pool `{pool}` has no permit now"), Duration::from_secs(1))
}

/// How long it is to live from now on.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Longer {
    ttl_seconds: Option<u32>,
}

/// What became of a permit.
#[derive(Serialize)]
struct Left {
    permit: PermitId,
    held: bool,
}

pub(super) async fn extend(mut call: Call) -> Answer {
    let (pool, permit) = named(&call)?;
    let Longer { ttl_seconds } = call.json().await?;
    let ttl = Duration::from_secs(life(ttl_seconds)?.into());
    call.note(call.caller.own.as_ref(), &pool, permit.to_string()).await?;
    let lost = call.house.permits.extend(&pool, &[permit], ttl).await?;
    match lost.is_empty() {
        true => json(&Left { permit, held: true }),
        false => Err(Problem::conflict("it is not held any more: others may hold it now")),
    }
}

pub(super) async fn release(call: Call) -> Answer {
    let (pool, permit) = named(&call)?;
    call.note(call.caller.own.as_ref(), &pool, permit.to_string()).await?;
    call.house.permits.release(&pool, &[permit]).await?;
    json(&Left { permit, held: false })
}

fn named(call: &Call) -> Result<(PoolName, PermitId), Problem> {
    let permit = call.path("permit").map_err(|_| Problem::bad("a permit's id is a UUID"))?;
    Ok((call.path("pool")?, permit))
}
