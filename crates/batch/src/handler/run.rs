//! A row's run from top to bottom: resume from the checkpoint, or prepare and ask; save; apply.
//! `ask` has the call itself.

use std::sync::Arc;

use longshore::accounts::CallRecord;
use longshore::batch::Sums;
use longshore::store::CheckpointRequest;
use longshore::{
    Backoff, BatchId, CheckpointError, Clock, Context, Error, HandlerResult, OnLost, SqlValue, Timestamp,
    Unit, Verdict,
};
use longshore_ai::{Answer, Cost, Gauge, PriceMode, Profile, SentFlag};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::RowResult;
use super::compiled_batch::{AiStep, BatchLoadError, CompiledBatch, CompiledStep};
use super::reply::{error_reply, lost_error};
use super::verdict::{self, OutcomeInput};
use crate::answer_samples::AnswerSamples;
use crate::checkpoint::{Checkpoint, ResumePoint, StoredError, sums};
use crate::pre_post::{ApplyError, ApplyOutcome, ReplyError, RowReply, RowRun};

/// The state of one run of one row.
pub(super) struct RowExecution<'a> {
    pub(super) context: &'a Context,
    pub(super) compiled: &'a CompiledBatch,
    pub(super) row: RowRun<'a>,
    /// For prices only.
    pub(super) clock: &'a Arc<dyn Clock>,
    /// For deadlines.
    pub(super) store_time: StoreTime,
    pub(super) checkpoint: Checkpoint,
    /// Calls of this run that returned no answer.
    pub(super) unanswered: u32,
    /// Whether the current question was sent.
    pub(super) sent: SentFlag,
    /// Outcomes of calls that are not written yet.
    pub(super) calls: Vec<CallRecord>,
    /// When the run stops waiting for an answer.
    pub(super) deadline: Instant,
    /// The batch's deadline had passed when the run began.
    pub(super) past_deadline: bool,
    /// An error found before the run; the row can only fail.
    pub(super) problem: Option<String>,
    /// Limits the worker's calls in flight.
    pub(super) ask_limit: Option<&'a Semaphore>,
    pub(super) samples: Option<&'a AnswerSamples>,
    pub(super) gauge: &'a Gauge,
}

impl<'a> RowExecution<'a> {
    pub(super) fn new(
        context: &'a Context,
        compiled: &'a CompiledBatch,
        key: &'a SqlValue,
        worker: &'a str,
        clock: &'a Arc<dyn Clock>,
        gauge: &'a Gauge,
    ) -> Result<Self, Verdict> {
        let batch = context.unit().batch.as_ref().ok_or_else(|| BatchLoadError::NoBatch.verdict())?;
        let began = StoreTime::new(context.unit());
        let now = began.now();
        Ok(Self {
            context,
            compiled,
            row: row_run(context, compiled, batch, key, worker, now),
            clock,
            store_time: began,
            checkpoint: Checkpoint::from_unit(context.unit()).map_err(checkpoint_error)?,
            unanswered: 0,
            sent: SentFlag::default(),
            calls: Vec::new(),
            deadline: run_deadline(compiled, now),
            past_deadline: compiled.definition.deadline.is_some_and(|deadline| deadline <= now),
            problem: None,
            ask_limit: None,
            samples: None,
            gauge,
        })
    }

    /// Runs the row. Outcomes of its calls that were not saved before are written with its outcome,
    /// whatever that is.
    pub(super) async fn run(mut self) -> HandlerResult<RowResult> {
        match self.run_steps().await {
            Ok(done) => Ok(done.with_calls(self.calls)),
            Err(verdict) if self.calls.is_empty() => Err(verdict),
            Err(verdict) => Err(verdict.with_calls(self.calls)),
        }
    }

    async fn run_steps(&mut self) -> HandlerResult<RowResult> {
        let reply = self.reply().await?;
        match self.apply(&reply).await {
            Ok(applied) => self.finish(&reply, applied),
            // The checkpoint keeps the answer, so the model is not asked again.
            Err(ApplyError::Failed(why)) => Err(Verdict::retry("post-error", why)),
            Err(ApplyError::Snooze { after, .. }) => Err(Verdict::Snooze(after)),
        }
    }

    /// The reply for POST.
    async fn reply(&mut self) -> Result<RowReply, Verdict> {
        let compiled = self.compiled;
        match &compiled.step {
            CompiledStep::Ai(step) => self.answer(step).await,
            CompiledStep::Mail(step) => self.send_mail(step).await,
        }
    }

    /// The answer or error from the checkpoint, or from the model.
    async fn answer(&mut self, step: &AiStep) -> Result<RowReply, Verdict> {
        let unit = self.context.unit();
        let resume_point = self.checkpoint.resume_point(unit.lost);
        if matches!(resume_point, ResumePoint::Ask | ResumePoint::MaybeBilled)
            && let Some(deferred) = step.model_client.deferred()
        {
            // A worker's death does not affect a question in a provider batch: the store has its
            // status.
            return self.ask_deferred(step, deferred).await;
        }
        match resume_point {
            ResumePoint::Answer(answer) => {
                let cost = self.checkpoint.cost.unwrap_or_else(|| self.cost(step, &answer));
                Ok(step.read(answer, cost))
            }
            ResumePoint::Error(error) => Ok(error_reply(error.into())),
            ResumePoint::MaybeBilled if self.compiled.definition.on_lost == OnLost::Fail => {
                self.save_error(lost_error()).await
            }
            ResumePoint::MaybeBilled => {
                tracing::warn!(unit = %unit.id, "maybe billed: the worker died; the question is sent again");
                self.prepare_and_ask(step).await
            }
            ResumePoint::Ask => self.prepare_and_ask(step).await,
        }
    }

