//! One run of a conductor: turns until there is nothing to do for a while, rows woken, and when to come again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use longshore::ledger::{Delivery, Ledger, Parked};
use longshore::store::{UnitAction, UnitSelection};
use longshore::{
    Batch, BatchId, BatchStatus, Clock, Context, Error, HandlerResult, Payload, Reply, Scope,
    Timestamp, UnitId, Verdict,
};
use longshore_ai::batches::{BatchReply, Conductor, Gathering, Memory, Turn};
use longshore_ai::{Again, AskError, Bulk, Code, Desk};
use tokio::time::Instant;

use super::away;
use super::fenced::Fenced;
use super::leftovers::Leftovers;
use crate::definition::{Definition, ProviderBatch};
use crate::handler::{JobError, definition};

/// Turns in one run: each does all that can be done, so that a few are enough.
const TURNS: usize = 50;

/// Units woken, and questions told, at once.
pub(super) const PAGE: usize = 1_000;

/// However patient a batch is, after this long it is seen whether it is still wanted.
const MOST_REST: Duration = Duration::from_secs(60);

/// How long a provider is waited for about a shipment that nobody wants any more.
const PATIENCE: Duration = Duration::from_secs(3 * 24 * 60 * 60);

/// A run.
pub(super) struct Visit<'a> {
    desk: &'a Desk,
    clock: &'a Arc<dyn Clock>,
    context: &'a Context,
    id: &'a BatchId,
    scope: Scope,
}

/// What was found, and what is to be done.
struct Scene {
    batch: Batch,
    definition: Arc<Definition>,
    pace: ProviderBatch,
    gathering: Gathering,
}

impl<'a> Visit<'a> {
    pub(super) fn new(
        desk: &'a Desk,
        clock: &'a Arc<dyn Clock>,
        context: &'a Context,
        id: &'a BatchId,
    ) -> Self {
        // Anyone may send such a unit; only its own tenant's batches are its business.
        let scope = Scope::Tenant(context.unit().tenant.clone());
        Self { desk, clock, context, id, scope }
    }

    pub(super) async fn run(&self) -> HandlerResult<()> {
        let store = self.context.client().store();
        match store.batch(&self.scope, self.id).await {
            Err(error @ Error::NotFound { .. }) => return Err(Verdict::fail("no-batch", error)),
            found => drop(found.map_err(away)?),
        }
        let definition = definition(self.context, self.id).await.map_err(JobError::verdict)?;
        let definition = Arc::new(definition);
        let mut memory = self.memory();
        for _ in 0..TURNS {
            let scene = self.look(Arc::clone(&definition)).await.map_err(away)?;
            let turn = self.turn(&scene, &mut memory).await.map_err(away)?;
            let left = self.leftovers().settle(&scene.batch).await.map_err(away)?;
            let answered = self.wake(turn.wake).await.map_err(away)?;
            // A row that is still being stopped may be parking.
            let over = scene.batch.status.is_final() && scene.batch.counts.live() == 0;
            if over && self.is_empty().await.map_err(away)? {
                self.leftovers().close_books().await.map_err(away)?;
                return Ok(Reply::new(()));
            }
            let now = self.clock.now();
            let rest = scene.rest(turn.rest, now, answered || left);
            if let Some(rest) = rest {
                let memory =
                    Payload::json(&memory).map_err(|error| Verdict::retry("memory", error))?;
                return Err(Verdict::Snooze(rest).with_checkpoint(memory));
            }
        }
        Err(Verdict::Snooze(Duration::from_secs(1)))
    }

    /// What an earlier run left. Of what cannot be read nothing is needed: then it is looked for.
    fn memory(&self) -> Memory {
        let kept = self.context.checkpoint().map(Payload::parse::<Memory>);
        kept.and_then(Result::ok).unwrap_or_default()
    }

    async fn look(&self, definition: Arc<Definition>) -> longshore::Result<Scene> {
        let batch = self.context.client().store().batch(&self.scope, self.id).await?;
        let pace = definition.ai.provider_batch.unwrap_or_default();
        let late = definition.deadline.is_some_and(|deadline| deadline <= self.clock.now());
        let counts = &batch.counts;
        let gathering = match () {
            () if batch.status.is_final() || late => Gathering::Over,
            () if batch.status == BatchStatus::Paused => Gathering::Held,
            () if batch.sealed && counts.ready + counts.leased + counts.blocked == 0 => {
                Gathering::Complete
            }
            () => Gathering::More,
        };
        Ok(Scene { batch, definition, pace, gathering })
    }

    async fn turn(&self, scene: &Scene, memory: &mut Memory) -> longshore::Result<Turn> {
        let profile = &scene.definition.ai.profile;
        let (tenant, written) = (&scene.batch.tenant, profile.written());
        let mut turn = match self.desk.bulk(tenant, profile.named(), written).await {
            Ok(bulk) => {
                let mut conductor = self.conductor(scene, &bulk, memory.clone());
                let turn = conductor.turn(scene.gathering).await;
                *memory = conductor.memory();
                turn?
            }
            // The store is away, or the tenant is suspended: later.
            Err(error) if matches!(error.again, Again::NotSent | Again::Resumed) => Turn::default(),
            Err(error) => self.unusable(scene, &error).await?,
        };
        if scene.gathering == Gathering::Over {
            turn.wake.extend(self.too_late(scene).await?);
        }
        Ok(turn)
    }

