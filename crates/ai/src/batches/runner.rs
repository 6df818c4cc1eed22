//! Runs a batch's pending questions through a provider's batch API: groups, submits, polls,
//! downloads and delivers.
//!
//! It may be killed between any two steps, and any process may run it again: every step can be
//! repeated, except a submission, which is preceded by a search for it. One runner works on a batch
//! at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use longshore::accounts::{
    BatchAnswer, CloseReason, PendingChange, PendingFilter, PendingRequest, PendingRequests, ProviderBatch,
    ProviderBatchChange,
};
use longshore::{BatchId, CallId, Clock, Payload, Timestamp, UnitId};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::state_machine::{BatchPacing, BatchProgress, BatchStep, ProviderBatchUpdate};
use super::{BatchItem, BatchMark, BatchProvider, BatchResult, BatchTicket, split};
use crate::model_api::{Answer, AskError, Code, Question, Retryability};
use crate::pricing::{Cost, PriceMode, Prices};

/// Answers delivered at once.
const PAGE: usize = 200;

/// The result of a pending question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchReply {
    /// An answer.
    Answer {
        /// The answer.
        answer: Box<Answer>,
        /// Its cost when it arrived, at batch prices: [`PriceMode::Batch`].
        cost: Cost,
    },
    /// There will be no answer.
    Error {
        /// What the caller can do.
        code: Code,
        /// What happened.
        message: String,
        /// Whether it was answered, and so billed, is unknown.
        maybe_billed: bool,
    },
}

/// Whether more questions will be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntakeState {
    /// Perhaps: a provider batch waits a while until it is full.
    Open,
    /// No: pending questions are submitted at once.
    Complete,
    /// Unknown: the batch is paused. Nothing is submitted; submitted provider batches are polled as
    /// usual.
    Paused,
    /// No, and the batch is cancelled: nothing is submitted, and submitted provider batches are
    /// cancelled. Questions answered all the same are delivered; the others stay pending.
    Cancelled,
}

/// The result of a turn.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BatchRunReport {
    /// When to run the next turn; `None` if no question is pending or submitted.
    pub next_run: Option<Timestamp>,
    /// Units that received their answers.
    pub answered_units: Vec<UnitId>,
}

/// Builds the question of a pending request.
pub type QuestionBuilder = Arc<dyn Fn(&PendingRequest) -> Question + Send + Sync>;

/// Runs a batch's questions through a provider's batch API.
pub struct BatchRunner {
    batch: BatchId,
    parking: Arc<dyn PendingRequests>,
    provider: Arc<dyn BatchProvider>,
    build_question: QuestionBuilder,
    clock: Arc<dyn Clock>,
    pace: BatchPacing,
    prices: Prices,
    memory: RunnerState,
}

/// What a runner knows besides the store's data. The next runner can use it, however old it is: it
/// contains nothing that could cause a second submission.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunnerState {
    notes: BTreeMap<String, BatchProgress>,
    /// No provider batch is formed before this time: the provider was full.
    no_seal_before: Timestamp,
}

impl BatchRunner {
    /// A runner without earlier state.
    pub fn new(
        batch: BatchId,
        parking: Arc<dyn PendingRequests>,
        provider: Arc<dyn BatchProvider>,
        build_question: QuestionBuilder,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (pace, prices, memory) = (BatchPacing::default(), Prices::default(), RunnerState::default());
        Self { batch, parking, provider, build_question, clock, pace, prices, memory }
    }

    /// Sets the intervals and limits.
    #[must_use]
    pub fn pace(self, pace: BatchPacing) -> Self {
        Self { pace, ..self }
    }

    /// Sets the prices of answers.
    #[must_use]
    pub fn prices(self, prices: Prices) -> Self {
        Self { prices, ..self }
    }

    /// Continues with an earlier runner's state.
    #[must_use]
    pub fn with_state(self, memory: RunnerState) -> Self {
        Self { memory, ..self }
    }

