//! Pools as handlers of the engine's workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use longshore::store::{UnitAction, UnitSelection};
use longshore::{
    Client, Kind, MemoryStore, NewUnit, Policy, RetryPolicy, Scope, Unit, UnitId, UnitState, Worker,
    WorkerBuilder, WorkerReport,
};
use longshore_pool::engine::{HandleError, HandlePool};
use longshore_pool::{
    ErrorKind, OperationError, OperationSet, Operations, PoolCall, PoolSettings, WorkerPool,
};
use serde_json::{Value, json};

use crate::gate::{Gate, gated};
use crate::helpers::{self, exactly};

/// A store with a client, and builders of workers.
struct Fixture {
    store: Arc<MemoryStore>,
    client: Client,
}

impl Fixture {
    fn new() -> Self {
        let store = Arc::new(MemoryStore::default());
        Self { client: Client::new(store.clone()), store }
    }

    async fn send(&self, kind: &str, payload: Value) -> UnitId {
        self.client.send(unit(kind, payload)).await.unwrap()
    }

    fn worker(&self) -> WorkerBuilder {
        Worker::builder(self.store.clone()).slots(4).until_idle(true)
    }

    async fn work(&self, worker: WorkerBuilder) -> WorkerReport {
        let working = worker.build().unwrap().run();
        tokio::time::timeout(Duration::from_secs(60), working).await.unwrap().unwrap()
    }

    async fn unit(&self, id: UnitId) -> Unit {
        self.client.store().unit(&Scope::All, id).await.unwrap()
    }

    async fn failure(&self, id: UnitId) -> (String, String, u32) {
        let unit = self.unit(id).await;
        assert_eq!(unit.state, UnitState::Failed);
        let failure = unit.failure.unwrap();
        (failure.code, failure.message, unit.attempt)
    }
}

/// A unit with two attempts without a delay in between.
fn unit(kind: &str, payload: Value) -> NewUnit {
    let mut unit = NewUnit::new(Kind::new(kind).unwrap(), payload);
    let base = Duration::from_millis(1);
    let retry = RetryPolicy { max_attempts: 2, base, cap: base, max_age: None };
    unit.policy = Some(Policy { retry, ..Policy::default() });
    unit
}

async fn threads(operations: impl OperationSet) -> WorkerPool {
    WorkerPool::threads("test", operations, exactly(2)).await.unwrap()
}

#[tokio::test]
async fn operations_handle_the_kinds_of_their_names() {
    let operations = Operations::stateless()
        .add("double", |(), n: u64| Ok::<_, String>(2 * n))
        .add("forget", |(), _: Value| Ok::<_, String>(()));
    let pool = threads(operations).await;
    let fixture = Fixture::new();
    let double = fixture.send("double", json!(21)).await;
    let forget = fixture.send("forget", json!({"a": [1, 2]})).await;
    let report = fixture.work(fixture.worker().handle_pool(&pool).unwrap()).await;
    assert_eq!(report.done, 2);
    assert_eq!(fixture.unit(double).await.result.unwrap().parse::<u64>().unwrap(), 42);
    assert_eq!(fixture.unit(forget).await.result, None, "nothing is no result");
}

#[tokio::test]
async fn bytes_go_in_and_out_as_they_are() {
    let operations = Operations::stateless().add_bytes("turn", |(), _: &PoolCall, mut bytes| {
        bytes.reverse();
        Ok::<_, String>(bytes)
    });
    let pool = threads(operations).await;
    let fixture = Fixture::new();
    let mut sent = unit("mirror", json!(null));
    sent.payload = vec![0xff, 0, 1].into();
    let id = fixture.client.send(sent).await.unwrap();
    let kind = Kind::new("mirror").unwrap();
    fixture.work(fixture.worker().handle_operation(kind, Policy::default(), &pool, "turn")).await;
    assert_eq!(fixture.unit(id).await.result.unwrap().as_bytes(), [1, 0, 0xff]);
}

#[tokio::test]
async fn an_error_is_tried_again_by_the_policy_and_bad_arguments_are_not() {
    let operations = Operations::stateless()
        .add("fail", |(), (): ()| Err::<(), _>(std::io::Error::other("no luck")))
        .add("double", |(), n: u64| Ok::<_, String>(2 * n))
        .add("panic", |(), (): ()| -> Result<(), String> { panic!("oh dear") });
    let pool = threads(operations).await;
    let fixture = Fixture::new();
    let fail = fixture.send("fail", json!(null)).await;
    let bad = fixture.send("double", json!("many")).await;
    let panic = fixture.send("panic", json!(null)).await;
    let unknown = fixture.send("typo", json!(null)).await;
    let worker = fixture.worker().handle_pool(&pool).unwrap();
    let typo = Kind::new("typo").unwrap();
    fixture.work(worker.handle_operation(typo, Policy::default(), &pool, "dubble")).await;
    assert_eq!(fixture.failure(fail).await, ("error".into(), "no luck".into(), 2));
    let (code, message, attempts) = fixture.failure(bad).await;
    assert_eq!((code.as_str(), attempts), ("bad-input", 1), "{message}");
    let (code, message, attempts) = fixture.failure(unknown).await;
    assert_eq!((code.as_str(), attempts), ("unknown-operation", 1));
    assert!(message.contains("double"), "{message}");
    let (code, message, attempts) = fixture.failure(panic).await;
    assert_eq!((code.as_str(), attempts), ("panic", 2));
    assert!(message.contains("oh dear"), "{message}");
}

