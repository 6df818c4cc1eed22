//! Claims units from the store: one call at a time, concurrent with the core, as many as the
//! scheduler asks for.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use longshore::store::{ClaimRequest, LeasedUnit};
use longshore::worker_session::Lease;
use longshore::{BatchId, Failure, Kind, Outcome, ResourceAmount, Rights, Scope, SessionId, Store, Unit};
use tokio::time::Instant;

use super::script_cache::{ScriptCache, ScriptSource};
use crate::scheduler::{ResourceRequest, TaskScheduler};
use crate::script::{ArrayItem, BatchDefinition, KIND, Script};
use crate::wire::{ScriptDefinition, TaskOrder};

/// Maximum threads' worth of units per claim. A larger claim would delay other transactions.
const MAX_CLAIM: u32 = 2048;
/// How long to wait for the store's wake-up before claiming again.
const WAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay before the next attempt if the store fails.
const STORE_RETRY_DELAY: Duration = Duration::from_millis(500);

/// Data of a task in the scheduler.
#[derive(Debug)]
pub(super) struct TaskData {
    rights: Rights,
    pub(super) script_id: u64,
    attempt: u32,
    queued: i64,
    item: Option<ArrayItem>,
    pub(super) batch: Option<BatchId>,
    /// When the run must have ended.
    deadline: Option<Instant>,
}

impl TaskData {
    /// Whether the task is not part of an array.
    pub(super) fn is_single(&self) -> bool {
        self.item.is_none()
    }

    pub(super) fn to_order(&self, lease: Lease, request: &ResourceRequest) -> TaskOrder {
        TaskOrder {
            lease,
            rights: self.rights,
            script_id: self.script_id,
            attempt: self.attempt,
            queued: self.queued,
            index: self.item.as_ref().map(|item| item.0),
            line: self.item.as_ref().and_then(|item| item.1.clone()),
            threads: request.threads,
            resources: request.resources.clone(),
            time_left: self.deadline.map(|at| at.saturating_duration_since(Instant::now())),
        }
    }
}

/// A claimed unit, ready for the scheduler.
pub(super) struct PreparedTask {
    pub(super) lease: Lease,
    pub(super) rank: i64,
    pub(super) request: ResourceRequest,
    pub(super) source: ScriptSource,
    pub(super) data: TaskData,
}

/// The units of a claim.
#[derive(Default)]
pub(super) struct ClaimedTasks {
    pub(super) tasks: Vec<PreparedTask>,
    pub(super) scripts: Vec<(ScriptSource, ScriptDefinition)>,
    pub(super) rejected: Vec<(Lease, Outcome)>,
    /// All leases of the session before this claim, if the claim before it failed: its answer may have been lost.
    pub(super) leases_after_failure: Vec<Lease>,
}

/// Result of a claim, and the store's wake sequence before it.
struct ClaimResult {
    tasks: ClaimedTasks,
    wake_seq: u64,
    empty: bool,
    /// What the store did is unknown.
    failed: bool,
}

impl ClaimResult {
    /// A failed claim, after a delay.
    async fn failed(wake_seq: u64) -> Self {
        tokio::time::sleep(STORE_RETRY_DELAY).await;
        Self { tasks: ClaimedTasks::default(), wake_seq, empty: false, failed: true }
    }
}

/// The claims of a server.
pub(super) struct Claimer {
    store: Arc<dyn Store>,
    session: SessionId,
    in_flight: Option<BoxFuture<'static, ClaimResult>>,
    /// Set after an empty claim: resolves when the store may have units again.
    wakeup: Option<BoxFuture<'static, u64>>,
    wake_seq: u64,
    /// The last claim failed.
    failed: bool,
}

impl Claimer {
    pub(super) fn new(store: Arc<dyn Store>, session: SessionId) -> Self {
        Self { store, session, in_flight: None, wakeup: None, wake_seq: 0, failed: false }
    }

