//! One run of the runner: advances the provider batches until there is nothing to do, wakes rows,
//! and returns when to run next.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use longshore::accounts::{BatchAnswer, Ledger, PendingChange, PendingFilter, PendingRequest};
use longshore::store::{UnitAction, UnitSelection};
use longshore::{
    Batch, BatchId, BatchStatus, Clock, Context, Error, HandlerReply, HandlerResult, Payload, Scope,
    Timestamp, UnitId, Verdict,
};
use longshore_ai::batches::{BatchReply, BatchRunReport, BatchRunner, IntakeState, RunnerState};
use longshore_ai::{AskError, BatchProfile, Code, Inference, Retryability};
use tokio::time::Instant;

use super::cleanup::Cleanup;
use super::fencing::FencedProvider;
use super::store_error;
use crate::definition::{Ai, ProviderBatchOptions, RowStep};
use crate::handler::{BatchLoadError, definition};

/// Turns in one run. Each turn does all that it can, so a few suffice.
const MAX_TURNS: usize = 50;

/// Units woken and questions answered per call of the store.
pub(super) const PAGE: usize = 1_000;

/// Longest sleep: after this, the runner checks whether the batch is still wanted.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(60);

/// How long an unwanted provider batch stays open before it is abandoned.
const ABANDON_AFTER: Duration = Duration::from_secs(3 * 24 * 60 * 60);

/// One run for one batch.
pub(super) struct PollRun<'a> {
    inference: &'a Inference,
    clock: &'a Arc<dyn Clock>,
    context: &'a Context,
    id: &'a BatchId,
    scope: Scope,
}

/// The batch as read at the start of a turn.
struct BatchSnapshot {
    batch: Batch,
    ai: Arc<Ai>,
    pace: ProviderBatchOptions,
    gathering: IntakeState,
}

impl<'a> PollRun<'a> {
    pub(super) fn new(
        inference: &'a Inference,
        clock: &'a Arc<dyn Clock>,
        context: &'a Context,
        id: &'a BatchId,
    ) -> Self {
        // Any client can send such a unit; restrict it to batches of its own tenant.
        let scope = Scope::Tenant(context.unit().tenant.clone());
        Self { inference, clock, context, id, scope }
    }

    pub(super) async fn run(&self) -> HandlerResult<()> {
        let store = self.context.client().store();
        match store.batch(&self.scope, self.id).await {
            Err(error @ Error::NotFound { .. }) => return Err(Verdict::fail("no-batch", error)),
            found => drop(found.map_err(store_error)?),
        }
        let definition = definition(self.context, self.id).await.map_err(BatchLoadError::verdict)?;
        let (RowStep::Ai(ai), deadline) = (definition.step, definition.deadline) else {
            let (batch, why) = (self.id.clone(), "its rows ask no model".to_owned());
            return Err(BatchLoadError::Unusable { batch, why }.verdict());
        };
        let ai = Arc::new(ai);
        let mut memory = self.memory();
        for _ in 0..MAX_TURNS {
            let snapshot = self.read_snapshot(Arc::clone(&ai), deadline).await.map_err(store_error)?;
            let turn = self.turn(&snapshot, &mut memory).await.map_err(store_error)?;
            let left = self.cleanup().settle(&snapshot.batch).await.map_err(store_error)?;
            let answered = self.wake(turn.answered_units).await.map_err(store_error)?;
            // A row that is still being stopped may be parking a question.
            let over = snapshot.batch.status.is_final() && snapshot.batch.counts.live() == 0;
            if over && self.is_empty().await.map_err(store_error)? {
                self.cleanup().close_open_calls().await.map_err(store_error)?;
                return Ok(HandlerReply::new(()));
            }
            let now = self.clock.now();
            let delay = snapshot.delay(turn.next_run, now, answered || left);
            if let Some(delay) = delay {
                let memory = Payload::json(&memory).map_err(|error| Verdict::retry("memory", error))?;
                return Err(Verdict::Snooze(delay).with_checkpoint(memory));
            }
        }
        Err(Verdict::Snooze(Duration::from_secs(1)))
    }

