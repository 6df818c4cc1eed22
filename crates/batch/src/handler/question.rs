//! The asking: PRE, and the question for as long as its time lasts and nobody ends the run.

use std::future::Future;

use longshore::{CancelReason, OnLost, Verdict};
use longshore_ai::{Answer, Question};
use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, timeout_at};

use super::reply::{LOST, PRE_ERROR, final_error, timeout, unanswered};
use super::run::Run;
use super::verdict;
use crate::step::{PrepareError, Reply, ReplyError, SKIPPED};

impl Run<'_> {
    /// PRE and the question. A verdict only if the run was told to end.
    pub(super) async fn question(&mut self) -> Result<Reply, Verdict> {
        if self.too_late {
            return Ok(unanswered(timeout("the batch's deadline has passed")));
        }
        if let Some(problem) = self.problem.take() {
            return Ok(unanswered(final_error(PRE_ERROR, problem)));
        }
        let prompt = match self.prepare().await? {
            Ok(prompt) => prompt,
            Err(error) => return Ok(unanswered(error)),
        };
        if self.context.cancelled().is_cancelled() {
            return Err(verdict::interrupted());
        }
        match self.ask(prompt).await? {
            Ok(answer) => {
                let cost = self.keep(&answer).await?;
                Ok(self.job.read(answer, cost))
            }
            Err(error) => {
                self.in_vain += 1;
                if error.retryable { Ok(unanswered(error)) } else { self.keep_error(error).await }
            }
        }
    }

    /// The prompt, or what POST is told instead. A verdict only if it cannot be made here and now.
    async fn prepare(&self) -> Result<Result<String, ReplyError>, Verdict> {
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

    /// Asks, unless the run is told to end first. An answer that is there is never thrown away.
    async fn ask(&self, prompt: String) -> Result<Result<Answer, ReplyError>, Verdict> {
        let question = self.question_for(prompt);
        let stop = self.context.cancelled();
        let _permit = tokio::select! {
            permit = self.permit() => permit,
            () = stop.cancelled() => return Err(verdict::interrupted()),
        };
        let out = self.gauge.ask();
        tokio::select! {
            biased;
            answer = self.in_time(self.job.provider.ask(&question)) => {
                out.back(&answer);
                Ok(answer)
            }
            () = stop.cancelled() => self.given_up(),
        }
    }

    /// Leave to ask. Its time is part of the row's: one that waited too long is not asked.
    async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        match self.gate {
            // Nobody closes it.
            Some(gate) => gate.acquire().await.ok(),
            None => None,
        }
    }

    async fn in_time<E: Into<ReplyError>>(
        &self,
        answer: impl Future<Output = Result<Answer, E>>,
    ) -> Result<Answer, ReplyError> {
        match timeout_at(self.until, answer).await {
            Ok(answer) => answer.map_err(Into::into),
            Err(_) => Err(timeout("no answer in time; it may have been billed")),
        }
    }

    /// The run was told to end while its question was out. Where asking twice is not wanted, the
    /// row ends here.
    fn given_up(&self) -> Result<Result<Answer, ReplyError>, Verdict> {
        let unit = self.context.unit().id;
        tracing::warn!(%unit, "maybe billed: the run was ended while its question was out");
        let stopping = self.context.cancel_reason() == Some(CancelReason::Stopping);
        if stopping && self.job.definition.on_lost == OnLost::Fail {
            let why = "its worker was stopped while the question was out: maybe billed";
            return Ok(Err(final_error(LOST, why)));
        }
        Err(verdict::interrupted())
    }

    fn question_for(&self, prompt: String) -> Question {
        let ai = &self.job.definition.ai;
        Question {
            request_id: format!("{}-{}", self.row.unit, self.kept.asked + 1),
            prompt,
            system: ai.system.clone(),
            max_tokens: ai.max_tokens,
            temperature: ai.temperature,
            schema: self.job.wanted.clone(),
            model: None,
            chat: None,
            until: self.until,
        }
    }
}
