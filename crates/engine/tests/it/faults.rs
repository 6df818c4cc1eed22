//! Injects every fault into every store call once: the tally must stay exact.
//!
//! One scenario calls all methods of units and batches: a batch is filled in chunks, a worker dies, a
//! session is adopted, operators pause, resume and cancel, everything is read. The table makes the n-th
//! call of each method fail, lose its response, be late or arrive twice.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use longshore::batch::BatchAction;
use longshore::store::{
    Admin, ClaimRequest, FinishRequest, FinishResult, LaneChange, Queries, QueueChange, Queues,
    SettingsChange, UnitAction, UnitSelection, WorkerApi,
};
use longshore::worker_session::{Lease, NewSession, WorkerCommand};
use longshore::{
    BatchId, BatchStatus, Counts, Error, Kind, NewBatch, NewUnit, Outcome, Payload, Policy, QueueName,
    Result, RetryPolicy, Scope, SendError, SessionId, TenantId, UnitId, UnitState,
};
use longshore_testkit::{Fault, FaultyStore};
use serde_json::json;

use crate::harness::{Harness, Script, kind, unit};

/// Methods that the scenario does not call.
const NOT_CALLED: [&str; 7] = [
    "put_tenant",
    "remove_tenant",
    "tenants",
    "put_schedule",
    "switch_schedule",
    "fire_schedule",
    "schedules",
];

/// Calls that are made repeatedly: later ones are broken too.
const FREQUENT_METHODS: [&str; 10] = [
    "add_to_batch",
    "heartbeat",
    "claim",
    "finish",
    "promote",
    "acquire_leadership",
    "apply_batch_action",
    "change_settings",
    "session_beats",
    "totals",
];

const FAULTS: [Fault; 5] = [
    Fault::FailBefore,
    Fault::FailAfter,
    Fault::Delay(Duration::from_secs(3)),
    // Longer than a session's ttl.
    Fault::Delay(Duration::from_secs(20)),
    Fault::Duplicate,
];

#[tokio::test(start_paused = true)]
async fn whatever_goes_wrong_with_one_call_the_tally_is_exact() {
    for method in FaultyStore::METHODS.iter().filter(|method| !NOT_CALLED.contains(method)) {
        let calls: &[u64] = match *method {
            // The second beat returns the lost claim's units, and the work is done soon after.
            "heartbeat" => &[1, 2],
            method if FREQUENT_METHODS.contains(&method) => &[1, 2, 3],
            _ => &[1],
        };
        for (nth, fault) in calls.iter().flat_map(|nth| FAULTS.map(|fault| (*nth, fault))) {
            // Printed if this case fails.
            eprintln!("call {nth} of {method}: {fault:?}");
            let scenario = Scenario::with(method, nth, fault);
            scenario.run().await;
            scenario.assert_exact().await;
            let calls = scenario.0.store.calls(method);
            assert!(calls >= nth, "{method} was called only {calls} times: nothing went wrong");
        }
    }
}

struct Scenario(Harness);

/// Retries a call that the store did not answer, as clients do.
async fn retry<T, F: Future<Output = Result<T>>>(call: impl Fn() -> F) -> T {
    for _ in 0..3 {
        match call().await {
            Err(error) if error.is_retryable() => {}
            answer => return answer.unwrap(),
        }
    }
    panic!("it failed three times");
}

fn batch_id() -> BatchId {
    BatchId::new("b").unwrap()
}

fn definition(revision: u32) -> Payload {
    Payload::json(&revision).unwrap()
}

fn adopted_kind() -> Kind {
    Kind::new("adopted").unwrap()
}

/// Enough attempts that a lost run changes no unit's final state.
fn patient(script: &Script) -> NewUnit {
    let retry = RetryPolicy { max_attempts: 5, ..RetryPolicy::default() };
    NewUnit { policy: Some(Policy { retry, ..Policy::default() }), ..unit(script) }
}

/// The batch's units by chunk: 33 are done, 2 fail, 1 is cancelled.
fn chunks() -> [Vec<NewUnit>; 3] {
    let scripts = [
        Script::Error("no".into()),
        Script::Fail("no".into()),
        Script::Cancel,
        Script::Snooze(50),
        Script::RetryAfter(50),
        Script::Checkpoint(json!("half")),
    ];
    let nap = |millis| patient(&Script::Sleep(millis));
    let naps = |count, millis| (0..count).map(move |_| nap(millis));
    // The last unit runs long enough for many heartbeats and for late operators.
    let last = naps(19, 1).chain([nap(45_000)]);
    [naps(10, 3).collect(), scripts.iter().map(patient).collect(), last.collect()]
}

impl Scenario {
    fn with(method: &'static str, nth: u64, fault: Fault) -> Self {
        // The worker's first claim loses its response, so that leases are compared and returned.
        Self(Harness::with_faults(&[("claim", 4, Fault::FailAfter), (method, nth, fault)]))
    }

    async fn run(&self) {
        self.fill().await;
        let doomed = self.send().await;
        self.open("ghost", 1).await;
        self.adopt().await;
        let worker = self.0.worker(4).until_idle(true).build().unwrap();
        let (report, ()) = tokio::join!(worker.run(), self.operate(doomed));
        assert_eq!(report.unwrap().left, 0);
        self.inspect(doomed).await;
    }