#[tokio::test]
async fn an_operation_may_choose_what_becomes_of_its_unit() {
    let calls = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&calls);
    let operations = Operations::stateless().add("choose", move |(), data: Value| {
        match seen.fetch_add(1, Ordering::SeqCst) {
            0 => Err(OperationError::with_data("not so", data)),
            _ => Ok(()),
        }
    });
    let pool = threads(operations).await;
    let choose = async |data: Value| {
        calls.store(0, Ordering::SeqCst);
        let fixture = Fixture::new();
        let id = fixture.send("choose", data).await;
        fixture.work(fixture.worker().handle_pool(&pool).unwrap()).await;
        fixture.unit(id).await
    };
    let failed = choose(json!({"outcome": "fail", "code": "hopeless"})).await;
    assert_eq!((failed.state, failed.attempt), (UnitState::Failed, 1));
    assert_eq!(failed.failure.unwrap().code, "hopeless");
    let snoozed = choose(json!({"outcome": "snooze", "after_ms": 1})).await;
    assert_eq!((snoozed.state, snoozed.attempt), (UnitState::Done, 1), "no attempt was used");
    let retried = choose(json!({"outcome": "retry", "after_ms": 1})).await;
    assert_eq!((retried.state, retried.attempt), (UnitState::Done, 2));
}

#[tokio::test]
async fn a_full_pool_costs_no_attempt() {
    let (pool, gate) = gated(|settings| *settings = PoolSettings { queue: 0, ..exactly(1) }).await;
    let fixture = Fixture::new();
    let ids = [fixture.send("gate", json!(1)).await, fixture.send("gate", json!(2)).await];
    let working = fixture.work(fixture.worker().handle_pool(&pool).unwrap());
    let refused = helpers::eventually("one is refused", || pool.stats().calls.refused >= 1);
    let ((), report) = tokio::join!(
        async {
            refused.await;
            gate.open();
        },
        working
    );
    assert_eq!((report.done, report.failed, report.retried), (2, 0, 0));
    for id in ids {
        assert_eq!(fixture.unit(id).await.attempt, 1);
    }
}

/// Time is paused: it advances while the slots pause.
#[tokio::test(start_paused = true)]
async fn a_queue_is_not_run_through_while_its_pool_takes_nothing() {
    // Hours may pass on the paused clock while the pool's thread starts.
    let timeout = Duration::from_secs(365 * 24 * 3_600);
    let (pool, gate) = gated(|settings| *settings = PoolSettings { queue: 0, timeout, ..exactly(1) }).await;
    let fixture = Fixture::new();
    for n in 0..100 {
        fixture.send("gate", json!(n)).await;
    }
    let begun = tokio::time::Instant::now();
    tokio::select! {
        _ = fixture.work(fixture.worker().handle_pool(&pool).unwrap()) => panic!("it cannot end"),
        () = helpers::eventually("many are refused", || pool.stats().calls.refused >= 30) => {}
    }
    // One slot waits at the gate; each of the other three is rejected once a second.
    assert!(begun.elapsed() >= Duration::from_secs(9), "{:?}", begun.elapsed());
    gate.open();
}

