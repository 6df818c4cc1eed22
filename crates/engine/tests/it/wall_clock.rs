//! The wall clock jumps an hour forward and back: no lease is lost, and scheduled units follow the
//! new time.

use std::time::Duration;

use longshore::store::Queries;
use longshore::{NewUnit, SessionId, UnitId, UnitState};
use serde_json::json;
use tokio::time::Instant;

use crate::harness::{Harness, Jump, Script, unit};

const HOUR: Duration = Duration::from_secs(3600);

async fn sessions(harness: &Harness) -> Vec<SessionId> {
    harness.store.sessions().await.unwrap().into_iter().map(|session| session.id).collect()
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_an_hour_takes_nobodys_lease() {
    let harness = Harness::new();
    let ids = harness.send_all(6, Script::Sleep(120_000)).await;
    // Two workers, so that each is watched by the other.
    let workers = [(); 2].map(|()| harness.worker(3).until_idle(true).build().unwrap());
    let driver = async {
        harness.until_running(6).await;
        let before = sessions(&harness).await;
        for way in [Jump::Ahead(HOUR), Jump::Back(HOUR), Jump::Back(HOUR), Jump::Ahead(2 * HOUR)] {
            harness.jump(way);
            tokio::time::sleep(Duration::from_secs(25)).await;
        }
        assert_eq!(harness.log.running(), 6, "all still run");
        assert_eq!(sessions(&harness).await, before);
    };
    let [first, second] = workers;
    let (first, second, ()) = tokio::join!(first.run(), second.run(), driver);
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!((first.done + second.done, first.lost + second.lost), (6, 0));
    assert_eq!(harness.log.runs(), 6, "each ran once");
    for id in ids {
        let unit = harness.unit(id).await;
        assert_eq!((unit.attempt, unit.lost), (1, 0));
    }
    harness.assert_clean().await;
}

/// Sends a unit that is due `from_now` by the store's clock.
async fn send_for(harness: &Harness, from_now: Duration) -> UnitId {
    let later = NewUnit { not_before: Some(harness.now() + from_now), ..unit(&Script::Ok(json!(1))) };
    harness.client.send(later).await.unwrap()
}

/// How long, in monotonic time, until a unit has ended.
async fn until_done(harness: &Harness, id: UnitId) -> Duration {
    let began = Instant::now();
    harness.client.wait(id, Some(3 * HOUR)).await.unwrap();
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn what_is_scheduled_goes_by_the_clock_as_it_is() {
    let harness = Harness::new();
    let worker = harness.worker(1).build().unwrap();
    let control = worker.control();
    let operator = async {
        let near = Duration::from_secs(10);
        let ahead = send_for(&harness, HOUR / 2).await;
        harness.jump(Jump::Ahead(HOUR));
        assert!(until_done(&harness, ahead).await < near, "its time has come");

        let back = send_for(&harness, Duration::from_secs(60)).await;
        harness.jump(Jump::Back(HOUR));
        let now = send_for(&harness, Duration::from_secs(5)).await;
        assert!(until_done(&harness, now).await < 2 * near, "others are not held up");
        assert_eq!(harness.unit(back).await.state, UnitState::Scheduled, "it is an hour earlier");
        let waited = until_done(&harness, back).await;
        assert!((HOUR..HOUR + 9 * near).contains(&waited), "{waited:?}");
        control.drain();
    };
    let (report, ()) = tokio::join!(worker.run(), operator);
    assert_eq!(report.unwrap().done, 3);
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_is_timed_by_the_monotonic_clock() {
    let harness = Harness::new();
    let mut slow = unit(&Script::Sleep(20_000));
    let timeout = Some(Duration::from_secs(30));
    slow.policy = Some(longshore::Policy { timeout, ..crate::harness::twice() });
    let id = harness.client.send(slow).await.unwrap();
    let worker = harness.worker(1).until_idle(true).build().unwrap();
    let driver = async {
        harness.until_running(1).await;
        harness.jump(Jump::Ahead(HOUR));
    };
    let (report, ()) = tokio::join!(worker.run(), driver);
    assert_eq!((report.unwrap().done, harness.unit(id).await.attempt), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn after_a_jump_back_a_dead_leaders_units_are_still_taken_over_in_time() {
    let harness = Harness::new();
    let id = harness.send(Script::Sleep(30_000)).await;
    let doomed = harness.worker(1).build().unwrap();
    tokio::select! {
        _ = doomed.run() => unreachable!(),
        () = harness.until_running(1) => {}
    }
    assert!(harness.store.calls("acquire_leadership") >= 1, "it led the upkeep");
    harness.jump(Jump::Back(HOUR));
    let heir = harness.worker(1).build().unwrap();
    let control = heir.control();
    let watcher = async {
        let took = until_done(&harness, id).await;
        assert!(took < Duration::from_secs(90), "{took:?}");
        control.drain();
    };
    let (report, ()) = tokio::join!(heir.run(), watcher);
    assert_eq!(report.unwrap().done, 1);
    harness.assert_clean().await;
}
