//! What workers call: sessions, claims, checkpoints and finishes.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;

use crate::Result;
use crate::batch::Sums;
use crate::batch_write::finish_bytes;
use crate::call::CallRecord;
use crate::name::{BatchId, Kind, QueueName, Scope, SessionId, TenantId, UnitId};
use crate::outcome::{Effect, Failure, Outcome};
use crate::time::Timestamp;
use crate::unit::{Payload, Progress, Unit, UnitState, check_size};
use crate::worker_session::{Lease, NewSession, WorkerCommand};

/// The queues that a worker claims from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Queues {
    /// All queues within its scope.
    #[default]
    All,
    /// These.
    Named(Vec<QueueName>),
}

/// What a worker can take now.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    /// The worker's session.
    pub session: SessionId,
    /// Tenants to claim from.
    pub scope: Scope,
    /// Queues to claim from.
    pub queues: Queues,
    /// Claim only from this batch.
    pub batch: Option<BatchId>,
    /// Claim only these kinds.
    pub kinds: Vec<Kind>,
    /// Free slots: units up to this total weight are claimed *and started*.
    pub free_slots: u32,
    /// How many of `free_slots` are not free yet, but will be at once: the worker starts plain units
    /// ahead. Never from a capped lane, tenant or key.
    pub start_ahead: u32,
    /// Slots in total: a heavier unit does not suit this worker.
    pub slots: u32,
    /// Named resources that are free.
    pub resources: BTreeMap<String, u32>,
    /// Named resources in total. A unit that needs more does not suit this worker; for a unit that
    /// needs more than is free, slots are reserved.
    pub total_resources: BTreeMap<String, u32>,
    /// Further units to claim without starting them. Never from a capped lane, tenant or key.
    pub prefetch: u32,
    /// Whether the worker holds no unit. Only then it may get a unit that must run alone.
    pub holds_nothing: bool,
    /// Tenants to skip this time, because their units would only wait. They keep their position in
    /// the stride schedule.
    pub excluded_tenants: Vec<TenantId>,
}

impl ClaimRequest {
    /// Claims units of these kinds from all queues, for a worker with all slots free.
    pub fn new(session: SessionId, kinds: Vec<Kind>, slots: u32) -> Self {
        Self {
            session,
            scope: Scope::All,
            queues: Queues::All,
            batch: None,
            kinds,
            free_slots: slots,
            start_ahead: 0,
            slots,
            resources: BTreeMap::new(),
            total_resources: BTreeMap::new(),
            prefetch: 0,
            holds_nothing: true,
            excluded_tenants: Vec::new(),
        }
    }
}

/// A leased unit.
#[derive(Debug, Clone)]
pub struct LeasedUnit {
    /// The lease to finish it with.
    pub lease: Lease,
    /// Whether its attempt has been counted.
    pub started: bool,
    /// It must run with no other unit beside it.
    pub alone: bool,
    /// The unit; `attempt` includes the current run once started.
    pub unit: Unit,
}

/// The result of a claim.
#[derive(Debug, Clone, Default)]
pub struct ClaimResult {
    /// The units, in the order in which they should run.
    pub units: Vec<LeasedUnit>,
    /// A unit that must run alone waits: claim again when no unit is held.
    pub alone_waiting: bool,
    /// The next unit is heavier than what is free, or needs a free slot and cannot be prefetched:
    /// slots are reserved for it.
    pub heavy_waiting: bool,
}

/// A heartbeat.
#[derive(Debug, Clone, Default)]
pub struct Heartbeat {
    /// CPU time of the worker and its children so far; `None` leaves the stored value.
    pub cpu: Option<Duration>,
    /// The latest progress of its units.
    pub progress: Vec<ProgressNote>,
    /// The leases that the worker knows: the store looks them up by their units. `None` makes it
    /// search all leases of the session, which finds unknown ones and can be slow.
    pub leases: Option<Vec<Lease>>,
}

/// The progress of one unit.
#[derive(Debug, Clone)]
pub struct ProgressNote {
    /// The unit.
    pub lease: Lease,
    /// Its progress.
    pub progress: Progress,
}

/// The reply to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HeartbeatReply {
    /// The command that an operator gave it.
    pub order: WorkerCommand,
    /// Units it holds and must cancel.
    pub cancel: Vec<UnitId>,
    /// Units it should release if not started: their queue, lane or batch was paused, or their
    /// tenant suspended.
    pub to_release: Vec<UnitId>,
    /// How many leases the store counts for it; only named leases, if the heartbeat names any. If the worker knows of fewer, the answer to a claim
    /// was lost: see [`WorkerApi::leases_of`].
    pub held: u64,
}

/// The end of one run.
#[derive(Debug, Clone)]
pub struct FinishRequest {
    /// The unit, and the fence that proves the lease.
    pub lease: Lease,
    /// The handler's outcome.
    pub outcome: Outcome,
    /// SQL that commits with it or not at all.
    pub effects: Vec<Effect>,
    /// The checkpoint for the next run, if there is one. Committed with this finish.
    pub checkpoint: Option<Payload>,
    /// Calls made by this run. Committed with this finish.
    pub calls: Vec<CallRecord>,
}

impl FinishRequest {
    /// An outcome without effects, checkpoint and calls.
    pub fn new(lease: Lease, outcome: Outcome) -> Self {
        Self { lease, outcome, effects: Vec::new(), checkpoint: None, calls: Vec::new() }
    }

