//! Maps POST's verdict to the unit's outcome, failure code and delay.

use std::time::Duration;

use longshore::text::truncate_bytes;
use longshore::{CheckpointError, Context, HandlerReply, HandlerResult, RetryPolicy, Verdict};
use longshore_ai::Cost;

use super::compiled_batch::CompiledBatch;
use super::{MAX_KEPT_ANSWER, RowResult};
use crate::checkpoint::StepRecord;
use crate::definition::PostVerdict;
use crate::pre_post::{ApplyOutcome, ReplyError, RowReply, RowRun};

/// The input of the outcome, beside POST's verdict.
pub(super) struct OutcomeInput<'a> {
    pub(super) row: &'a RowRun<'a>,
    pub(super) reply: &'a RowReply,
    pub(super) policy: &'a RetryPolicy,
    pub(super) keep_answers: bool,
    /// The attempt of the step, if the row has several.
    pub(super) step_attempt: Option<u32>,
    /// The step before the last one that the reply comes from.
    pub(super) step: Option<&'a str>,
    /// The steps that were completed.
    pub(super) earlier: &'a [StepRecord],
    pub(super) revision: u32,
}

/// The row's retry policy: the unit's own, else the batch's.
pub(super) fn policy<'a>(context: &'a Context, compiled: &'a CompiledBatch) -> &'a RetryPolicy {
    let own = context.unit().policy.as_ref();
    own.map_or(&compiled.definition.retry, |policy| &policy.retry)
}

/// The unit's outcome for POST's verdict, with its effects.
pub(super) fn from_outcome(input: OutcomeInput<'_>, applied: ApplyOutcome) -> HandlerResult<RowResult> {
    let after = input.after(&applied);
    let ApplyOutcome { verdict, reason, effects, .. } = applied;
    let outcome = match (verdict, after) {
        (PostVerdict::Success, _) => {
            return Ok(HandlerReply::new(input.result()).with_effects(effects));
        }
        (PostVerdict::Fail, _) => Verdict::fail(input.code("post-fail"), input.reason(reason)),
        (PostVerdict::Retry, None) => Verdict::retry(input.code("post-retry"), input.reason(reason)),
        (PostVerdict::Retry, Some(after)) => {
            Verdict::retry_after(input.code("post-retry"), input.reason(reason), after)
        }
    };
    Err(if effects.is_empty() { outcome } else { outcome.with_effects(effects) })
}

/// The run was cancelled; the engine knows the reason.
pub(super) fn interrupted() -> Verdict {
    Verdict::retry("interrupted", "the run was cancelled")
}

/// The same request is in flight or was answered elsewhere.
pub(super) fn duplicate(request_id: &str) -> Verdict {
    let why = format!("request `{request_id}` is or was answered elsewhere");
    Verdict::retry("duplicate-request", why)
}

/// The checkpoint could not be saved.
pub(super) fn checkpoint_failed(error: &CheckpointError) -> Verdict {
    let message = format!("the checkpoint cannot be saved: {error}");
    match error {
        CheckpointError::Store(error) if error.is_final() => Verdict::fail("checkpoint", message),
        _ => Verdict::retry("checkpoint", message),
    }
}

impl OutcomeInput<'_> {
    fn error(&self) -> Option<&ReplyError> {
        self.reply.error.as_ref()
    }

    /// The failure's code: the reply's error, or `default` if POST rejected a good answer.
    fn code(&self, default: &str) -> String {
        self.error()
            .map_or_else(|| default.to_owned(), |error| error.code.to_ascii_lowercase().replace('_', "-"))
    }

    fn reason(&self, reason: Option<String>) -> String {
        let reason = match self.error() {
            None => reason.unwrap_or_else(|| "POST gave no reason".to_owned()),
            Some(error) => {
                // The failure has the code already.
                let prefix = format!("{}: ", error.code);
                let reason = reason.unwrap_or_else(|| error.message.clone());
                reason.strip_prefix(&prefix).map_or(reason.clone(), str::to_owned)
            }
        };
        self.step.map_or(reason.clone(), |step| format!("step `{step}`: {reason}"))
    }

    /// The exact delay; `None` leaves it to the policy. A provider's `retry_after` is the minimum,
    /// plus the policy's jittered delay: rows that were rejected together must not come back
    /// together.
    fn after(&self, applied: &ApplyOutcome) -> Option<Duration> {
        let asked = self.error().and_then(|error| error.retry_after);
        match asked {
            Some(asked) if applied.after.is_none_or(|after| after == asked) => {
                let attempt = self.step_attempt.unwrap_or(self.row.attempt);
                Some(asked + self.policy.delay(self.row.unit, attempt))
            }
            _ => {
                let own = || self.step_attempt.map(|attempt| self.policy.delay(self.row.unit, attempt));
                applied.after.or_else(own)
            }
        }
    }

    fn result(&self) -> RowResult {
        let answer = self.reply.answer.as_ref();
        let earlier = |amount: fn(&StepRecord) -> u64| self.earlier.iter().map(amount).sum::<u64>();
        let cost = self.earlier.iter().fold(0_i64, |sum, step| sum.saturating_add(step.cost.0));
        RowResult {
            verdict: PostVerdict::Success,
            model: answer.map(|answer| answer.model.clone()),
            tokens_in: answer.map_or(0, |answer| answer.tokens_in) + earlier(|step| step.tokens_in),
            tokens_out: answer.map_or(0, |answer| answer.tokens_out) + earlier(|step| step.tokens_out),
            cost_usd: Cost(self.reply.cost.0.saturating_add(cost)).dollars(),
            latency_ms: answer.map_or(0, |answer| answer.latency_ms),
            simulated: answer.is_some_and(|answer| answer.simulated),
            worker: self.row.worker.to_owned(),
            answer: answer
                .filter(|_| self.keep_answers)
                .map(|answer| truncate_bytes(&answer.text, MAX_KEPT_ANSWER)),
            revision: self.revision,
        }
    }
}
