//! The asking: PRE, and the question for as long as its time lasts and nobody ends the run.

use std::time::Duration;

use longshore::{AcquireError, CancelReason, OnLost, Permit, Verdict};
use longshore_ai::{Again, Answer, AskError, Code, Cost, Question, Settled};
use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, sleep, timeout_at};

use super::job::Job;
use super::reply::{LOST, PRE_ERROR, final_error, timeout, unanswered};
use super::run::{Run, until};
use super::verdict;
use crate::step::{PrepareError, Reply, ReplyError, SKIPPED};

/// How long a row waits whose key has no money, should the provider not say.
const PARKED: Duration = Duration::from_secs(60);

/// When a row comes again that got no permit of its batch's pool.
pub(super) const NO_PERMIT: Duration = Duration::from_secs(1);

/// An answer and what it cost, or what POST is told instead.
pub(super) type Heard = Result<(Answer, Cost), ReplyError>;

/// Leave to ask, of the worker's gate and of the pool that the batch names. The time it takes at the gate is
/// part of the row's: one that waited too long is not asked.
type Leave<'a> = (Option<SemaphorePermit<'a>>, Option<Permit>);

impl<'a> Run<'a> {
    /// PRE and the question. A verdict only if the run was told to end.
    pub(super) async fn question(&mut self) -> Result<Reply, Verdict> {
        let prompt = match self.prompt().await? {
            Ok(prompt) => prompt,
            Err(error) => return Ok(unanswered(error)),
        };
        match self.ask(prompt).await? {
            Ok((answer, cost)) => {
                self.keep(&answer, cost).await?;
                Ok(self.job.read(answer, cost))
            }
            Err(error) => self.unheard(error).await,
        }
    }

    /// What is to be asked, or what POST is told instead. A verdict if the run was told to end.
    pub(super) async fn prompt(&mut self) -> Result<Result<String, ReplyError>, Verdict> {
        if self.too_late {
            return Ok(Err(timeout("the batch's deadline has passed")));
        }
        if let Some(problem) = self.problem.take() {
            return Ok(Err(final_error(PRE_ERROR, problem)));
        }
        match self.prepare().await? {
            Ok(_) if self.context.cancelled().is_cancelled() => Err(verdict::interrupted()),
            prepared => Ok(prepared),
        }
    }

    /// A question that brought no answer: kept, unless asking again may help.
    pub(super) async fn unheard(&mut self, error: ReplyError) -> Result<Reply, Verdict> {
        self.in_vain += 1;
        if error.retryable { Ok(unanswered(error)) } else { self.keep_error(error).await }
    }

    /// The prompt, or what POST is told instead. A verdict only if it cannot be made here and now.
    pub(super) async fn prepare(&self) -> Result<Result<String, ReplyError>, Verdict> {
        // Nothing was asked, so nothing was billed.
        let late =
            || ReplyError { retryable: true, ..timeout("the time was over before the question") };
        let prepared = timeout_at(self.until, self.job.prepare.prepare(&self.row)).await;
        let in_time = prepared.is_ok() && Instant::now() < self.until;
        Ok(match prepared {
            Ok(Ok(prompt)) if in_time => Ok(prompt),
            Ok(Ok(_)) | Err(_) => Err(late()),
            Ok(Err(PrepareError::NotNow { after, .. })) => return Err(Verdict::Snooze(after)),
            Ok(Err(PrepareError::Skip(reason))) => Err(final_error(SKIPPED, reason)),
            Ok(Err(PrepareError::Failed { message, retryable, after })) => {
                let retry_after = after;
                Err(ReplyError { retryable, retry_after, ..final_error(PRE_ERROR, message) })
            }
        })
    }

