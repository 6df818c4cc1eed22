//! Batches, their rows and failures.

use std::time::Duration;

use longshore::batch::BatchAction;
use longshore::store::Page;
use longshore::{Batch, BatchId, BatchStatus, Timestamp};
use longshore_ai::Cost;
use longshore_batch::report::{ProgressEstimate, gather_failures};
use longshore_batch::row_listing::{self, RowFilter};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use crate::auth::Caller;
use crate::endpoints::ApiResult;
use crate::problem::Problem;
use crate::request_context::{RequestContext, json};

/// Maximum rows per page: each is read individually.
const MAX_ROWS: u32 = 200;

/// How long to wait for a change before the batch is read again.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Number of newest failures that a request groups; `batch report` groups all.
pub(crate) const MAX_GROUPED_FAILURES: u64 = 5_000;

/// A batch with its progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Batch")]
pub struct BatchView {
    /// The batch.
    #[serde(flatten)]
    pub batch: Batch,
    /// Its progress.
    pub progress: BatchProgressView,
}

/// The progress of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BatchProgressView {
    /// Share of the known units that have ended.
    pub fraction: f64,
    /// Units per second since it started.
    pub rate: Option<f64>,
    /// Estimated seconds until its end, if all its units are known.
    pub seconds_left: Option<f64>,
    /// Cost so far, in dollars.
    pub cost: f64,
    /// Estimated cost at the end, in dollars, if the total is known and the batch has not ended.
    #[serde(default)]
    pub projected_cost: Option<f64>,
    /// Units, or as many as the initiator expects.
    #[serde(default)]
    pub total: u64,
    /// Seconds in which it ran, without its pauses.
    #[serde(default)]
    pub seconds_running: Option<f64>,
    /// Seconds in which it was paused.
    #[serde(default)]
    pub seconds_paused: f64,
}

/// The body of a pause request.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PauseRequest {
    pub(crate) reason: Option<String>,
}

impl BatchView {
    /// Hides the sender's data from callers that may not read the tenant's payloads.
    pub(crate) fn new(mut batch: Batch, caller: &Caller, now: Timestamp) -> Self {
        if !caller.can_read(&batch.tenant) {
            batch.cursor.clear();
            batch.notes.clear();
            batch.callback = None;
        }
        let progress = BatchProgressView::of(&batch, now);
        Self { batch, progress }
    }
}

impl BatchProgressView {
    fn of(batch: &Batch, now: Timestamp) -> Self {
        let progress = ProgressEstimate::of(batch, now);
        Self {
            fraction: progress.fraction.unwrap_or_default(),
            rate: progress.rate,
            seconds_left: progress.left.map(|left| left.as_secs_f64()),
            cost: progress.cost.dollars(),
            projected_cost: progress.projected.map(Cost::dollars),
            total: progress.total,
            seconds_running: progress.running.map(|running| running.as_secs_f64()),
            seconds_paused: progress.paused.as_secs_f64(),
        }
    }
}

pub(super) async fn list(ctx: RequestContext) -> ApiResult {
    let scope = ctx.scope()?;
    let (status, limit) = (ctx.query("status")?, ctx.limit()?);
    let page = ctx.app.store.batches(&scope, status, ctx.after(), limit).await?;
    let now = ctx.app.now();
    let items: Vec<BatchView> =
        page.items.into_iter().map(|batch| BatchView::new(batch, &ctx.caller, now)).collect();
    json(&Page { items, next: page.next })
}

pub(super) async fn show(ctx: RequestContext) -> ApiResult {
    let id: BatchId = ctx.path("batch")?;
    let batch = ctx.app.store.batch(&ctx.caller.scope, &id).await?;
    json(&BatchView::new(batch, &ctx.caller, ctx.app.now()))
}

pub(super) async fn rows(ctx: RequestContext) -> ApiResult {
    let id: BatchId = ctx.path("batch")?;
    let (store, scope) = (&*ctx.app.store, &ctx.caller.scope);
    let can_read = ctx.caller.can_read(&store.batch(scope, &id).await?.tenant);
    let limit = ctx.limit()?.min(MAX_ROWS);
    let filter = RowFilter::in_state(ctx.query("state")?);
    let mut page = row_listing::rows(store, scope, &id, &filter, ctx.after(), limit).await?;
    if !can_read {
        for row in &mut page.items {
            (row.key, row.result, row.answer) = (Value::Null, None, None);
        }
    }
    json(&page)
}

pub(super) async fn failures(ctx: RequestContext) -> ApiResult {
    let id: BatchId = ctx.path("batch")?;
    let (store, scope) = (&*ctx.app.store, &ctx.caller.scope);
    let tenant = store.batch(scope, &id).await?.tenant;
    let mut items = gather_failures(store, scope, &id, Some(MAX_GROUPED_FAILURES)).await?;
    if !ctx.caller.can_read(&tenant) {
        for group in &mut items {
            group.examples.clear();
        }
    }
    json(&Page { items, next: None })
}

pub(super) async fn pause(mut ctx: RequestContext) -> ApiResult {
    let PauseRequest { reason } = ctx.json().await?;
    let reason = reason.unwrap_or_else(|| format!("paused by {}", ctx.caller.label));
    act(ctx, BatchAction::Pause { reason }).await
}

pub(super) async fn resume(ctx: RequestContext) -> ApiResult {
    act(ctx, BatchAction::Resume).await
}

/// Pauses a batch and waits until none of its units runs, or until `wait` is over.
pub(super) async fn drain(ctx: RequestContext) -> ApiResult {
    let end = Instant::now() + Duration::from_secs(ctx.query::<u64>("wait")?.unwrap_or(0));
    let reason = format!("drained by {}", ctx.caller.label);
    let batch = operate(&ctx, BatchAction::Pause { reason }).await?;
    let batch = wait_until_idle(&ctx, batch, end).await?;
    json(&BatchView::new(batch, &ctx.caller, ctx.app.now()))
}

async fn wait_until_idle(ctx: &RequestContext, mut batch: Batch, end: Instant) -> Result<Batch, Problem> {
    let (store, scope) = (&ctx.app.store, &ctx.caller.scope);
    let mut cursor = store.changes(scope, u64::MAX, Duration::ZERO).await?.cursor;
    loop {
        batch = store.batch(scope, &batch.id).await?;
        if matches!(batch.status, BatchStatus::Running | BatchStatus::Queued) {
            return Err(Problem::conflict(format!("batch `{}` was resumed meanwhile", batch.id)));
        }
        let left = end.saturating_duration_since(Instant::now());
        if batch.counts.leased == 0 || left.is_zero() {
            return Ok(batch);
        }
        cursor = store.changes(scope, cursor, POLL_INTERVAL.min(left)).await?.cursor;
    }
}

pub(super) async fn cancel(ctx: RequestContext) -> ApiResult {
    act(ctx, BatchAction::Cancel).await
}

pub(super) async fn retry(ctx: RequestContext) -> ApiResult {
    act(ctx, BatchAction::RetryFailed).await
}

async fn act(ctx: RequestContext, action: BatchAction) -> ApiResult {
    let batch = operate(&ctx, action).await?;
    json(&BatchView::new(batch, &ctx.caller, ctx.app.now()))
}

async fn operate(ctx: &RequestContext, action: BatchAction) -> Result<Batch, Problem> {
    let id: BatchId = ctx.path("batch")?;
    let (store, scope) = (&ctx.app.store, &ctx.caller.scope);
    let tenant = store.batch(scope, &id).await?.tenant;
    ctx.audit(Some(&tenant), &id, "").await?;
    Ok(store.apply_batch_action(scope, &id, action).await?)
}
