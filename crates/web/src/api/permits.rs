//! Permits of bounded pools over HTTP, for programs without a client library.
//!
//! A permit is a lease: it expires if it is not extended, and the holder with the larger fence is the later
//! one. A client of the same tenant that knows a permit's id may extend and release it; in a shared pool each
//! tenant has its own ids. A pool that is not configured or belongs to another tenant does not exist for the
//! caller.

use std::time::Duration;

use longshore::permits::{AcquireRequest, AcquireResult as AcquireAnswer, IfFull, PermitGrant};
use longshore::{PermitId, PoolName, Priority, Scope};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout};

use super::pools::PoolAccess;
use crate::endpoints::ApiResult;
use crate::lenient_int::lenient_int;
use crate::problem::Problem;
use crate::request_context::{RequestContext, json};

/// Default lease of a permit, in seconds.
const DEFAULT_TTL: u32 = 60;
/// Maximum lease, in seconds.
const MAX_TTL: u32 = 3_600;
/// A waiting request that is not repeated for so long loses its place.
const WAIT_TTL: Duration = Duration::from_secs(10);
/// Maximum length of a holder's description.
const MAX_OWNER: usize = 200;

/// The body of an acquire request.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PermitRequest {
    /// Chosen by the client: a repeated request returns the same permit.
    id: Option<PermitId>,
    #[serde(default = "one", deserialize_with = "lenient_int")]
    #[schemars(range(min = 1))]
    weight: u32,
    #[serde(default, deserialize_with = "lenient_int")]
    #[schemars(range(min = 1, max = MAX_TTL))]
    ttl_seconds: Option<u32>,
    #[serde(default, deserialize_with = "lenient_int")]
    priority: Priority,
    /// Description of the holder, for people.
    owner: Option<String>,
}

fn one() -> u32 {
    1
}

/// The response to an acquire request.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PermitResponse {
    permit: PermitId,
    pool: PoolName,
    /// Larger than that of every earlier permit.
    fence: u64,
    ttl_seconds: u32,
    waited_seconds: f64,
}

pub(super) async fn acquire(mut ctx: RequestContext) -> ApiResult {
    let pool: PoolName = ctx.path("pool")?;
    let request: PermitRequest = ctx.json().await?;
    let ttl_seconds = ttl(request.ttl_seconds)?;
    if request.weight == 0 {
        return Err(Problem::bad_request("`weight` must be at least 1"));
    }
    let (max, access) = ctx.app.pool_access(&ctx.caller, &pool).await?;
    if let Some(tenant) = ctx.caller.scope.tenant() {
        ctx.require_active(tenant).await?;
    }
    let permit = request.id.unwrap_or_else(PermitId::new);
    let wait = Duration::from_secs(ctx.query::<u64>("wait")?.unwrap_or(0));
    let otherwise = if wait.is_zero() { IfFull::Fail } else { IfFull::Wait(WAIT_TTL) };
    let pool_id = pool_permit_id(permit, &ctx, access);
    let ask = AcquireRequest {
        id: pool_id,
        max,
        weight: request.weight,
        priority: request.priority,
        owner: owner(&ctx, request.owner.as_deref()).into(),
        ttl: Duration::from_secs(ttl_seconds.into()),
        if_full: otherwise,
    };
    let PermitGrant { fence, waited } = acquire_permit(&ctx, &pool, &ask, wait).await?;
    let waited_seconds = waited.as_secs_f64();
    json(&PermitResponse { permit, pool, fence, ttl_seconds, waited_seconds })
}

/// The id of a permit in the pool. In a shared pool it is derived from the tenant too, so that a tenant
/// cannot extend or release another's permit by guessing its id.
fn pool_permit_id(permit: PermitId, ctx: &RequestContext, access: PoolAccess) -> PermitId {
    let (Scope::Tenant(tenant), PoolAccess::Shared) = (&ctx.caller.scope, access) else {
        return permit;
    };
    PermitId::from_name(permit.as_bytes(), tenant.as_str().as_bytes())
}

fn ttl(asked: Option<u32>) -> Result<u32, Problem> {
    let seconds = asked.unwrap_or(DEFAULT_TTL);
    match (1..=MAX_TTL).contains(&seconds) {
        true => Ok(seconds),
        false => Err(Problem::bad_request(format!("`ttl_seconds` is from 1 to {MAX_TTL}"))),
    }
}

/// The holder's description: the caller's label, and what the client says.
fn owner(ctx: &RequestContext, text: Option<&str>) -> String {
    let text = text.unwrap_or_default().chars().filter(|one| !one.is_control());
    let text: String = text.take(MAX_OWNER).collect();
    match text.is_empty() {
        true => ctx.caller.label.clone(),
        false => format!("{} ({text})", ctx.caller.label),
    }
}

/// Requests a permit until it is granted or `wait` is over.
async fn acquire_permit(
    ctx: &RequestContext,
    pool: &PoolName,
    ask: &AcquireRequest,
    wait: Duration,
) -> Result<PermitGrant, Problem> {
    let permits = &ctx.app.permits;
    let end = Instant::now() + wait;
    loop {
        let retry_after = match permits.acquire(pool, ask).await? {
            AcquireAnswer::Granted(grant) => return Ok(grant),
            AcquireAnswer::Full => return Err(full(pool)),
            AcquireAnswer::TooHeavy { max } => {
                return Err(Problem::bad_request(format!("pool `{pool}` has only {max} permits")));
            }
            AcquireAnswer::Waiting { retry_after, .. } => retry_after.min(WAIT_TTL / 3),
        };
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            permits.release(pool, &[ask.id], true).await?;
            return Err(full(pool));
        }
        // Wait for a wakeup, or until the request must be repeated.
        let _ = timeout(retry_after.min(left), permits.wait_for_wakeup(pool, ask.id)).await;
    }
}

fn full(pool: &PoolName) -> Problem {
    Problem::too_many(format!("pool `{pool}` has no free permit"), Duration::from_secs(1))
}

/// The body of an extend request.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExtendRequest {
    #[serde(default, deserialize_with = "lenient_int")]
    #[schemars(range(min = 1, max = MAX_TTL))]
    ttl_seconds: Option<u32>,
}

/// The response to an extend or release request.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PermitStatus {
    permit: PermitId,
    held: bool,
}

pub(super) async fn extend(mut ctx: RequestContext) -> ApiResult {
    let (pool, permit) = path_ids(&ctx)?;
    let ExtendRequest { ttl_seconds } = ctx.json().await?;
    let ttl = Duration::from_secs(ttl(ttl_seconds)?.into());
    let (_, access) = ctx.app.pool_access(&ctx.caller, &pool).await?;
    let pool_id = pool_permit_id(permit, &ctx, access);
    let lost = ctx.app.permits.renew(&pool, &[pool_id], ttl).await?;
    match lost.is_empty() {
        true => json(&PermitStatus { permit, held: true }),
        false => Err(Problem::conflict("the permit is not held any more: it expired or was released")),
    }
}

pub(super) async fn release(ctx: RequestContext) -> ApiResult {
    let (pool, permit) = path_ids(&ctx)?;
    let (_, access) = ctx.app.pool_access(&ctx.caller, &pool).await?;
    let pool_id = pool_permit_id(permit, &ctx, access);
    ctx.app.permits.release(&pool, &[pool_id], false).await?;
    json(&PermitStatus { permit, held: false })
}

fn path_ids(ctx: &RequestContext) -> Result<(PoolName, PermitId), Problem> {
    let permit = ctx.path("permit").map_err(|_| Problem::bad_request("a permit's id is a UUID"))?;
    Ok((ctx.path("pool")?, permit))
}
