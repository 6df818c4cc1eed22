//! Slots, weights, units that run alone, and claiming ahead.

use std::collections::BTreeMap;
use std::time::Duration;

use longshore::unit::Weight;
use longshore::{ClaimAhead, UnitState};
use serde_json::json;

use crate::harbour::{Harbour, Script, unit};

#[tokio::test(start_paused = true)]
async fn no_more_units_run_at_once_than_there_are_slots() {
    let harbour = Harbour::new();
    harbour.send_all(200, Script::Sleep(7)).await;
    let report = harbour.worker(5).until_idle(true).build().unwrap().run().await.unwrap();
    assert_eq!((report.done, harbour.log.peak()), (200, 5));
    harbour.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_uses_as_many_slots_as_it_is_told() {
    let harbour = Harbour::new();
    harbour.send_all(400, Script::Sleep(50)).await;
    let worker = harbour.worker(8).until_idle(true).build().unwrap();
    let control = worker.control();
    control.resize(2);
    let steer = async {
        harbour.until(async || harbour.log.runs() >= 40).await;
        assert_eq!(harbour.log.peak(), 2);
        control.resize(6);
        harbour.until(async || harbour.log.running() == 6).await;
        control.resize(0);
        harbour.until(async || harbour.log.running() <= 1).await;
        let one = harbour.log.runs();
        harbour.until(async || harbour.log.runs() >= one + 5).await;
        assert!(harbour.log.running() <= 1, "never none, and no more than one");
        control.resize(u32::MAX);
    };
    let (report, ()) = tokio::join!(worker.run(), steer);
    assert_eq!((report.unwrap().done, harbour.log.peak()), (400, 8));
    harbour.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_heavy_unit_gets_its_slots_although_light_ones_keep_coming() {
    let harbour = Harbour::new();
    harbour.send_all(20, Script::Sleep(200)).await;
    let mut heavy = unit(&Script::Sleep(200));
    heavy.weight = Weight { slots: 4, ..Weight::default() };
    let heavy = harbour.client.send(heavy).await.unwrap();
    let light = harbour.send_all(20, Script::Sleep(200)).await;
    let worker = harbour.worker(4).until_idle(true).build().unwrap();
    assert_eq!(worker.run().await.unwrap().done, 41);
    let order = harbour.log.order();
    let place = |id| order.iter().position(|run| *run == id).unwrap();
    assert!(place(heavy) < 24, "it came after the earlier ones, place {}", place(heavy));
    assert!(light.iter().filter(|id| place(**id) < place(heavy)).count() <= 4);
    harbour.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn units_that_need_a_resource_share_it() {
    let harbour = Harbour::new();
    for _ in 0..6 {
        let mut unit = unit(&Script::Sleep(150));
        unit.weight.resources = BTreeMap::from([("gpu".to_owned(), 1)]);
        harbour.client.send(unit).await.unwrap();
    }
    let resources = BTreeMap::from([("gpu".to_owned(), 2)]);
    let worker = harbour.worker(8).resources(resources).until_idle(true).build().unwrap();
    assert_eq!(worker.run().await.unwrap().done, 6);
    assert_eq!(harbour.log.peak(), 2);
    harbour.assert_clean().await;
}

/// Loses a unit as often as asked, by workers that are dropped while they run it.
async fn lose(harbour: &Harbour, times: usize) {
    for _ in 0..times {
        let before = harbour.log.runs();
        let doomed = harbour.worker(1).ttl(Duration::from_secs(3)).build().unwrap();
        tokio::select! {
            _ = doomed.run() => unreachable!(),
            () = harbour.until(async || harbour.log.runs() > before) => {}
        }
        harbour.until_running(0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_unit_that_was_lost_twice_runs_alone() {
    let harbour = Harbour::new();
    let suspect = harbour.send(Script::Sleep(500)).await;
    lose(&harbour, 2).await;
    harbour
        .until(async || {
            // Someone has to notice the second death.
            let helper =
                harbour.worker(1).queues(longshore::store::Queues::Named(vec![])).build().unwrap();
            let control = helper.control();
            let lost = async {
                harbour.until(async || harbour.unit(suspect).await.lost == 2).await;
                control.drain();
            };
            let (report, ()) = tokio::join!(helper.run(), lost);
            report.unwrap();
            true
        })
        .await;
    let others = harbour.send_all(20, Script::Sleep(50)).await;
    let worker = harbour.worker(4).until_idle(true).build().unwrap();
    let watcher = async {
        harbour.until(async || harbour.log.runs_of(suspect) == 3).await;
        assert_eq!(harbour.log.running(), 1, "nothing beside it");
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(harbour.log.running(), 1, "and nothing joins it");
    };
    let (report, ()) = tokio::join!(worker.run(), watcher);
    assert_eq!(report.unwrap().done, 21);
    for id in others {
        assert_eq!(harbour.unit(id).await.state, UnitState::Done);
    }
    harbour.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn fast_handlers_are_claimed_ahead_and_slow_ones_are_not() {
    let harbour = Harbour::new();
    harbour.send_all(400, Script::Sleep(10)).await;
    let worker = harbour.worker(4).until_idle(true).build().unwrap();
    let stats = worker.stats();
    worker.run().await.unwrap();
    assert!(stats.claims() < 60, "{} claims for 400 units of 10 ms", stats.claims());

    let harbour = Harbour::new();
    harbour.send_all(40, Script::Sleep(400)).await;
    let worker = harbour.worker(4).until_idle(true).build().unwrap();
    let stats = worker.stats();
    let watcher = async {
        while stats.ran() < 40 {
            assert!(stats.claimed() <= stats.ran() + 4, "{stats:?}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let (report, ()) = tokio::join!(worker.run(), watcher);
    assert_eq!(report.unwrap().done, 40);
}

#[tokio::test(start_paused = true)]
async fn claim_ahead_can_be_turned_off() {
    let harbour = Harbour::new();
    harbour.send_all(100, Script::Sleep(10)).await;
    let worker = harbour.worker(4).claim_ahead(ClaimAhead::Off).until_idle(true).build().unwrap();
    assert_eq!(worker.run().await.unwrap().done, 100);
    assert_eq!(harbour.store.calls("start"), 0);
}

#[tokio::test(start_paused = true)]
async fn slots_that_come_free_together_are_started_by_one_call() {
    let harbour = Harbour::new();
    harbour.send_all(640, Script::Sleep(10)).await;
    let worker = harbour.worker(32).until_idle(true).build().unwrap();
    assert_eq!(worker.run().await.unwrap().done, 640);
    let calls = harbour.store.calls("start");
    assert!((1..=30).contains(&calls), "{calls} start calls for 20 rounds");
}

#[tokio::test(start_paused = true)]
async fn a_lone_unit_on_an_idle_worker_is_handed_over_at_once() {
    let harbour = Harbour::new();
    let worker = harbour.worker(4).build().unwrap();
    let control = worker.control();
    let sender = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        let id = harbour.send(Script::Ok(json!(1))).await;
        let unit = harbour.client.wait(id, None).await.unwrap();
        let took = unit.since.since(unit.created_at);
        assert!(took < Duration::from_millis(5), "{took:?}");
        control.drain();
    };
    let (report, ()) = tokio::join!(worker.run(), sender);
    report.unwrap();
}