    /// The state for the next runner.
    pub fn state(&self) -> RunnerState {
        let mut memory = self.memory.clone();
        memory.notes.retain(|_, progress| progress.may_be_stored());
        memory
    }

    /// Does everything that can be done now. An error is the store's.
    pub async fn run_once(&mut self, gathering: IntakeState) -> longshore::Result<BatchRunReport> {
        let mut turn = BatchRunReport::default();
        let next_seal = self.seal(gathering).await?;
        let (provider_batches, _) = self.parking.provider_batches(&self.batch).await?;
        let exists =
            |mark: &String| provider_batches.iter().any(|provider_batch| provider_batch.name == *mark);
        self.memory.notes.retain(|mark, _| exists(mark));
        let mut next_times = Vec::new();
        for provider_batch in provider_batches {
            next_times.push(self.advance(provider_batch, gathering, &mut turn.answered_units).await?);
        }
        turn.next_run = next_times.into_iter().flatten().chain(next_seal).min();
        Ok(turn)
    }

    /// Groups pending questions into a provider batch, if they have waited long enough or fill one.
    /// Returns when to try again.
    async fn seal(&mut self, gathering: IntakeState) -> longshore::Result<Option<Timestamp>> {
        if matches!(gathering, IntakeState::Cancelled | IntakeState::Paused) {
            return Ok(None);
        }
        let limits = self.provider.limits().bounded();
        let max = u32::try_from(limits.items).unwrap_or(u32::MAX);
        loop {
            let waiting = self.parking.pending_requests(&self.batch, &PendingFilter::Waiting, max).await?;
            let Some(first) = waiting.first() else { return Ok(None) };
            let (now, due) = (self.clock.now(), first.parked_at + self.pace.fill_delay);
            if now < self.memory.no_seal_before {
                return Ok(Some(self.memory.no_seal_before));
            }
            let items: Vec<BatchItem> = waiting.iter().map(|parked| self.item(parked)).collect();
            let sizes: Vec<_> = items.iter().map(|item| self.provider.size(item)).collect();
            let Some(chunk) = split(&sizes, limits).into_iter().next() else { return Ok(None) };
            let full = chunk.len() < items.len() || items.len() >= limits.items;
            if gathering == IntakeState::Open && !full && now < due {
                return Ok(Some(due));
            }
            let ids = items[chunk].iter().map(|item| item.custom_id.clone()).collect();
            let mark = CallId::new().to_string();
            // Recorded before the store's write, so that a provider batch with a record was surely
            // formed by this run.
            self.memory.notes.insert(mark.clone(), BatchProgress::unsubmitted());
            self.parking.change_provider_batch(&self.batch, &mark, ProviderBatchChange::Create(ids)).await?;
        }
    }

