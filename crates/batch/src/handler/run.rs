//! A row's run from top to bottom: resume from the checkpoint, or prepare and ask; save; apply.
//! `steps` has the steps before the last one, `ask` the call itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use longshore::accounts::CallRecord;
use longshore::batch::Sums;
use longshore::store::CheckpointRequest;
use longshore::{
    Backoff, BatchId, CheckpointError, Clock, Context, Effect, Error, Failure, HandlerResult, OnLost,
    SqlValue, Timestamp, Unit, Verdict,
};
use longshore_ai::{Answer, Cost, Gauge, PriceMode, Profile, SentFlag};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::RowResult;
use super::compiled_batch::{AiStep, BatchLoadError, CompiledBatch, CompiledRowStep, CompiledStep};
use super::reply::{error_reply, lost_error};
use super::verdict::{self, OutcomeInput};
use crate::answer_samples::AnswerSamples;
use crate::checkpoint::{Checkpoint, ResumePoint, StoredError, sums};
use crate::jitter::with_jitter;
use crate::pre_post::{ApplyError, ApplyOutcome, ReplyError, RowReply, RowRun};
use crate::throttled_log;

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
    /// The step that runs.
    pub(super) position: usize,
    /// The step at which the run began.
    began_at: usize,
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
        let mut checkpoint = Checkpoint::from_unit(context.unit()).map_err(checkpoint_error)?;
        let names: Vec<_> = compiled.steps.iter().map(|step| step.name.as_deref()).collect();
        checkpoint.keep_steps(&names);
        let deadline = run_deadline(compiled, compiled.definition.timeout(), now);
        let key_of_post = checkpoint.run_key(context.unit().id, None);
        Ok(Self {
            context,
            compiled,
            row: RowRun {
                answers: answers(&checkpoint),
                read_until: Some(deadline),
                ..row_run(context, compiled, batch, key, worker, now, key_of_post)
            },
            position: checkpoint.steps.len(),
            began_at: checkpoint.steps.len(),
            clock,
            store_time: began,
            checkpoint,
            unanswered: 0,
            sent: SentFlag::default(),
            calls: Vec::new(),
            deadline,
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
        let mut reply = self.run_to_reply().await?;
        if let Some(error) = self.unsaved_error(&reply) {
            reply = RowReply { error: self.save_error(error).await?.error, ..reply };
        }
        self.row.read_until = None;
        // That of the step would make POST's statements look like repeats of the step's.
        self.row.run_key = self.checkpoint.run_key(self.row.unit, None);
        match self.apply(&reply).await {
            Ok(applied) => self.finish(&reply, applied),
            // The checkpoint keeps the answer, so the model is not asked again.
            Err(ApplyError::Failed(why) | ApplyError::Retry(why)) => Err(Verdict::retry("post-error", why)),
            Err(ApplyError::Snooze { after, .. }) => Err(self.wait_for_post(after)),
        }
    }

    /// Runs POST again later, without an attempt. The checkpoint has the reply, or how many questions had none.
    fn wait_for_post(&self, after: Duration) -> Verdict {
        match self.unanswered {
            0 => Verdict::Snooze(after),
            unanswered => self.snooze(after, unanswered),
        }
    }

    /// The error of a reply that must be saved before POST: rows elsewhere are written before the row
    /// ends, and a run after a crash must not apply another reply under the same run key.
    fn unsaved_error(&self, reply: &RowReply) -> Option<ReplyError> {
        let is_message = matches!(self.step().action, CompiledStep::Mail(_));
        let has_reply = self.checkpoint.has_reply() && !self.checkpoint.rejected;
        let is_saved = self.compiled.rows_in_store() || has_reply;
        reply.error.clone().filter(|_| !is_message && !is_saved)
    }

    /// The step that runs.
    pub(super) fn step(&self) -> &'a CompiledRowStep {
        &self.compiled.steps[self.position]
    }

    /// The reply of a step that asks a model or sends a message.
    pub(super) async fn ask_or_send(&mut self) -> Result<RowReply, Verdict> {
        match &self.step().action {
            CompiledStep::Mail(step) => self.send_mail(step).await,
            CompiledStep::Ai(step) => self.answer(step).await,
            CompiledStep::Query(_) | CompiledStep::Sql(_) | CompiledStep::Command(_) => {
                Err(Verdict::fail("step", "the step asks no model"))
            }
        }
    }

    /// The answer or error from the checkpoint, or from the model.
    async fn answer(&mut self, step: &AiStep) -> Result<RowReply, Verdict> {
        let unit = self.context.unit();
        let resume_point = self.checkpoint.resume_point(self.lost_runs());
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
                Ok(step.read(*answer, cost))
            }
            ResumePoint::Error(error) => Ok(error_reply(error.into())),
            ResumePoint::MaybeBilled if self.compiled.definition.on_lost == OnLost::Fail => {
                self.save_error(lost_error()).await
            }
            ResumePoint::MaybeBilled => {
                let cause = "maybe billed: the worker died; the question is sent again";
                throttled_log::warn(cause, self.row.batch, format!("unit {}", unit.id));
                self.prepare_and_ask(step).await
            }
            ResumePoint::Ask => self.prepare_and_ask(step).await,
        }
    }

    /// How many earlier runs of this step died with their workers. Each step is saved before the next begins, so those
    /// runs died in the step at which this one began.
    pub(super) fn lost_runs(&self) -> u32 {
        if self.position == self.began_at { self.context.unit().lost } else { 0 }
    }

    /// Saves an error before POST sees it, so that no later run asks again in its place.
    pub(super) async fn save_error(&mut self, error: ReplyError) -> Result<RowReply, Verdict> {
        let ReplyError { code, message, retryable, retry_after } = error.clone();
        let stored = StoredError { code, message, retryable, retry_after };
        let checkpoint = self.checkpoint.with_error(stored, self.unanswered).at(self.step().name.as_deref());
        self.unanswered = 0;
        self.save(checkpoint, Sums::new()).await?;
        Ok(error_reply(error))
    }

    /// Saves a paid answer and adds its cost to the batch's sums before POST sees it.
    pub(super) async fn save_answer(&mut self, answer: &Answer, cost: Cost) -> Result<(), Verdict> {
        let checkpoint = self.checkpoint.for_retry(self.unanswered).with_answer(answer.clone(), cost);
        let checkpoint = checkpoint.at(self.step().name.as_deref());
        self.unanswered = 0;
        self.save(checkpoint, sums(answer, cost)).await
    }

    fn outcome_input<'i>(&'i self, reply: &'i RowReply) -> OutcomeInput<'i> {
        let own = self.step().retry.as_ref();
        OutcomeInput {
            row: &self.row,
            reply,
            policy: own.unwrap_or_else(|| verdict::policy(self.context, self.compiled)),
            // The store knows only the attempts of the unit.
            step_attempt: self.has_steps().then_some(self.checkpoint.tries + 1),
            step: self.step().name.as_deref(),
            earlier: &self.checkpoint.steps,
            revision: self.compiled.definition.revision,
            keep_answers: self.compiled.definition.ai().is_some_and(|ai| ai.keep_answers),
        }
    }

    fn revision(&self) -> Option<u32> {
        Some(self.compiled.definition.revision)
    }

    /// The cost by the definition's prices, for older checkpoints without one.
    fn cost(&self, step: &AiStep, answer: &Answer) -> Cost {
        let inline = step.ai.profile.inline();
        let cost = |profile: &Profile| profile.prices.cost(answer, self.clock.now(), PriceMode::Direct);
        inline.map(cost).unwrap_or_default()
    }

    async fn save(&mut self, checkpoint: Checkpoint, sums: Sums) -> Result<(), Verdict> {
        match self.save_with(checkpoint, sums, Vec::new()).await? {
            Ok(()) => Ok(()),
            Err(failure) => Err(Verdict::fail(failure.code, failure.message)),
        }
    }

    /// Saves a checkpoint with effects. The failure is that of an effect: then nothing is saved.
    pub(super) async fn save_with(
        &mut self,
        checkpoint: Checkpoint,
        sums: Sums,
        effects: Vec<Effect>,
    ) -> Result<Result<(), Failure>, Verdict> {
        let checkpoint = Checkpoint { revision: self.revision(), ..checkpoint };
        let payload = checkpoint.to_payload().map_err(|why| Verdict::fail("checkpoint", why))?;
        let calls = self.calls.clone();
        let request = CheckpointRequest { sums, calls, effects, ..CheckpointRequest::new(payload) };
        let (mut backoff, cancelled) = (Backoff::store(), self.context.cancelled());
        loop {
            match self.context.save_checkpoint_with(request.clone()).await {
                Ok(()) => break,
                Err(CheckpointError::Store(Error::EffectFailed(failure))) => return Ok(Err(failure)),
                // The statements may wait for a lock: the row waits without a slot.
                Err(CheckpointError::Store(Error::TimedOut { .. })) if !request.effects.is_empty() => {
                    return Err(self.wait_for_source());
                }
                // A paid answer waits for the store as long as the worker does.
                Err(CheckpointError::Store(error))
                    if !error.is_final()
                        && !matches!(error, Error::SessionGone(_))
                        && !cancelled.is_cancelled() =>
                {
                    throttled_log::warn("the store did not save an answer; retrying", self.row.batch, error);
                    let _ = timeout(backoff.next_wait(), cancelled.cancelled()).await;
                }
                Err(error) => return Err(verdict::checkpoint_failed(&error)),
            }
        }
        self.checkpoint = checkpoint;
        self.calls.clear();
        Ok(Ok(()))
    }

    /// Runs POST, and its SQL if that cannot commit with the row's finish.
    async fn apply(&self, reply: &RowReply) -> Result<ApplyOutcome, ApplyError> {
        let mut applied = self.compiled.apply.apply(&self.row, reply).await?;
        if !self.compiled.rows_in_store() && !applied.effects.is_empty() {
            let effects = std::mem::take(&mut applied.effects);
            self.compiled.source.apply(&effects).await.map_err(|error| match error.puts_rows_off() {
                true => {
                    let after = with_jitter(self.row.source.retry_delay(), self.row.unit);
                    ApplyError::Snooze { message: error.to_string(), after }
                }
                false => ApplyError::Failed(error.to_string()),
            })?;
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
            Fail => Some(self.checkpoint.rejected(self.row.generation)),
            Retry => Some(self.checkpoint.retried(self.unanswered)),
        };
        let failed_step = self.step().name.clone();
        let (revision, marked) = (self.revision(), |next: Checkpoint| Checkpoint { failed_step, ..next });
        let next = next.map(|next| Checkpoint { revision, ..marked(next) }.to_payload()).transpose();
        let next = next.map_err(|why| Verdict::fail("checkpoint", why))?;
        let outcome = verdict::from_outcome(self.outcome_input(reply), applied);
        match next {
            Some(next) => outcome.map_err(|verdict| verdict.with_checkpoint(next)),
            None => outcome,
        }
    }
}

