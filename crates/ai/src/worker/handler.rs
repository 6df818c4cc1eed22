//! Runs one request: parses it, asks, checkpoints the reply and delivers it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use longshore::accounts::{Call, CallRecord, Ledger};
use longshore::store::CheckpointRequest;
use longshore::{
    BatchId, CheckpointError, Clock, Commit, Context, ErasedHandler, Outcome, Payload, RunOutcome, TenantId,
    Verdict,
};
use tokio::time::Instant;

use super::partial_replies::PartialReplies;
use super::reply_checkpoint;
use super::reply_queue::ReplyQueue;
use crate::contract::{Delivery, Libraries, Prompt, Reply, ReplyHeader, Request, parse_partial};
use crate::gateway::InferenceBackend as _;
use crate::inference::{Inference, InferenceOutcome, InferenceRequest};
use crate::model_api::{AskError, Code, Question, Retryability};
use crate::prompts::Prompts;
use crate::resilience::Gauge;
use crate::schema::schema_violation;

/// How long a request is snoozed while its key has no credit, if the provider gives no delay.
const NO_CREDIT_DELAY: Duration = Duration::from_secs(60);

/// Time reserved before the unit's deadline to report the timeout.
const REPLY_MARGIN: Duration = Duration::from_millis(200);

/// Answers requests: the handler of [`super::KIND`].
pub struct RequestHandler {
    inference: Inference,
    ledger: Arc<dyn Ledger>,
    libraries: Libraries,
    prompts: Arc<dyn Prompts>,
    clock: Arc<dyn Clock>,
    gauge: Arc<Gauge>,
}

impl RequestHandler {
    /// A handler that asks through `inference`.
    pub fn new(
        inference: Inference,
        ledger: Arc<dyn Ledger>,
        libraries: Libraries,
        prompts: Arc<dyn Prompts>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { inference, ledger, libraries, prompts, clock, gauge: Arc::default() }
    }

    /// Reports latencies and errors of requests to `gauge`.
    #[must_use]
    pub fn with_gauge(mut self, gauge: Arc<Gauge>) -> Self {
        self.gauge = gauge;
        self
    }

    async fn run(&self, context: &Context) -> Result<RunOutcome, Verdict> {
        let unit = context.unit();
        let request = Request::parse(unit.payload.as_bytes());
        if let Some((reply, reader)) = reply_checkpoint::recall(unit)? {
            let to = parse_partial(unit.payload.as_bytes()).reply_queue;
            let to = to.and_then(|to| ReplyQueue::of(&unit.tenant, &to, &self.libraries).ok());
            let to = to.map(|to| ReplyQueue { reader, ..to });
            return self.deliver(context, to, &reply, Vec::new()).await;
        }
        let request = match request {
            Ok(request) => request,
            Err(error) => return self.reject(context, error.to_string()).await,
        };
        let mut to = match self.reply_queue(context, &request) {
            Ok(to) => to,
            Err(why) => return self.reject(context, why).await,
        };
        let mut call = match inference_request(context, &request) {
            Ok(call) => call,
            Err(why) => return self.reject(context, why).await,
        };
        if let Some(to) = &mut to {
            to.require_open(&*self.ledger).await?;
        }
        if let Err(error) = self.complete(context, &request, &mut call).await {
            let record = self.inference.rejected_record(&call, &request.profile, &error);
            let calls = record.into_iter().collect();
            let reply = self.with_budget_used(context, Reply::error(request.header(), &error, 0));
            return self.deliver(context, to, &reply, calls).await;
        }
        let (outcome, parts) = self.ask(context, &request, to.as_ref(), &call).await?;
        if let Some(deferral) = outcome.deferral_before(call.question.until) {
            return Err(Verdict::from(deferral).with_calls(outcome.admitted_records()));
        }
        if let Some(other) = outcome.duplicate {
            return duplicate(&request, &other);
        }
        let (reply, calls) = conclude(request.header(), outcome, &call.question).await?;
        let reply = if parts > 0 { reply.numbered_after(parts) } else { reply };
        let reply = self.with_budget_used(context, reply);
        self.deliver(context, to, &reply, calls).await
    }

    /// Tells the client that its tenant's budget is nearly used up.
    fn with_budget_used(&self, context: &Context, reply: Reply) -> Reply {
        reply.with_budget_used(self.inference.budget_used(&context.unit().tenant))
    }