    /// The memory of an earlier run. An unreadable one is dropped: the provider's list is searched
    /// instead.
    fn memory(&self) -> RunnerState {
        let saved = self.context.checkpoint().map(Payload::parse::<RunnerState>);
        saved.and_then(Result::ok).unwrap_or_default()
    }

    async fn read_snapshot(
        &self,
        ai: Arc<Ai>,
        deadline: Option<Timestamp>,
    ) -> longshore::Result<BatchSnapshot> {
        let batch = self.context.client().store().batch(&self.scope, self.id).await?;
        let pace = ai.provider_batch.unwrap_or_default();
        let late = deadline.is_some_and(|deadline| deadline <= self.clock.now());
        let counts = &batch.counts;
        let gathering = match () {
            () if batch.status.is_final() || late => IntakeState::Cancelled,
            () if batch.status == BatchStatus::Paused => IntakeState::Paused,
            () if batch.sealed && counts.ready + counts.leased + counts.blocked == 0 => IntakeState::Complete,
            () => IntakeState::Open,
        };
        Ok(BatchSnapshot { batch, ai, pace, gathering })
    }

    async fn turn(
        &self,
        snapshot: &BatchSnapshot,
        memory: &mut RunnerState,
    ) -> longshore::Result<BatchRunReport> {
        let profile = &snapshot.ai.profile;
        let (tenant, inline) = (&snapshot.batch.tenant, profile.inline());
        let mut turn = match self.inference.batch_profile(tenant, profile.name(), inline).await {
            Ok(bulk) => {
                let mut runner = self.runner(snapshot, &bulk, memory.clone());
                let turn = runner.run_once(snapshot.gathering).await;
                *memory = runner.state();
                turn?
            }
            // The store does not answer or the tenant is suspended: try later.
            Err(error) if matches!(error.retry, Retryability::NotSent | Retryability::AfterResume) => {
                BatchRunReport::default()
            }
            Err(error) => self.fail_waiting(snapshot, &error).await?,
        };
        if snapshot.gathering == IntakeState::Cancelled {
            turn.answered_units.extend(self.expire_waiting(snapshot).await?);
        }
        Ok(turn)
    }

    fn runner(&self, snapshot: &BatchSnapshot, bulk: &BatchProfile, memory: RunnerState) -> BatchRunner {
        let state = self.context.checkpoint().cloned();
        let provider = FencedProvider {
            inner: bulk.provider(),
            context: self.context.clone(),
            state: state.unwrap_or_else(|| Payload::from(b"{}".to_vec())),
        };
        let (ai, system) = (Arc::clone(&snapshot.ai), bulk.system().map(str::to_owned));
        let schema = ai.schema.clone().map(Arc::new);
        let ask = move |parked: &PendingRequest| {
            let (id, prompt) = (parked.new.custom_id.clone(), parked.new.prompt.clone());
            let mut question = ai.question(id, prompt, schema.clone(), Instant::now());
            question.system = question.system.or_else(|| system.clone());
            question
        };
        let (parking, clock) = (Arc::clone(self.ledger()), Arc::clone(self.clock));
        BatchRunner::new(self.id.clone(), parking as _, Arc::new(provider), Arc::new(ask), clock)
            .pace(snapshot.pace.pace())
            .prices(bulk.prices().clone())
            .with_state(memory)
    }

    /// The profile cannot be used. Waiting questions get this error, as directly asked ones do.
    /// Submitted questions may be answered once the profile works again, so they are awaited unless
    /// the batch is over.
    async fn fail_waiting(
        &self,
        snapshot: &BatchSnapshot,
        error: &AskError,
    ) -> longshore::Result<BatchRunReport> {
        tracing::warn!(batch = %self.id, %error, "the profile of a provider's batch cannot be used");
        let reply =
            BatchReply::Error { code: error.code, message: error.message.clone(), maybe_billed: false };
        let mut turn = BatchRunReport::default();
        if snapshot.gathering == IntakeState::Cancelled {
            self.cleanup().abandon_shipments(Duration::ZERO, self.clock.now()).await?;
        } else {
            turn.answered_units = self.deliver_to_waiting(&reply).await?;
        }
        Ok(turn)
    }

