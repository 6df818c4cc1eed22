//! One profile is asked: room, leave, tries, and what it came to.

use std::sync::Arc;
use std::time::Duration;

use longshore::Context;
use longshore::ledger::{Admission, CallRecord, NewCall};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::line::Out;
use super::open_call::OpenCall;
use super::patience::{Waited, wait};
use super::register::{Entry, Owner, away};
use super::repair::{both, repair};
use super::{Errand, Inner, Settled, failed, succeeded};
use crate::ask::{Again, Answer, AskError, Code, Question};
use crate::chat::Piece;
use crate::chunk::{Measure, Need};
use crate::limiter::{Full, Taken};
use crate::profile::WhenFull;
use crate::rate::Mode;
use crate::tries::Next;

/// A call of one profile.
pub(super) struct CallToMake<'d> {
    pub(super) desk: &'d Inner,
    pub(super) entry: &'d Entry,
    pub(super) errand: &'d Errand,
}

/// Leave to ask: room among those who ask, tokens from the buckets, and an open line.
struct Leave<'l> {
    _room: Option<OwnedSemaphorePermit>,
    taken: Taken,
    /// What every further try takes: it is a request like the first.
    again: Vec<Need>,
    out: Out<'l>,
}

/// Why there is no leave.
enum NoLeave {
    /// Somebody else needs the slot while the question waits.
    Yields,
    /// It cannot be had in time.
    Refused(AskError),
}

impl From<AskError> for NoLeave {
    fn from(error: AskError) -> Self {
        Self::Refused(error)
    }
}

/// Settles what came to an error: one that was refused cost nothing, of one that may have been
/// answered nothing is known.
fn settle(taken: Taken, error: &AskError) {
    match error.again {
        Again::Never if error.code == Code::Timeout => drop(taken),
        Again::NotSent => taken.give_back(),
        _ => taken.settle(0),
    }
}

