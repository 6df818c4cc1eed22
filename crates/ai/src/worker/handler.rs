//! One request's run: read, asked, kept, delivered.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use longshore::ledger::{CallRecord, Ledger};
use longshore::store::Kept;
use longshore::{
    Answer, CheckpointError, Clock, Commit, Context, ErasedHandler, Outcome, Payload, ProfileName, Verdict,
};
use tokio::time::Instant;

use super::address::Libraries;
use super::kept::KeptReply;
use super::parts::Parts;
use crate::ask::{AskError, Code, Question};
use crate::contract::{Reply, Request, peek};
use crate::desk::{Desk, Errand, Settled};
use crate::prompts::Prompts;

/// How long a request waits whose key has no money, should the provider not say.
const PARKED: Duration = Duration::from_secs(60);

/// How long it takes to tell the caller that time is up.
const TELLING: Duration = Duration::from_millis(200);

/// Answers requests: the handler of [`super::KIND`].
pub struct RequestHandler {
    desk: Desk,
    ledger: Arc<dyn Ledger>,
    libraries: Libraries,
    prompts: Arc<dyn Prompts>,
    clock: Arc<dyn Clock>,
}

impl RequestHandler {
    /// A handler that asks at `desk`.
    pub fn new(
        desk: Desk,
        ledger: Arc<dyn Ledger>,
        libraries: Libraries,
        prompts: Arc<dyn Prompts>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { desk, ledger, libraries, prompts, clock }
    }

    async fn run(&self, context: &Context) -> Result<Answer, Verdict> {
        let unit = context.unit();
        if let Some(kept) = KeptReply::of(unit)? {
            return self.deliver(context, kept.reply, Vec::new()).await;
        }
        let request = match Request::parse(unit.payload.as_bytes()) {
            Ok(request) => request,
            Err(error) => return self.unreadable(context, &error.to_string()).await,
        };
        if let Err(why) = self.belongs(context, &request) {
            return self.unreadable(context, &why).await;
        }
        let errand = match self.errand(context, &request).await {
            Ok(errand) => errand,
            Err(error) => {
                let reply = Reply::error(&request, &error, 0);
                return self.deliver(context, reply, Vec::new()).await;
            }
        };
        let settled = self.ask(context, &request, &errand).await?;
        self.conclude(context, &request, settled).await
    }

    /// Whether request, unit and reply queue are one tenant's.
    fn belongs(&self, context: &Context, request: &Request) -> Result<(), String> {
        let tenant = &context.unit().tenant;
        if !request.customer.eq_ignore_ascii_case(tenant.as_str()) {
            return Err(format!("customer `{}` is not tenant `{tenant}`", request.customer));
        }
        match &request.reply_queue {
            Some(queue) => self.libraries.address(tenant, queue).map(drop),
            None => Ok(()),
        }
    }

    async fn errand(&self, context: &Context, request: &Request) -> Result<Errand, AskError> {
        let unit = context.unit();
        let until = self.until(context, request)?;
        let profile = ProfileName::new(&request.profile_ref)
            .map_err(|error| AskError::new(Code::ProfileNotFound, error.to_string()))?;
        let profile_now = self.desk.profile(&unit.tenant, Some(&profile)).await?;
        let prompt = match &request.prompt_ref {
            None => request.prompt.clone().unwrap_or_default(),
            Some(place) => self.prompts.fetch(&unit.tenant, place, until).await?,
        };
        let question = Question {
            system: request.system_prompt.clone(),
            max_tokens: request.max_tokens.or(profile_now.max_tokens).unwrap_or(1024),
            temperature: request.temperature.or(profile_now.temperature).unwrap_or(0.0),
            schema: request.response_schema.clone().map(Arc::new),
            model: request.model_override.clone(),
            ..Question::new(request.request_id.clone(), prompt, until)
        };
        Ok(Errand {
            unit: Some(unit.id),
            batch: unit.batch.clone(),
            session: Some(context.session()),
            ..Errand::new(unit.tenant.clone(), Some(profile), question)
        })
    }

    /// When the caller has stopped waiting: its time began when it sent the request.
    fn until(&self, context: &Context, request: &Request) -> Result<Instant, AskError> {
        let unit = context.unit();
        let end = unit.created_at + request.timeout();
        // A little before the unit itself ends: whoever is late still has to be told.
        let end = unit.deadline.map_or(end, |deadline| end.min(deadline - TELLING));
        match end.since(self.clock.now()) {
            Duration::ZERO => {
                Err(AskError::new(Code::Timeout, "its time was over before it was asked"))
            }
            left => Ok(Instant::now() + left),
        }
    }