    /// The bytes that it sends to the store, about.
    pub fn byte_size(&self) -> usize {
        finish_bytes(&self.outcome, &self.effects, self.checkpoint.as_ref(), &self.calls)
    }

    /// Rejects a result or checkpoint that is too large.
    pub fn check_sizes(&self) -> Result<()> {
        if let Outcome::Done(Some(result)) = &self.outcome {
            check_size("result", result)?;
        }
        self.checkpoint.as_ref().map_or(Ok(()), |state| check_size("checkpoint", state))
    }

    /// The answer if there is nothing to write, from the unit's fence, state and holder: the lease
    /// is lost; or the fence is unchanged and the unit has no holder, so this lease has ended the
    /// run already and the answer was lost. `H` identifies a session in the store.
    pub fn answer_without_write<H: PartialEq>(
        &self,
        session: Option<H>,
        fence: u64,
        state: UnitState,
        holder: Option<H>,
    ) -> Option<FinishResult> {
        match holder {
            _ if fence != self.lease.fence => Some(FinishResult::LeaseLost),
            None => Some(FinishResult::Recorded(state)),
            holder if holder != session => Some(FinishResult::LeaseLost),
            Some(_) => None,
        }
    }
}

/// What a run saves on its way, all or nothing.
#[derive(Debug, Clone)]
pub struct CheckpointRequest {
    /// The checkpoint for the next run.
    pub state: Payload,
    /// Added to the sums of its batch.
    pub sums: Sums,
    /// Calls made by this run.
    pub calls: Vec<CallRecord>,
    /// SQL that commits with it or not at all.
    pub effects: Vec<Effect>,
}

impl CheckpointRequest {
    /// A checkpoint without sums, calls and effects.
    pub fn new(state: Payload) -> Self {
        Self { state, sums: Sums::new(), calls: Vec::new(), effects: Vec::new() }
    }
}

/// The result of one finish.
#[derive(Debug, Clone, PartialEq)]
pub enum FinishResult {
    /// It is recorded. Also if the same lease had finished before.
    Recorded(UnitState),
    /// The lease is lost: the unit's fence has changed. Nothing was written, no effect remains.
    LeaseLost,
    /// An effect failed or changed another number of rows than expected. Nothing was written; the
    /// unit is still held.
    EffectFailed(Failure),
    /// Not attempted: effects of other finishes used up the time of this call. Nothing was written;
    /// finish the unit in another call.
    Deferred,
    /// An effect waited for a lock that another transaction holds. Nothing was written; the unit is still held.
    /// Finish it in a call of its own.
    Locked,
}

/// What workers call.
#[async_trait]
pub trait WorkerApi: Send + Sync + 'static {
    /// Opens a session.
    async fn open_session(&self, session: NewSession) -> Result<()>;

    /// Sends a heartbeat. [`crate::Error::SessionGone`] if the session was reclaimed: then all its
    /// leases are lost. Need not survive a power failure.
    async fn heartbeat(&self, session: SessionId, beat: Heartbeat) -> Result<HeartbeatReply>;

    /// Ends a session in good order: units it holds are requeued, started ones as interrupted.
    async fn close_session(&self, session: SessionId) -> Result<()>;

    /// Takes over the leases of a former run of the same process: they move to `to` with new
    /// fences, and `from` ends. The session id `from` serves as the secret. A repeat after a lost
    /// answer (`from` is gone, `to` holds units) returns what `to` holds.
    async fn adopt(&self, from: SessionId, to: SessionId) -> Result<Vec<LeasedUnit>>;

    /// Leases units. Need not survive a power failure, which the worker would not survive either.
    async fn claim(&self, claim: ClaimRequest) -> Result<ClaimResult>;

    /// Counts the attempt of units that were claimed ahead, just before they run. `None` for a unit
    /// that must not run (lease lost, paused, suspended, cancel requested, past its deadline): the
    /// caller must release it. Need not survive a power failure, but must survive this process.
    async fn start(&self, session: SessionId, leases: &[Lease]) -> Result<Vec<Option<Timestamp>>>;

    /// Requeues units that were not started. Unknown or lost leases are skipped.
    async fn release(&self, session: SessionId, leases: &[Lease]) -> Result<()>;

    /// Stores the checkpoint of a run, adds `sums` to its batch's, writes its `calls` and runs its
    /// `effects`: all or nothing. False if the lease is lost. If the stored checkpoint is identical,
    /// this is a repeat, and adds nothing. [`crate::Error::EffectFailed`] if an effect failed.
    async fn checkpoint(&self, session: SessionId, lease: Lease, request: CheckpointRequest) -> Result<bool>;

    /// Records the ends of runs; counters, dependants and callbacks are updated in the same
    /// transaction. Finishing a unit that was claimed ahead and not started counts its attempt now.
    /// If an effect fails only at commit (a deferred key), the whole call is
    /// [`crate::Error::Invalid`] and nothing was recorded: finish the units one by one.
    async fn finish(&self, session: SessionId, finishes: Vec<FinishRequest>) -> Result<Vec<FinishResult>>;

    /// All leases of a session, to compare with what the worker knows.
    async fn leases_of(&self, session: SessionId) -> Result<Vec<Lease>>;
}