impl CallToMake<'_> {
    /// Asks, and adds to `settled` what came of it.
    pub(super) async fn make(self, pieces: Option<&mpsc::Sender<Piece>>, settled: &mut Settled) {
        let begun = Instant::now();
        let question = self.question();
        let wire = self.entry.profile.provider;
        if let Some(error) = question.raw.as_ref().and_then(|raw| raw.refusal(wire)) {
            return self.refused(&question, error, begun, settled);
        }
        let tokens = self.entry.provider.estimate(&question) + u64::from(question.max_tokens);
        // Once somebody was asked, the question stays: it would be asked again.
        let run = self.errand.run.as_ref().filter(|_| settled.is_untold());
        let leave = match self.leave(run, tokens, question.until).await {
            Ok(leave) => leave,
            Err(NoLeave::Yields) => return settled.yields = true,
            Err(NoLeave::Refused(error)) => {
                return self.refused(&question, error, begun, settled);
            }
        };
        let Leave { _room, taken, again, out } = leave;
        let mut call = match self.admit(&question, tokens, settled).await {
            Ok(call) => call,
            Err(error) => {
                out.unsent();
                taken.give_back();
                return self.refused(&question, error, begun, settled);
            }
        };
        call.asked = true;
        let mut tries = TriesOf {
            call: &self,
            pieces,
            tokens,
            again: &again,
            out: Some(out),
            attempts: 0,
            begun: false,
        };
        let result = tries.run(&question).await;
        let (attempts, handed_on) = (tries.attempts, tries.begun);
        let latency_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let end = match &result {
            Ok(answer) => {
                taken.settle(answer.tokens_in + answer.tokens_out);
                let now = self.desk.clock.now();
                let cost = self.entry.profile.prices.cost(answer, now, Mode::Direct);
                succeeded(answer, attempts, latency_ms, cost.0)
            }
            Err(error) => {
                settle(taken, error);
                failed(error, attempts, latency_ms)
            }
        };
        settled.cost_picos = settled.cost_picos.saturating_add(end.cost_picos);
        settled.attempts += attempts;
        settled.begun |= handed_on;
        settled.records.extend(call.ended(end));
        settled.result = result.map(|answer| Answer { latency_ms, ..answer });
    }

    /// The question as this profile has it asked.
    fn question(&self) -> Question {
        let (profile, asked) = (&self.entry.profile, &self.errand.question);
        Question {
            system: asked.system.clone().or_else(|| profile.system.clone()),
            ..asked.clone()
        }
    }

    /// Waits for room, as long as the question's time lasts.
    async fn leave(
        &self,
        run: Option<&Context>,
        tokens: u64,
        until: Instant,
    ) -> Result<Leave<'_>, NoLeave> {
        let limits = &self.entry.profile.limits;
        let line = &self.entry.line;
        // What is closed now takes no tokens from those who could go on.
        while let Some(at) = line.closed_until(Instant::now(), tokens)
            && run.is_some()
            && at < until
        {
            over(wait(run, until, sleep_until(at)).await)?;
        }
        let room = match &self.entry.room {
            None => None,
            Some(room) if limits.when_full == WhenFull::Refuse => {
                let room = Arc::clone(room).try_acquire_owned();
                Some(room.map_err(|_| full("as many questions are out as the profile allows"))?)
            }
            Some(room) => {
                let room = timeout_at(until, Arc::clone(room).acquire_owned());
                let room = over(wait(run, until, room).await)?;
                // Nobody closes it.
                room.map_err(|_| full("no room for the question in its time"))?.ok()
            }
        };
        let owner = self.desk.register.owner(&self.errand.tenant).await?;
        let needs = self.needs(&owner, tokens);
        let taking = self.desk.limiter.take(&needs, until, limits.when_full);
        let taken = over(wait(run, until, taking).await)?.map_err(refusal)?;
        let again = needs.into_iter().filter(|need| need.measure == Measure::Requests).collect();
        match over(wait(run, until, line.send(tokens, until)).await) {
            Ok(Ok(out)) => Ok(Leave { _room: room, taken, again, out }),
            Ok(Err(error)) => {
                taken.give_back();
                Err(error.into())
            }
            Err(yields) => {
                taken.give_back();
                Err(yields)
            }
        }
    }

    /// What the question takes, from which buckets.
    fn needs(&self, owner: &Owner, tokens: u64) -> Vec<Need> {
        let own = Need::of_tenant(&self.errand.tenant, &owner.sheet.limits, tokens);
        let shared = self.entry.bounds.iter().flat_map(|bound| {
            Need::of_profile(&bound.tenant, &bound.profile, &bound.limits, tokens)
        });
        own.into_iter().chain(shared).collect()
    }

    /// Journals the call and reserves what it may use. Where nothing is bounded and no unit asks,
    /// nobody waits for that.
    async fn admit(
        &self,
        question: &Question,
        tokens: u64,
        settled: &mut Settled,
    ) -> Result<OpenCall<'_>, AskError> {
        let call = self.new_call(question, tokens);
        let owner = self.desk.register.owner(&self.errand.tenant).await?;
        if self.errand.unit.is_none() && !owner.has_budget {
            self.desk.journal.note(CallRecord { call: call.clone(), end: None });
            return Ok(OpenCall::new(self.desk, call));
        }
        let admitted = self.desk.ledger.admit_calls(vec![call.clone()]).await;
        match admitted.map_err(|error| away(&error))?.pop() {
            Some(Admission::OverBudget(month)) => Err(AskError::new(
                Code::OverBudget,
                format!("the budget of tenant `{}` for {} is used up", month.tenant, month.month),
            )),
            Some(Admission::Duplicate(other)) => {
                settled.duplicate = Some(other);
                Err(AskError::new(Code::InvalidRequest, "the same request was asked before"))
            }
            Some(Admission::NearBudget(part)) => {
                let (tenant, percent) = (&self.errand.tenant, (part * 100.0).round());
                tracing::warn!(%tenant, "{percent} % of the month's budget is used or reserved");
                Ok(OpenCall::new(self.desk, call))
            }
            Some(Admission::Admitted) => Ok(OpenCall::new(self.desk, call)),
            None => Err(AskError::new(Code::Internal, "the ledger did not answer")),
        }
    }

    fn new_call(&self, question: &Question, tokens: u64) -> NewCall {
        let Entry { name, profile, .. } = self.entry;
        let model = question.model.as_deref().unwrap_or(&profile.model);
        let questions = tokens - u64::from(question.max_tokens);
        let (now, answer) = (self.desk.clock.now(), u64::from(question.max_tokens));
        let most = profile.prices.at_most(questions, answer, now, Mode::Direct);
        NewCall {
            reserve_tokens: tokens,
            reserve_picos: most.0,
            ..self.desk.new_call(self.errand, name, profile.provider.as_str(), model)
        }
    }

    /// Nobody was asked.
    fn refused(&self, question: &Question, error: AskError, begun: Instant, settled: &mut Settled) {
        let latency_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        if settled.duplicate.is_none() {
            let call = self.new_call(question, u64::from(question.max_tokens));
            let call = NewCall { reserve_tokens: 0, reserve_picos: 0, ..call };
            settled.records.push(CallRecord { call, end: Some(failed(&error, 0, latency_ms)) });
        }
        settled.result = Err(error);
    }
}