    /// Whether no claim is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_none()
    }

    /// Claims again even if the store has had no units since the last claim: other workers take other units.
    pub(super) fn retry_now(&mut self) {
        self.wakeup = None;
    }

    /// Starts a claim if the scheduler asks for tasks, the store may have some, and no claim is in
    /// flight.
    pub(super) fn claim_if_needed(&mut self, scheduler: &TaskScheduler<TaskData>, scripts: &ScriptCache) {
        if self.in_flight.is_some() || self.wakeup.is_some() {
            return;
        }
        let (threads, largest) = (scheduler.threads_to_claim(), scheduler.largest_worker());
        if threads == 0 || largest.threads == 0 {
            return;
        }
        // At least the widest worker: otherwise a wide unit would stay in the store and block those
        // behind it.
        let claim = self.claim(threads.max(largest.threads), largest);
        let (store, session) = (Arc::clone(&self.store), self.session);
        let (after_failure, wake_seq, cached) = (self.failed, self.wake_seq, scripts.arrays());
        self.in_flight = Some(Box::pin(async move {
            let leases = match after_failure {
                true => store.leases_of(session).await,
                false => Ok(Vec::new()),
            };
            let Ok(leases_after_failure) = leases else { return ClaimResult::failed(wake_seq).await };
            let mut claimed = claim_and_prepare(store, claim, wake_seq, cached).await;
            claimed.tasks.leases_after_failure = leases_after_failure;
            claimed
        }));
    }

    fn claim(&self, threads: u32, largest: ResourceRequest) -> ClaimRequest {
        let total = largest.resources.iter();
        let total =
            total.flat_map(|(name, most)| ResourceAmount::claimed(name, most.as_whole().unwrap_or(0)));
        let total: BTreeMap<String, u32> = total.collect();
        let unlimited = total.keys().map(|name| (name.clone(), u32::MAX)).collect();
        ClaimRequest {
            free_slots: threads.min(MAX_CLAIM),
            resources: unlimited,
            total_resources: total,
            // The scheduler itself runs exclusive tasks alone.
            holds_nothing: true,
            ..ClaimRequest::new(self.session, Kind::new(KIND).into_iter().collect(), largest.threads)
        }
    }

    /// The tasks of the claim in flight; none after a wake-up.
    pub(super) async fn next(&mut self) -> ClaimedTasks {
        tokio::select! {
            claimed = or_pending(&mut self.in_flight) => {
                self.in_flight = None;
                (self.wake_seq, self.failed) = (claimed.wake_seq, claimed.failed);
                if claimed.empty {
                    let (store, wake_seq) = (Arc::clone(&self.store), self.wake_seq);
                    self.wakeup = Some(Box::pin(async move { store.wait_for_ready(wake_seq, WAKE_TIMEOUT).await }));
                }
                claimed.tasks
            }
            wake_seq = or_pending(&mut self.wakeup) => {
                (self.wakeup, self.wake_seq) = (None, wake_seq);
                ClaimedTasks::default()
            }
        }
    }
}

