//! A row's run, top to bottom: recalled or prepared and asked, kept, applied. The asking itself is
//! in `question`.

use std::sync::Arc;

use longshore::batch::Sums;
use longshore::ledger::CallRecord;
use longshore::store::Kept;
use longshore::{
    BatchId, CheckpointError, Clock, Context, HandlerResult, OnLost, SqlValue, Timestamp, Verdict,
};
use longshore_ai::{Answer, Cost, Gauge, Mode, Profile};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::RowResult;
use super::asker::Asker;
use super::job::{Job, JobError};
use super::reply::{lost, unanswered};
use super::verdict::{self, Told};
use crate::checkpoint::{Checkpoint, KeptError, Recalled, sums};
use crate::step::{Applied, ApplyError, Reply, ReplyError, RowRun};

/// One run of one row.
pub(super) struct Run<'a> {
    pub(super) context: &'a Context,
    pub(super) job: &'a Job,
    pub(super) row: RowRun<'a>,
    pub(super) clock: &'a Arc<dyn Clock>,
    pub(super) kept: Checkpoint,
    /// Questions of this run that brought no answer.
    pub(super) in_vain: u32,
    /// What calls came to that is not written yet.
    pub(super) calls: Vec<CallRecord>,
    /// When an answer is of no use any more.
    pub(super) until: Instant,
    /// The batch's deadline was over when the run began.
    pub(super) too_late: bool,
    /// What is wrong with the row, so that it can only fail.
    pub(super) problem: Option<String>,
    /// Bounds the questions that are out.
    pub(super) gate: Option<&'a Semaphore>,
    pub(super) gauge: &'a Gauge,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        context: &'a Context,
        job: &'a Job,
        key: &'a SqlValue,
        worker: &'a str,
        clock: &'a Arc<dyn Clock>,
        gauge: &'a Gauge,
    ) -> Result<Self, Verdict> {
        let batch = context.unit().batch.as_ref().ok_or_else(|| JobError::NoBatch.verdict())?;
        let now = clock.now();
        Ok(Self {
            context,
            job,
            row: row(context, job, batch, key, worker, now),
            clock,
            kept: Checkpoint::of(context.unit()).map_err(unreadable)?,
            in_vain: 0,
            calls: Vec::new(),
            until: until(job, now),
            too_late: job.definition.deadline.is_some_and(|deadline| deadline <= now),
            problem: None,
            gate: None,
            gauge,
        })
    }

    /// The run. What its calls came to is written with its end, whatever that is, unless it was
    /// written before.
    pub(super) async fn run(mut self) -> HandlerResult<RowResult> {
        match self.end().await {
            Ok(done) => Ok(done.with_calls(self.calls)),
            Err(verdict) if self.calls.is_empty() => Err(verdict),
            Err(verdict) => Err(verdict.with_calls(self.calls)),
        }
    }

    async fn end(&mut self) -> HandlerResult<RowResult> {
        let reply = self.reply().await?;
        match self.apply(&reply).await {
            Ok(applied) => self.conclude(&reply, applied),
            // What is kept stays kept, so that nothing is asked again.
            Err(ApplyError::Failed(why)) => Err(Verdict::retry("post-error", why)),
            Err(ApplyError::NotNow { after, .. }) => Err(Verdict::Snooze(after)),
        }
    }

    /// What POST is to be told: from the checkpoint, or by asking.
    async fn reply(&mut self) -> Result<Reply, Verdict> {
        let unit = self.context.unit();
        if let Asker::Mail(office) = &self.job.asker {
            let office = Arc::clone(office);
            return self.mailed(&*office).await;
        }
        let recalled = self.kept.recall(unit.lost);
        if matches!(recalled, Recalled::Ask | Recalled::MaybeBilled)
            && let Some(bulk) = self.job.asker.bulk()
        {
            // What is out is out, whoever died: how it stands, the store knows.
            return self.in_bulk(bulk).await;
        }
        match recalled {
            Recalled::Answer(answer) => {
                let cost = self.kept.cost.unwrap_or_else(|| self.cost(&answer));
                Ok(self.job.read(answer, cost))
            }
            Recalled::Error(error) => Ok(unanswered(error.into())),
            Recalled::MaybeBilled if self.job.definition.on_lost == OnLost::Fail => {
                self.keep_error(lost()).await
            }
            Recalled::MaybeBilled => {
                tracing::warn!(unit = %unit.id, "maybe billed: its worker died, it is asked again");
                self.question().await
            }
            Recalled::Ask => self.question().await,
        }
    }

    /// Keeps an error that must not be asked away, before POST is told of it.
    pub(super) async fn keep_error(&mut self, error: ReplyError) -> Result<Reply, Verdict> {
        let ReplyError { code, message, retryable, .. } = error.clone();
        let kept = KeptError { code, message, retryable };
        let kept = self.kept.unheard(kept, self.in_vain);
        self.in_vain = 0;
        self.save(kept, Sums::new()).await?;
        Ok(unanswered(error))
    }

    /// Keeps a paid answer, and counts what it cost, before anything is done with it.
    pub(super) async fn keep(&mut self, answer: &Answer, cost: Cost) -> Result<(), Verdict> {
        let kept = self.kept.retried(self.in_vain).answered(answer.clone(), cost);
        self.in_vain = 0;
        self.save(kept, sums(answer, cost)).await
    }

    /// What an answer costs by the prices that are written in the definition: older checkpoints do
    /// not say what theirs did.
    fn cost(&self, answer: &Answer) -> Cost {
        let written = self.job.definition.ai.profile.written();
        let cost = |profile: &Profile| profile.prices.cost(answer, self.clock.now(), Mode::Direct);
        written.map(cost).unwrap_or_default()
    }

    async fn save(&mut self, kept: Checkpoint, sums: Sums) -> Result<(), Verdict> {
        let payload = kept.payload().map_err(|why| Verdict::fail("checkpoint", why))?;
        let kept_now = Kept { state: payload, sums, calls: self.calls.clone() };
        loop {
            match self.context.keep(kept_now.clone()).await {
                Ok(()) => break,
                // What was paid for waits for the store as long as the worker does.
                Err(CheckpointError::Store(error))
                    if error.is_retryable() && !self.context.cancelled().is_cancelled() =>
                {
                    tracing::warn!(%error, "an answer waits to be kept");
                }
                Err(error) => return Err(verdict::not_kept(&error)),
            }
        }
        self.kept = kept;
        self.calls.clear();
        Ok(())
    }

    /// POST, and its SQL where that cannot commit with the row's end.
    async fn apply(&self, reply: &Reply) -> Result<Applied, ApplyError> {
        let mut applied = self.job.apply.apply(&self.row, reply).await?;
        if !self.job.shares_the_store() && !applied.effects.is_empty() {
            let effects = std::mem::take(&mut applied.effects);
            let done = self.job.source.apply(&effects).await;
            done.map_err(|error| ApplyError::Failed(error.to_string()))?;
        }
        Ok(applied)
    }

    /// The verdict, and the checkpoint as it wants it: both are recorded, with POST's effects, or
    /// none of them.
    fn conclude(&self, reply: &Reply, applied: Applied) -> HandlerResult<RowResult> {
        use crate::definition::Verdict::{Fail, Retry, Success};
        let next = match applied.verdict {
            Success => None,
            Fail => self.kept.holds_a_reply().then(|| self.kept.judged()),
            Retry => (self.in_vain > 0 || self.kept.holds_a_reply())
                .then(|| self.kept.retried(self.in_vain)),
        };
        let next = next.map(|next| next.payload()).transpose();
        let next = next.map_err(|why| Verdict::fail("checkpoint", why))?;
        let policy = verdict::policy(self.context, self.job);
        let said = verdict::of(Told { row: &self.row, reply, policy }, applied);
        match next {
            Some(next) => said.map_err(|verdict| verdict.with_checkpoint(next)),
            None => said,
        }
    }
}

fn row<'a>(
    context: &Context,
    job: &'a Job,
    batch: &'a BatchId,
    key: &'a SqlValue,
    worker: &'a str,
    now: Timestamp,
) -> RowRun<'a> {
    let unit = context.unit();
    let policy = verdict::policy(context, job);
    RowRun {
        batch,
        unit: unit.id,
        key,
        attempt: unit.attempt,
        is_last_attempt: !policy.allows(unit.attempt, unit.created_at, now),
        worker,
        source: &*job.source,
    }
}

/// One instant for all of the run: its own time, cut by the batch's deadline.
pub(super) fn until(job: &Job, now: Timestamp) -> Instant {
    let left = job.definition.deadline.map(|deadline| deadline.since(now));
    let timeout = job.definition.ai.timeout;
    Instant::now() + left.map_or(timeout, |left| left.min(timeout))
}

/// Another program may be able to read it, so the row is not given up.
fn unreadable(why: String) -> Verdict {
    Verdict::retry("bad-checkpoint", format!("what an earlier run kept cannot be read: {why}"))
}