    /// Advances a provider batch as far as possible now. Returns when to try again.
    async fn advance(
        &mut self,
        mut provider_batch: ProviderBatch,
        gathering: IntakeState,
        wake: &mut Vec<UnitId>,
    ) -> longshore::Result<Option<Timestamp>> {
        loop {
            let (now, pace) = (self.clock.now(), self.pace);
            let stored = || BatchProgress::from_store(&provider_batch, now, &pace);
            let mut progress = self.memory.notes.get(&provider_batch.name).cloned().unwrap_or_else(stored);
            let update = match progress.next(&provider_batch, now) {
                BatchStep::Wait(until) => {
                    self.memory.notes.insert(provider_batch.name, progress);
                    return Ok(Some(until));
                }
                BatchStep::Close => ProviderBatchUpdate::Release(CloseReason::NoAnswer),
                BatchStep::Submit if gathering == IntakeState::Cancelled => {
                    ProviderBatchUpdate::Release(CloseReason::NotProcessed)
                }
                BatchStep::Submit if gathering == IntakeState::Paused => {
                    self.memory.notes.insert(provider_batch.name, progress);
                    return Ok(Some(now + pace.poll_interval));
                }
                BatchStep::Find => match self.mark(&provider_batch).await? {
                    None => ProviderBatchUpdate::Release(CloseReason::NotProcessed),
                    Some(mark) => {
                        let result = self.provider.find(&mark).await;
                        self.log("searched for", &provider_batch, &result);
                        progress.searched(result, self.clock.now(), &pace)
                    }
                },
                BatchStep::Submit => match self.items(&provider_batch).await? {
                    items if items.is_empty() => ProviderBatchUpdate::Release(CloseReason::NotProcessed),
                    items => {
                        let result = self.provider.submit(&items, &provider_batch.name).await;
                        self.log("submitted", &provider_batch, &result);
                        progress.submitted(result, self.clock.now(), &pace)
                    }
                },
                BatchStep::Poll(ticket) => {
                    if gathering == IntakeState::Cancelled && !progress.was_cancelled() {
                        progress.cancelled(&self.provider.cancel(&ticket).await);
                    }
                    let result = self.provider.poll(&ticket).await;
                    self.log("polled", &provider_batch, &result);
                    progress.polled(result, self.clock.now(), &pace)
                }
                BatchStep::Fetch(ticket) => {
                    let result = self.fetch(&ticket, wake).await?;
                    self.log("downloaded", &provider_batch, &result);
                    progress.fetched(result, self.clock.now(), &pace)
                }
            };
            self.memory.notes.insert(provider_batch.name.clone(), progress);
            if self.write(&mut provider_batch, update, wake).await? == StillOpen::No {
                return Ok(Some(self.clock.now()));
            }
        }
    }

    /// Logs failures: they are retried, and would otherwise stay unnoticed for a day.
    fn log<T>(&self, what: &str, provider_batch: &ProviderBatch, result: &Result<T, AskError>) {
        let (batch, mark) = (&self.batch, &provider_batch.name);
        match result {
            Ok(_) => tracing::debug!(%batch, mark, "the provider's batch was {what}"),
            Err(error) => {
                tracing::warn!(%batch, mark, %error, "the provider's batch could not be {what}");
            }
        }
    }

    async fn write(
        &mut self,
        provider_batch: &mut ProviderBatch,
        update: ProviderBatchUpdate,
        wake: &mut Vec<UnitId>,
    ) -> longshore::Result<StillOpen> {
        let kind = match update {
            ProviderBatchUpdate::Nothing => return Ok(StillOpen::Yes),
            ProviderBatchUpdate::Ship(ticket) => {
                let ship = ProviderBatchChange::SetProviderId(ticket.0.clone());
                self.parking.change_provider_batch(&self.batch, &provider_batch.name, ship).await?;
                provider_batch.provider_id = Some(ticket.0);
                return Ok(StillOpen::Yes);
            }
            ProviderBatchUpdate::Fail(error) => {
                self.fail_questions(&provider_batch.name, &error_reply(&error), |_| true, wake).await?;
                CloseReason::NotProcessed
            }
            ProviderBatchUpdate::Lost(error) => {
                let reply = BatchReply::Error {
                    code: error.code,
                    message: format!("the provider's batch is gone: {}", error.message),
                    maybe_billed: true,
                };
                self.fail_questions(&provider_batch.name, &reply, |_| true, wake).await?;
                CloseReason::NotProcessed
            }
            ProviderBatchUpdate::Release(CloseReason::NoAnswer) => {
                let last = self.pace.max_batches.saturating_sub(1);
                let message = format!("no answer from {} batches of the provider", self.pace.max_batches);
                let error = AskError::new(Code::ProviderError, message);
                let reply = error_reply(&error);
                self.fail_questions(&provider_batch.name, &reply, |parked| parked.tries >= last, wake)
                    .await?;
                CloseReason::NoAnswer
            }
            ProviderBatchUpdate::Release(CloseReason::NotProcessed) => {
                self.memory.no_seal_before = self.clock.now() + self.pace.listing_lag;
                CloseReason::NotProcessed
            }
        };
        let close = ProviderBatchChange::Close(kind);
        self.parking.change_provider_batch(&self.batch, &provider_batch.name, close).await?;
        Ok(StillOpen::No)
    }

