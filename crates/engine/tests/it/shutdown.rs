//! Quiet, drain, stop.

use std::time::Duration;

use longshore::store::{Admin, Queries};
use longshore::worker_session::WorkerCommand;
use longshore::{Prefetch, UnitState};
use serde_json::json;

use crate::harness::{Harness, Script};

#[tokio::test(start_paused = true)]
async fn drain_is_clean() {
    let harness = Harness::new();
    harness.send_all(100, Script::Sleep(300)).await;
    let worker = harness.worker(4).build().unwrap();
    let control = worker.control();
    let operator = async {
        harness.until_running(4).await;
        control.drain();
    };
    let (report, ()) = tokio::join!(worker.run(), operator);
    let report = report.unwrap();
    assert_eq!((report.done, report.interrupted, report.left), (4, 0, 0));
    assert_eq!(harness.log.runs(), 4);
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn stop_interrupts_what_runs_and_uses_no_attempt() {
    let harness = Harness::new();
    let obeys = harness.send(Script::Obey).await;
    let ignores = harness.send(Script::Ignore).await;
    let worker = harness.worker(4).build().unwrap();
    let control = worker.control();
    let began = tokio::time::Instant::now();
    let operator = async {
        harness.until_running(2).await;
        control.stop();
    };
    let (report, ()) = tokio::join!(worker.run(), operator);
    let report = report.unwrap();
    assert_eq!((report.interrupted, report.retried, report.left), (2, 0, 0));
    for id in [obeys, ignores] {
        let unit = harness.unit(id).await;
        assert_eq!((unit.state, unit.attempt), (UnitState::Ready, 0));
    }
    assert!(began.elapsed() < Duration::from_secs(7), "{:?}", began.elapsed());
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_second_order_escalates_a_drain_that_hangs() {
    let harness = Harness::new();
    harness.send(Script::Ignore).await;
    let worker = harness.worker(1).build().unwrap();
    let control = worker.control();
    let operator = async {
        harness.until_running(1).await;
        control.drain();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(harness.log.running(), 1, "drain waits for what runs");
        control.stop();
    };
    let (report, ()) = tokio::join!(worker.run(), operator);
    assert_eq!(report.unwrap().interrupted, 1);
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn quiet_gives_back_what_was_claimed_ahead_and_the_worker_stays() {
    let harness = Harness::new();
    let ids = harness.send_all(500, Script::Sleep(20)).await;
    let worker = harness.worker(4).build().unwrap();
    let (control, stats) = (worker.control(), worker.stats());
    let operator = async {
        harness.until(async || stats.claimed() > stats.ran() + 8).await;
        control.quiet();
        harness.until_running(0).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(stats.returned() > 0, "something had been claimed ahead");
        let ran = harness.log.runs();
        for id in &ids {
            let unit = harness.unit(*id).await;
            let ok = unit.state == UnitState::Done || (unit.state, unit.attempt) == (UnitState::Ready, 0);
            assert!(ok, "{unit:?}");
        }
        assert!(ran < 500);
        assert_eq!(harness.store.sessions().await.unwrap().len(), 1);
        control.drain();
    };
    let (report, ()) = tokio::join!(worker.run(), operator);
    assert_eq!(report.unwrap().done as usize, harness.log.runs());
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn an_operators_order_arrives_with_the_heartbeat_and_quiet_can_be_lifted() {
    let harness = Harness::new();
    let worker = harness.worker(2).build().unwrap();
    let control = worker.control();
    let operator = async {
        harness.until(async || !harness.store.sessions().await.unwrap().is_empty()).await;
        let session = harness.store.sessions().await.unwrap()[0].id;
        harness.store.command_worker(session, WorkerCommand::Quiet).await.unwrap();
        harness.until(async || control.order() == WorkerCommand::Quiet).await;
        let id = harness.send(Script::Ok(json!(1))).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(harness.unit(id).await.state, UnitState::Ready);
        harness.store.command_worker(session, WorkerCommand::Work).await.unwrap();
        harness.client.wait(id, None).await.unwrap();
        harness.store.command_worker(session, WorkerCommand::Drain).await.unwrap();
    };
    let (report, ()) = tokio::join!(worker.run(), operator);
    assert_eq!(report.unwrap().done, 1);
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_worker_drops_its_handlers_and_others_take_over_after_the_ttl() {
    let harness = Harness::new();
    let ids = harness.send_all(8, Script::Sleep(1_000)).await;
    let doomed = harness.worker(8).prefetch(Prefetch::Off).build().unwrap();
    tokio::select! {
        _ = doomed.run() => unreachable!("it has work for a second"),
        () = harness.until_running(8) => {}
    }
    // The aborted handlers are dropped as the runtime gets to them.
    harness.until_running(0).await;
    let began = tokio::time::Instant::now();
    let report = harness.worker(8).until_idle(true).build().unwrap().run().await.unwrap();
    assert_eq!(report.done, 8);
    assert!(began.elapsed() >= Duration::from_secs(15), "not before its ttl");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    for id in ids {
        let unit = harness.unit(id).await;
        assert_eq!((unit.state, unit.attempt), (UnitState::Done, 2), "the lost run was one");
        assert_eq!(unit.lost, 0, "a run that came to its end clears it");
    }
    harness.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_handler_that_blocks_its_thread_delays_no_heartbeat() {
    let harness = Harness::new();
    harness.send_all(2, Script::Block(7_500)).await;
    let worker = harness.worker(2).ttl(Duration::from_secs(3)).until_idle(true).build().unwrap();
    let report = worker.run().await.unwrap();
    assert_eq!((report.done, report.lost), (2, 0), "the session outlived two and a half ttls");
    harness.assert_clean().await;
}