    /// Asks, and hands on the pieces if that is wanted. A verdict if the run is told to end.
    async fn ask(
        &self,
        context: &Context,
        request: &Request,
        errand: &Errand,
    ) -> Result<Settled, Verdict> {
        let parts = match (&request.reply_queue, request.stream) {
            (Some(queue), true) => {
                let address = self.libraries.address(&errand.tenant, queue);
                address.ok().map(|address| Parts::new(context.clone(), address, request))
            }
            _ => None,
        };
        let stop = context.cancelled();
        let asking = async {
            match parts {
                Some(parts) => parts.stream(&self.desk, errand).await,
                None => self.desk.ask(errand, None).await,
            }
        };
        tokio::select! {
            biased;
            settled = asking => Ok(settled),
            () = stop.cancelled() => Err(Verdict::Snooze(Duration::ZERO)),
        }
    }

    async fn conclude(
        &self,
        context: &Context,
        request: &Request,
        settled: Settled,
    ) -> Result<Answer, Verdict> {
        let Settled { result, attempts, records, duplicate, .. } = settled;
        if let Some(other) = duplicate {
            let by = other.call.unit.map(|unit| format!(" by unit {unit}")).unwrap_or_default();
            let why = format!("request `{}` is or was answered{by}", request.request_id);
            return Err(Verdict::fail("DUPLICATE_REQUEST", why));
        }
        let reply = match &result {
            Ok(answer) => Reply::success(request, answer, attempts),
            Err(error) if self.may_wait(context, error) => {
                let after = error.retry_after.unwrap_or(PARKED);
                return Err(Verdict::Snooze(after).with_calls(records));
            }
            Err(error) => Reply::error(request, error, attempts),
        };
        self.deliver(context, reply, records).await
    }

    /// A key without money: whoever has the time waits until somebody has paid.
    fn may_wait(&self, context: &Context, error: &AskError) -> bool {
        let after = error.retry_after.unwrap_or(PARKED);
        let waits = error.again == crate::ask::Again::Money;
        waits && context.time_left().is_some_and(|left| after < left)
    }

    /// Says what is wrong to whoever can hear it; else the unit's failure says it.
    async fn unreadable(&self, context: &Context, why: &str) -> Result<Answer, Verdict> {
        let unit = context.unit();
        let peeked = peek(unit.payload.as_bytes());
        let address = peeked.reply_queue.as_ref();
        let address = address.and_then(|queue| self.libraries.address(&unit.tenant, queue).ok());
        if address.is_none() {
            return Err(Verdict::fail(Code::InvalidRequest.as_str(), why));
        }
        let error = AskError::new(Code::InvalidRequest, why);
        self.deliver(context, Reply::to_unreadable(&peeked, &error), Vec::new()).await
    }

    /// The unit's end. A reply that goes to a queue is kept before: what was paid for is not asked
    /// again should this process die on the way.
    async fn deliver(
        &self,
        context: &Context,
        reply: Reply,
        calls: Vec<CallRecord>,
    ) -> Result<Answer, Verdict> {
        let payload = Payload::json(&reply).map_err(|error| Verdict::fail("bad-reply", error))?;
        let unit = context.unit();
        let Some(queue) = reply_queue(unit.payload.as_bytes()) else {
            return Ok(done(payload, calls));
        };
        let address = self.libraries.address(&unit.tenant, &queue);
        let address = address.map_err(|why| Verdict::fail(Code::InvalidRequest.as_str(), why))?;
        let kept = KeptReply::new(reply).payload()?;
        if !address.is_open(&*self.ledger).await? {
            let why = format!("reply queue `{}` is gone", address.queue);
            let gone = Verdict::fail("REPLY_QUEUE_GONE", why);
            return Err(gone.with_checkpoint(kept).with_calls(calls));
        }
        if unit.checkpoint.is_none() {
            let kept = Kept { calls, ..Kept::new(kept) };
            context.keep(kept).await.map_err(not_kept)?;
        }
        address.send(context.client(), unit, payload.clone()).await?;
        Ok(done(payload, Vec::new()))
    }
}

/// The address that a payload names, whatever else is in it.
fn reply_queue(payload: &[u8]) -> Option<crate::contract::ReplyQueue> {
    peek(payload).reply_queue
}

fn done(reply: Payload, calls: Vec<CallRecord>) -> Answer {
    let commit = Commit { calls, ..Commit::default() };
    Answer { outcome: Outcome::Done(Some(reply)), commit }
}

fn not_kept(error: CheckpointError) -> Verdict {
    match error {
        CheckpointError::LeaseLost => Verdict::Cancel,
        error => Verdict::retry("store", error),
    }
}

impl ErasedHandler for RequestHandler {
    fn call(&self, context: Context) -> Pin<Box<dyn Future<Output = Answer> + Send + '_>> {
        Box::pin(async move {
            match self.run(&context).await {
                Ok(answer) => answer,
                Err(verdict) => verdict.into(),
            }
        })
    }
}