/// Awaits the future if there is one, and never resolves otherwise.
pub(super) async fn or_pending<T>(future: &mut Option<BoxFuture<'static, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

async fn claim_and_prepare(
    store: Arc<dyn Store>,
    claim: ClaimRequest,
    wake_seq: u64,
    cached: HashSet<ScriptSource>,
) -> ClaimResult {
    let wake_seq = store.wait_for_ready(wake_seq, Duration::ZERO).await;
    match store.claim(claim).await {
        Ok(claimed) => {
            let empty = claimed.units.is_empty();
            ClaimResult {
                tasks: prepare(&store, claimed.units, cached).await,
                wake_seq,
                empty,
                failed: false,
            }
        }
        Err(error) => {
            tracing::warn!(%error, "claiming units failed; retrying");
            ClaimResult::failed(wake_seq).await
        }
    }
}

/// Turns units into tasks, and loads the definitions of arrays that are not `cached`.
pub(super) async fn prepare(
    store: &Arc<dyn Store>,
    units: Vec<LeasedUnit>,
    mut cached: HashSet<ScriptSource>,
) -> ClaimedTasks {
    let mut claimed = ClaimedTasks::default();
    for held in units {
        if let Some(outcome) = store.refuse_closed_kind(&held.unit).await {
            claimed.rejected.push((held.lease, outcome));
            continue;
        }
        let (task, definition) = match prepare_task(&held.unit, held.lease, held.alone) {
            Ok(task) => task,
            Err(problem) => {
                let failure = Failure::new("bad-input", problem);
                claimed.rejected.push((held.lease, Outcome::Fail(failure)));
                continue;
            }
        };
        if let ScriptSource::Batch(batch, _) = &task.source
            && !cached.contains(&task.source)
        {
            match load_definition(store, batch, task.data.item.as_ref()).await {
                Ok(definition) => {
                    cached.insert(task.source.clone());
                    claimed.scripts.push((task.source.clone(), definition));
                }
                Err(outcome) => {
                    claimed.rejected.push((held.lease, outcome));
                    continue;
                }
            }
        }
        claimed.scripts.extend(definition.map(|definition| (task.source.clone(), definition)));
        claimed.tasks.push(task);
    }
    claimed
}

async fn load_definition(
    store: &Arc<dyn Store>,
    batch: &BatchId,
    item: Option<&ArrayItem>,
) -> Result<ScriptDefinition, Outcome> {
    let invalid = |message: String| Outcome::Fail(Failure::new("bad-input", message));
    let definition = store.definition(&Scope::All, batch).await;
    // The store is unavailable: claim the unit again later.
    let definition = definition.map_err(|_| Outcome::Snooze(STORE_RETRY_DELAY))?;
    let definition =
        definition.ok_or_else(|| invalid(format!("array `{batch}` has no script definition")))?;
    let definition: BatchDefinition = definition
        .parse()
        .map_err(|error| invalid(format!("the definition of array `{batch}` is not a script: {error}")))?;
    let script = item.and_then(|item| definition.script(item)).cloned();
    let script = script.ok_or_else(|| invalid(format!("job `{batch}` has no such task")))?;
    Ok(ScriptDefinition { script, batch: Some(batch.to_string()) })
}

fn prepare_task(
    unit: &Unit,
    lease: Lease,
    exclusive: bool,
) -> Result<(PreparedTask, Option<ScriptDefinition>), String> {
    let item = unit.payload.as_bytes().first() == Some(&b'[');
    let describe = |error: serde_json::Error| format!("the payload is not a script: {error}");
    let (source, item, definition) = match (&unit.batch, item) {
        (Some(batch), true) => {
            let item: ArrayItem = unit.payload.parse().map_err(describe)?;
            (ScriptSource::Batch(batch.clone(), item.2), Some(item), None)
        }
        _ => {
            let script: Script = unit.payload.parse().map_err(describe)?;
            let batch = unit.batch.as_ref().map(ToString::to_string);
            (ScriptSource::Unit(unit.id), None, Some(ScriptDefinition { script, batch }))
        }
    };
    let request = ResourceRequest { exclusive, ..ResourceRequest::of_unit(unit) };
    // The store's clock at the time of the claim.
    let now = unit.started_at.unwrap_or(unit.since);
    let time_left = unit.deadline.map(|deadline| deadline.since(now));
    let data = TaskData {
        rights: unit.rights,
        script_id: 0,
        attempt: unit.attempt,
        queued: unit.created_at.as_micros(),
        item,
        batch: unit.batch.clone(),
        deadline: time_left.and_then(|left| Instant::now().checked_add(left)),
    };
    let rank = unit.priority.rank(unit.created_at).as_micros();
    Ok((PreparedTask { lease, rank, request, source, data }, definition))
}
