//! A row with a question in a provider batch: the run journals the call, parks the question and
//! ends; a later run reads the answer. Meanwhile the row sleeps: it holds no slot and uses no
//! attempt.
//!
//! Parked questions are in the store, so a worker's death changes nothing: the next run of the row
//! reads the question's status. The question is sent once, because the journal, the parked set and
//! the status all identify it by its request id.

use std::time::Duration;

use longshore::accounts::{
    NewCall, NewPendingRequest, PendingChange, PendingFilter, PendingRequest, UsageFilter,
};
use longshore::{Error, Scope, Verdict};
use longshore_ai::batches::BatchReply;
use longshore_ai::{AskError, Inference, InferenceRequest};

use super::compiled_batch::{AiStep, BatchLoadError};
use super::model_client::DeferredClient;
use super::reply::error_reply;
use super::run::RowExecution;
use crate::jitter::with_jitter;
use crate::pre_post::{ReplyError, RowReply};
use crate::throttled_log;

/// How long a row waits when the store does not answer.
const STORE_RETRY_DELAY: Duration = Duration::from_secs(10);

impl RowExecution<'_> {
    /// The reply for POST, if there is one. A verdict if the row has to wait for it.
    pub(super) async fn ask_deferred(
        &mut self,
        step: &AiStep,
        client: &DeferredClient,
    ) -> Result<RowReply, Verdict> {
        let parked = self.parked(&client.inference).await?;
        if parked.is_none() && self.checkpoint.parked.is_some() {
            // The row had been given up, so the question was settled and removed: the next one is
            // new.
            self.checkpoint = self.checkpoint.for_retry(1);
        }
        match parked.map(|parked| (parked.reply, parked.new.prompt)) {
            Some((Some(reply), prompt)) => {
                let reply = reply.parse().map_err(|error| Verdict::fail("bulk", error))?;
                self.receive(step, prompt, reply, &client.inference).await
            }
            Some((None, _)) => {
                let call = self.journalled_call(&client.inference).await?;
                Err(self.sleep_until_answer(call, client).await)
            }
            None => self.park(step, client).await,
        }
    }

    /// The row's question, if it is parked.
    async fn parked(&self, inference: &Inference) -> Result<Option<PendingRequest>, Verdict> {
        let question = PendingFilter::CustomId(self.request_id());
        let found = inference.ledger().pending_requests(self.row.batch, &question, 1).await;
        Ok(found.map_err(store_error)?.pop())
    }

    /// Runs PRE, journals the call, parks the question.
    async fn park(&mut self, step: &AiStep, client: &DeferredClient) -> Result<RowReply, Verdict> {
        let prompt = match self.prompt(step).await? {
            Ok(prompt) => prompt,
            Err(error) => return Ok(error_reply(error)),
        };
        let request = self.inference_request(step, client, prompt.clone());
        // The runner comes first: a call that is journalled must have one that sends or settles it.
        self.start_runner(client).await;
        let admitted = client.inference.admit_batch_call(&request, client.profile.inline()).await;
        let call = match admitted {
            Ok(call) => call,
            Err(outcome) => return self.not_admitted(step, *outcome).await,
        };
        let (custom_id, unit) = (call.request_id.clone(), self.row.unit);
        let park = PendingChange::Add(vec![NewPendingRequest { custom_id, unit, prompt }]);
        let parked = client.inference.ledger().change_pending(self.row.batch, park).await;
        parked.map_err(store_error)?;
        Err(self.sleep_until_answer(call, client).await)
    }

    /// The call was rejected and nothing was parked: handled like a rejected direct call.
    async fn not_admitted(
        &mut self,
        step: &AiStep,
        outcome: longshore_ai::InferenceOutcome,
    ) -> Result<RowReply, Verdict> {
        match self.interpret(outcome)? {
            Ok((answer, cost)) => Ok(step.read(answer, cost)),
            Err(error) => self.on_no_answer(error).await,
        }
    }

    /// Saves the answer or the final error, with its call, before the question is removed from the
    /// parked set.
    async fn receive(
        &mut self,
        step: &AiStep,
        prompt: String,
        reply: BatchReply,
        inference: &Inference,
    ) -> Result<RowReply, Verdict> {
        let (request_id, call) = (self.request_id(), self.journalled_call(inference).await?);
        self.calls.push(reply.call_record(call));
        let row_reply = match reply {
            BatchReply::Answer { answer, cost } => {
                self.save_answer(&answer, cost).await?;
                step.read(*answer, cost)
            }
            BatchReply::Error { code, message, maybe_billed } => {
                self.unanswered += 1;
                let question = self.question_for(step, prompt);
                let error = inference.without_quotes(AskError::new(code, message), &question);
                let error = ReplyError::from(error);
                // A call that may have been billed is not retried without POST's decision, whatever
                // the error.
                let retryable = error.retryable && !maybe_billed;
                self.save_error(ReplyError { retryable, ..error }).await?
            }
        };
        let remove = PendingChange::Remove(request_id.clone());
        if let Err(error) = inference.ledger().change_pending(self.row.batch, remove).await {
            // The runner's cleanup removes it when the batch is over.
            let cause = "saved answers could not be removed from the parked questions";
            throttled_log::warn(cause, self.row.batch, format!("{request_id}: {error}"));
        }
        Ok(row_reply)
    }

    /// Snoozes the row until the runner wakes it; if that fails, it polls by itself.
    async fn sleep_until_answer(&self, call: NewCall, client: &DeferredClient) -> Verdict {
        self.start_runner(client).await;
        let waiting = Verdict::Snooze(with_jitter(client.pace.row_poll_interval(), self.row.unit));
        let parked = self.checkpoint.with_parked_call(call).at(self.step().name.as_deref());
        match parked.to_payload() {
            Ok(next) => waiting.with_checkpoint(next),
            Err(why) => Verdict::fail("checkpoint", why),
        }
    }

    async fn start_runner(&self, client: &DeferredClient) {
        if let Err(error) = client.runner.ensure_running(self.context, self.row.batch).await {
            let cause = "the provider-batch runner could not be enqueued; rows poll later";
            throttled_log::warn(cause, self.row.batch, error);
        }
    }

    /// The journalled call: from the checkpoint or, if the run died before it was saved there, from
    /// the ledger.
    async fn journalled_call(&self, inference: &Inference) -> Result<NewCall, Verdict> {
        let request_id = self.request_id();
        if let Some(call) = self.checkpoint.parked.as_ref().filter(|call| call.request_id == request_id) {
            return Ok(call.clone());
        }
        let tenant = &self.context.unit().tenant;
        let filter = UsageFilter { request_id: Some(request_id.clone()), ..UsageFilter::default() };
        let found = inference.ledger().calls(&Scope::Tenant(tenant.clone()), &filter, None, 100).await;
        let mut calls = found.map_err(store_error)?.items.into_iter().map(|call| call.call);
        calls.find(|call| call.unit == Some(self.row.unit) && call.session.is_none()).ok_or_else(|| {
            Verdict::fail("bulk", format!("request `{request_id}` is parked but has no call in the ledger"))
        })
    }

    fn inference_request(&self, step: &AiStep, client: &DeferredClient, prompt: String) -> InferenceRequest {
        let unit = self.context.unit();
        let question = self.question_for(step, prompt);
        InferenceRequest {
            unit: Some(unit.id),
            batch: unit.batch.clone(),
            ..InferenceRequest::new(unit.tenant.clone(), client.profile.name().cloned(), question)
        }
    }
}

/// Snoozes while the store does not answer: the row is not at fault.
fn store_error(error: Error) -> Verdict {
    if error.is_retryable() {
        Verdict::Snooze(STORE_RETRY_DELAY)
    } else {
        BatchLoadError::Store(error).verdict()
    }
}
