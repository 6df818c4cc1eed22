//! The store is unavailable, ends the session, or loses a response.

use std::sync::Arc;
use std::time::Duration;

use longshore::store::{Maintenance, Queries};
use longshore::{Scope, UnitState, failure_detector::StalledSession};
use longshore_testkit::Fault;
use serde_json::json;

use crate::harness::{AlertLog, Harness, Script};

#[tokio::test(start_paused = true)]
async fn an_outage_loses_nothing_and_does_not_spin() {
    let harness = Harness::new();
    harness.send_all(200, Script::Sleep(50)).await;
    let worker = harness.worker(8).until_idle(true).build().unwrap();
    let driver = async {
        harness.until(async || harness.log.runs() > 40).await;
        harness.store.set_outage(true);
        let methods =
            ["claim", "start", "finish", "heartbeat", "release", "acquire_leadership", "totals", "sessions"];
        let calls = || methods.iter().map(|method| harness.store.calls(method)).sum::<u64>();
        let before = calls();
        tokio::time::sleep(Duration::from_secs(60)).await;
        let made = calls() - before;
        assert!(made < 300, "{made} calls in a minute without a store");
        harness.store.set_outage(false);
    };
    let (report, ()) = tokio::join!(worker.run(), driver);
    let report = report.unwrap();
    assert_eq!((report.done, report.lost, report.retried), (200, 0, 0));
    assert_eq!(harness.log.runs(), 200, "each ran once");
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_waits_for_a_store_that_is_away_at_its_start() {
    let harness = Harness::new();
    harness.send(Script::Ok(json!(1))).await;
    harness.store.set_outage(true);
    let worker = harness.worker(1).until_idle(true).build().unwrap();
    let driver = async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        harness.store.set_outage(false);
    };
    let (report, ()) = tokio::join!(worker.run(), driver);
    assert_eq!(report.unwrap().done, 1);
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_without_a_store_ends_and_says_what_is_left() {
    let harness = Harness::new();
    harness.send_all(3, Script::Sleep(100)).await;
    let worker = harness.worker(3).build().unwrap();
    let control = worker.control();
    let began = tokio::time::Instant::now();
    let driver = async {
        harness.until_running(3).await;
        harness.store.set_outage(true);
        harness.until_running(0).await;
        control.stop();
    };
    let (report, ()) = tokio::join!(worker.run(), driver);
    assert_eq!(report.unwrap().left, 3);
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_of_finish_counts_nothing_twice() {
    let harness = Harness::new();
    harness.send_all(50, Script::Sleep(5)).await;
    harness.store.set_default_fault("finish", Some(Fault::FailAfter));
    let worker = harness.worker(4).until_idle(true).build().unwrap();
    let driver = async {
        harness.until(async || harness.store.calls("finish") >= 3).await;
        harness.store.set_default_fault("finish", None);
    };
    let (report, ()) = tokio::join!(worker.run(), driver);
    let report = report.unwrap();
    assert_eq!((report.done, report.lost), (50, 0));
    assert_eq!(harness.log.runs(), 50);
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn units_of_a_claim_whose_answer_was_lost_are_given_back() {
    let harness = Harness::new();
    let ids = harness.send_all(6, Script::Ok(json!(1))).await;
    harness.store.set_default_fault("claim", Some(Fault::FailAfter));
    let worker = harness.worker(2).until_idle(true).build().unwrap();
    let driver = async {
        harness.until(async || harness.store.calls("claim") >= 1).await;
        harness.store.set_default_fault("claim", None);
    };
    let (report, ()) = tokio::join!(worker.run(), driver);
    assert_eq!(report.unwrap().done, 6);
    for id in ids {
        let unit = harness.unit(id).await;
        assert_eq!((unit.state, unit.attempt, unit.lost), (UnitState::Done, 1, 0));
    }
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_session_that_was_ended_is_replaced_and_its_runs_are_void() {
    let harness = Harness::new();
    let id = harness.send(Script::Obey).await;
    let worker = harness.worker(2).build().unwrap();
    let control = worker.control();
    let operator = async {
        harness.until_running(1).await;
        let session = harness.store.sessions().await.unwrap().remove(0);
        let dead = StalledSession { session: session.id, beats: session.beats };
        harness.store.reclaim(&[dead]).await.unwrap();
        // The old run is cancelled; the unit is requeued and runs under the new session.
        harness.until(async || harness.log.runs_of(id) == 2).await;
        let sessions = harness.store.sessions().await.unwrap();
        assert_eq!(sessions.len(), 1);
        assert_ne!(sessions[0].id, session.id);
        let unit = harness.store.unit(&Scope::All, id).await.unwrap();
        assert_eq!((unit.state, unit.lost), (UnitState::Leased, 1));
        control.stop();
    };
    let (report, ()) = tokio::join!(worker.run(), operator);
    let report = report.unwrap();
    assert_eq!((report.lost, report.interrupted, report.retried), (1, 1, 0));
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_was_quieted_in_an_outage_alerts_in_the_next() {
    let (harness, log) = (Harness::new(), Arc::new(AlertLog::default()));
    let worker = harness.worker(1).alert_sink(log.clone()).build().unwrap();
    let control = worker.control();
    let alerts = || log.take().iter().filter(|alert| alert.contains("a call to the store failed")).count();
    let driver = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        harness.store.set_default_fault("claim", Some(Fault::FailBefore));
        harness.send(Script::Ok(json!(1))).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(alerts(), 1);
        control.quiet();
        harness.store.set_default_fault("claim", None);
        tokio::time::sleep(Duration::from_secs(3600)).await;
        harness.store.set_outage(true);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(alerts(), 1, "of the second outage");
        harness.store.set_outage(false);
        control.stop();
    };
    let (report, ()) = tokio::join!(worker.run(), driver);
    report.unwrap();
}
