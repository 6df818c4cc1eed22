//! Working: sessions, claims, and what is said at the end of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;

use crate::Result;
use crate::batch::Sums;
use crate::ledger::CallRecord;
use crate::name::{BatchId, Kind, QueueName, Scope, SessionId, TenantId, UnitId};
use crate::outcome::{Effect, Failure, Outcome};
use crate::session::{Lease, NewSession, Order};
use crate::time::Timestamp;
use crate::unit::{Payload, Progress, Unit, UnitState};

/// Which queues a worker takes from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Queues {
    /// All that its scope covers.
    #[default]
    All,
    /// These.
    Named(Vec<QueueName>),
}

/// What a worker can take now.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Who asks.
    pub session: SessionId,
    /// Whose units it may take.
    pub scope: Scope,
    /// From where.
    pub queues: Queues,
    /// Only from this batch, if set.
    pub batch: Option<BatchId>,
    /// Only these kinds.
    pub kinds: Vec<Kind>,
    /// Slots free now: units of this weight in all are claimed *and started*.
    pub free: u32,
    /// Slots in all: a heavier unit is not for this worker.
    pub slots: u32,
    /// Named resources free now.
    pub resources: BTreeMap<String, u32>,
    /// Named resources in all: a unit that needs more is not for this worker, one that needs more
    /// than is free now is waited for.
    pub all_resources: BTreeMap<String, u32>,
    /// This many further units, claimed but not started. Never from a capped lane, tenant or key.
    pub ahead: u32,
    /// Whether the worker holds nothing. Only then is a unit given that must run alone.
    pub empty_handed: bool,
    /// Tenants that are passed over this time, because their units would only wait. They keep their
    /// place in the order of turns.
    pub except: Vec<TenantId>,
}

/// A unit in a worker's hands.
#[derive(Debug, Clone)]
pub struct HeldUnit {
    /// The lease to finish it with.
    pub lease: Lease,
    /// Whether its attempt has been counted.
    pub started: bool,
    /// It must run with nothing beside it.
    pub alone: bool,
    /// The unit itself, `attempt` counting the present run once started.
    pub unit: Unit,
}

/// What a claim brought.
#[derive(Debug, Clone, Default)]
pub struct Claimed {
    /// The units, in the order in which they should run.
    pub units: Vec<HeldUnit>,
    /// A unit waits that must run alone: come back empty-handed.
    pub alone_waiting: bool,
    /// A unit at the head is heavier than what is free: slots are kept for it.
    pub heavy_waiting: bool,
}

/// A session's sign of life.
#[derive(Debug, Clone, Default)]
pub struct Beat {
    /// CPU time that it and its children have used so far; `None` leaves what is known.
    pub cpu: Option<Duration>,
    /// How far its units are: the latest word of each.
    pub progress: Vec<ProgressNote>,
}

/// How far one unit is.
#[derive(Debug, Clone)]
pub struct ProgressNote {
    /// Which unit.
    pub lease: Lease,
    /// How far.
    pub progress: Progress,
}

/// What a session learns when it beats.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BeatAnswer {
    /// What it has been asked to do.
    pub order: Order,
    /// Units it holds that someone wants cancelled.
    pub cancel: Vec<UnitId>,
    /// Units it holds that wait to be given back if not started: their queue, lane or batch
    /// was paused, or their tenant suspended.
    pub unwanted: Vec<UnitId>,
    /// How many leases the store counts for it. More than it knows of means that a claim's answer
    /// was lost: see [`Leases::held`].
    pub held: u64,
}

/// The end of one run.
#[derive(Debug, Clone)]
pub struct Finish {
    /// Which unit, and proof of holding it.
    pub lease: Lease,
    /// What the handler said.
    pub outcome: Outcome,
    /// SQL that commits with it or not at all.
    pub effects: Vec<Effect>,
    /// What the next run begins with, should there be one: kept with this end or not at all.
    pub checkpoint: Option<Payload>,
    /// What calls of this run came to: written with this end, or not at all.
    pub calls: Vec<CallRecord>,
}