    /// Delivers an error to some of a provider batch's questions.
    async fn fail_questions(
        &self,
        mark: &str,
        reply: &BatchReply,
        which: impl Fn(&PendingRequest) -> bool,
        wake: &mut Vec<UnitId>,
    ) -> longshore::Result<()> {
        let left = self.contents(mark).await?;
        let left = left.into_iter().filter(|parked| which(parked));
        let deliveries = left.filter_map(|parked| delivery(parked.new.custom_id, reply)).collect();
        wake.extend(self.deliver(deliveries).await?);
        Ok(())
    }

    async fn deliver(&self, deliveries: Vec<BatchAnswer>) -> longshore::Result<Vec<UnitId>> {
        self.parking.change_pending(&self.batch, PendingChange::Answer(deliveries)).await
    }

    /// The unanswered questions of a provider batch.
    async fn contents(&self, mark: &str) -> longshore::Result<Vec<PendingRequest>> {
        let inside = PendingFilter::ProviderBatch(mark.to_owned());
        self.parking.pending_requests(&self.batch, &inside, u32::MAX).await
    }

    /// Delivers results as they arrive. The inner error is the provider's.
    async fn fetch(
        &self,
        ticket: &BatchTicket,
        wake: &mut Vec<UnitId>,
    ) -> longshore::Result<Result<(), AskError>> {
        let (send, mut received) = mpsc::channel(PAGE);
        let download = async {
            let result = self.provider.results(ticket, &send).await;
            drop(send);
            result
        };
        let deliver = async {
            let mut page = Vec::new();
            while received.recv_many(&mut page, PAGE).await > 0 {
                let deliveries = page.drain(..).filter_map(|one| self.delivery(one)).collect();
                wake.extend(self.deliver(deliveries).await?);
            }
            // Tells the sender to stop.
            drop(received);
            Ok(())
        };
        let (result, delivered) = tokio::join!(download, deliver);
        delivered.map(|()| result)
    }

    /// The delivery of a result. A retryable error is not delivered: its question stays in the
    /// provider batch, and is released for another one when this one is closed.
    fn delivery(&self, result: BatchResult) -> Option<BatchAnswer> {
        let reply = match result.result {
            Ok(answer) => {
                let cost = self.prices.cost(&answer, self.clock.now(), PriceMode::Batch);
                BatchReply::Answer { answer: Box::new(answer), cost }
            }
            Err(error) if error.retry == Retryability::Never => error_reply(&error),
            Err(_) => return None,
        };
        delivery(result.custom_id, &reply)
    }

    async fn items(&self, provider_batch: &ProviderBatch) -> longshore::Result<Vec<BatchItem>> {
        let contents = self.contents(&provider_batch.name).await?;
        Ok(contents.iter().map(|parked| self.item(parked)).collect())
    }

    async fn mark(&self, provider_batch: &ProviderBatch) -> longshore::Result<Option<BatchMark>> {
        let contents = self.contents(&provider_batch.name).await?;
        let ids: Vec<String> = contents.into_iter().map(|parked| parked.new.custom_id).collect();
        let mark = BatchMark { name: provider_batch.name.clone(), since: provider_batch.sealed_at, ids };
        Ok((!mark.ids.is_empty()).then_some(mark))
    }

    fn item(&self, parked: &PendingRequest) -> BatchItem {
        BatchItem { custom_id: parked.new.custom_id.clone(), question: (self.build_question)(parked) }
    }
}

/// Whether a provider batch is still open.
#[derive(PartialEq, Eq)]
enum StillOpen {
    Yes,
    No,
}

fn error_reply(error: &AskError) -> BatchReply {
    BatchReply::Error { code: error.code, message: error.message.clone(), maybe_billed: false }
}

/// Never `None`: a reply contains nothing that JSON cannot represent.
fn delivery(custom_id: String, reply: &BatchReply) -> Option<BatchAnswer> {
    Some(BatchAnswer { custom_id, reply: Payload::json(reply).ok()? })
}
