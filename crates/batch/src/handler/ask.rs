//! Runs PRE and sends the question, until the deadline or until the run is cancelled.

use std::time::Duration;

use longshore::{AcquireError, CancelReason, OnLost, Permit, Verdict, exponential_delay};
use longshore_ai::{Answer, AskError, Code, Cost, Deferral, InferenceOutcome, Question, Retryability};
use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, sleep, timeout_at};

use super::budget;
use super::compiled_batch::AiStep;
use super::reply::{LOST, PRE_ERROR, PROMPT_TOO_LONG, error_reply, final_error, timeout_error};
use super::run::{RowExecution, run_deadline};
use super::verdict;
use crate::checkpoint::Checkpoint;
use crate::jitter::with_jitter;
use crate::pre_post::{PrepareError, ReplyError, RowReply, SKIPPED};
use crate::prompt::prompt_too_long;
use crate::throttled_log;

/// How long a row waits if its tenant is suspended and no delay is known.
const DEFAULT_RESUME_DELAY: Duration = Duration::from_secs(60);

/// How long a row waits at first if its provider account has no credit; doubled with each further
/// wait. The breaker of the key may close at any time, because another question was answered.
const CREDIT_DELAY: Duration = Duration::from_secs(60);
const MAX_CREDIT_DELAY: Duration = Duration::from_secs(15 * 60);

/// How long a row waits after it got no permit of its batch's pool.
pub(super) const NO_PERMIT_DELAY: Duration = Duration::from_secs(1);

/// How many questions of a row an unavailable provider may reject before they use attempts. A row
/// that the provider always fails on ends some minutes later, when no other row is left.
const MAX_REJECTED_QUESTIONS: u32 = 20;

/// How many questions of a row may be rejected for a lack of credit without a code, before the error
/// is the row's answer: the provider may mean the row's own question.
const MAX_UNPAID_QUESTIONS: u32 = 20;

/// How often in a row the rows' database may return a row too late, before that is an error of the row: its own
/// statement may be slow.
const MAX_LATE_READS: u32 = 20;
/// Delays after such reads: 20 of them take a quarter of an hour.
const LATE_READ_DELAY: Duration = Duration::from_secs(1);
const MAX_LATE_READ_DELAY: Duration = Duration::from_secs(60);

/// An answer and its cost, or the error for POST.
pub(super) type AskResult = Result<(Answer, Cost), ReplyError>;

/// Permits of the worker's own limit and of the batch's pool. The wait for the worker's limit
/// counts towards the row's timeout: a row that waited too long does not ask, and runs again.
type AskPermits<'a> = (Option<SemaphorePermit<'a>>, Option<Permit>);

impl<'a> RowExecution<'a> {
    /// Runs PRE and sends the question. A verdict only if the run was cancelled.
    pub(super) async fn prepare_and_ask(&mut self, step: &AiStep) -> Result<RowReply, Verdict> {
        let prompt = match self.prompt(step).await? {
            Ok(prompt) => prompt,
            Err(error) => return Ok(error_reply(error)),
        };
        budget::check(self.context, self.row.batch, step.ai.budget).await?;
        match self.ask(step, prompt).await? {
            Ok((answer, cost)) => {
                self.save_answer(&answer, cost).await?;
                Ok(step.read(answer, cost))
            }
            Err(error) => self.on_no_answer(error).await,
        }
    }

    /// Runs PRE of a model's step: the prompt, or the error for POST.
    pub(super) async fn prompt(&self, step: &AiStep) -> Result<Result<String, ReplyError>, Verdict> {
        let prompt = self.prepare(step.prepare.prepare(&self.row)).await?;
        Ok(prompt.and_then(|prompt| match prompt_too_long(&prompt, step.ai.max_prompt) {
            None => Ok(prompt),
            Some(why) => Err(final_error(PROMPT_TOO_LONG, why)),
        }))
    }

