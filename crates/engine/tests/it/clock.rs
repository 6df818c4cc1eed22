//! The wall clock jumps an hour, there and back: no lease is lost, and what is scheduled goes by the
//! clock as it is.

use std::time::Duration;

use longshore::store::Inspect;
use longshore::{NewUnit, SessionId, UnitId, UnitState};
use serde_json::json;
use tokio::time::Instant;

use crate::harbour::{Harbour, Jump, Script, unit};

const HOUR: Duration = Duration::from_secs(3600);

async fn sessions(harbour: &Harbour) -> Vec<SessionId> {
    harbour.store.sessions().await.unwrap().into_iter().map(|session| session.id).collect()
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_an_hour_takes_nobodys_lease() {
    let harbour = Harbour::new();
    let ids = harbour.send_all(6, Script::Sleep(120_000)).await;
    // Two, so that each is watched by another.
    let workers = [(); 2].map(|()| harbour.worker(3).until_idle(true).build().unwrap());
    let weather = async {
        harbour.until_running(6).await;
        let before = sessions(&harbour).await;
        for way in [Jump::Ahead(HOUR), Jump::Back(HOUR), Jump::Back(HOUR), Jump::Ahead(2 * HOUR)] {
            harbour.jump(way);
            tokio::time::sleep(Duration::from_secs(25)).await;
        }
        assert_eq!(harbour.log.running(), 6, "all still run");
        assert_eq!(sessions(&harbour).await, before);
    };
    let [first, second] = workers;
    let (first, second, ()) = tokio::join!(first.run(), second.run(), weather);
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!((first.done + second.done, first.lost + second.lost), (6, 0));
    assert_eq!(harbour.log.runs(), 6, "each ran once");
    for id in ids {
        let unit = harbour.unit(id).await;
        assert_eq!((unit.attempt, unit.lost), (1, 0));
    }
    harbour.assert_clean().await;
}

/// Sends a unit that is due so long from now by the store's clock.
async fn send_for(harbour: &Harbour, from_now: Duration) -> UnitId {
    let later =
        NewUnit { not_before: Some(harbour.now() + from_now), ..unit(&Script::Ok(json!(1))) };
    harbour.client.send(later).await.unwrap()
}

/// How long, in real time, until a unit has ended.
async fn until_done(harbour: &Harbour, id: UnitId) -> Duration {
    let began = Instant::now();
    harbour.client.wait(id, Some(3 * HOUR)).await.unwrap();
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn what_is_scheduled_goes_by_the_clock_as_it_is() {
    let harbour = Harbour::new();
    let worker = harbour.worker(1).build().unwrap();
    let control = worker.control();
    let operator = async {
        let near = Duration::from_secs(10);
        let ahead = send_for(&harbour, HOUR / 2).await;
        harbour.jump(Jump::Ahead(HOUR));
        assert!(until_done(&harbour, ahead).await < near, "its time has come");

        let back = send_for(&harbour, Duration::from_secs(60)).await;
        harbour.jump(Jump::Back(HOUR));
        let now = send_for(&harbour, Duration::from_secs(5)).await;
        assert!(until_done(&harbour, now).await < 2 * near, "others are not held up");
        assert_eq!(harbour.unit(back).await.state, UnitState::Scheduled, "it is an hour earlier");
        let waited = until_done(&harbour, back).await;
        assert!((HOUR..HOUR + 9 * near).contains(&waited), "{waited:?}");
        control.drain();
    };
    let (report, ()) = tokio::join!(worker.run(), operator);
    assert_eq!(report.unwrap().done, 3);
    harbour.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_is_timed_by_the_monotonic_clock() {
    let harbour = Harbour::new();
    let mut slow = unit(&Script::Sleep(20_000));
    let timeout = Some(Duration::from_secs(30));
    slow.policy = Some(longshore::Policy { timeout, ..crate::harbour::twice() });
    let id = harbour.client.send(slow).await.unwrap();
    let worker = harbour.worker(1).until_idle(true).build().unwrap();
    let weather = async {
        harbour.until_running(1).await;
        harbour.jump(Jump::Ahead(HOUR));
    };
    let (report, ()) = tokio::join!(worker.run(), weather);
    assert_eq!((report.unwrap().done, harbour.unit(id).await.attempt), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn after_a_jump_back_a_dead_leaders_units_are_still_taken_over_in_time() {
    let harbour = Harbour::new();
    let id = harbour.send(Script::Sleep(30_000)).await;
    let doomed = harbour.worker(1).build().unwrap();
    tokio::select! {
        _ = doomed.run() => unreachable!(),
        () = harbour.until_running(1) => {}
    }
    assert!(harbour.store.calls("lead") >= 1, "it led the upkeep");
    harbour.jump(Jump::Back(HOUR));
    let heir = harbour.worker(1).build().unwrap();
    let control = heir.control();
    let watcher = async {
        let took = until_done(&harbour, id).await;
        assert!(took < Duration::from_secs(90), "{took:?}");
        control.drain();
    };
    let (report, ()) = tokio::join!(heir.run(), watcher);
    assert_eq!(report.unwrap().done, 1);
    harbour.assert_clean().await;
}
