//! One request's run: read, asked, kept, delivered.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use longshore::ledger::{CallRecord, Ledger};
use longshore::store::Kept;
use longshore::{
    Answer, CheckpointError, Clock, Commit, Context, ErasedHandler, Outcome, Payload, Verdict,
};
use tokio::time::Instant;

use super::address::Address;
use super::kept;
use super::parts::Parts;
use crate::ask::{Again, AskError, Code, Question};
use crate::contract::{Delivery, Heading, Libraries, Prompt, Reply, Request, peek};
use crate::desk::{Desk, Errand, Settled};
use crate::pilot::Gauge;
use crate::prompts::Prompts;
use crate::schema::ResponseSchema;

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
    gauge: Arc<Gauge>,
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
        Self { desk, ledger, libraries, prompts, clock, gauge: Arc::default() }
    }

    /// Notes in `gauge` how requests fare.
    #[must_use]
    pub fn with_gauge(mut self, gauge: Arc<Gauge>) -> Self {
        self.gauge = gauge;
        self
    }

    async fn run(&self, context: &Context) -> Result<Answer, Verdict> {
        let unit = context.unit();
        let request = Request::parse(unit.payload.as_bytes());
        if let Some(reply) = kept::recall(unit)? {
            let to = peek(unit.payload.as_bytes()).reply_queue;
            let to = to.and_then(|to| Address::of(&unit.tenant, &to, &self.libraries).ok());
            return self.deliver(context, to, &reply, Vec::new()).await;
        }
        let request = match request {
            Ok(request) => request,
            Err(error) => return self.unreadable(context, error.to_string()).await,
        };
        let to = match self.address(context, &request) {
            Ok(to) => to,
            Err(why) => return self.unreadable(context, why).await,
        };
        let mut errand = errand(context, &request);
        if let Err(error) = self.fill(context, &request, &mut errand).await {
            let calls = vec![self.desk.unasked(&errand, &request.profile, &error)];
            let reply = Reply::error(request.heading(), &error, 0);
            return self.deliver(context, to, &reply, calls).await;
        }
        let (settled, parts) = self.ask(context, &request, to.as_ref(), &errand).await?;
        if settled.yields {
            return Err(Verdict::Yield);
        }
        let (reply, calls) = conclude(request.heading(), settled, &errand.question)?;
        let reply = if parts > 0 { reply.after(parts) } else { reply };
        self.deliver(context, to, &reply, calls).await
    }

    /// Where the reply goes. Request, unit and reply queue must be one tenant's.
    fn address(&self, context: &Context, request: &Request) -> Result<Option<Address>, String> {
        let tenant = &context.unit().tenant;
        if !request.customer.as_str().eq_ignore_ascii_case(tenant.as_str()) {
            return Err(format!("customer `{}` is not tenant `{tenant}`", request.customer));
        }
        let address = |to| Address::of(tenant, to, &self.libraries);
        request.reply_queue.as_ref().map(address).transpose().map_err(|error| error.to_string())
    }

    /// The question, as the request and the profile have it.
    async fn fill(
        &self,
        context: &Context,
        request: &Request,
        errand: &mut Errand,
    ) -> Result<(), AskError> {
        let until = self.until(context, request)?;
        let profile = self.desk.profile(&errand.tenant, Some(&request.profile)).await?;
        let prompt = match &request.prompt {
            Prompt::Text(text) => text.clone(),
            Prompt::Reference(place) => self.prompts.fetch(&errand.tenant, place, until).await?,
        };
        errand.question = request.question(prompt, &profile, until);
        Ok(())
    }

    /// When the caller has stopped waiting: its time began when it sent the request.
    fn until(&self, context: &Context, request: &Request) -> Result<Instant, AskError> {
        let unit = context.unit();
        let end = unit.created_at + request.timeout;
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
        to: Option<&Address>,
        errand: &Errand,
    ) -> Result<(Settled, u64), Verdict> {
        let parts = to.filter(|_| request.delivery == Delivery::Pieces);
        let ledger = &self.ledger;
        let parts = parts.map(|to| {
            Parts::new(context.clone(), Arc::clone(ledger), to.clone(), request.heading())
        });
        let out = self.gauge.ask(self.clock.now().since(context.unit().created_at));
        let asking = async {
            match parts {
                Some(parts) => parts.stream(&self.desk, errand).await,
                None => (self.desk.ask(errand, None).await, 0),
            }
        };
        let stop = context.cancelled();
        tokio::select! {
            biased;
            asked = asking => {
                let result = asked.0.result.as_ref();
                if !asked.0.yields {
                    out.back(result.map(drop).map_err(|error| error.code.as_str()));
                }
                Ok(asked)
            }
            () = stop.cancelled() => Err(Verdict::Snooze(Duration::ZERO)),
        }
    }

    /// Says what is wrong to whoever can hear it; else the unit's failure says it.
    async fn unreadable(&self, context: &Context, why: String) -> Result<Answer, Verdict> {
        let unit = context.unit();
        let peeked = peek(unit.payload.as_bytes());
        let to = peeked.reply_queue.as_ref();
        let to = to.and_then(|to| Address::of(&unit.tenant, to, &self.libraries).ok());
        if to.is_none() {
            return Err(Verdict::fail(Code::InvalidRequest.as_str(), why));
        }
        let error = AskError::new(Code::InvalidRequest, why);
        let reply = Reply::error(peeked.heading(), &error, 0);
        self.deliver(context, to, &reply, Vec::new()).await
    }

    /// The unit's end. A reply that goes to a queue is kept before: what was paid for is not asked
    /// again should this process die on the way.
    async fn deliver(
        &self,
        context: &Context,
        to: Option<Address>,
        reply: &Reply,
        calls: Vec<CallRecord>,
    ) -> Result<Answer, Verdict> {
        let payload = kept::payload(reply)?;
        let Some(to) = to else { return Ok(done(payload, calls)) };
        if context.unit().checkpoint.is_none() {
            let kept = Kept { calls, ..Kept::new(payload.clone()) };
            context.keep(kept).await.map_err(not_kept)?;
        }
        let sent = to.send(&*self.ledger, context.unit(), payload.clone()).await;
        // Should somebody listen again, the reply is still there.
        sent.map_err(|verdict| verdict.with_checkpoint(payload.clone()))?;
        Ok(done(payload, Vec::new()))
    }
}