    /// The reply's queue. Request, unit and reply queue must belong to one tenant.
    fn reply_queue(&self, context: &Context, request: &Request) -> Result<Option<ReplyQueue>, String> {
        let tenant = &context.unit().tenant;
        if !request.customer.as_str().eq_ignore_ascii_case(tenant.as_str()) {
            return Err(format!("customer `{}` is not tenant `{tenant}`", request.customer));
        }
        let queue = |to| ReplyQueue::of(tenant, to, &self.libraries);
        request.reply_queue.as_ref().map(queue).transpose().map_err(|error| error.to_string())
    }

    /// Completes the question from the request and its profile.
    async fn complete(
        &self,
        context: &Context,
        request: &Request,
        call: &mut InferenceRequest,
    ) -> Result<(), AskError> {
        let until = self.deadline(context, request)?;
        let profile = self.inference.profile(&call.tenant, Some(&request.profile)).await?;
        let prompt = match &request.prompt {
            Prompt::Text(text) => text.clone(),
            Prompt::Reference(place) => self.prompts.fetch(&call.tenant, place, until).await?,
        };
        call.question = request.question(prompt, &profile, until);
        Ok(())
    }

    /// The question's deadline: the request's timeout counts from its creation.
    fn deadline(&self, context: &Context, request: &Request) -> Result<Instant, AskError> {
        let unit = context.unit();
        let end = unit.created_at + request.timeout;
        // A little before the unit's own deadline, so that the timeout can still be reported.
        let end = unit.deadline.map_or(end, |deadline| end.min(deadline - REPLY_MARGIN));
        match end.since(self.clock.now()) {
            Duration::ZERO => Err(AskError::not_sent("the deadline passed before the question was sent")),
            left => Ok(Instant::now() + left),
        }
    }

    /// Asks, and sends partial replies if the request wants them. Returns a verdict if the run is
    /// cancelled.
    async fn ask(
        &self,
        context: &Context,
        request: &Request,
        to: Option<&ReplyQueue>,
        call: &InferenceRequest,
    ) -> Result<(InferenceOutcome, u64), Verdict> {
        let parts = to.filter(|_| request.delivery == Delivery::Pieces);
        let ledger = &self.ledger;
        let parts = parts
            .map(|to| PartialReplies::new(context.clone(), Arc::clone(ledger), to.clone(), request.header()));
        let out = self.gauge.start(self.clock.now().since(context.unit().created_at));
        let asking = async {
            match parts {
                Some(parts) => parts.stream(&self.inference, call).await,
                None => (self.inference.ask(call, None).await, 0),
            }
        };
        let stop = context.cancelled();
        tokio::select! {
            biased;
            asked = asking => {
                let result = asked.0.result.as_ref();
                if asked.0.deferral_before(call.question.until).is_none() {
                    out.finish(result.map(drop).map_err(|error| error.code.as_str()));
                }
                Ok(asked)
            }
            () = stop.cancelled() => Err(Verdict::Snooze(Duration::ZERO)),
        }
    }

    /// Answers an invalid request: in its reply queue if that can be parsed, and in the unit's
    /// result.
    async fn reject(&self, context: &Context, why: String) -> Result<RunOutcome, Verdict> {
        let unit = context.unit();
        let parsed = parse_partial(unit.payload.as_bytes());
        let to = parsed.reply_queue.as_ref();
        let to = to.and_then(|to| ReplyQueue::of(&unit.tenant, to, &self.libraries).ok());
        let error = AskError::new(Code::InvalidRequest, why);
        let reply = Reply::error(parsed.header(), &error, 0);
        self.deliver(context, to, &reply, Vec::new()).await
    }

    /// Finishes the unit. A reply for a queue is checkpointed first: if this process dies before it
    /// is delivered, the question is not asked and billed again.
    async fn deliver(
        &self,
        context: &Context,
        to: Option<ReplyQueue>,
        reply: &Reply,
        calls: Vec<CallRecord>,
    ) -> Result<RunOutcome, Verdict> {
        let payload = reply_checkpoint::payload(reply)?;
        let Some(to) = to else { return Ok(done(payload, calls)) };
        if context.unit().checkpoint.is_none() {
            let checkpoint = CheckpointRequest::new(reply_checkpoint::checkpoint(&payload, to.reader)?);
            let checkpoint = CheckpointRequest { calls, ..checkpoint };
            context.save_checkpoint_with(checkpoint).await.map_err(checkpoint_failed)?;
        }
        let Err(verdict) = to.send(&*self.ledger, context.unit(), payload.clone()).await else {
            return Ok(done(payload, Vec::new()));
        };
        // A failed unit is retried by hand, after the queue was opened again: then for its new reader.
        let reader = to.reader.filter(|_| !matches!(verdict, Verdict::Fail(_)));
        let checkpoint = reply_checkpoint::checkpoint(&payload, reader)?;
        Err(verdict.with_checkpoint(checkpoint))
    }
}

