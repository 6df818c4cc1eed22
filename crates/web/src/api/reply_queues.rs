//! Reply queues over HTTP: where the answers to AI requests wait for the program that asked.
//!
//! A queue is closed when it is not read for its TTL. A reply is returned by every read until it is
//! acknowledged. A tenant's queues do not exist for others.

use std::sync::Arc;
use std::time::Duration;

use longshore::unit::Payload;
use longshore::{QueueName, Scope, TenantId, UnitId};
use longshore_ai::worker::{Inbox, MAX_REPLIES, QueuedReply};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::endpoints::ApiResult;
use crate::lenient_int::lenient_int;
use crate::problem::Problem;
use crate::request_context::{RequestContext, json};

/// Default, least and greatest TTL in seconds.
const DEFAULT_TTL: u32 = 300;
const MIN_TTL: u32 = 10;
const MAX_TTL: u32 = 86_400;
/// Most open reply queues of a tenant, which may have 1,000 queues in all.
const MAX_OPEN: usize = 500;

/// The body of an open request.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OpenReplyQueueRequest {
    /// Its name, optionally with its owner; by default a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<QueueName>,
    /// Seconds without a read after which it is closed.
    #[serde(default, deserialize_with = "lenient_int", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = MIN_TTL, max = MAX_TTL))]
    pub(crate) ttl_seconds: Option<u32>,
}

/// A reply queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplyQueueView {
    /// Its name with its owner.
    pub queue: QueueName,
    /// The field `reply_queue` of requests.
    pub reply_queue: ReplyAddress,
}

/// The field `reply_queue` of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplyAddress {
    /// The tenant.
    pub library: String,
    /// The name.
    pub name: String,
}

impl ReplyQueueView {
    /// A tenant's queue by its name.
    pub fn new(tenant: &TenantId, queue: QueueName) -> Self {
        let name = own_name(&queue).to_owned();
        Self { queue, reply_queue: ReplyAddress { library: tenant.to_string(), name } }
    }
}

/// A reply in a queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplyView {
    /// Its id, to acknowledge it with.
    pub id: UnitId,
    /// The reply.
    pub reply: Payload,
}

impl From<QueuedReply> for ReplyView {
    fn from(reply: QueuedReply) -> Self {
        Self { id: reply.id, reply: reply.payload }
    }
}

/// The replies of a read.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ReplyList {
    /// Oldest first; empty if none arrived in time.
    pub(crate) items: Vec<ReplyView>,
}

/// The body of an acknowledgement.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AcknowledgeRequest {
    /// Ids of replies; unknown ones are ignored.
    #[schemars(length(max = MAX_REPLIES))]
    pub(crate) ids: Vec<UnitId>,
}

/// The response to an acknowledgement.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AcknowledgeResponse {
    /// How many were waiting for it.
    pub(crate) acknowledged: u32,
}

pub(super) async fn list(ctx: RequestContext) -> ApiResult {
    let tenant = ctx.caller.tenant_for_new(ctx.query("tenant")?)?;
    let open = ctx.app.ledger.reply_queues(&Scope::Tenant(tenant.clone()), &tenant, None).await?;
    let views = open.into_iter().map(|open| ReplyQueueView::new(&tenant, open.queue));
    ctx.page(views.collect(), |view| view.queue.to_string())
}

pub(super) async fn open(mut ctx: RequestContext) -> ApiResult {
    let OpenReplyQueueRequest { queue, ttl_seconds } = ctx.json().await?;
    let ttl = ttl_seconds.unwrap_or(DEFAULT_TTL);
    if !(MIN_TTL..=MAX_TTL).contains(&ttl) {
        return Err(Problem::bad_request(format!("`ttl_seconds` is from {MIN_TTL} to {MAX_TTL}")));
    }
    let ttl = Duration::from_secs(ttl.into());
    let (tenant, name) = match &queue {
        Some(queue) => owner(&ctx, queue).map(|(tenant, name)| (tenant, Some(name)))?,
        None => (ctx.caller.tenant_for_new(None)?, None),
    };
    ctx.require_active(&tenant).await?;
    let (store, ledger) = (Arc::clone(&ctx.app.store), Arc::clone(&ctx.app.ledger));
    let open = ledger.reply_queues(&Scope::Tenant(tenant.clone()), &tenant, None).await?;
    if open.len() >= MAX_OPEN {
        let detail = format!("tenant `{tenant}` has {MAX_OPEN} open reply queues: close some");
        return Err(Problem::too_many(detail, Duration::from_secs(60)));
    }
    let inbox = match name {
        Some(name) => Inbox::open(store, ledger, tenant, name, ttl).await?,
        None => Inbox::open_unnamed(store, ledger, tenant, ttl).await?,
    };
    json(&ReplyQueueView::new(inbox.tenant(), inbox.queue().clone()))
}

pub(super) async fn read(ctx: RequestContext) -> ApiResult {
    let (limit, wait) = (ctx.query("limit")?.unwrap_or(MAX_REPLIES), ctx.query("wait")?.unwrap_or(0));
    let inbox = find(&ctx).await?.with_read_permits(Arc::clone(ctx.slot.reads()));
    let replies = inbox.read(limit, Duration::from_secs(wait)).await?;
    let response = json(&ReplyList { items: replies.into_iter().map(ReplyView::from).collect() })?;
    // If it is refused, the next read returns the same replies.
    ctx.slot.charge(&response)?;
    Ok(response)
}

pub(super) async fn acknowledge(mut ctx: RequestContext) -> ApiResult {
    let AcknowledgeRequest { ids } = ctx.json().await?;
    if ids.len() > MAX_REPLIES as usize {
        return Err(Problem::bad_request(format!("acknowledge up to {MAX_REPLIES} replies at once")));
    }
    let acknowledged = find(&ctx).await?.acknowledge(&ids).await?;
    json(&AcknowledgeResponse { acknowledged: u32::try_from(acknowledged).unwrap_or(u32::MAX) })
}

pub(super) async fn close(ctx: RequestContext) -> ApiResult {
    let inbox = find(&ctx).await?;
    let view = ReplyQueueView::new(inbox.tenant(), inbox.queue().clone());
    inbox.close().await?;
    json(&view)
}

/// The open queue of the path.
async fn find(ctx: &RequestContext) -> Result<Inbox, Problem> {
    let queue: QueueName = ctx.path("reply_queue")?;
    let (tenant, name) = owner(ctx, &queue)?;
    let (store, ledger) = (Arc::clone(&ctx.app.store), Arc::clone(&ctx.app.ledger));
    Ok(Inbox::find(store, ledger, tenant, name).await?)
}

/// The tenant of a queue, by default the caller's, and its name without the tenant.
fn owner<'q>(ctx: &RequestContext, queue: &'q QueueName) -> Result<(TenantId, &'q str), Problem> {
    let tenant = queue.owner().map(TenantId::new).transpose();
    let tenant = tenant.map_err(|error| Problem::bad_request(error.to_string()))?;
    Ok((ctx.caller.tenant_for_new(tenant)?, own_name(queue)))
}

/// A queue's name without its owner.
fn own_name(queue: &QueueName) -> &str {
    queue.as_str().rsplit('/').next().unwrap_or_default()
}