    /// Runs PRE: the prompt or message, or the error for POST. A verdict if the run was cancelled or
    /// PRE asks to wait.
    pub(super) async fn prepare<T>(
        &self,
        preparing: impl Future<Output = Result<T, PrepareError>>,
    ) -> Result<Result<T, ReplyError>, Verdict> {
        if self.past_deadline {
            return Ok(Err(timeout_error("the batch's deadline has passed")));
        }
        if let Some(problem) = &self.problem {
            return Ok(Err(final_error(PRE_ERROR, problem)));
        }
        match self.prepare_in_time(preparing).await? {
            Ok(_) if self.context.cancelled().is_cancelled() => Err(verdict::interrupted()),
            prepared => Ok(prepared),
        }
    }

    /// Handles a call without an answer: saves the error unless a retry may help.
    pub(super) async fn on_no_answer(&mut self, error: ReplyError) -> Result<RowReply, Verdict> {
        self.unanswered += 1;
        if error.retryable { Ok(error_reply(error)) } else { self.save_error(error).await }
    }

    /// Puts the row off, without an attempt, because the rows' database returned it too late. After [`MAX_LATE_READS`]
    /// times in a row, that is the error for POST.
    pub(super) fn on_late_read(&self, why: &str) -> Result<ReplyError, Verdict> {
        let late_reads = self.checkpoint.late_reads + 1;
        if late_reads > MAX_LATE_READS {
            let why = format!("the row could not be read in time, {MAX_LATE_READS} times in a row: {why}");
            return Ok(final_error(PRE_ERROR, why));
        }
        let delay = exponential_delay(LATE_READ_DELAY, MAX_LATE_READ_DELAY, late_reads - 1);
        let snooze = Verdict::Snooze(with_jitter(delay.max(self.row.source.retry_delay()), self.row.unit));
        let next = Checkpoint { late_reads, ..self.checkpoint.for_retry(self.unanswered) };
        Err(match next.to_payload() {
            Ok(next) => snooze.with_checkpoint(next),
            Err(why) => Verdict::fail("checkpoint", why),
        })
    }

    async fn prepare_in_time<T>(
        &self,
        preparing: impl Future<Output = Result<T, PrepareError>>,
    ) -> Result<Result<T, ReplyError>, Verdict> {
        // No call was made, so nothing was billed.
        let late = || ReplyError { retryable: true, ..timeout_error("the timeout passed before PRE ended") };
        let prepared = timeout_at(self.deadline, preparing).await;
        let in_time = prepared.is_ok() && Instant::now() < self.deadline;
        Ok(match prepared {
            Ok(Ok(prepared)) if in_time => Ok(prepared),
            Ok(Ok(_)) | Err(_) => Err(late()),
            Ok(Err(PrepareError::Snooze { after, .. })) => return Err(Verdict::Snooze(after)),
            Ok(Err(PrepareError::LateRead(why))) => Err(self.on_late_read(&why)?),
            Ok(Err(PrepareError::Skip(reason))) => Err(final_error(SKIPPED, reason)),
            Ok(Err(PrepareError::Failed { message, retryable, after })) => {
                let retry_after = after;
                Err(ReplyError { retryable, retry_after, ..final_error(PRE_ERROR, message) })
            }
        })
    }

