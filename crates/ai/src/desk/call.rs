//! One profile is asked: room, leave, tries, and what it came to.

use longshore::ledger::{Admission, CallEnd, CallRecord, CallStatus, NewCall};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, timeout_at};

use super::open_call::OpenCall;
use super::register::{Entry, Owner, away};
use super::repair::{both, repair, with_bill};
use super::{Errand, Inner, Settled, failed, succeeded};
use crate::ask::{Again, Answer, AskError, Bill, Code, Question};
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

/// Leave to ask: room among those who ask, and tokens from the buckets.
struct Leave {
    _room: Option<OwnedSemaphorePermit>,
    taken: Taken,
    /// What every further try takes: it is a request like the first.
    again: Vec<Need>,
}

impl Leave {
    /// Settles what came to an error: one that was refused cost nothing, and what may have been
    /// billed stays taken.
    fn settle(self, error: &AskError) {
        match &error.bill {
            Bill::Unknown => drop(self.taken),
            Bill::Came(answer) => self.taken.settle(answer.tokens_in + answer.tokens_out),
            Bill::Nothing if error.again == Again::NotSent => self.taken.give_back(),
            Bill::Nothing => self.taken.settle(0),
        }
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
        let leave = match self.leave(tokens, question.until).await {
            Ok(leave) => leave,
            Err(error) => return self.refused(&question, error, begun, settled),
        };
        let mut call = match self.admit(&question, tokens, settled).await {
            Ok(call) => call,
            Err(error) => {
                leave.taken.give_back();
                return self.refused(&question, error, begun, settled);
            }
        };
        call.begins();
        let again = leave.again.as_slice();
        let mut tries = TriesOf { call: &self, pieces, tokens, again, attempts: 0, begun: false };
        let result = tries.run(&question).await;
        let (attempts, handed_on) = (tries.attempts, tries.begun);
        let latency_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let end = match &result {
            Ok(answer) => {
                leave.taken.settle(answer.tokens_in + answer.tokens_out);
                let now = self.desk.clock.now();
                let cost = self.entry.profile.prices.cost(answer, now, Mode::Direct);
                succeeded(answer, attempts, latency_ms, cost.0)
            }
            Err(error) => {
                leave.settle(error);
                self.unanswered(&question, error, tokens, (attempts, latency_ms))
            }
        };
        settled.cost_picos = settled.cost_picos.saturating_add(end.cost_picos);
        settled.attempts += attempts;
        settled.begun |= handed_on;
        settled.records.extend(call.ended(end));
        settled.result = result.map(|answer| Answer { latency_ms, ..answer });
    }

    /// What a question came to that was sent and brought no answer. If it may have been billed it
    /// counts as what came of the answer, or else as much as was reserved for it.
    fn unanswered(
        &self,
        question: &Question,
        error: &AskError,
        tokens: u64,
        (attempts, latency_ms): (u32, u64),
    ) -> CallEnd {
        let (prices, now) = (&self.entry.profile.prices, self.desk.clock.now());
        let end = failed(error, attempts, latency_ms);
        match &error.bill {
            Bill::Nothing => end,
            Bill::Unknown => {
                let answer = u64::from(question.max_tokens);
                let most = prices.at_most(tokens - answer, answer, now, Mode::Direct);
                maybe_billed(end, tokens - answer, answer, most.0)
            }
            Bill::Came(answer) => {
                let cost = prices.cost(answer, now, Mode::Direct);
                CallEnd {
                    status: CallStatus::MaybeBilled,
                    code: end.code,
                    estimated: true,
                    ..succeeded(answer, attempts, latency_ms, cost.0)
                }
            }
        }
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
    async fn leave(&self, tokens: u64, until: Instant) -> Result<Leave, AskError> {
        let limits = &self.entry.profile.limits;
        let room = match &self.entry.room {
            None => None,
            Some(room) if limits.when_full == WhenFull::Refuse => {
                let room = std::sync::Arc::clone(room).try_acquire_owned();
                Some(room.map_err(|_| full("as many questions are out as the profile allows"))?)
            }
            Some(room) => {
                let room = timeout_at(until, std::sync::Arc::clone(room).acquire_owned()).await;
                // Nobody closes it.
                room.map_err(|_| full("no room for the question in its time"))?.ok()
            }
        };
        let owner = self.desk.register.owner(&self.errand.tenant).await?;
        let needs = self.needs(&owner, tokens);
        let taken = self.desk.limiter.take(&needs, until, limits.when_full).await;
        let taken = taken.map_err(|error| match &error {
            Full::Limit { wait, .. } => {
                AskError { retry_after: Some(*wait), ..full(&error.to_string()) }
            }
            Full::TooLate => full(&error.to_string()),
            _ => AskError::new(Code::Internal, error.to_string()),
        })?;
        let again = needs.into_iter().filter(|need| need.measure == Measure::Requests).collect();
        Ok(Leave { _room: room, taken, again })
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
                self.desk.warnings.near_budget(&self.errand.tenant, part);
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

/// The end of a call of which nobody knows what it cost.
fn maybe_billed(end: CallEnd, tokens_in: u64, tokens_out: u64, cost_picos: i64) -> CallEnd {
    let status = CallStatus::MaybeBilled;
    CallEnd { status, tokens_in, tokens_out, cost_picos, estimated: true, ..end }
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
            Err(error) => Ok(with_bill(answer, &again, error.bill)),
        }
    }

    /// Asks again for as long as that may help.
    async fn patiently(&mut self, question: &Question) -> Result<Answer, AskError> {
        let (desk, line) = (self.call.desk, &self.call.entry.line);
        let (mut attempt, mut before) = (0, None);
        loop {
            // Why it was not answered says more than why it cannot be sent again.
            let out = line.send(self.tokens, question.until).await;
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
                Next::Again { after } if !self.begun => tokio::time::sleep(after).await,
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
                    if !self.hand_on(question, piece, out).await {
                        // The provider hears of it with its next piece, and says what came till then.
                        drop(pieces);
                        return unheard(asking.await);
                    }
                }
                answer = &mut asking => {
                    while let Ok(piece) = pieces.try_recv() {
                        self.hand_on(question, piece, out).await;
                    }
                    return answer;
                }
            }
        }
    }

    /// Hands a piece on, the first one with whose it is; whether anybody listens.
    async fn hand_on(
        &mut self,
        question: &Question,
        piece: Piece,
        out: &mpsc::Sender<Piece>,
    ) -> bool {
        if !std::mem::replace(&mut self.begun, true) {
            let model = self.call.entry.profile.asked_model(question.model.as_deref());
            let _ = out.send(Piece::Begun { model: model.to_owned() }).await;
        }
        out.send(piece).await.is_ok()
    }
}

/// What is known of an answer that nobody listened to: some of it came.
fn unheard(answer: Result<Answer, AskError>) -> Result<Answer, AskError> {
    let answer = answer?;
    let bill = Bill::Came(Box::new(answer));
    Err(AskError { bill, ..AskError::new(Code::Internal, "nobody listens any more") })
}

/// A number from 0 to 1 that is the same for the same question and try.
fn jitter(request_id: &str, attempt: u32) -> f64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    (request_id, attempt).hash(&mut hasher);
    hasher.finish() as f64 / u64::MAX as f64
}
