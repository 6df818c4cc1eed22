//! Timeouts, deadlines and cancellation.

use std::time::Duration;

use longshore::store::{Admin, UnitAction, UnitSelection};
use longshore::{Policy, Scope, Timestamp, UnitId, UnitState};

use crate::harness::{Harness, Script, twice, unit};

#[tokio::test(start_paused = true)]
async fn a_run_that_takes_too_long_is_dropped_and_retried() {
    let harness = Harness::new();
    let mut slow = unit(&Script::Ignore);
    slow.policy = Some(Policy { timeout: Some(Duration::from_secs(3)), ..twice() });
    let id = harness.client.send(slow).await.unwrap();
    let report = harness.worker(1).until_idle(true).build().unwrap().run().await.unwrap();
    let unit = harness.unit(id).await;
    let failure = unit.failure.unwrap();
    assert_eq!((unit.state, failure.code.as_str()), (UnitState::Failed, "timeout"));
    assert!(failure.message.contains("3s"), "{}", failure.message);
    assert_eq!((report.retried, report.failed, harness.log.runs()), (1, 1, 2));
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_the_run_and_the_unit() {
    let harness = Harness::new();
    let mut slow = unit(&Script::Ignore);
    let now = Timestamp::from_micros(1_767_225_600_000_000);
    slow.deadline = Some(now + Duration::from_secs(4));
    slow.policy = Some(Policy { timeout: Some(Duration::from_secs(60)), ..twice() });
    let id = harness.client.send(slow).await.unwrap();
    let began = tokio::time::Instant::now();
    harness.worker(1).until_idle(true).build().unwrap().run().await.unwrap();
    let unit = harness.unit(id).await;
    assert_eq!((unit.state, unit.failure.unwrap().code.as_str()), (UnitState::Failed, "deadline"));
    assert_eq!(harness.log.runs(), 1);
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    harness.assert_clean().await;
}

async fn cancel(harness: &Harness, id: UnitId) {
    let units = UnitSelection::Ids(vec![id]);
    harness.store.apply_unit_action(&Scope::All, units, UnitAction::Cancel).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_unit_is_asked_to_end_and_dropped_if_it_does_not() {
    for (script, at_most) in [(Script::Obey, 3), (Script::Ignore, 9)] {
        let harness = Harness::new();
        let id = harness.send(script).await;
        let worker = harness.worker(1).until_idle(true).build().unwrap();
        let began = tokio::time::Instant::now();
        let operator = async {
            harness.until_running(1).await;
            cancel(&harness, id).await;
        };
        let (report, ()) = tokio::join!(worker.run(), operator);
        assert_eq!(report.unwrap().cancelled, 1);
        assert_eq!(harness.unit(id).await.state, UnitState::Cancelled);
        assert!(began.elapsed() < Duration::from_secs(at_most), "{:?}", began.elapsed());
        harness.assert_clean().await;
    }
}

#[tokio::test(start_paused = true)]
async fn progress_travels_with_the_heartbeat_latest_word_only() {
    let harness = Harness::new();
    let id = harness.send(Script::Progress(0.5)).await;
    let worker = harness.worker(1).until_idle(true).build().unwrap();
    let watcher = async {
        harness.until(async || harness.unit(id).await.progress.is_some()).await;
        let progress = harness.unit(id).await.progress.unwrap();
        assert_eq!(progress.fraction, Some(0.5));
        assert_eq!(progress.message.as_deref(), Some("halfway"));
        cancel(&harness, id).await;
    };
    let (report, ()) = tokio::join!(worker.run(), watcher);
    assert_eq!(report.unwrap().done, 1, "it answered well although cancelled: done is done");
}