    /// Waits for the permits, unless the run is cancelled first.
    pub(super) async fn acquire_permits(&mut self) -> Result<AskPermits<'a>, Verdict> {
        let (stop, ask_limit) = (self.context.cancelled(), self.ask_limit);
        let acquire = async {
            let worker_permit = match ask_limit {
                // The semaphore is never closed.
                Some(ask_limit) => ask_limit.acquire().await.ok(),
                None => None,
            };
            Ok((worker_permit, Box::pin(self.acquire_pool_permit()).await?))
        };
        tokio::select! {
            permits = acquire => permits,
            () = stop.cancelled() => Err(verdict::interrupted()),
        }
    }

    /// Sends the question, unless the run is cancelled first. An answer that has arrived is never
    /// dropped.
    async fn ask(&mut self, step: &AiStep, prompt: String) -> Result<AskResult, Verdict> {
        let (stop, gauge) = (self.context.cancelled(), self.gauge);
        let _permits = self.acquire_permits().await?;
        if Instant::now() >= self.deadline {
            // The wait for a permit took the row's time, and the question was not sent.
            return Err(Verdict::Snooze(NO_PERMIT_DELAY));
        }
        let out = gauge.start(Duration::ZERO);
        let settled = tokio::select! {
            biased;
            settled = self.ask_past_stale_timeout(step, prompt) => settled,
            () = stop.cancelled() => return self.on_interrupted(step),
        };
        if self.deferral(&settled).is_none() {
            out.finish(settled.result.as_ref().map(drop).map_err(|error| error.code.as_str()));
        }
        self.interpret(settled)
    }

    /// A permit of the batch's pool; the question's timeout begins with it. Without a permit the
    /// row is snoozed: no call was made, and no attempt is used.
    pub(super) async fn acquire_pool_permit(&mut self) -> Result<Option<Permit>, Verdict> {
        let Some(pool) = &self.step().pool else { return Ok(None) };
        let mut request = pool.request().priority(self.context.unit().priority);
        if let Some(deadline) = self.compiled.definition.deadline {
            request = request.max_wait(deadline.since(self.store_time.now()));
        }
        let permit = request.acquire().await;
        if permit.as_ref().is_err_and(|error| !matches!(error, AcquireError::TimedOut { .. })) {
            // The request failed at once. Sleep, or the worker would run through all rows in vain.
            sleep(NO_PERMIT_DELAY).await;
        }
        self.deadline = run_deadline(self.compiled, self.step().timeout, self.store_time.now());
        permit.map(Some).map_err(|_| Verdict::Snooze(NO_PERMIT_DELAY))
    }

    /// The outcome of a question. If an earlier run died with the question in flight, its reply may
    /// be that run's timeout: then the question is sent again, for this run has its own timeout.
    async fn ask_past_stale_timeout(&mut self, step: &AiStep, prompt: String) -> InferenceOutcome {
        let settled = self.ask_with_timeout(step, prompt.clone()).await;
        let left = self.deadline.saturating_duration_since(Instant::now());
        let is_late = matches!(&settled.result, Err(error) if error.code == Code::Timeout);
        if !is_late || self.lost_runs() == 0 || !step.model_client.may_be_stale(left) {
            return settled;
        }
        self.unanswered += 1;
        self.ask_with_timeout(step, prompt).await
    }

    async fn ask_with_timeout(&self, step: &AiStep, prompt: String) -> InferenceOutcome {
        let (model_client, question) = (&step.model_client, self.question_for(step, prompt));
        let asking = model_client.ask(self.context, question, self.clock);
        match timeout_at(self.deadline + model_client.timeout_grace(), asking).await {
            Ok(settled) => settled,
            Err(_) => {
                let why = "no answer in time; it may have been billed";
                InferenceOutcome::unrecorded(Err(AskError::new(Code::Timeout, why)), 0)
            }
        }
    }

    /// Maps a call's outcome to the row's. Its call records are written in any case.
    pub(super) fn interpret(&mut self, settled: InferenceOutcome) -> Result<AskResult, Verdict> {
        if let Some(deferral) = self.deferral(&settled) {
            return Err(self.put_off(deferral, settled));
        }
        let InferenceOutcome { result, cost_picos, records, duplicate, .. } = settled;
        self.calls.extend(records);
        if let Some(other) = duplicate {
            return Err(verdict::duplicate(&other.call.request_id));
        }
        match result {
            Ok(answer) => Ok(Ok((answer, Cost(cost_picos)))),
            Err(error) if error.retry == Retryability::AfterTopUp && !self.is_unpaid_too_often(&error) => {
                // The row waits until the account is topped up.
                throttled_log::warn("rows wait for credit", self.row.batch, &error);
                Err(self.snooze(self.credit_delay(&error), self.unanswered + 1))
            }
            Err(error) if error.retry == Retryability::AfterResume => {
                // The tenant was suspended while the row ran.
                throttled_log::warn("rows wait for their tenant", self.row.batch, &error);
                let after = error.retry_after.unwrap_or(DEFAULT_RESUME_DELAY);
                Err(self.snooze(after, self.unanswered + 1))
            }
            Err(error) => Ok(Err(error.into())),
        }
    }

    /// Counts a question that was rejected for a lack of credit, and whether there were too many.
    fn is_unpaid_too_often(&mut self, error: &AskError) -> bool {
        self.checkpoint.unpaid += u32::from(error.may_be_about_the_question());
        self.checkpoint.unpaid >= MAX_UNPAID_QUESTIONS
    }

    /// How long the row waits for credit.
    fn credit_delay(&self, error: &AskError) -> Duration {
        let delay = exponential_delay(CREDIT_DELAY, MAX_CREDIT_DELAY, self.checkpoint.asked);
        error.retry_after.map_or(delay, |after| delay.min(after))
    }

    /// How the row is put off, without an attempt: its question was not sent, or was rejected by a
    /// provider that is unavailable.
    fn deferral(&self, settled: &InferenceOutcome) -> Option<Deferral> {
        let is_allowed = self.checkpoint.unavailable < MAX_REJECTED_QUESTIONS;
        let blocked = || settled.blocked_deferral().filter(|_| is_allowed);
        settled.deferral().or_else(blocked)
    }

    /// Puts the row off. Only calls that the ledger admitted are written.
    fn put_off(&mut self, deferral: Deferral, settled: InferenceOutcome) -> Verdict {
        let Deferral::After(after) = deferral else { return deferral.into() };
        let was_rejected = settled.deferral().is_none();
        self.checkpoint.unavailable += u32::from(was_rejected);
        if let Err(error) = &settled.result {
            let scope = format!("{} {}", self.row.batch, error.code.as_str());
            throttled_log::warn("rows are put off", scope, format!("{error}; tried again after {after:.1?}"));
        }
        self.calls.extend(settled.admitted_records());
        self.snooze(after, self.unanswered + 1)
    }

    /// Runs the row again later, without an attempt. The next question has another request id, because the calls of
    /// this run's `asked` questions were settled.
    pub(super) fn snooze(&self, after: Duration, asked: u32) -> Verdict {
        let snooze = Verdict::Snooze(after);
        match self.checkpoint.for_retry(asked).to_payload() {
            Ok(next) => snooze.with_checkpoint(next),
            Err(why) => Verdict::fail("checkpoint", why),
        }
    }

    /// The run was cancelled. If its call was in flight and a repeated call is not wanted (`on_lost =
    /// "fail"`), the row ends here.
    fn on_interrupted(&self, step: &AiStep) -> Result<AskResult, Verdict> {
        if step.model_client.reports_sending() && !self.sent.is_set() {
            return Err(verdict::interrupted());
        }
        let unit = self.context.unit().id;
        let cause = "maybe billed: the run was cancelled with its call in flight";
        throttled_log::warn(cause, self.row.batch, format!("unit {unit}"));
        let stopping = self.context.cancel_reason() == Some(CancelReason::Stopping);
        if stopping && self.compiled.definition.on_lost == OnLost::Fail {
            let why = "maybe billed: the worker was stopped with a call in flight";
            return Ok(Err(final_error(LOST, why)));
        }
        Err(verdict::interrupted())
    }

    /// The id of the next request.
    pub(super) fn request_id(&self) -> String {
        format!("{}-{}", self.row.unit, self.checkpoint.asked + self.unanswered + 1)
    }

    pub(super) fn question_for(&self, step: &AiStep, prompt: String) -> Question {
        let AiStep { ai, request_schema, .. } = step;
        let question = ai.question(self.request_id(), prompt, request_schema.clone(), self.deadline);
        Question { sent: self.sent.share(), ..question }
    }
}