    fn conductor(&self, scene: &Scene, bulk: &Bulk, memory: Memory) -> Conductor {
        let state = self.context.checkpoint().cloned();
        let provider = Fenced {
            inner: bulk.provider(),
            context: self.context.clone(),
            state: state.unwrap_or_else(|| Payload::from(b"{}".to_vec())),
        };
        let (definition, system) =
            (Arc::clone(&scene.definition), bulk.system().map(str::to_owned));
        let schema = definition.ai.schema.clone().map(Arc::new);
        let ask = move |parked: &Parked| {
            let (id, prompt) = (parked.new.custom_id.clone(), parked.new.prompt.clone());
            let mut question = definition.ai.question(id, prompt, schema.clone(), Instant::now());
            question.system = question.system.or_else(|| system.clone());
            question
        };
        let (parking, clock) = (Arc::clone(self.ledger()), Arc::clone(self.clock));
        Conductor::new(self.id.clone(), parking as _, Arc::new(provider), Arc::new(ask), clock)
            .pace(scene.pace.pace())
            .prices(bulk.prices().clone())
            .remembering(memory)
    }

    /// Nobody can be asked by the profile as it is. What waits is told so, as rows are that ask by
    /// themselves; what is out may be answered once the profile is right again, and is waited for unless
    /// nobody wants it.
    async fn unusable(&self, scene: &Scene, error: &AskError) -> longshore::Result<Turn> {
        tracing::warn!(batch = %self.id, %error, "the profile of a provider's batch cannot be used");
        let told = BatchReply::Error {
            code: error.code,
            message: error.message.clone(),
            maybe_billed: false,
        };
        let mut turn = Turn::default();
        if scene.gathering == Gathering::Over {
            self.leftovers().abandon(Duration::ZERO, self.clock.now()).await?;
        } else {
            turn.wake = self.tell_waiting(&told).await?;
        }
        Ok(turn)
    }

    /// What waits, and is not to be sent any more, is told so if anybody still listens.
    async fn too_late(&self, scene: &Scene) -> longshore::Result<Vec<UnitId>> {
        self.leftovers().abandon(PATIENCE, self.clock.now()).await?;
        if scene.batch.status.is_final() {
            return Ok(Vec::new());
        }
        let message = "the batch's deadline passed before the question was answered".to_owned();
        let told = BatchReply::Error { code: Code::Timeout, message, maybe_billed: false };
        self.tell_waiting(&told).await
    }

    async fn tell_waiting(&self, told: &BatchReply) -> longshore::Result<Vec<UnitId>> {
        let (ledger, mut units) = (self.ledger(), Vec::new());
        let reply = Payload::json(told).map_err(|error| Error::Invalid(error.to_string()))?;
        loop {
            let waiting = ledger.waiting(self.id, PAGE as u32).await?;
            if waiting.is_empty() {
                return Ok(units);
            }
            let told =
                |parked: Parked| Delivery { custom_id: parked.new.custom_id, reply: reply.clone() };
            let deliveries = waiting.into_iter().map(told).collect();
            units.extend(ledger.deliver(self.id, deliveries).await?);
        }
    }

    /// Wakes rows whose answers have come, also those that an earlier run missed. Whether there are any.
    async fn wake(&self, came: Vec<UnitId>) -> longshore::Result<bool> {
        let waiting = self.ledger().answered(self.id, PAGE as u32).await?;
        let missed = waiting.iter().map(|(parked, _)| parked.new.unit);
        let units: Vec<UnitId> =
            came.into_iter().chain(missed).collect::<BTreeSet<_>>().into_iter().collect();
        for some in units.chunks(PAGE) {
            self.wake_some(some).await?;
        }
        Ok(!units.is_empty())
    }

    /// All of them; or, if one is not there any more, one by one.
    async fn wake_some(&self, units: &[UnitId]) -> longshore::Result<()> {
        let store = self.context.client().store();
        let wake =
            |ids| store.operate_units(&self.scope, UnitSelection::Ids(ids), UnitAction::Wake);
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
        let ledger = self.ledger();
        let parked = ledger.parked(self.id).await?;
        Ok(parked.total() == 0 && ledger.shipments(self.id).await?.is_empty())
    }

    fn leftovers(&self) -> Leftovers<'_> {
        let store = self.context.client().store();
        Leftovers { ledger: self.ledger(), store, scope: &self.scope, id: self.id }
    }

    fn ledger(&self) -> &'a Arc<dyn Ledger> {
        self.desk.ledger()
    }
}

impl Scene {
    /// How long there is nothing to do; none if there is something now. New questions and new answers are
    /// looked for at this pace whatever the provider's batches do.
    fn rest(&self, due: Option<Timestamp>, now: Timestamp, busy: bool) -> Option<Duration> {
        let ProviderBatch { gather, look, .. } = self.pace;
        let usual = if busy { look } else { gather.max(look).min(MOST_REST) };
        let rest = due.map_or(usual, |due| due.since(now).min(usual));
        (!rest.is_zero()).then_some(rest)
    }
}
