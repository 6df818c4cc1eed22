//! A batch as JSON.

use longshore::accounts::PendingCounts;
use longshore::batch::Sums;
use longshore::{Batch, BatchId, BatchStatus, Timestamp};
use longshore_ai::Cost;
use longshore_batch::report::ProgressEstimate;
use serde::Serialize;

use super::summary;
use crate::commands::now;

/// A batch as JSON. The first eleven keys are a contract: they stay, and the seven counts after
/// `total` add up to it.
#[derive(Serialize)]
pub struct BatchSummary<'a> {
    batch: &'a BatchId,
    number: u64,
    status: BatchStatus,
    total: u64,
    done: u64,
    failed: u64,
    cancelled: u64,
    blocked: u64,
    scheduled: u64,
    ready: u64,
    leased: u64,
    sealed: bool,
    tenant: &'a longshore::TenantId,
    #[serde(rename = "type")]
    kind: &'a str,
    reason: Option<&'a str>,
    notes: &'a str,
    initiated_by: &'a str,
    initiated_at: Timestamp,
    started_at: Option<Timestamp>,
    completed_at: Option<Timestamp>,
    workers: Option<u32>,
    generation: u32,
    cursor: &'a str,
    cost: f64,
    projected_cost: Option<f64>,
    expected: Option<u64>,
    percent: Option<u8>,
    /// Units ended per second.
    rate: Option<f64>,
    seconds_left: Option<f64>,
    seconds_running: Option<f64>,
    seconds_paused: f64,
    simulated: bool,
    sums: &'a Sums,
    /// Requests in a provider's batches, while there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    parked: Option<PendingCounts>,
}

impl<'a> BatchSummary<'a> {
    /// Adds the requests in a provider's batches.
    pub fn with_parked(self, parked: Option<PendingCounts>) -> Self {
        Self { parked, ..self }
    }

    /// The summary of `batch`.
    pub fn of(batch: &'a Batch) -> Self {
        let (counts, progress) = (&batch.counts, ProgressEstimate::of(batch, now()));
        Self {
            batch: &batch.id,
            number: batch.number,
            status: batch.status,
            total: counts.total(),
            done: counts.done,
            failed: counts.failed,
            cancelled: counts.cancelled,
            blocked: counts.blocked,
            scheduled: counts.scheduled,
            ready: counts.ready,
            leased: counts.leased,
            sealed: batch.sealed,
            tenant: &batch.tenant,
            kind: &batch.kind,
            reason: batch.reason.as_deref(),
            notes: &batch.notes,
            initiated_by: &batch.initiated_by,
            initiated_at: batch.initiated_at,
            started_at: batch.started_at,
            completed_at: batch.completed_at,
            workers: batch.workers,
            generation: batch.generation,
            cursor: &batch.cursor,
            cost: progress.cost.dollars(),
            projected_cost: progress.projected.map(Cost::dollars),
            expected: batch.expected,
            percent: progress.percent(),
            rate: progress.rate,
            seconds_left: progress.left.map(|left| left.as_secs_f64()),
            seconds_running: progress.running.map(|running| running.as_secs_f64()),
            seconds_paused: progress.paused.as_secs_f64(),
            simulated: summary::is_simulated(batch),
            sums: &batch.sums,
            parked: None,
        }
    }
}