fn answers(checkpoint: &Checkpoint) -> BTreeMap<String, Value> {
    checkpoint.steps.iter().map(|step| (step.name.clone(), step.answer.clone())).collect()
}

fn row_run<'a>(
    context: &Context,
    compiled: &'a CompiledBatch,
    batch: &'a BatchId,
    key: &'a SqlValue,
    worker: &'a str,
    now: Timestamp,
    run_key: String,
) -> RowRun<'a> {
    let unit = context.unit();
    let policy = verdict::policy(context, compiled);
    RowRun {
        batch,
        unit: unit.id,
        key,
        attempt: unit.attempt,
        generation: unit.generation,
        run_key,
        has_ended: false,
        answers: BTreeMap::new(),
        is_last_attempt: !policy.allows(unit.attempt, unit.created_at, now),
        worker,
        source: &*compiled.source,
        read_until: None,
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
pub(super) fn run_deadline(compiled: &CompiledBatch, timeout: Duration, now: Timestamp) -> Instant {
    let left = compiled.definition.deadline.map(|deadline| deadline.since(now));
    Instant::now() + left.map_or(timeout, |left| left.min(timeout))
}

/// Retried: another version of the program may be able to read it.
fn checkpoint_error(why: String) -> Verdict {
    Verdict::retry("bad-checkpoint", format!("the checkpoint of an earlier run cannot be read: {why}"))
}
