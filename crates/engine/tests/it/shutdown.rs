//! Quiet, drain, stop.

use std::time::Duration;

use longshore::session::Order;
use longshore::store::{Inspect, Operate};
use longshore::{ClaimAhead, UnitState};
use serde_json::json;

use crate::harbour::{Harbour, Script};

#[tokio::test(start_paused = true)]
async fn drain_is_clean() {
    let harbour = Harbour::new();
    harbour.send_all(100, Script::Sleep(300)).await;
    let worker = harbour.worker(4).build().unwrap();
    let control = worker.control();
    let operator = async {
        harbour.until_running(4).await;
        control.drain();
    };
    let (report, ()) = tokio::join!(worker.run(), operator);
    let report = report.unwrap();
    assert_eq!((report.done, report.interrupted, report.left), (4, 0, 0));
    assert_eq!(harbour.log.runs(), 4);
    harbour.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn stop_interrupts_what_runs_and_uses_no_attempt() {
    let harbour = Harbour::new();
    let obeys = harbour.send(Script::Obey).await;
    let ignores = harbour.send(Script::Ignore).await;
    let worker = harbour.worker(4).build().unwrap();
    let control = worker.control();
    let began = tokio::time::Instant::now();
    let operator = async {
        harbour.until_running(2).await;
        control.stop();
    };
    let (report, ()) = tokio::join!(worker.run(), operator);
    let report = report.unwrap();
    assert_eq!((report.interrupted, report.retried, report.left), (2, 0, 0));
    for id in [obeys, ignores] {
        let unit = harbour.unit(id).await;
        assert_eq!((unit.state, unit.attempt), (UnitState::Ready, 0));
    }
    assert!(began.elapsed() < Duration::from_secs(7), "{:?}", began.elapsed());
    harbour.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_second_order_escalates_a_drain_that_hangs() {
    let harbour = Harbour::new();
    harbour.send(Script::Ignore).await;
    let worker = harbour.worker(1).build().unwrap();
    let control = worker.control();
    let operator = async {
        harbour.until_running(1).await;
        control.drain();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(harbour.log.running(), 1, "drain waits for what runs");
        control.stop();
    };
    let (report, ()) = tokio::join!(worker.run(), operator);
    assert_eq!(report.unwrap().interrupted, 1);
    harbour.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn quiet_gives_back_what_was_claimed_ahead_and_the_worker_stays() {
    let harbour = Harbour::new();
    let ids = harbour.send_all(500, Script::Sleep(20)).await;
    let worker = harbour.worker(4).build().unwrap();
    let (control, stats) = (worker.control(), worker.stats());
    let operator = async {
        harbour.until(async || stats.claimed() > stats.ran() + 8).await;
        control.quiet();
        harbour.until_running(0).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(stats.returned() > 0, "something had been claimed ahead");
        let ran = harbour.log.runs();
        for id in &ids {
            let unit = harbour.unit(*id).await;
            let ok = unit.state == UnitState::Done
                || (unit.state, unit.attempt) == (UnitState::Ready, 0);
            assert!(ok, "{unit:?}");
        }
        assert!(ran < 500);
        assert_eq!(harbour.store.sessions().await.unwrap().len(), 1);
        control.drain();
    };
    let (report, ()) = tokio::join!(worker.run(), operator);
    assert_eq!(report.unwrap().done as usize, harbour.log.runs());
    harbour.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn an_operators_order_arrives_with_the_heartbeat_and_quiet_can_be_lifted() {
    let harbour = Harbour::new();
    let worker = harbour.worker(2).build().unwrap();
    let control = worker.control();
    let operator = async {
        harbour.until(async || !harbour.store.sessions().await.unwrap().is_empty()).await;
        let session = harbour.store.sessions().await.unwrap()[0].id;
        harbour.store.order(session, Order::Quiet).await.unwrap();
        harbour.until(async || control.order() == Order::Quiet).await;
        let id = harbour.send(Script::Ok(json!(1))).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(harbour.unit(id).await.state, UnitState::Ready);
        harbour.store.order(session, Order::Work).await.unwrap();
        harbour.client.wait(id, None).await.unwrap();
        harbour.store.order(session, Order::Drain).await.unwrap();
    };
    let (report, ()) = tokio::join!(worker.run(), operator);
    assert_eq!(report.unwrap().done, 1);
    harbour.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_worker_drops_its_handlers_and_others_take_over_after_the_ttl() {
    let harbour = Harbour::new();
    let ids = harbour.send_all(8, Script::Sleep(1_000)).await;
    let doomed = harbour.worker(8).claim_ahead(ClaimAhead::Off).build().unwrap();
    tokio::select! {
        _ = doomed.run() => unreachable!("it has work for a second"),
        () = harbour.until_running(8) => {}
    }
    // The aborted handlers are dropped as the runtime gets to them.
    harbour.until_running(0).await;
    let began = tokio::time::Instant::now();
    let report = harbour.worker(8).until_idle(true).build().unwrap().run().await.unwrap();
    assert_eq!(report.done, 8);
    assert!(began.elapsed() >= Duration::from_secs(15), "not before its ttl");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    for id in ids {
        let unit = harbour.unit(id).await;
        assert_eq!((unit.state, unit.attempt), (UnitState::Done, 2), "the lost run was one");
        assert_eq!(unit.lost, 0, "a run that came to its end clears it");
    }
    harbour.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_handler_that_blocks_its_thread_delays_no_heartbeat() {
    let harbour = Harbour::new();
    harbour.send_all(2, Script::Block(7_500)).await;
    let worker = harbour.worker(2).ttl(Duration::from_secs(3)).until_idle(true).build().unwrap();
    let report = worker.run().await.unwrap();
    assert_eq!((report.done, report.lost), (2, 0), "the session outlived two and a half ttls");
    harbour.assert_clean().await;
}
