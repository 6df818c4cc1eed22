//! Real signals to this process.

use std::process::Command;
use std::time::Duration;

use longshore::signals::{Signal, run_with_signals};

use crate::harness::{Harness, Script};

fn signal(name: &str) {
    let sent = Command::new("kill").args([name, &std::process::id().to_string()]).status();
    assert!(sent.unwrap().success());
}

#[tokio::test]
async fn the_first_signal_drains_and_the_second_stops() {
    let harness = Harness::new();
    harness.send(Script::Ignore).await;
    let worker = harness.worker(2).grace(Duration::from_millis(50)).build().unwrap();
    let control = worker.control();
    let operator = async {
        harness.until_running(1).await;
        signal("-TERM");
        control.wait_for_order(longshore::worker_session::WorkerCommand::Drain).await;
        assert_eq!(harness.log.running(), 1, "drain lets it run");
        signal("-INT");
    };
    let (ended, ()) = tokio::join!(run_with_signals(worker, Duration::from_secs(60)), operator);
    let (report, first) = ended.unwrap();
    assert_eq!((report.interrupted, first), (1, Some(Signal::Terminate)));
    harness.assert_clean().await;
}

#[tokio::test]
async fn a_drain_that_takes_too_long_becomes_a_stop() {
    let harness = Harness::new();
    harness.send(Script::Obey).await;
    let worker = harness.worker(2).build().unwrap();
    let operator = async {
        harness.until_running(1).await;
        signal("-INT");
    };
    let (ended, ()) = tokio::join!(run_with_signals(worker, Duration::from_millis(100)), operator);
    let (report, first) = ended.unwrap();
    assert_eq!((report.interrupted, first), (1, Some(Signal::Interrupt)));
    harness.assert_clean().await;
}