    /// Saves an error before POST sees it, so that no later run asks again in its place.
    pub(super) async fn save_error(&mut self, error: ReplyError) -> Result<RowReply, Verdict> {
        let ReplyError { code, message, retryable, .. } = error.clone();
        let stored = StoredError { code, message, retryable };
        let checkpoint = self.checkpoint.with_error(stored, self.unanswered);
        self.unanswered = 0;
        self.save(checkpoint, Sums::new()).await?;
        Ok(error_reply(error))
    }

    /// Saves a paid answer and adds its cost to the batch's sums before POST sees it.
    pub(super) async fn save_answer(&mut self, answer: &Answer, cost: Cost) -> Result<(), Verdict> {
        let checkpoint = self.checkpoint.for_retry(self.unanswered).with_answer(answer.clone(), cost);
        self.unanswered = 0;
        self.save(checkpoint, sums(answer, cost)).await
    }

    /// The cost by the definition's prices, for older checkpoints without one.
    fn cost(&self, step: &AiStep, answer: &Answer) -> Cost {
        let inline = step.ai.profile.inline();
        let cost = |profile: &Profile| profile.prices.cost(answer, self.clock.now(), PriceMode::Direct);
        inline.map(cost).unwrap_or_default()
    }

    async fn save(&mut self, checkpoint: Checkpoint, sums: Sums) -> Result<(), Verdict> {
        let payload = checkpoint.to_payload().map_err(|why| Verdict::fail("checkpoint", why))?;
        let request = CheckpointRequest { state: payload, sums, calls: self.calls.clone() };
        let (mut backoff, cancelled) = (Backoff::store(), self.context.cancelled());
        loop {
            match self.context.save_checkpoint_with(request.clone()).await {
                Ok(()) => break,
                // A paid answer waits for the store as long as the worker does.
                Err(CheckpointError::Store(error))
                    if !error.is_final()
                        && !matches!(error, Error::SessionGone(_))
                        && !cancelled.is_cancelled() =>
                {
                    tracing::warn!(%error, "the store did not save an answer; retrying");
                    let _ = timeout(backoff.next_wait(), cancelled.cancelled()).await;
                }
                Err(error) => return Err(verdict::checkpoint_failed(&error)),
            }
        }
        self.checkpoint = checkpoint;
        self.calls.clear();
        Ok(())
    }

    /// Runs POST, and its SQL if that cannot commit with the row's finish.
    async fn apply(&self, reply: &RowReply) -> Result<ApplyOutcome, ApplyError> {
        let mut applied = self.compiled.apply.apply(&self.row, reply).await?;
        if !self.compiled.rows_in_store() && !applied.effects.is_empty() {
            let effects = std::mem::take(&mut applied.effects);
            let done = self.compiled.source.apply(&effects).await;
            done.map_err(|error| ApplyError::Failed(error.to_string()))?;
        }
        Ok(applied)
    }

    /// The outcome with the matching checkpoint: the store commits both with POST's effects, or
    /// neither.
    fn finish(&self, reply: &RowReply, applied: ApplyOutcome) -> HandlerResult<RowResult> {
        use crate::definition::PostVerdict::{Fail, Retry, Success};
        if let (Some(samples), Success, Some(answer)) = (self.samples, applied.verdict, &reply.answer) {
            samples.add(self.row.batch, self.row.key, &answer.text);
        }
        let next = match applied.verdict {
            Success => None,
            Fail => self.checkpoint.has_reply().then(|| self.checkpoint.rejected()),
            Retry => (self.unanswered > 0 || self.checkpoint.has_reply())
                .then(|| self.checkpoint.for_retry(self.unanswered)),
        };
        let next = next.map(|next| next.to_payload()).transpose();
        let next = next.map_err(|why| Verdict::fail("checkpoint", why))?;
        let policy = verdict::policy(self.context, self.compiled);
        let keep_answers = self.compiled.definition.ai().is_some_and(|ai| ai.keep_answers);
        let input = OutcomeInput { row: &self.row, reply, policy, keep_answers };
        let outcome = verdict::from_outcome(input, applied);
        match next {
            Some(next) => outcome.map_err(|verdict| verdict.with_checkpoint(next)),
            None => outcome,
        }
    }
}

fn row_run<'a>(
    context: &Context,
    compiled: &'a CompiledBatch,
    batch: &'a BatchId,
    key: &'a SqlValue,
    worker: &'a str,
    now: Timestamp,
) -> RowRun<'a> {
    let unit = context.unit();
    let policy = verdict::policy(context, compiled);
    RowRun {
        batch,
        unit: unit.id,
        key,
        attempt: unit.attempt,
        is_last_attempt: !policy.allows(unit.attempt, unit.created_at, now),
        worker,
        source: &*compiled.source,
    }
}

/// The store's time, as it was when the run started, plus the time since then. With a wrong clock
/// a worker neither fails rows before the batch's deadline nor asks after it.
pub(super) struct StoreTime {
    started_at: Timestamp,
    began: Instant,
}

impl StoreTime {
    fn new(unit: &Unit) -> Self {
        Self { started_at: unit.started_at.unwrap_or(unit.since), began: Instant::now() }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.started_at + self.began.elapsed()
    }
}

/// The deadline of the run: its own timeout, limited by the batch's deadline.
pub(super) fn run_deadline(compiled: &CompiledBatch, now: Timestamp) -> Instant {
    let left = compiled.definition.deadline.map(|deadline| deadline.since(now));
    let timeout = compiled.definition.timeout();
    Instant::now() + left.map_or(timeout, |left| left.min(timeout))
}

/// Retried: another version of the program may be able to read it.
fn checkpoint_error(why: String) -> Verdict {
    Verdict::retry("bad-checkpoint", format!("the checkpoint of an earlier run cannot be read: {why}"))
}