    /// Fills the batch. An initiator that fails is restarted and resumes at the cursor.
    async fn fill(&self) {
        for _ in 0..3 {
            match self.initiate().await {
                Ok(()) => return,
                Err(SendError::CursorMoved(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        panic!("the initiator failed three times");
    }

    async fn initiate(&self) -> Result<(), SendError> {
        let batch = NewBatch { definition: Some(definition(1)), ..NewBatch::new(batch_id()) };
        let mut writer = self.0.client.open_batch(batch).await?;
        let from: usize = writer.cursor().parse().unwrap_or(0);
        for (i, chunk) in chunks().into_iter().enumerate().skip(from) {
            writer.add(chunk, (i + 1).to_string()).await?;
        }
        writer.seal().await.map(drop)
    }

    /// Sends five units that will be done, one to be adopted, and one for tomorrow, which is
    /// returned.
    async fn send(&self) -> UnitId {
        let mut units: Vec<NewUnit> = (0..5).map(|_| patient(&Script::Sleep(2))).collect();
        units.push(NewUnit { kind: adopted_kind(), ..unit(&Script::Cancel) });
        let mut doomed = unit(&Script::Cancel);
        doomed.not_before = Some(self.0.now() + Duration::from_secs(24 * 3600));
        let id = doomed.id;
        units.push(doomed);
        for unit in units {
            self.0.client.send(unit).await.unwrap();
        }
        id
    }

    /// Opens a session that never beats, and claims one unit for it.
    async fn open(&self, label: &str, ttl: u64) -> SessionId {
        let (store, id) = (&self.0.store, SessionId::new());
        let kind = if label == "ghost" { kind() } else { adopted_kind() };
        let session = NewSession {
            kinds: BTreeMap::from([(kind.clone(), Policy::default())]),
            ttl: Duration::from_secs(ttl),
            ..NewSession::new(id, label)
        };
        retry(|| store.open_session(session.clone())).await;
        let claim = ClaimRequest::new(id, vec![kind], 1);
        retry(|| store.claim(claim.clone())).await;
        id
    }

    /// A server dies while it holds a unit; its next session adopts the unit and finishes it.
    async fn adopt(&self) {
        let store = &self.0.store;
        let (old, new) = (self.open("old", 600).await, self.open("new", 600).await);
        let leases: Vec<Lease> = loop {
            match store.adopt(old, new).await {
                Ok(held) => break held.into_iter().map(|held| held.lease).collect(),
                // An earlier attempt succeeded, and only its response was lost.
                Err(Error::SessionGone(_)) => break retry(|| store.leases_of(new)).await,
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
        };
        let done = |lease| FinishRequest::new(lease, Outcome::Done(None));
        let finishes: Vec<FinishRequest> = leases.into_iter().map(done).collect();
        let answers = retry(|| store.finish(new, finishes.clone())).await;
        assert_eq!(answers, [FinishResult::Recorded(UnitState::Done)]);
        retry(|| store.close_session(new)).await;
    }

    /// Operators act while the worker runs.
    async fn operate(&self, doomed: UnitId) {
        let (store, scope) = (&self.0.store, &Scope::All);
        let queue = &QueueName::default();
        self.0.until(async || self.0.log.runs() > 3).await;
        for paused in [true, false] {
            let change = QueueChange { paused: Some(paused), ..QueueChange::default() };
            let change = SettingsChange::Queue(change);
            retry(|| store.change_settings(scope, queue, change.clone())).await;
        }
        let change = LaneChange { weight: Some(2), ..LaneChange::default() };
        let (change, batch) = (SettingsChange::Lane(TenantId::default(), change), &batch_id());
        retry(|| store.change_settings(scope, queue, change.clone())).await;
        let pause = BatchAction::Pause { reason: "tea".to_owned() };
        for action in [pause, BatchAction::Resume] {
            retry(|| store.apply_batch_action(scope, batch, action.clone())).await;
        }
        retry(|| store.change_definition(scope, batch, definition(1), definition(2))).await;
        for session in retry(|| store.sessions()).await {
            match store.command_worker(session.id, WorkerCommand::Work).await {
                Err(error) if error.is_retryable() => {
                    retry(|| store.command_worker(session.id, WorkerCommand::Work)).await;
                }
                // It may have been reclaimed since.
                _ => {}
            }
        }
        let units = || UnitSelection::Ids(vec![doomed]);
        retry(|| store.apply_unit_action(scope, units(), UnitAction::Cancel)).await;
    }

    /// Reads everything.
    async fn inspect(&self, doomed: UnitId) {
        let (store, scope) = (&self.0.store, &Scope::All);
        assert_eq!(retry(|| store.unit(scope, doomed)).await.state, UnitState::Cancelled);
        let filter = Default::default();
        assert_eq!(retry(|| store.units(scope, &filter, None, 100)).await.items.len(), 43);
        assert!(retry(|| store.failures(scope, doomed)).await.is_empty());
        assert_eq!(retry(|| store.queues(scope)).await.len(), 1);
        assert_eq!(retry(|| store.batches(scope, None, None, 10)).await.items.len(), 1);
        let batch = batch_id();
        assert_eq!(retry(|| store.definition(scope, &batch)).await, Some(definition(2)));
        assert!(!retry(|| store.changes(scope, 0, Duration::ZERO)).await.changes.is_empty());
        assert_eq!(retry(|| store.verify()).await, []);
    }

    async fn assert_exact(&self) {
        let store = &self.0.store;
        let id = batch_id();
        let batch = retry(|| store.batch(&Scope::All, &id)).await;
        let wanted = Counts { done: 33, failed: 2, cancelled: 1, ..Counts::default() };
        assert_eq!((batch.counts, batch.status), (wanted, BatchStatus::Complete));
        let totals = retry(|| store.totals(&Scope::All, &Queues::All)).await;
        let wanted = Counts { done: 39, failed: 2, cancelled: 2, ..Counts::default() };
        assert_eq!(totals.counts, wanted);
        self.0.assert_clean().await;
    }
}
