//! Permits of bounded pools, for programs that have no other way to hold one.
//!
//! A permit is a lease: it ends by itself if it is not extended, and its fence says which of two
//! holders is the later one. Whoever knows a permit's id (its asker made it, or was told it) may
//! extend and release it, within one tenant: in a shared pool each has ids of its own. A pool that
//! nobody has set up, or that is another tenant's, does not exist for who asks.

use std::time::Duration;

use longshore::permits::{Answer as Word, Ask, Grant, Leaving, Otherwise};
use longshore::{PermitId, PoolName, Priority, Scope};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, timeout};

use super::pools::Reach;
use crate::call::{Call, json};
use crate::problem::Problem;
use crate::table::Answer;
use crate::whole::whole;

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
    #[serde(default = "one", deserialize_with = "whole")]
    weight: u32,
    #[serde(default, deserialize_with = "whole")]
    ttl_seconds: Option<u32>,
    #[serde(default, deserialize_with = "whole")]
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
    let (max, reach) = call.house.pool(&call.caller, &pool).await?;
    let permit = typed.id.unwrap_or_else(PermitId::new);
    let wait = Duration::from_secs(call.query::<u64>("wait")?.unwrap_or(0));
    let otherwise = if wait.is_zero() { Otherwise::GoAway } else { Otherwise::Wait(PLACE) };
    let kept = kept_as(permit, &call, reach);
    let ask = Ask {
        id: kept,
        max,
        weight: typed.weight,
        priority: typed.priority,
        owner: owner(&call, typed.owner.as_deref()).into(),
        ttl: Duration::from_secs(ttl_seconds.into()),
        otherwise,
    };
    // As an admin sees it among the pool's holders.
    call.note(call.caller.own.as_ref(), &pool, kept.to_string()).await?;
    let Grant { fence, waited } = granted(&call, &pool, &ask, wait).await?;
    let waited_seconds = waited.as_secs_f64();
    json(&Held { permit, pool, fence, ttl_seconds, waited_seconds })
}

/// The id under which the pool knows a permit. Where tenants share one, it is made of the tenant too:
/// nobody extends or gives back another's permit, however well they guess.
fn kept_as(permit: PermitId, call: &Call, reach: Reach) -> PermitId {
    let (Scope::Tenant(tenant), Reach::Shared) = (&call.caller.scope, reach) else { return permit };
    let press = Sha256::new().chain_update(permit.as_bytes()).chain_update(tenant.as_str());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&press.finalize()[..16]);
    PermitId::from_bytes(bytes)
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
    #[serde(default, deserialize_with = "whole")]
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
    let (_, reach) = call.house.pool(&call.caller, &pool).await?;
    // Not noted: its beginning and its end are, and a program extends for as long as it runs.
    let kept = kept_as(permit, &call, reach);
    let lost = call.house.permits.extend(&pool, &[kept], ttl).await?;
    match lost.is_empty() {
        true => json(&Left { permit, held: true }),
        false => Err(Problem::conflict("it is not held any more: others may hold it now")),
    }
}

pub(super) async fn release(call: Call) -> Answer {
    let (pool, permit) = named(&call)?;
    let (_, reach) = call.house.pool(&call.caller, &pool).await?;
    let kept = kept_as(permit, &call, reach);
    call.note(call.caller.own.as_ref(), &pool, kept.to_string()).await?;
    call.house.permits.release(&pool, &[kept]).await?;
    json(&Left { permit, held: false })
}

fn named(call: &Call) -> Result<(PoolName, PermitId), Problem> {
    let permit = call.path("permit").map_err(|_| Problem::bad("a permit's id is a UUID"))?;
    Ok((call.path("pool")?, permit))
}
