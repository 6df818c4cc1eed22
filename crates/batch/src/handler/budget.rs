//! A batch's budget: pauses the batch before its answers cost more.

use std::time::Duration;

use longshore::batch::BatchAction;
use longshore::{Batch, BatchId, Context, Verdict};
use longshore_ai::Cost;

use crate::throttled_log;

/// When a row of a batch that has reached its budget is looked at again. Until the batch is resumed no worker claims it.
const PAUSED_DELAY: Duration = Duration::from_secs(1);

/// Called before each question: pauses the batch if the answer could exceed its budget, and puts the row off without an
/// attempt.
pub(super) async fn check(context: &Context, batch: &BatchId, budget: Option<Cost>) -> Result<(), Verdict> {
    let Some(budget) = budget else { return Ok(()) };
    let (store, scope) = (context.client().store(), context.client().scope());
    let not_read = |error: longshore::Error| {
        throttled_log::warn(
            "rows wait, because the store did not tell what their batch has spent",
            batch,
            error,
        );
        Verdict::Snooze(PAUSED_DELAY)
    };
    let current = store.batch(scope, batch).await.map_err(not_read)?;
    let Some(reason) = exhausted(&current, budget) else { return Ok(()) };
    if current.status.is_open() {
        tracing::warn!(%batch, "the batch is paused: {reason}");
        store.apply_batch_action(scope, batch, BatchAction::Pause { reason }).await.map_err(not_read)?;
    }
    Err(Verdict::Snooze(PAUSED_DELAY))
}

/// Why the batch must not ask: the rows that run now, this one included, are expected to cost what a row cost so far.
fn exhausted(batch: &Batch, budget: Cost) -> Option<String> {
    let sum = |name: &str| batch.sums.get(name).copied().unwrap_or_default();
    let (spent, answers) = (sum("cost_picos"), sum("answers").max(1));
    let running = i64::try_from(batch.counts.leased.max(1)).unwrap_or(i64::MAX);
    let reserved = (spent / answers).saturating_mul(running);
    if spent.saturating_add(reserved) <= budget.0 {
        return None;
    }
    let (spent, reserved) = (Cost(spent), Cost(reserved));
    Some(format!(
        "the budget of {budget} is reached: {spent} spent, and about {reserved} for the {running} rows that run"
    ))
}
