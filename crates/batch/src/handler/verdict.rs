//! What POST's word means for the unit: its outcome, its failure's code, its wait.

use std::time::Duration;

use longshore::{
    CheckpointError, Context, HandlerResult, Reply as Done, RetryPolicy, Verdict as Outcome,
};

use super::RowResult;
use super::job::Job;
use crate::definition::Verdict;
use crate::step::{Applied, Reply, ReplyError, RowRun};

/// What the outcome is made from, beside POST's word.
pub(super) struct Told<'a> {
    pub(super) row: &'a RowRun<'a>,
    pub(super) reply: &'a Reply,
    pub(super) policy: &'a RetryPolicy,
}

/// The row's policy: the unit's own, else its batch's.
pub(super) fn policy<'a>(context: &'a Context, job: &'a Job) -> &'a RetryPolicy {
    let own = context.unit().policy.as_ref();
    own.map_or(&job.definition.retry, |policy| &policy.retry)
}

/// POST's word as the unit's outcome, effects included.
pub(super) fn of(told: Told<'_>, applied: Applied) -> HandlerResult<RowResult> {
    let after = told.after(&applied);
    let Applied { verdict, reason, effects, .. } = applied;
    let outcome = match (verdict, after) {
        (Verdict::Success, _) => return Ok(Done::new(told.result()).with_effects(effects)),
        (Verdict::Fail, _) => Outcome::fail(told.code("post-fail"), told.reason(reason)),
        (Verdict::Retry, None) => Outcome::retry(told.code("post-retry"), told.reason(reason)),
        (Verdict::Retry, Some(after)) => {
            Outcome::retry_after(told.code("post-retry"), told.reason(reason), after)
        }
    };
    Err(if effects.is_empty() { outcome } else { outcome.with_effects(effects) })
}

/// The run was told to end: why, the engine knows.
pub(super) fn interrupted() -> Outcome {
    Outcome::retry("interrupted", "the run was told to end")
}

/// The same question is out already, or was answered to somebody else.
pub(super) fn duplicate(request_id: &str) -> Outcome {
    let why = format!("request `{request_id}` is or was answered elsewhere");
    Outcome::retry("duplicate-request", why)
}

/// What must not be lost could not be kept.
pub(super) fn not_kept(error: &CheckpointError) -> Outcome {
    let words = format!("what the run reached cannot be kept: {error}");
    match error {
        CheckpointError::Store(error) if !error.is_retryable() => {
            Outcome::fail("checkpoint", words)
        }
        _ => Outcome::retry("checkpoint", words),
    }
}

impl Told<'_> {
    fn error(&self) -> Option<&ReplyError> {
        self.reply.error.as_ref()
    }

    /// The failure's code: what went wrong before POST, or that POST said so of a good answer.
    fn code(&self, of_a_good_answer: &str) -> String {
        self.error().map_or_else(
            || of_a_good_answer.to_owned(),
            |error| error.code.to_ascii_lowercase().replace('_', "-"),
        )
    }

    fn reason(&self, reason: Option<String>) -> String {
        let Some(error) = self.error() else {
            return reason.unwrap_or_else(|| "POST gave no reason".to_owned());
        };
        // The code is the failure's already.
        let prefix = format!("{}: ", error.code);
        let reason = reason.unwrap_or_else(|| error.message.clone());
        reason.strip_prefix(&prefix).map_or(reason.clone(), str::to_owned)
    }

    /// How long exactly to wait; `None` leaves it to the policy. What a provider asks for is the
    /// least: rows that were refused together must not come back together.
    fn after(&self, applied: &Applied) -> Option<Duration> {
        let asked = self.error().and_then(|error| error.retry_after);
        match asked {
            Some(asked) if applied.after.is_none_or(|after| after == asked) => {
                Some(asked + self.policy.delay(self.row.unit, self.row.attempt))
            }
            _ => applied.after,
        }
    }

    fn result(&self) -> RowResult {
        let answer = self.reply.answer.as_ref();
        RowResult {
            verdict: Verdict::Success,
            model: answer.map(|answer| answer.model.clone()),
            tokens_in: answer.map_or(0, |answer| answer.tokens_in),
            tokens_out: answer.map_or(0, |answer| answer.tokens_out),
            cost_usd: self.reply.cost.dollars(),
            latency_ms: answer.map_or(0, |answer| answer.latency_ms),
            simulated: answer.is_some_and(|answer| answer.simulated),
            worker: self.row.worker.to_owned(),
        }
    }
}
