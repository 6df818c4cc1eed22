//! Batches, their rows and failures.

use std::time::Duration;

use longshore::batch::BatchAction;
use longshore::store::Page;
use longshore::{Batch, BatchId, BatchStatus, Timestamp};
use longshore_batch::report::gather_failures;
use longshore_batch::{Report, listing};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use crate::call::{Call, json};
use crate::door::Caller;
use crate::problem::Problem;
use crate::table::Answer;

/// Most rows of a page: each is read by itself.
const ROWS: u32 = 200;

/// How long a change is waited for before we look all the same.
const LOOK: Duration = Duration::from_secs(1);

/// Failures that are grouped while somebody waits, the newest; `batch report` groups all.
pub(crate) const GROUPED: u64 = 5_000;

/// A batch, and how it gets on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// The batch.
    #[serde(flatten)]
    pub batch: Batch,
    /// How it gets on.
    pub progress: Progress,
}

/// How a batch gets on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Units that have ended, of all that are known.
    pub fraction: f64,
    /// Units per second since it began.
    pub rate: Option<f64>,
    /// Seconds until its end at that rate, if all its units are known.
    pub seconds_left: Option<f64>,
    /// What it cost so far, in dollars.
    pub cost: f64,
}

/// Why a batch is paused.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Why {
    pub(crate) reason: Option<String>,
}

impl Shown {
    /// A batch for whoever asks: what its sender wrote is for who may read its payloads.
    pub(crate) fn new(mut batch: Batch, caller: &Caller, now: Timestamp) -> Self {
        if !caller.reads(&batch.tenant) {
            batch.cursor.clear();
            batch.notes.clear();
            batch.callback = None;
        }
        let progress = Progress::of(&batch, now);
        Self { batch, progress }
    }
}

impl Progress {
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    fn of(batch: &Batch, now: Timestamp) -> Self {
        let report = Report::of(batch.clone(), Vec::new(), now);
        let (ended, total) = (batch.counts.finished(), batch.counts.total());
        let rate = report.rate();
        let moves = batch.status.is_open() && batch.sealed;
        let left = rate.filter(|rate| moves && *rate > 0.0);
        Self {
            fraction: if total == 0 { 0.0 } else { ended as f64 / total as f64 },
            rate,
            seconds_left: left.map(|rate| batch.counts.live() as f64 / rate),
            cost: report.usage.cost.dollars(),
        }
    }
}

pub(super) async fn list(call: Call) -> Answer {
    let scope = call.scope()?;
    let (status, limit) = (call.query("status")?, call.limit()?);
    let page = call.house.store.batches(&scope, status, call.after(), limit).await?;
    let now = call.house.now();
    let items: Vec<Shown> =
        page.items.into_iter().map(|batch| Shown::new(batch, &call.caller, now)).collect();
    json(&Page { items, next: page.next })
}

pub(super) async fn show(call: Call) -> Answer {
    let id: BatchId = call.path("batch")?;
    let batch = call.house.store.batch(&call.caller.scope, &id).await?;
    json(&Shown::new(batch, &call.caller, call.house.now()))
}

pub(super) async fn rows(call: Call) -> Answer {
    let id: BatchId = call.path("batch")?;
    let (store, scope) = (&*call.house.store, &call.caller.scope);
    let reads = call.caller.reads(&store.batch(scope, &id).await?.tenant);
    let limit = call.limit()?.min(ROWS);
    let mut page =
        listing::rows(store, scope, &id, call.query("state")?, call.after(), limit).await?;
    if !reads {
        for row in &mut page.items {
            (row.key, row.result) = (Value::Null, None);
        }
    }
    json(&page)
}

pub(super) async fn failures(call: Call) -> Answer {
    let id: BatchId = call.path("batch")?;
    let (store, scope) = (&*call.house.store, &call.caller.scope);
    let tenant = store.batch(scope, &id).await?.tenant;
    let mut items = gather_failures(store, scope, &id, Some(GROUPED)).await?;
    if !call.caller.reads(&tenant) {
        for group in &mut items {
            group.examples.clear();
        }
    }
    json(&Page { items, next: None })
}

pub(super) async fn pause(mut call: Call) -> Answer {
    let Why { reason } = call.json().await?;
    let reason = reason.unwrap_or_else(|| format!("paused by {}", call.caller.by));
    act(call, BatchAction::Pause { reason }).await
}

pub(super) async fn resume(call: Call) -> Answer {
    act(call, BatchAction::Resume).await
}

/// As `batch drain` has it: paused, and waited for until nothing of it runs, or as it is when the wait
/// is over.
pub(super) async fn drain(call: Call) -> Answer {
    let end = Instant::now() + Duration::from_secs(call.query::<u64>("wait")?.unwrap_or(0));
    let reason = format!("drained by {}", call.caller.by);
    let batch = operated(&call, BatchAction::Pause { reason }).await?;
    let batch = at_rest(&call, batch, end).await?;
    json(&Shown::new(batch, &call.caller, call.house.now()))
}

async fn at_rest(call: &Call, mut batch: Batch, end: Instant) -> Result<Batch, Problem> {
    let (store, scope) = (&call.house.store, &call.caller.scope);
    let mut cursor = store.changes(scope, u64::MAX, Duration::ZERO).await?.cursor;
    loop {
        batch = store.batch(scope, &batch.id).await?;
        if matches!(batch.status, BatchStatus::Running | BatchStatus::Queued) {
            return Err(Problem::conflict(format!("batch `{}` was resumed by somebody", batch.id)));
        }
        let left = end.saturating_duration_since(Instant::now());
        if batch.counts.leased == 0 || left.is_zero() {
            return Ok(batch);
        }
        cursor = store.changes(scope, cursor, LOOK.min(left)).await?.cursor;
    }
}

pub(super) async fn cancel(call: Call) -> Answer {
    act(call, BatchAction::Cancel).await
}

pub(super) async fn retry(call: Call) -> Answer {
    act(call, BatchAction::RetryFailed).await
}

async fn act(call: Call, action: BatchAction) -> Answer {
    let batch = operated(&call, action).await?;
    json(&Shown::new(batch, &call.caller, call.house.now()))
}

async fn operated(call: &Call, action: BatchAction) -> Result<Batch, Problem> {
    let id: BatchId = call.path("batch")?;
    let (store, scope) = (&call.house.store, &call.caller.scope);
    let tenant = store.batch(scope, &id).await?.tenant;
    call.note(Some(&tenant), &id, "").await?;
    Ok(store.operate_batch(scope, &id, action).await?)
}
