//! Queues and lanes.

use longshore::store::{LaneChange, QueueChange, QueueInfo};
use longshore::{Error, QueueName, Scope};

use crate::endpoints::ApiResult;
use crate::problem::Problem;
use crate::request_context::RequestContext;

pub(super) async fn list(ctx: RequestContext) -> ApiResult {
    ctx.page(ctx.app.store.queues(&ctx.scope()?).await?, lane_key)
}

/// The cursor of a list of lanes: its order is that of queues, then tenants.
pub(crate) fn lane_key(lane: &QueueInfo) -> String {
    format!("{} {}", lane.queue, lane.tenant)
}

pub(super) async fn show(ctx: RequestContext) -> ApiResult {
    let queue = ctx.path("queue")?;
    ctx.page(lanes(&ctx, &ctx.scope()?, &queue).await?, lane_key)
}

async fn lanes(ctx: &RequestContext, scope: &Scope, queue: &QueueName) -> Result<Vec<QueueInfo>, Problem> {
    let mut lanes = ctx.app.store.queues(scope).await?;
    lanes.retain(|lane| lane.queue == *queue);
    match lanes.is_empty() {
        true => Err(Error::not_found("queue", queue).into()),
        false => Ok(lanes),
    }
}

pub(super) async fn pause(ctx: RequestContext) -> ApiResult {
    set_paused(ctx, true).await
}

pub(super) async fn resume(ctx: RequestContext) -> ApiResult {
    set_paused(ctx, false).await
}

/// An admin or the queue's owner pauses the whole queue; a tenant pauses its lane of a shared queue.
async fn set_paused(ctx: RequestContext, paused: bool) -> ApiResult {
    let queue: QueueName = ctx.path("queue")?;
    let scope = ctx.scope()?;
    // Pausing must not create a queue that does not exist or is not visible to the caller.
    let found = lanes(&ctx, &scope, &queue).await?;
    let is_paused = |lane: &QueueInfo| match (&scope, queue.owner()) {
        (Scope::Tenant(_), None) => lane.lane_paused,
        (Scope::Tenant(_), Some(_)) if !paused => lane.paused,
        _ => lane.queue_paused,
    };
    // A change without effect leaves no entry in the audit log.
    if found.iter().all(|lane| is_paused(lane) == paused) {
        return ctx.page(found, lane_key);
    }
    let store = &ctx.app.store;
    let lane = LaneChange { paused: Some(paused), ..LaneChange::default() };
    match &scope {
        Scope::Tenant(tenant) if queue.owner().is_none() => {
            ctx.audit(Some(tenant), &queue, "its lane").await?;
            store.change_lane(&scope, &queue, tenant, lane).await?;
        }
        Scope::Tenant(tenant) => {
            ctx.audit(Some(tenant), &queue, "").await?;
            store.change_queue(&scope, &queue, pause_change(paused)).await?;
            // An admin may have paused the queue's only lane instead.
            if !paused && found.iter().any(|lane| lane.lane_paused) {
                store.change_lane(&scope, &queue, tenant, lane).await?;
            }
        }
        Scope::All => {
            ctx.audit(None, &queue, "").await?;
            store.change_queue(&scope, &queue, pause_change(paused)).await?;
        }
    }
    ctx.page(lanes(&ctx, &scope, &queue).await?, lane_key)
}

fn pause_change(paused: bool) -> QueueChange {
    QueueChange { paused: Some(paused), ..QueueChange::default() }
}