    /// Waits for leave, unless the run is told to end first.
    pub(super) async fn admitted(&mut self) -> Result<Leave<'a>, Verdict> {
        let (stop, gate) = (self.context.cancelled(), self.gate);
        let enter = async {
            let at_gate = match gate {
                // Nobody closes it.
                Some(gate) => gate.acquire().await.ok(),
                None => None,
            };
            Ok((at_gate, Box::pin(self.held()).await?))
        };
        tokio::select! {
            leave = enter => leave,
            () = stop.cancelled() => Err(verdict::interrupted()),
        }
    }

    /// Asks, unless the run is told to end first. An answer that is there is never thrown away.
    async fn ask(&mut self, prompt: String) -> Result<Heard, Verdict> {
        let (stop, gauge) = (self.context.cancelled(), self.gauge);
        let _leave = self.admitted().await?;
        let out = gauge.ask(Duration::ZERO);
        let settled = tokio::select! {
            biased;
            settled = self.answer_to(prompt) => settled,
            () = stop.cancelled() => return self.given_up(),
        };
        out.back(settled.result.as_ref().map(drop).map_err(|error| error.code.as_str()));
        self.heard(settled)
    }

    /// A permit of the pool that the batch names; the question's time begins with it. Without one the row
    /// comes again a moment later: nothing was asked, and no attempt is used.
    pub(super) async fn held(&mut self) -> Result<Option<Permit>, Verdict> {
        let Some(pool) = &self.job.pool else { return Ok(None) };
        let mut request = pool.request().priority(self.context.unit().priority);
        if let Some(deadline) = self.job.definition.deadline {
            request = request.at_most(deadline.since(self.clock.now()));
        }
        let permit = request.acquire().await;
        if permit.as_ref().is_err_and(|error| !matches!(error, AcquireError::TimedOut { .. })) {
            // It could not even wait: its slot rests, or a worker would run through all rows in vain.
            sleep(NO_PERMIT).await;
        }
        self.until = until(self.job, self.clock.now());
        permit.map(Some).map_err(|_| Verdict::Snooze(NO_PERMIT))
    }

    /// What a question comes to. One that was out when an earlier run died may come back with that
    /// run's timeout: then it is asked anew, for this run has its own time.
    async fn answer_to(&mut self, prompt: String) -> Settled {
        let settled = self.in_time(self.question_for(prompt.clone())).await;
        let left = self.until.saturating_duration_since(Instant::now());
        let is_late = matches!(&settled.result, Err(error) if error.code == Code::Timeout);
        if !is_late || self.context.unit().lost == 0 || !self.job.asker.may_be_stale(left) {
            return settled;
        }
        self.in_vain += 1;
        self.in_time(self.question_for(prompt)).await
    }

    async fn in_time(&self, question: Question) -> Settled {
        let asker = &self.job.asker;
        let asking = asker.ask(self.context, question, self.clock);
        match timeout_at(self.until + asker.telling(), asking).await {
            Ok(settled) => settled,
            Err(_) => {
                let why = "no answer in time; it may have been billed";
                Settled::elsewhere(Err(AskError::new(Code::Timeout, why)), 0)
            }
        }
    }

    /// What a question came to, as the row sees it. Its calls are written whatever becomes of that.
    pub(super) fn heard(&mut self, settled: Settled) -> Result<Heard, Verdict> {
        let Settled { result, cost_picos, records, duplicate, .. } = settled;
        self.calls.extend(records);
        if let Some(other) = duplicate {
            return Err(verdict::duplicate(&other.call.request_id));
        }
        match result {
            Ok(answer) => Ok(Ok((answer, Cost(cost_picos)))),
            Err(error) if matches!(error.again, Again::Money | Again::Resumed) => {
                Err(self.parked(&error))
            }
            Err(error) => Ok(Err(error.into())),
        }
    }

    /// There is no money for the key, or the tenant was suspended while the row ran: it waits until
    /// somebody has paid, or its lane is claimed from again, and uses no attempt.
    /// The question was settled, so the next is another.
    fn parked(&self, error: &AskError) -> Verdict {
        tracing::warn!(unit = %self.row.unit, %error, "a row is parked");
        let parked = Verdict::Snooze(error.retry_after.unwrap_or(PARKED));
        match self.kept.retried(self.in_vain + 1).payload() {
            Ok(next) => parked.with_checkpoint(next),
            Err(why) => Verdict::fail("checkpoint", why),
        }
    }

    /// The run was told to end while its question was out. Where asking twice is not wanted, the
    /// row ends here.
    fn given_up(&self) -> Result<Heard, Verdict> {
        let unit = self.context.unit().id;
        tracing::warn!(%unit, "maybe billed: the run was ended while its question was out");
        let stopping = self.context.cancel_reason() == Some(CancelReason::Stopping);
        if stopping && self.job.definition.on_lost == OnLost::Fail {
            let why = "its worker was stopped while the question was out: maybe billed";
            return Ok(Err(final_error(LOST, why)));
        }
        Err(verdict::interrupted())
    }

    /// What the next question is recognised by.
    pub(super) fn request_id(&self) -> String {
        format!("{}-{}", self.row.unit, self.kept.asked + self.in_vain + 1)
    }

    pub(super) fn question_for(&self, prompt: String) -> Question {
        let Job { definition, wanted, .. } = self.job;
        definition.ai.question(self.request_id(), prompt, wanted.clone(), self.until)
    }
}