impl Finish {
    /// An end and nothing else.
    pub fn new(lease: Lease, outcome: Outcome) -> Self {
        Self { lease, outcome, effects: Vec::new(), checkpoint: None, calls: Vec::new() }
    }
}

/// What a run keeps on its way, all or nothing.
#[derive(Debug, Clone)]
pub struct Kept {
    /// What the next run begins with.
    pub state: Payload,
    /// What is added to the sums of its batch.
    pub sums: Sums,
    /// What calls came to.
    pub calls: Vec<CallRecord>,
}

impl Kept {
    /// A state and nothing else.
    pub fn new(state: Payload) -> Self {
        Self { state, sums: Sums::new(), calls: Vec::new() }
    }
}

/// What became of one finish.
#[derive(Debug, Clone, PartialEq)]
pub enum Finished {
    /// Recorded. Also the answer when the same lease had finished before.
    Recorded(UnitState),
    /// The unit was taken away: fence moved. Nothing was changed, no effect remains.
    LeaseLost,
    /// An effect failed or changed another number of rows. Nothing was changed; the unit is still
    /// held.
    EffectFailed(Failure),
}

/// Working.
#[async_trait]
pub trait Leases: Send + Sync + 'static {
    /// Announces a worker.
    async fn open_session(&self, session: NewSession) -> Result<()>;

    /// A sign of life. [`crate::Error::SessionGone`] if the session was reclaimed: then everything
    /// it holds is lost. Need not survive a power failure.
    async fn beat(&self, session: SessionId, beat: Beat) -> Result<BeatAnswer>;

    /// Ends a session in good order: what it still holds goes back, started units as interrupted.
    async fn close_session(&self, session: SessionId) -> Result<()>;

    /// A restarted process takes over its former life's leases: they move to `to` with fresh
    /// fences, and `from` ends. Whoever names `from` must have kept it secret. Asked again after a
    /// lost answer (`from` is gone, `to` holds units), it answers what `to` holds.
    async fn adopt(&self, from: SessionId, to: SessionId) -> Result<Vec<HeldUnit>>;

    /// Takes units. Need not survive a power failure: then the claimer did not either.
    async fn claim(&self, claim: Claim) -> Result<Claimed>;

    /// Counts the attempt of units claimed ahead, just before they run. `None` for each that was
    /// taken away or is no longer wanted (paused, suspended, cancel requested, late): it must not
    /// run, and is the caller's to release. Need not survive a power failure, but must survive this
    /// process.
    async fn start(&self, session: SessionId, leases: &[Lease]) -> Result<Vec<Option<Timestamp>>>;

    /// Gives units back that were not started. Unknown or lost ones are skipped.
    async fn release(&self, session: SessionId, leases: &[Lease]) -> Result<()>;

    /// Keeps what a run has reached, for the next run, adds `sums` to its batch's, and writes what
    /// its `calls` came to: all or nothing. False if the lease is lost. A state that is kept already
    /// is a repeat, and adds nothing.
    async fn checkpoint(&self, session: SessionId, lease: Lease, kept: Kept) -> Result<bool>;

    /// Keeps how far runs are, without a full beat. Need not survive a power failure.
    async fn progress(&self, session: SessionId, notes: Vec<ProgressNote>) -> Result<()>;

    /// Records the ends of runs; counters, dependants and callbacks move in the same transaction. An
    /// end says that there was a run: of a unit claimed ahead that was not started the attempt
    /// counts now.
    /// Where an effect shows only at the commit that it cannot stay (a deferred key), the whole
    /// call is [`crate::Error::Invalid`] and nothing was recorded: say them one by one.
    async fn finish(&self, session: SessionId, finishes: Vec<Finish>) -> Result<Vec<Finished>>;

    /// Every lease a session has, to compare with what it knows.
    async fn held(&self, session: SessionId) -> Result<Vec<Lease>>;
}