/// Ends a repeat of a request that another unit asked. Nothing is sent to a reply queue: the
/// client would take it for the reply of the first one.
fn duplicate(request: &Request, other: &Call) -> Result<RunOutcome, Verdict> {
    let by = other.call.unit.map(|unit| format!(" by unit {unit}")).unwrap_or_default();
    let why = format!("request `{}` is or was answered{by}", request.request_id);
    let error = AskError::new(Code::DuplicateRequest, why);
    if request.reply_queue.is_some() {
        return Err(Verdict::fail(error.code.as_str(), error.message));
    }
    let reply = Reply::error(request.header(), &error, 0);
    Ok(done(reply_checkpoint::payload(&reply)?, Vec::new()))
}

/// The reply, and the calls to record with it.
async fn conclude(
    header: ReplyHeader,
    outcome: InferenceOutcome,
    question: &Question,
) -> Result<(Reply, Vec<CallRecord>), Verdict> {
    let InferenceOutcome { result, attempts, records, cost_picos, .. } = outcome;
    let reply = match &result {
        Ok(answer) => Reply::success(header, answer, attempts)
            .with_cost(cost_picos)
            .with_schema_error(schema_error(question, &answer.text).await),
        Err(error) if can_wait_for_credit(error, question.until) => {
            let after = credit_delay(error);
            return Err(Verdict::Snooze(after).with_calls(records));
        }
        Err(error) => Reply::error(header, error, attempts),
    };
    Ok((reply, records))
}

/// Why an answer does not follow the question's schema.
async fn schema_error(question: &Question, text: &str) -> Option<String> {
    let violation = schema_violation(question.schema.as_ref()?, text).await;
    violation.unwrap_or_else(|timeout| Some(timeout.to_string()))
}

/// The inference request of a unit. Fails if the request names another tenant's batch.
fn inference_request(context: &Context, request: &Request) -> Result<InferenceRequest, String> {
    let unit = context.unit();
    let batch = request.batch.as_ref().map(|batch| own_batch(batch, &unit.tenant)).transpose()?;
    let question = Question::new(request.request_id.clone(), "", Instant::now());
    Ok(InferenceRequest {
        unit: Some(unit.id),
        batch: unit.batch.clone().or(batch),
        session: Some(context.session()),
        run: Some(context.clone()),
        ..InferenceRequest::new(unit.tenant.clone(), Some(request.profile.clone()), question)
    })
}

/// The full name of a tenant's batch.
fn own_batch(batch: &BatchId, tenant: &TenantId) -> Result<BatchId, String> {
    match batch.owner().is_none_or(|owner| owner == tenant.as_str()) {
        true => Ok(batch.of_tenant(tenant)),
        false => Err(format!("batch `{batch}` is not tenant `{tenant}`'s")),
    }
}

/// Whether the key has no credit and the request has time to wait for it.
fn can_wait_for_credit(error: &AskError, until: Instant) -> bool {
    error.retry == Retryability::AfterTopUp && Instant::now() + credit_delay(error) < until
}

/// How long a request waits for credit. Not as long as the key rests: another request's answer may
/// show sooner that it has credit again.
fn credit_delay(error: &AskError) -> Duration {
    error.retry_after.map_or(NO_CREDIT_DELAY, |after| after.min(NO_CREDIT_DELAY))
}

fn done(reply: Payload, calls: Vec<CallRecord>) -> RunOutcome {
    let commit = Commit { calls, ..Commit::default() };
    RunOutcome { outcome: Outcome::Done(Some(reply)), commit }
}

fn checkpoint_failed(error: CheckpointError) -> Verdict {
    match error {
        CheckpointError::LeaseLost => Verdict::Cancel,
        error => Verdict::retry("store", error),
    }
}

impl ErasedHandler for RequestHandler {
    fn call(&self, context: Context) -> Pin<Box<dyn Future<Output = RunOutcome> + Send + '_>> {
        Box::pin(async move {
            match self.run(&context).await {
                Ok(answer) => answer,
                Err(verdict) => verdict.into(),
            }
        })
    }
}
