//! The store is away, forgets us, or loses an answer.

use std::time::Duration;

use longshore::store::{Inspect, Upkeep};
use longshore::{Scope, UnitState, stall::Dead};
use longshore_testkit::Fault;
use serde_json::json;

use crate::harbour::{Harbour, Script};

#[tokio::test(start_paused = true)]
async fn an_outage_loses_nothing_and_does_not_spin() {
    let harbour = Harbour::new();
    harbour.send_all(200, Script::Sleep(50)).await;
    let worker = harbour.worker(8).until_idle(true).build().unwrap();
    let weather = async {
        harbour.until(async || harbour.log.runs() > 40).await;
        harbour.store.outage(true);
        let verbs = ["claim", "start", "finish", "beat", "release", "lead", "totals", "sessions"];
        let calls = || verbs.iter().map(|verb| harbour.store.calls(verb)).sum::<u64>();
        let before = calls();
        tokio::time::sleep(Duration::from_secs(60)).await;
        let made = calls() - before;
        assert!(made < 200, "{made} calls in a minute without a store");
        harbour.store.outage(false);
    };
    let (report, ()) = tokio::join!(worker.run(), weather);
    let report = report.unwrap();
    assert_eq!((report.done, report.lost, report.retried), (200, 0, 0));
    assert_eq!(harbour.log.runs(), 200, "each ran once");
    harbour.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_waits_for_a_store_that_is_away_at_its_start() {
    let harbour = Harbour::new();
    harbour.send(Script::Ok(json!(1))).await;
    harbour.store.outage(true);
    let worker = harbour.worker(1).until_idle(true).build().unwrap();
    let weather = async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        harbour.store.outage(false);
    };
    let (report, ()) = tokio::join!(worker.run(), weather);
    assert_eq!(report.unwrap().done, 1);
    harbour.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_without_a_store_ends_and_says_what_is_left() {
    let harbour = Harbour::new();
    harbour.send_all(3, Script::Sleep(100)).await;
    let worker = harbour.worker(3).build().unwrap();
    let control = worker.control();
    let began = tokio::time::Instant::now();
    let weather = async {
        harbour.until_running(3).await;
        harbour.store.outage(true);
        harbour.until_running(0).await;
        control.stop();
    };
    let (report, ()) = tokio::join!(worker.run(), weather);
    assert_eq!(report.unwrap().left, 3);
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_of_finish_counts_nothing_twice() {
    let harbour = Harbour::new();
    harbour.send_all(50, Script::Sleep(5)).await;
    harbour.store.always("finish", Some(Fault::FailAfter));
    let worker = harbour.worker(4).until_idle(true).build().unwrap();
    let weather = async {
        harbour.until(async || harbour.store.calls("finish") >= 3).await;
        harbour.store.always("finish", None);
    };
    let (report, ()) = tokio::join!(worker.run(), weather);
    let report = report.unwrap();
    assert_eq!((report.done, report.lost), (50, 0));
    assert_eq!(harbour.log.runs(), 50);
    harbour.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn units_of_a_claim_whose_answer_was_lost_are_given_back() {
    let harbour = Harbour::new();
    let ids = harbour.send_all(6, Script::Ok(json!(1))).await;
    harbour.store.always("claim", Some(Fault::FailAfter));
    let worker = harbour.worker(2).until_idle(true).build().unwrap();
    let weather = async {
        harbour.until(async || harbour.store.calls("claim") >= 1).await;
        harbour.store.always("claim", None);
    };
    let (report, ()) = tokio::join!(worker.run(), weather);
    assert_eq!(report.unwrap().done, 6);
    for id in ids {
        let unit = harbour.unit(id).await;
        assert_eq!((unit.state, unit.attempt, unit.lost), (UnitState::Done, 1, 0));
    }
    harbour.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_session_that_was_ended_is_replaced_and_its_runs_are_void() {
    let harbour = Harbour::new();
    let id = harbour.send(Script::Obey).await;
    let worker = harbour.worker(2).build().unwrap();
    let control = worker.control();
    let operator = async {
        harbour.until_running(1).await;
        let session = harbour.store.sessions().await.unwrap().remove(0);
        let dead = Dead { session: session.id, beats: session.beats };
        harbour.store.reclaim(&[dead]).await.unwrap();
        // The old run is told to end; the unit comes back and runs under the new session.
        harbour.until(async || harbour.log.runs_of(id) == 2).await;
        let sessions = harbour.store.sessions().await.unwrap();
        assert_eq!(sessions.len(), 1);
        assert_ne!(sessions[0].id, session.id);
        let unit = harbour.store.unit(&Scope::All, id).await.unwrap();
        assert_eq!((unit.state, unit.lost), (UnitState::Leased, 1));
        control.stop();
    };
    let (report, ()) = tokio::join!(worker.run(), operator);
    let report = report.unwrap();
    assert_eq!((report.lost, report.interrupted, report.retried), (1, 1, 0));
    harbour.assert_clean().await;
}
