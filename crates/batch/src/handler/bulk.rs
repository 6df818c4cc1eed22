//! A row whose question goes with a provider's batch: journalled, parked, and met again when the answer has
//! come. Meanwhile the row sleeps: it holds no slot and uses no attempt.
//!
//! What is parked is in the store, so a worker's death changes nothing: whoever runs the row next looks how
//! its question stands. It is asked once: journal, park and look all know it by its request id.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use longshore::ledger::{NewCall, NewParked, Standing, UsageFilter};
use longshore::{Error, Scope, UnitId, Verdict};
use longshore_ai::batches::BatchReply;
use longshore_ai::{AskError, Desk, Errand};

use super::asker::Bulk;
use super::job::JobError;
use super::reply::unanswered;
use super::run::Run;
use crate::step::{Reply, ReplyError};

/// How long a row waits for a store that is away.
const AWAY: Duration = Duration::from_secs(10);

impl Run<'_> {
    /// What POST is to be told, if it is known. A verdict if the row has to wait for it.
    pub(super) async fn in_bulk(&mut self, bulk: &Bulk) -> Result<Reply, Verdict> {
        let standing = self.standing(&bulk.desk).await?;
        if standing == Standing::Unknown && self.kept.parked.is_some() {
            // It was forgotten, because the row had been given up, and settled: this is another question.
            self.kept = self.kept.retried(1);
        }
        match standing {
            Standing::Answered(reply) => {
                let reply = reply.parse().map_err(|error| Verdict::fail("bulk", error))?;
                self.came(reply, &bulk.desk).await
            }
            Standing::Parked => {
                let call = self.call(&bulk.desk).await?;
                Err(self.wait(call, bulk).await)
            }
            Standing::Unknown => self.park(bulk).await,
        }
    }

    async fn standing(&self, desk: &Desk) -> Result<Standing, Verdict> {
        let parking = desk.ledger();
        parking.standing(self.row.batch, &self.request_id()).await.map_err(away)
    }

    /// PRE, the books, the parking place.
    async fn park(&mut self, bulk: &Bulk) -> Result<Reply, Verdict> {
        let prompt = match self.prompt().await? {
            Ok(prompt) => prompt,
            Err(error) => return Ok(unanswered(error)),
        };
        let errand = self.errand(bulk, prompt.clone());
        let admitted = bulk.desk.admit_bulk(&errand, bulk.profile.written()).await;
        let call = match admitted {
            Ok(call) => call,
            Err(refused) => return self.refused(*refused).await,
        };
        // First whoever will take it along, or settle it: a question that is parked is somebody's concern.
        self.summon(bulk).await;
        let (custom_id, unit) = (call.request_id.clone(), self.row.unit);
        let item = NewParked { custom_id, unit, prompt };
        bulk.desk.ledger().park(self.row.batch, vec![item]).await.map_err(away)?;
        Err(self.wait(call, bulk).await)
    }

    /// Nothing was parked: as if it had been asked by itself and refused.
    async fn refused(&mut self, refused: longshore_ai::Settled) -> Result<Reply, Verdict> {
        match self.heard(refused)? {
            Ok((answer, cost)) => Ok(self.job.read(answer, cost)),
            Err(error) => self.unheard(error).await,
        }
    }

    /// The answer, or the word that there will be none: kept and in the books before it is forgotten.
    async fn came(&mut self, reply: BatchReply, desk: &Desk) -> Result<Reply, Verdict> {
        let (request_id, call) = (self.request_id(), self.call(desk).await?);
        self.calls.push(reply.settle(call));
        let told = match reply {
            BatchReply::Answer { answer, cost } => {
                self.keep(&answer, cost).await?;
                self.job.read(*answer, cost)
            }
            BatchReply::Error { code, message, maybe_billed } => {
                self.in_vain += 1;
                let error = ReplyError::from(AskError::new(code, message));
                // What may have been billed is not asked again by itself, whatever went wrong.
                let retryable = error.retryable && !maybe_billed;
                self.keep_error(ReplyError { retryable, ..error }).await?
            }
        };
        if let Err(error) = desk.ledger().unpark(self.row.batch, &request_id).await {
            // It is nobody's any more; whoever closes the batch's books finds it.
            tracing::warn!(%error, request_id, "an answer that was kept is still parked");
        }
        Ok(told)
    }

    /// The row sleeps until it is woken; should nobody wake it, it looks for itself.
    async fn wait(&self, call: NewCall, bulk: &Bulk) -> Verdict {
        self.summon(bulk).await;
        let waiting = Verdict::Snooze(jittered(bulk.pace.row_look(), self.row.unit));
        match self.kept.parked(call).payload() {
            Ok(next) => waiting.with_checkpoint(next),
            Err(why) => Verdict::fail("checkpoint", why),
        }
    }

    async fn summon(&self, bulk: &Bulk) {
        if let Err(error) = bulk.conductor.call(self.context, self.row.batch).await {
            tracing::warn!(%error, batch = %self.row.batch, "no conductor; the row looks again later");
        }
    }

    /// The call as it was journalled: from the checkpoint, or, if the run died before it had one, from the
    /// books.
    async fn call(&self, desk: &Desk) -> Result<NewCall, Verdict> {
        let request_id = self.request_id();
        if let Some(call) = self.kept.parked.as_ref().filter(|call| call.request_id == request_id) {
            return Ok(call.clone());
        }
        let tenant = &self.context.unit().tenant;
        let filter = UsageFilter { request_id: Some(request_id.clone()), ..UsageFilter::default() };
        let found = desk.ledger().calls(&Scope::Tenant(tenant.clone()), &filter, None, 100).await;
        let mut calls = found.map_err(away)?.items.into_iter().map(|call| call.call);
        calls.find(|call| call.unit == Some(self.row.unit) && call.session.is_none()).ok_or_else(
            || Verdict::fail("bulk", format!("request `{request_id}` is parked and in no books")),
        )
    }

    fn errand(&self, bulk: &Bulk, prompt: String) -> Errand {
        let unit = self.context.unit();
        let question = self.question_for(prompt);
        Errand {
            unit: Some(unit.id),
            batch: unit.batch.clone(),
            ..Errand::new(unit.tenant.clone(), bulk.profile.named().cloned(), question)
        }
    }
}

/// The store did not answer. Nobody is to blame for that.
fn away(error: Error) -> Verdict {
    if error.is_retryable() { Verdict::Snooze(AWAY) } else { JobError::Store(error).verdict() }
}

/// Three quarters to five quarters of a time, the same for the same unit: rows that were parked together
/// need not look together.
fn jittered(span: Duration, unit: UnitId) -> Duration {
    let mut hasher = DefaultHasher::new();
    unit.hash(&mut hasher);
    let part = (hasher.finish() % 1_000) as f64 / 1_000.0;
    span.mul_f64(0.75 + part / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_were_parked_together_look_at_different_times() {
        let span = Duration::from_secs(900);
        let waits: Vec<Duration> = (0..100).map(|_| jittered(span, UnitId::new())).collect();
        assert!(waits.iter().all(|wait| (675..=1125).contains(&wait.as_secs())), "{waits:?}");
        let spread = *waits.iter().max().unwrap() - *waits.iter().min().unwrap();
        assert!(spread > Duration::from_secs(200), "{spread:?}");
    }
}
