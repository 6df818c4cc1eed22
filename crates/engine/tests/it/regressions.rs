//! Regressions: each test reproduces a defect that a review found.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use longshore::failure_detector::StalledSession;
use longshore::outcome::Params;
use longshore::store::{
    Admin, Capacity, ClaimRequest, LaneChange, Maintenance, Queries, QueueChange, Queues, SendResult,
    WorkerApi,
};
use longshore::worker_session::{NewSession, WorkerCommand};
use longshore::{
    Client, Context, Effect, HeartbeatPlacement, Kind, MemoryStore, NewBatch, NewUnit, Policy, QueueName,
    Scope, SendError, SessionId, TenantId, UnitId, UnitState, Verdict, WhenFull, Worker,
};
use longshore_testkit::Fault;
use serde_json::json;
use tokio::time::Instant;

use crate::harness::{Harness, Script, kind, twice, unit};

const HOUR: u64 = 3_600_000;
const SOON: Duration = Duration::from_millis(50);

/// How long until `count` handlers run.
async fn until_running(harness: &Harness, count: u32) -> Duration {
    let began = Instant::now();
    harness.until_running(count).await;
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_long_run_keeps_no_free_slot_idle() {
    // The long unit is sent before the worker starts, alone or with fast units that are prefetched.
    for fast in [0, 40] {
        let harness = Harness::new();
        harness.send(Script::Sleep(HOUR)).await;
        harness.send_all(fast, Script::Sleep(5)).await;
        let worker = harness.worker(4).build().unwrap();
        let control = worker.control();
        let sender = async {
            harness.until(async || harness.log.runs() == fast + 1).await;
            for running in 2..=4 {
                tokio::time::sleep(Duration::from_secs(30)).await;
                harness.send(Script::Sleep(HOUR)).await;
                let took = until_running(&harness, running).await;
                assert!(took < SOON, "number {running} started after {took:?}");
            }
            control.stop();
        };
        let (report, ()) = tokio::join!(worker.run(), sender);
        assert_eq!(report.unwrap().interrupted, 4);
        harness.assert_clean().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_comes_free_is_given_on_at_once() {
    let harness = Harness::new();
    let on_gpu = |time| {
        let mut unit = unit(&Script::Sleep(time));
        unit.weight.resources = BTreeMap::from([("gpu".to_owned(), 1)]);
        unit
    };
    let first = harness.client.send(on_gpu(1_000)).await.unwrap();
    let second = harness.client.send(on_gpu(1_000)).await.unwrap();
    let worker = harness.worker(4).resources(BTreeMap::from([("gpu".to_owned(), 1)])).until_idle(true);
    worker.build().unwrap().run().await.unwrap();
    let (first, second) = (harness.unit(first).await, harness.unit(second).await);
    let gap = second.since.since(first.since);
    assert!(gap < Duration::from_secs(1) + SOON, "{gap:?} after the first");
}

/// Opens a session that claims one unit and dies.
async fn die_with_one(harness: &Harness) {
    let id = SessionId::new();
    let session =
        NewSession { kinds: BTreeMap::from([(kind(), Policy::default())]), ..NewSession::new(id, "doomed") };
    harness.store.open_session(session).await.unwrap();
    let claim = ClaimRequest::new(id, vec![kind()], 1);
    assert_eq!(harness.store.claim(claim).await.unwrap().units.len(), 1);
    harness.store.reclaim(&[StalledSession { session: id, beats: 0 }]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn slots_are_not_kept_idle_for_a_unit_that_another_worker_took() {
    let harness = Harness::new();
    let suspect = harness.send(Script::Sleep(HOUR)).await;
    die_with_one(&harness).await;
    die_with_one(&harness).await;
    let pause = async |paused| {
        let change = QueueChange { paused: Some(paused), capacity: None };
        (&*harness.store as &dyn longshore::Store)
            .change_queue(&Scope::All, &QueueName::default(), change)
            .await
            .unwrap();
    };
    let send = async || {
        let queue = QueueName::new("other").unwrap();
        let long = NewUnit { queue, ..unit(&Script::Sleep(HOUR)) };
        harness.client.send(long).await.unwrap();
    };
    pause(true).await;
    let [busy, helper] = [4, 1].map(|slots| harness.worker(slots).build().unwrap());
    let controls = [busy.control(), helper.control()];
    let (call_helper, called) = tokio::sync::oneshot::channel();
    let script = async {
        send().await;
        harness.until_running(1).await;
        pause(false).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        send().await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(harness.log.running(), 1, "slots are kept idle for the one that waits");
        call_helper.send(()).unwrap();
        let took = until_running(&harness, 3).await;
        assert_eq!(harness.log.runs_of(suspect), 1);
        assert!(took < Duration::from_secs(5), "{took:?}");
        controls.iter().for_each(longshore::WorkerControl::stop);
    };
    let helper = async {
        called.await.unwrap();
        helper.run().await
    };
    let (busy, helper, ()) = tokio::join!(busy.run(), helper, script);
    assert_eq!((busy.unwrap().interrupted, helper.unwrap().interrupted), (2, 1));
    harness.assert_clean().await;
}

/// An operator quiets the only worker and waits until it is quiet.
async fn make_quiet(harness: &Harness, control: &longshore::WorkerControl) {
    let session = harness.store.sessions().await.unwrap()[0].id;
    harness.store.command_worker(session, WorkerCommand::Quiet).await.unwrap();
    harness.until(async || control.order() == WorkerCommand::Quiet).await;
}

async fn lift_quiet(harness: &Harness) {
    let session = harness.store.sessions().await.unwrap()[0].id;
    harness.store.command_worker(session, WorkerCommand::Work).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_broken_store_costs_no_outcome() {
    let harness = Harness::new();
    let ids = harness.send_all(5, Script::Ok(json!("paid"))).await;
    harness.store.set_default_fault("finish", Some(Fault::BrokenStream));
    let worker = harness.worker(5).until_idle(true).build().unwrap();
    let repair = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(harness.store.calls("finish") < 60, "it does not spin");
        harness.store.set_default_fault("finish", None);
    };
    let (report, ()) = tokio::join!(worker.run(), repair);
    let report = report.unwrap();
    assert_eq!((report.done, report.failed, report.lost), (5, 0, 0));
    assert_eq!(harness.log.runs(), 5);
    for id in ids {
        assert!(harness.unit(id).await.result.is_some());
    }
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_session_went_is_counted_as_lost_once() {
    let harness = Harness::new();
    harness.send(Script::Ok(json!(1))).await;
    harness.store.set_default_fault("finish", Some(Fault::Delay(Duration::from_secs(10))));
    let worker = harness.worker(1).until_idle(true).build().unwrap();
    let reclaimer_task = async {
        harness.until(async || harness.store.calls("finish") == 1).await;
        let session = harness.store.sessions().await.unwrap().remove(0);
        let dead = StalledSession { session: session.id, beats: session.beats };
        harness.store.reclaim(&[dead]).await.unwrap();
        harness.store.set_default_fault("finish", None);
    };
    let (report, ()) = tokio::join!(worker.run(), reclaimer_task);
    let report = report.unwrap();
    assert_eq!((report.lost, report.done), (1, 1));
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn an_operators_quiet_outlives_the_session_it_was_given_to() {
    let harness = Harness::new();
    let worker = harness.worker(1).build().unwrap();
    let control = worker.control();
    let operator = async {
        harness.until(async || !harness.store.sessions().await.unwrap().is_empty()).await;
        make_quiet(&harness, &control).await;
        let old = harness.store.sessions().await.unwrap().remove(0);
        harness.store.reclaim(&[StalledSession { session: old.id, beats: old.beats }]).await.unwrap();
        let id = harness.send(Script::Ok(json!(1))).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        let sessions = harness.store.sessions().await.unwrap();
        assert_ne!(sessions[0].id, old.id);
        assert_eq!((sessions[0].command, control.order()), (WorkerCommand::Quiet, WorkerCommand::Quiet));
        assert_eq!(harness.unit(id).await.state, UnitState::Ready);
        lift_quiet(&harness).await;
        harness.client.wait(id, None).await.unwrap();
        control.drain();
    };
    let (report, ()) = tokio::join!(worker.run(), operator);
    assert_eq!(report.unwrap().done, 1);
}

#[tokio::test(start_paused = true)]
async fn progress_of_a_beat_that_failed_goes_with_the_next() {
    let harness = Harness::with_faults(&[("heartbeat", 1, Fault::FailBefore)]);
    let id = harness.send(Script::Progress(0.5)).await;
    let worker = harness.worker(1).build().unwrap();
    let control = worker.control();
    let watcher = async {
        harness.until(async || harness.store.calls("heartbeat") >= 2).await;
        harness.until(async || harness.unit(id).await.progress.is_some()).await;
        control.stop();
    };
    let (report, ()) = tokio::join!(worker.run(), watcher);
    report.unwrap();
}

/// A store without SQL rejects effects, which shows that they reached the store.
fn effect() -> Effect {
    let params = Params::Ordered(vec![]);
    Effect { sql: "UPDATE t SET a = 1".into(), params, expected_rows: None }
}

#[tokio::test(start_paused = true)]
async fn a_verdict_brings_its_effects_to_the_store() {
    let harness = Harness::new();
    let kind = Kind::new("row").unwrap();
    let id = harness.client.send(NewUnit::new(kind.clone(), json!(1))).await.unwrap();
    let worker = Worker::builder(harness.store.clone())
        .heartbeat(HeartbeatPlacement::Task)
        .handle_fn(kind, twice(), |_: Context, _: u8| async {
            Err::<(), _>(Verdict::fail("bad-row", "no").with_effects([effect()]))
        })
        .until_idle(true)
        .build()
        .unwrap();
    worker.run().await.unwrap();
    let unit = harness.unit(id).await;
    assert_eq!((unit.state, unit.attempt), (UnitState::Failed, 2));
    assert_eq!(unit.failure.unwrap().code, "unsupported", "the store saw the effects");
}

#[tokio::test(start_paused = true)]
async fn effects_of_an_interrupted_run_do_not_happen() {
    let harness = Harness::new();
    let kind = Kind::new("row").unwrap();
    let id = harness.client.send(NewUnit::new(kind.clone(), json!(1))).await.unwrap();
    let worker = Worker::builder(harness.store.clone())
        .heartbeat(HeartbeatPlacement::Task)
        .handle_fn(kind, twice(), |context: Context, _: u8| async move {
            context.cancelled().cancelled().await;
            Err::<(), _>(Verdict::retry("obeyed", "no time").with_effects([effect()]))
        })
        .build()
        .unwrap();
    let (control, stats) = (worker.control(), worker.stats());
    let operator = async {
        harness.until(async || stats.running() == 1).await;
        control.stop();
    };
    let (report, ()) = tokio::join!(worker.run(), operator);
    assert_eq!(report.unwrap().interrupted, 1);
    assert_eq!(harness.unit(id).await.failure, None);
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_unit_of_an_earlier_chunk_is_sent_after_it() {
    for fault in [Fault::Delay(Duration::from_secs(1)), Fault::FailBefore] {
        let harness = Harness::with_faults(&[("send", 1, fault)]);
        let mut units: Vec<NewUnit> = (0..2_500).map(|_| unit(&Script::Ok(json!(1)))).collect();
        let first = units[0].id;
        units[1_500].dependencies.units = vec![first];
        let sent = harness.client.send_many(units, WhenFull::Wait).await.unwrap();
        assert!(sent.iter().all(|sent| matches!(sent, SendResult::Created(_))));
    }
}

#[tokio::test(start_paused = true)]
async fn chunks_that_meet_an_error_go_on_one_by_one() {
    // The first chunk fails once; the third is late, and the fourth must not overtake it.
    let late = Fault::Delay(Duration::from_secs(1));
    let harness = Harness::with_faults(&[("send", 1, Fault::FailBefore), ("send", 4, late)]);
    let units: Vec<NewUnit> = (0..4_000).map(|_| unit(&Script::Ok(json!(1)))).collect();
    let ids: Vec<UnitId> = units.iter().map(|unit| unit.id).collect();
    let sent = harness.client.send_many(units, WhenFull::Wait).await.unwrap();
    assert_eq!(sent, ids.iter().copied().map(SendResult::Created).collect::<Vec<_>>());
    assert_eq!(harness.store.calls("send"), 5);
    let (third, fourth) = (harness.unit(ids[2_000]).await, harness.unit(ids[3_000]).await);
    assert!(third.created_at <= fourth.created_at);
}

#[tokio::test(start_paused = true)]
async fn a_chunk_larger_than_its_lane_is_refused_instead_of_waiting_for_ever() {
    let harness = Harness::new();
    let capacity = Some(Capacity { units: Some(2), bytes: None });
    let change = LaneChange { capacity, ..LaneChange::default() };
    let (queue, tenant) = (QueueName::default(), TenantId::default());
    (&*harness.store as &dyn longshore::Store)
        .change_lane(&Scope::All, &queue, &tenant, change)
        .await
        .unwrap();
    let mut writer = harness.client.open_batch(NewBatch::new("b".parse().unwrap())).await.unwrap();
    let units = (0..3).map(|_| unit(&Script::Ok(json!(1)))).collect();
    let adding = tokio::time::timeout(Duration::from_secs(60), writer.add(units, "3".into()));
    assert!(matches!(adding.await.unwrap(), Err(SendError::Rejected(_))));
}

#[tokio::test(start_paused = true)]
async fn an_awaited_unit_is_heard_of_at_once_on_a_busy_queue() {
    let harness = Harness::new();
    let worker = harness.worker(4).build().unwrap();
    let control = worker.control();
    let crowd = async {
        while control.order() < WorkerCommand::Drain {
            harness.send(Script::Ok(json!(1))).await;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let caller = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let awaited = NewUnit { awaited: true, ..unit(&Script::Sleep(777)) };
        let before = harness.store.calls("unit");
        let began = Instant::now();
        let id = harness.client.send(awaited).await.unwrap();
        harness.client.wait(id, None).await.unwrap();
        let took = began.elapsed();
        assert!(took < Duration::from_millis(785), "{took:?}");
        let looks = harness.store.calls("unit") - before;
        assert!(looks <= 20, "{looks} looks in 777 ms");
        control.drain();
    };
    let (report, (), ()) = tokio::join!(worker.run(), crowd, caller);
    report.unwrap();
}

/// A worker on its own thread and runtime that runs the maintenance services.
fn watch(store: Arc<MemoryStore>, until: Duration) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let worker = Worker::builder(store)
            .queues(Queues::Named(vec![]))
            .handle_fn(kind(), twice(), |_: Context, (): ()| async { Ok::<(), String>(()) })
            .build()
            .unwrap();
        let control = worker.control();
        let script = async {
            tokio::time::sleep(until).await;
            control.drain();
        };
        runtime.block_on(async { tokio::join!(worker.run(), script) }).0.unwrap();
    })
}

/// In real time, on one thread: the handler blocks every task of this runtime.
#[tokio::test]
async fn a_handler_that_blocks_the_whole_runtime_does_not_cost_the_session() {
    let store = Arc::new(MemoryStore::default());
    let client = Client::new(store.clone());
    let id = client.send(NewUnit::new(kind(), json!(null))).await.unwrap();
    let watcher = watch(store.clone(), Duration::from_secs(12));
    let worker = Worker::builder(store.clone())
        .ttl(Duration::from_secs(3))
        .services(longshore::Services::None)
        .handle_fn(kind(), twice(), |_: Context, (): ()| async {
            std::thread::sleep(Duration::from_millis(10_500));
            Ok::<(), String>(())
        })
        .build()
        .unwrap();
    let control = worker.control();
    let caller = async {
        let unit = client.wait(id, None).await.unwrap();
        control.drain();
        unit
    };
    let (report, unit) = tokio::join!(worker.run(), caller);
    assert_eq!((report.unwrap().lost, unit.attempt, unit.lost), (0, 1, 0));
    watcher.join().unwrap();
    assert_eq!(store.sessions().await.unwrap(), vec![], "its heartbeat has stopped");
}