/// The reply, and what is to be written in the books with it.
fn conclude(
    heading: Heading,
    settled: Settled,
    question: &Question,
) -> Result<(Reply, Vec<CallRecord>), Verdict> {
    let Settled { result, attempts, records, duplicate, cost_picos, .. } = settled;
    if let Some(other) = duplicate {
        let by = other.call.unit.map(|unit| format!(" by unit {unit}")).unwrap_or_default();
        let why = format!("request `{}` is or was answered{by}", other.call.request_id);
        return Err(Verdict::fail("DUPLICATE_REQUEST", why));
    }
    let reply = match &result {
        Ok(answer) => Reply::success(heading, answer, attempts)
            .at_cost(cost_picos)
            .judged(mistake(question, &answer.text)),
        Err(error) if may_wait(error, question.until) => {
            let after = error.retry_after.unwrap_or(PARKED);
            return Err(Verdict::Snooze(after).with_calls(records));
        }
        Err(error) => Reply::error(heading, error, attempts),
    };
    Ok((reply, records))
}

/// Why an answer does not follow the schema that the question has.
fn mistake(question: &Question, text: &str) -> Option<String> {
    ResponseSchema::new(question.schema.as_deref()?).ok()?.read(text).err()
}

/// For whom a request is asked.
fn errand(context: &Context, request: &Request) -> Errand {
    let unit = context.unit();
    let question = Question::new(request.request_id.clone(), "", Instant::now());
    Errand {
        unit: Some(unit.id),
        batch: unit.batch.clone().or_else(|| request.batch.clone()),
        session: Some(context.session()),
        run: Some(context.clone()),
        ..Errand::new(unit.tenant.clone(), Some(request.profile.clone()), question)
    }
}

/// A key without money: whoever has the time waits until somebody has paid.
fn may_wait(error: &AskError, until: Instant) -> bool {
    let after = error.retry_after.unwrap_or(PARKED);
    error.again == Again::Money && Instant::now() + after < until
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
