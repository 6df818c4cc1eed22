//! Recording the outcomes of runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longshore::accounts::{CallRecord, CallStatus, Calls as _, NewCall, UsageFilter};
use longshore::outcome::Params;
use longshore::{
    Context, Effect, Enqueue as _, HeartbeatPlacement, MemoryStore, NewUnit, Policy, ProfileName,
    RetryPolicy, Scope, TenantId, UnitState, Verdict, Worker,
};
use longshore_testkit::Fault;
use serde_json::json;

use crate::harness::{AlertLog, Harness, Script, kind};

#[tokio::test(start_paused = true)]
async fn what_gathered_during_a_flush_goes_out_as_the_next() {
    let harness = Harness::new();
    harness.send_all(500, Script::Sleep(10)).await;
    harness.store.set_default_fault("finish", Some(Fault::Delay(Duration::from_millis(100))));
    let worker = harness.worker(50).until_idle(true).build().unwrap();
    let stats = worker.stats();
    assert_eq!(worker.run().await.unwrap().done, 500);
    assert!(stats.flushes() <= 12, "{} flushes for 500 units in some 200 ms", stats.flushes());
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn an_outage_costs_no_outcome_however_long_it_lasts() {
    let (harness, log) = (Harness::new(), Arc::new(AlertLog::default()));
    let ids = harness.send_all(7, Script::Sleep(10)).await;
    // Heartbeats succeed meanwhile, and outcomes are alone or many.
    harness.store.set_default_fault("finish", Some(Fault::FailBefore));
    let worker = harness.worker(3).alert_sink(log.clone()).build().unwrap();
    let control = worker.control();
    let driver = async {
        tokio::time::sleep(Duration::from_secs(3 * 3600)).await;
        let outages = log.take().into_iter().filter(|alert| alert.contains("a call to the store failed"));
        assert_eq!(outages.count(), 1, "heartbeats do not end the outage of finishes");
        harness.store.set_default_fault("finish", None);
        for id in ids {
            harness.until(async || harness.unit(id).await.state == UnitState::Done).await;
        }
        control.drain();
    };
    let (report, ()) = tokio::join!(worker.run(), driver);
    let report = report.unwrap();
    assert_eq!((report.done, report.lost, harness.log.runs()), (7, 0, 7));
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn an_outage_in_which_every_call_takes_too_long_costs_no_outcome() {
    let (harness, log) = (Harness::new(), Arc::new(AlertLog::default()));
    let id = harness.send(Script::Sleep(10)).await;
    let worker = harness.worker(1).alert_sink(log.clone()).build().unwrap();
    let control = worker.control();
    let driver = async {
        harness.until_running(1).await;
        harness.store.set_fault_source(Some(Box::new(|_| Some(Fault::TimeOut))));
        tokio::time::sleep(Duration::from_secs(3 * 3600)).await;
        // The store answers heartbeats before it records the outcome.
        harness.store.set_default_fault("finish", Some(Fault::TimeOut));
        harness.store.set_fault_source(None);
        tokio::time::sleep(Duration::from_secs(10)).await;
        harness.store.set_default_fault("finish", None);
        harness.until(async || harness.unit(id).await.state == UnitState::Done).await;
        control.drain();
    };
    let (report, ()) = tokio::join!(worker.run(), driver);
    let report = report.unwrap();
    let alerts = log.take();
    assert!(
        alerts.iter().all(|alert| !alert.contains("runs again") && !alert.contains("it fails")),
        "{alerts:?}"
    );
    assert_eq!((report.done, report.lost, harness.log.runs()), (1, 0, 1));
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_single_end_is_recorded_at_once() {
    let harness = Harness::new();
    let id = harness.send(Script::Ok(json!(1))).await;
    harness.worker(1).until_idle(true).build().unwrap().run().await.unwrap();
    let unit = harness.unit(id).await;
    assert!(unit.since.since(unit.created_at) < Duration::from_millis(5));
}

#[tokio::test(start_paused = true)]
async fn repeated_calls_do_no_harm() {
    let harness = Harness::new();
    harness.send_all(60, Script::Sleep(3)).await;
    for method in ["finish", "start", "release"] {
        harness.store.set_default_fault(method, Some(Fault::Duplicate));
    }
    let report = harness.worker(4).until_idle(true).build().unwrap().run().await.unwrap();
    assert_eq!((report.done, report.lost, harness.log.runs()), (60, 0, 60));
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn outcomes_of_calls_that_take_too_long_are_recorded_once_the_store_is_faster() {
    let harness = Harness::new();
    harness.send_all(60, Script::Sleep(10)).await;
    harness.store.set_default_fault("finish", Some(Fault::TimeOut));
    let worker = harness.worker(60).until_idle(true).build().unwrap();
    let recovery = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        harness.store.set_default_fault("finish", None);
    };
    let (report, ()) = tokio::join!(worker.run(), recovery);
    let report = report.unwrap();
    assert_eq!((report.done, report.lost, harness.log.runs()), (60, 0, 60));
    assert!(harness.store.calls("finish") < 500, "it waits between two tries");
    harness.assert_clean().await;
}

/// Longer than an outcome is retried alone.
const LONG: Duration = Duration::from_secs(16 * 60);

#[tokio::test(start_paused = true)]
async fn an_outcome_that_is_too_slow_while_others_are_recorded_is_replaced_by_a_failure() {
    let (harness, log, allow) =
        (Harness::new(), Arc::new(AlertLog::default()), Arc::new(AtomicBool::new(false)));
    // No retry of the slow outcome comes between.
    longshore::seed_randomness(1);
    let source = Arc::clone(&allow);
    harness.store.set_fault_source(Some(Box::new(move |method| {
        let refused = method == "finish" && !source.swap(false, Ordering::Relaxed);
        refused.then_some(Fault::TimeOut)
    })));
    let slow = harness.send(Script::Ok(json!(1))).await;
    let worker = harness.worker(2).alert_sink(log.clone()).build().unwrap();
    let control = worker.control();
    let driver = async {
        harness.until(async || harness.store.calls("finish") >= 3).await;
        // It is sent, run and recorded in one virtual instant.
        allow.store(true, Ordering::Relaxed);
        let other = harness.send(Script::Ok(json!(2))).await;
        harness.until(async || harness.unit(other).await.state == UnitState::Done).await;
        tokio::time::sleep(LONG).await;
        let alerts = log.take();
        assert!(alerts.len() == 1 && alerts[0].contains("finish-timeout"), "{alerts:?}");
        harness.store.set_fault_source(None);
        harness.until(async || harness.unit(slow).await.state == UnitState::Done).await;
        control.drain();
    };
    let (report, ()) = tokio::join!(worker.run(), driver);
    let report = report.unwrap();
    assert_eq!((report.done, report.retried, report.lost, harness.log.runs_of(slow)), (2, 1, 0, 2));
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_an_outcome_that_is_never_recorded_is_given_up_and_the_unit_runs_again() {
    let (harness, log) = (Harness::new(), Arc::new(AlertLog::default()));
    let id = harness.send(Script::Ok(json!(1))).await;
    harness.store.set_default_fault("finish", Some(Fault::TimeOut));
    let worker = harness.worker(1).alert_sink(log.clone()).build().unwrap();
    let control = worker.control();
    let driver = async {
        tokio::time::sleep(LONG).await;
        let alerts = log.take();
        assert!(alerts.len() == 1 && alerts[0].contains("it runs again"), "{alerts:?}");
        assert_eq!(
            harness.unit(id).await.state,
            UnitState::Leased,
            "the store cannot record its return either"
        );
        // The heartbeat's next try to return the lease succeeds.
        harness.store.set_default_fault("finish", None);
        harness.until(async || harness.unit(id).await.state == UnitState::Done).await;
        control.drain();
    };
    let (report, ()) = tokio::join!(worker.run(), driver);
    let report = report.unwrap();
    assert_eq!((report.done, report.lost, harness.log.runs_of(id)), (1, 1, 2));
    assert_eq!(harness.unit(id).await.attempt, 1, "no attempt was used");
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_is_retried_alone_does_not_wait_for_the_slow_calls_of_others() {
    let (harness, hour) = (Harness::new(), Duration::from_secs(3_600));
    let ids = harness.send_all(4, Script::Ok(json!(1))).await;
    harness.store.set_default_fault("finish", Some(Fault::TimeOut));
    let worker = harness.worker(4).build().unwrap();
    let control = worker.control();
    let done = async || {
        let mut done = 0;
        for id in &ids {
            done += usize::from(harness.unit(*id).await.state == UnitState::Done);
        }
        done
    };
    let driver = async {
        // By now each of them is alone.
        harness.until(async || harness.store.calls("finish") >= 40).await;
        let mut slow = 3;
        harness.store.set_fault_source(Some(Box::new(move |method| {
            let is_slow = method == "finish" && slow > 0;
            slow -= u32::from(is_slow);
            is_slow.then_some(Fault::Delay(hour))
        })));
        harness.store.set_default_fault("finish", None);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(done().await, 1, "three calls do not answer");
        tokio::time::sleep(hour).await;
        assert_eq!(done().await, 4);
        control.drain();
    };
    let (report, ()) = tokio::join!(worker.run(), driver);
    let report = report.unwrap();
    assert_eq!((report.done, report.lost, harness.log.runs()), (4, 0, 4));
    harness.assert_clean().await;
}

/// A call with a cost that was not admitted before.
fn paid_call(cost_picos: i64) -> CallRecord {
    let profile = ProfileName::new("main").unwrap();
    let call = NewCall::new(TenantId::default(), profile, "echo", "small");
    let call = NewCall { reserve_tokens: 1, reserve_picos: 1, ..call };
    let mut end = call.lost_end();
    (end.status, end.cost_picos) = (CallStatus::Success, cost_picos);
    CallRecord { call, end: Some(end) }
}

/// Runs a unit with a handler that returns `verdict`. Returns the costs of its calls.
async fn costs_after(verdict: Verdict) -> Vec<i64> {
    let store = Arc::new(MemoryStore::default());
    store.send(&Scope::All, vec![NewUnit::new(kind(), json!(1))]).await.unwrap();
    let once = RetryPolicy { max_attempts: 1, ..RetryPolicy::default() };
    let worker = Worker::builder(store.clone())
        .heartbeat(HeartbeatPlacement::Task)
        .handle_fn(kind(), Policy { retry: once, ..Policy::default() }, {
            move |_: Context, _: u8| std::future::ready(Err::<(), _>(verdict.clone()))
        })
        .until_idle(true)
        .build()
        .unwrap();
    assert_eq!(worker.run().await.unwrap().failed, 1);
    let calls = store.calls(&Scope::All, &UsageFilter::default(), None, 100).await.unwrap().items;
    calls.into_iter().filter_map(|call| call.end).map(|end| end.cost_picos).collect()
}

#[tokio::test(start_paused = true)]
async fn what_was_paid_for_is_written_although_the_run_came_to_nothing() {
    let params = Params::Ordered(vec![]);
    let effect = Effect { sql: "UPDATE t SET a = 1".into(), params, expected_rows: None };
    let refused = Verdict::fail("bad", "no").with_effects([effect]).with_calls([paid_call(7)]);
    assert_eq!(costs_after(refused).await, [7], "the effect is refused, the call is not");
    let senseless = Verdict::fail("bad", "no").with_calls([paid_call(8), paid_call(-1)]);
    assert_eq!(
        costs_after(senseless).await,
        [0, 8],
        "a cost that the ledger rejects becomes the nearest one"
    );
}