fn over<T>(waited: Waited<T>) -> Result<T, NoLeave> {
    match waited {
        Waited::Over(over) => Ok(over),
        Waited::Unwanted => Err(NoLeave::Yields),
    }
}

fn refusal(error: Full) -> AskError {
    match &error {
        Full::Limit { wait, .. } => {
            AskError { retry_after: Some(*wait), ..full(&error.to_string()) }
        }
        Full::TooLate => full(&error.to_string()),
        _ => AskError::new(Code::Internal, error.to_string()),
    }
}

fn full(why: &str) -> AskError {
    AskError::new(Code::RateLimited, why)
}

/// The tries of one call.
struct TriesOf<'c, 'd> {
    call: &'c CallToMake<'d>,
    pieces: Option<&'c mpsc::Sender<Piece>>,
    /// What the question may take, answer included.
    tokens: u64,
    /// What every further try takes.
    again: &'c [Need],
    /// The first question is as good as out: it may be sent.
    out: Option<Out<'c>>,
    attempts: u32,
    /// Some of the answer was handed on: it cannot be asked anew.
    begun: bool,
}

impl TriesOf<'_, '_> {
    /// Asks, and once more if the answer is not of the form that was wanted.
    async fn run(&mut self, question: &Question) -> Result<Answer, AskError> {
        let answer = self.patiently(question).await?;
        if self.begun {
            return Ok(answer);
        }
        let Some(again) = repair(question, &answer) else { return Ok(answer) };
        match self.patiently(&again).await {
            Ok(better) => Ok(both(&answer, better)),
            // It was paid for: whoever reads it says what is wrong with it.
            Err(_) => Ok(answer),
        }
    }

    /// Asks again for as long as that may help.
    async fn patiently(&mut self, question: &Question) -> Result<Answer, AskError> {
        let (desk, line) = (self.call.desk, &self.call.entry.line);
        let (mut attempt, mut before) = (0, None);
        loop {
            // Why it was not answered says more than why it cannot be sent again.
            let out = match self.out.take() {
                Some(out) => Ok(out),
                None => line.send(self.tokens, question.until).await,
            };
            let out = out.map_err(|error| before.take().unwrap_or(error))?;
            attempt += 1;
            self.attempts += 1;
            let result = self.once(question).await;
            out.heard(&result);
            let error = match result {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let (now, jitter) = (Instant::now(), jitter(&question.request_id, attempt));
            match desk.tries.next(attempt, &error, now, question.until, jitter) {
                Next::Again { after } if !self.begun => self.rest(after).await,
                _ => return Err(error),
            }
            let taken = desk.limiter.take(self.again, question.until, WhenFull::Wait).await;
            match taken {
                // A request is a request, whatever comes of it.
                Ok(taken) => drop(taken),
                Err(_) => return Err(error),
            }
            before = Some(error);
        }
    }

    /// Waits until it may be sent again. It keeps its slot, for it is in the books; but its worker
    /// knows that it only waits.
    async fn rest(&self, after: Duration) {
        let _waiting = self.call.errand.run.as_ref().map(Context::waits);
        tokio::time::sleep(after).await;
    }

    async fn once(&mut self, question: &Question) -> Result<Answer, AskError> {
        let provider = &self.call.entry.provider;
        let Some(out) = self.pieces else { return provider.ask(question).await };
        // An answer of which nothing was handed on may be asked for anew.
        let (sender, mut pieces) = mpsc::channel(1);
        let asking = provider.stream(question, &sender);
        tokio::pin!(asking);
        loop {
            tokio::select! {
                biased;
                Some(piece) = pieces.recv() => {
                    self.begun = true;
                    if out.send(piece).await.is_err() {
                        return Err(AskError::new(Code::Internal, "nobody listens any more"));
                    }
                }
                answer = &mut asking => {
                    while let Ok(piece) = pieces.try_recv() {
                        self.begun = true;
                        let _ = out.send(piece).await;
                    }
                    return answer;
                }
            }
        }
    }
}

/// A number from 0 to 1 that is the same for the same question and try.
fn jitter(request_id: &str, attempt: u32) -> f64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    (request_id, attempt).hash(&mut hasher);
    hasher.finish() as f64 / u64::MAX as f64
}