#[tokio::test]
async fn what_a_call_says_of_its_progress_is_the_units() {
    let gate = Gate::default();
    let waits = gate.clone();
    let operations = Operations::stateless().add_with("slow", move |(), call: &PoolCall, (): ()| {
        call.progress(&json!({"done": 1, "of": 2, "message": "halfway"}));
        waits.pass(1);
        Ok::<_, String>(())
    });
    let pool = threads(operations).await;
    let fixture = Fixture::new();
    let id = fixture.send("slow", json!(null)).await;
    let working = fixture.work(fixture.worker().handle_pool(&pool).unwrap());
    let looking = async {
        loop {
            if let Some(progress) = fixture.unit(id).await.progress {
                break progress;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let looking = async {
        let progress = looking.await;
        gate.open();
        progress
    };
    let (progress, _) = tokio::join!(looking, working);
    assert_eq!((progress.fraction, progress.message.as_deref()), (Some(0.5), Some("halfway")));
}

#[tokio::test]
async fn a_unit_that_is_cancelled_takes_its_call_back() {
    let begun = Arc::new(tokio::sync::Notify::new());
    let begins = Arc::clone(&begun);
    let operations = Operations::stateless().add_with("long", move |(), call: &PoolCall, (): ()| {
        begins.notify_one();
        while !call.is_cancelled() {
            std::thread::sleep(Duration::from_millis(5));
        }
        Err::<(), _>("as you wish")
    });
    let pool = threads(operations).await;
    let fixture = Fixture::new();
    let id = fixture.send("long", json!(null)).await;
    let working = fixture.work(fixture.worker().handle_pool(&pool).unwrap());
    let cancelling = async {
        begun.notified().await;
        let units = UnitSelection::Ids(vec![id]);
        let store = fixture.client.store();
        store.apply_unit_action(&Scope::All, units, UnitAction::Cancel).await.unwrap();
    };
    tokio::join!(working, cancelling);
    assert_eq!(fixture.unit(id).await.state, UnitState::Cancelled);
    helpers::eventually("the thread is free again", || pool.stats().busy == 0).await;
}

#[tokio::test]
async fn a_units_time_is_its_calls_time_and_a_hung_process_is_killed_with_it() {
    let pool = helpers::pool(helpers::worker("binary", "well"), exactly(1)).await;
    let fixture = Fixture::new();
    let mut sent = unit("nothing", json!(null));
    let limit = Some(Duration::from_millis(300));
    sent.policy = sent.policy.map(|policy| Policy { timeout: limit, ..policy });
    let id = fixture.client.send(sent).await.unwrap();
    fixture.work(fixture.worker().handle_pool(&pool).unwrap()).await;
    let (code, message, attempts) = fixture.failure(id).await;
    assert_eq!((code.as_str(), attempts), ("timeout", 2));
    assert!(message.contains("killed"), "{message}");
    assert_eq!(pool.stats().ended.get("timeout"), Some(&2));
}

#[tokio::test]
async fn units_beside_one_that_blocks_their_process_use_no_attempt() {
    let program = longshore_pool::Program::command("node").arg(helpers::fixture("blocking.mjs"));
    let pool = helpers::pool(program, exactly(1)).await;
    let fixture = Fixture::new();
    let only_attempt = |kind, payload: u32| {
        let mut unit = unit(kind, json!(payload));
        let timeout = Some(Duration::from_secs(1));
        unit.policy = unit.policy.map(|mut policy| {
            policy.retry.max_attempts = 1;
            Policy { timeout, ..policy }
        });
        fixture.client.send(unit)
    };
    let blocks = only_attempt("block", 100_000).await.unwrap();
    let mut beside = Vec::new();
    for payload in 1..=3 {
        beside.push(only_attempt("wait", payload).await.unwrap());
    }
    fixture.work(fixture.worker().handle_pool(&pool).unwrap()).await;
    let (code, message, attempts) = fixture.failure(blocks).await;
    assert_eq!((code.as_str(), attempts), ("timeout", 1), "{message}");
    for id in beside {
        let unit = fixture.unit(id).await;
        assert_eq!((unit.state, unit.attempt, unit.failure), (UnitState::Done, 1, None));
    }
    assert_eq!(pool.stats().ended.get("timeout"), Some(&2), "with others, then alone");
}

#[tokio::test]
async fn a_unit_whose_process_died_is_tried_again() {
    let place = tempfile::tempdir().unwrap();
    // Not the idempotent operation: the pool would retry that one itself.
    let pool = helpers::pool(helpers::worker("json", "well"), exactly(1)).await;
    let fixture = Fixture::new();
    let id = fixture.send("die", json!(place.path().join("mark"))).await;
    fixture.work(fixture.worker().handle_pool(&pool).unwrap()).await;
    let (code, message, attempts) = fixture.failure(id).await;
    assert_eq!((code.as_str(), attempts), ("worker-died", 2));
    assert!(message.contains("signal 9"), "{message}");
}

#[tokio::test]
async fn a_pool_without_operations_or_with_odd_names_is_refused() {
    let fixture = Fixture::new();
    let pool = threads(Operations::stateless()).await;
    let refused = fixture.worker().handle_pool(&pool).err().unwrap();
    assert_eq!(refused, HandleError::NoOperations { pool: "test".into() });
    let pool = threads(Operations::stateless().add("a b", |(), (): ()| Ok::<_, String>(()))).await;
    let refused = fixture.worker().handle_pool(&pool).err().unwrap();
    assert!(matches!(refused, HandleError::BadName { .. }), "{refused}");
}

#[tokio::test]
async fn workers_that_cannot_be_started_any_more_cost_no_attempt() {
    let kind = ErrorKind::StartFailed { message: "gone".into(), stderr: String::new() };
    let (pool, operation) = ("p".to_owned(), "o".to_owned());
    let error = longshore_pool::CallError { pool, operation, kind, worker: None };
    let outcome = longshore_pool::engine::outcome(&error);
    assert!(matches!(outcome, longshore::Outcome::Snooze(_)), "{outcome:?}");
}