    /// After the deadline: answers waiting questions with a timeout if their rows are still live.
    async fn expire_waiting(&self, snapshot: &BatchSnapshot) -> longshore::Result<Vec<UnitId>> {
        self.cleanup().abandon_shipments(ABANDON_AFTER, self.clock.now()).await?;
        if snapshot.batch.status.is_final() {
            return Ok(Vec::new());
        }
        let message = "the batch's deadline passed before the question was answered".to_owned();
        let reply = BatchReply::Error { code: Code::Timeout, message, maybe_billed: false };
        self.deliver_to_waiting(&reply).await
    }

    async fn deliver_to_waiting(&self, reply: &BatchReply) -> longshore::Result<Vec<UnitId>> {
        let (ledger, mut units) = (self.ledger(), Vec::new());
        let reply = Payload::json(reply).map_err(|error| Error::Invalid(error.to_string()))?;
        loop {
            let waiting = ledger.pending_requests(self.id, &PendingFilter::Waiting, PAGE as u32).await?;
            if waiting.is_empty() {
                return Ok(units);
            }
            let reply = |parked: PendingRequest| BatchAnswer {
                custom_id: parked.new.custom_id,
                reply: reply.clone(),
            };
            let deliver = PendingChange::Answer(waiting.into_iter().map(reply).collect());
            units.extend(ledger.change_pending(self.id, deliver).await?);
        }
    }

    /// Wakes the rows of answered questions, including rows that an earlier run missed. Returns
    /// whether there are any.
    async fn wake(&self, woken: Vec<UnitId>) -> longshore::Result<bool> {
        let answered = PendingFilter::Answered;
        let waiting = self.ledger().pending_requests(self.id, &answered, PAGE as u32).await?;
        let missed = waiting.iter().map(|parked| parked.new.unit);
        let units: Vec<UnitId> =
            woken.into_iter().chain(missed).collect::<BTreeSet<_>>().into_iter().collect();
        for chunk in units.chunks(PAGE) {
            self.wake_chunk(chunk).await?;
        }
        Ok(!units.is_empty())
    }

    /// Wakes all units in one call or, if one does not exist any more, one by one.
    async fn wake_chunk(&self, units: &[UnitId]) -> longshore::Result<()> {
        let store = self.context.client().store();
        let wake = |ids| store.apply_unit_action(&self.scope, UnitSelection::Ids(ids), UnitAction::Wake);
        match wake(units.to_vec()).await {
            Err(Error::NotFound { .. }) => {}
            woken => return woken.map(drop),
        }
        for unit in units {
            match wake(vec![*unit]).await {
                Ok(_) | Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn is_empty(&self) -> longshore::Result<bool> {
        let (provider_batches, parked) = self.ledger().provider_batches(self.id).await?;
        Ok(parked.total() == 0 && provider_batches.is_empty())
    }

    fn cleanup(&self) -> Cleanup<'_> {
        let store = self.context.client().store();
        Cleanup { ledger: self.ledger(), store, scope: &self.scope, id: self.id }
    }

    fn ledger(&self) -> &'a Arc<dyn Ledger> {
        self.inference.ledger()
    }
}

impl BatchSnapshot {
    /// How long to sleep; `None` if there is work now. New questions and answers are polled at this
    /// interval whatever the provider batches do.
    fn delay(&self, due: Option<Timestamp>, now: Timestamp, busy: bool) -> Option<Duration> {
        let ProviderBatchOptions { gather, look, .. } = self.pace;
        let interval = if busy { look } else { gather.max(look).min(MAX_POLL_INTERVAL) };
        let delay = due.map_or(interval, |due| due.since(now).min(interval));
        (!delay.is_zero()).then_some(delay)
    }
}
