//! Slots, weights, units that run alone, and prefetching.

use std::collections::BTreeMap;
use std::time::Duration;

use longshore::unit::{ConcurrencyCap, Weight};
use longshore::{NewUnit, Prefetch, UnitState};
use serde_json::json;

use crate::harness::{Harness, Script, unit};

#[tokio::test(start_paused = true)]
async fn no_more_units_run_at_once_than_there_are_slots() {
    let harness = Harness::new();
    harness.send_all(200, Script::Sleep(7)).await;
    let report = harness.worker(5).until_idle(true).build().unwrap().run().await.unwrap();
    assert_eq!((report.done, harness.log.peak()), (200, 5));
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_uses_as_many_slots_as_it_is_told() {
    let harness = Harness::new();
    harness.send_all(400, Script::Sleep(50)).await;
    let worker = harness.worker(8).until_idle(true).build().unwrap();
    let control = worker.control();
    control.resize(2);
    let steer = async {
        harness.until(async || harness.log.runs() >= 40).await;
        assert_eq!(harness.log.peak(), 2);
        control.resize(6);
        harness.until(async || harness.log.running() == 6).await;
        control.resize(0);
        harness.until(async || harness.log.running() <= 1).await;
        let one = harness.log.runs();
        harness.until(async || harness.log.runs() >= one + 5).await;
        assert!(harness.log.running() <= 1, "never none, and no more than one");
        control.resize(u32::MAX);
    };
    let (report, ()) = tokio::join!(worker.run(), steer);
    assert_eq!((report.unwrap().done, harness.log.peak()), (400, 8));
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_heavy_unit_gets_its_slots_although_light_ones_keep_coming() {
    let harness = Harness::new();
    harness.send_all(20, Script::Sleep(200)).await;
    let mut heavy = unit(&Script::Sleep(200));
    heavy.weight = Weight { slots: 4, ..Weight::default() };
    let heavy = harness.client.send(heavy).await.unwrap();
    let light = harness.send_all(20, Script::Sleep(200)).await;
    let worker = harness.worker(4).until_idle(true).build().unwrap();
    assert_eq!(worker.run().await.unwrap().done, 41);
    let order = harness.log.order();
    let place = |id| order.iter().position(|run| *run == id).unwrap();
    assert!(place(heavy) < 24, "it came after the earlier ones, place {}", place(heavy));
    assert!(light.iter().filter(|id| place(**id) < place(heavy)).count() <= 4);
    harness.assert_clean().await;
}

/// A worker that keeps its buffer filled claims without free slots, and capped units are not
/// prefetched.
#[tokio::test(start_paused = true)]
async fn a_capped_unit_gets_a_slot_although_others_keep_the_buffer_filled() {
    let harness = Harness::new();
    harness.send_all(100, Script::Sleep(5)).await;
    let cap = Some(ConcurrencyCap { key: "host".to_owned(), limit: 1 });
    let capped = NewUnit { cap, ..unit(&Script::Sleep(5)) };
    let capped = harness.client.send(capped).await.unwrap();
    harness.send_all(900, Script::Sleep(5)).await;
    let worker = harness.worker(4).until_idle(true).build().unwrap();
    assert_eq!(worker.run().await.unwrap().done, 1_001);
    let place = harness.log.order().iter().position(|run| *run == capped).unwrap();
    assert!((90..400).contains(&place), "it is unit 101, and ran as unit {place}");
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn units_that_need_a_resource_share_it() {
    let harness = Harness::new();
    for _ in 0..6 {
        let mut unit = unit(&Script::Sleep(150));
        unit.weight.resources = BTreeMap::from([("gpu".to_owned(), 1)]);
        harness.client.send(unit).await.unwrap();
    }
    let resources = BTreeMap::from([("gpu".to_owned(), 2)]);
    let worker = harness.worker(8).resources(resources).until_idle(true).build().unwrap();
    assert_eq!(worker.run().await.unwrap().done, 6);
    assert_eq!(harness.log.peak(), 2);
    harness.assert_clean().await;
}

/// Loses a unit `times` times by dropping workers while they run it.
async fn lose(harness: &Harness, times: usize) {
    for _ in 0..times {
        let before = harness.log.runs();
        let doomed = harness.worker(1).ttl(Duration::from_secs(3)).build().unwrap();
        tokio::select! {
            _ = doomed.run() => unreachable!(),
            () = harness.until(async || harness.log.runs() > before) => {}
        }
        harness.until_running(0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_unit_that_was_lost_twice_runs_alone() {
    let harness = Harness::new();
    let suspect = harness.send(Script::Sleep(500)).await;
    lose(&harness, 2).await;
    harness
        .until(async || {
            // A helper must detect the second dead worker.
            let helper = harness.worker(1).queues(longshore::store::Queues::Named(vec![])).build().unwrap();
            let control = helper.control();
            let lost = async {
                harness.until(async || harness.unit(suspect).await.lost == 2).await;
                control.drain();
            };
            let (report, ()) = tokio::join!(helper.run(), lost);
            report.unwrap();
            true
        })
        .await;
    let others = harness.send_all(20, Script::Sleep(50)).await;
    let worker = harness.worker(4).until_idle(true).build().unwrap();
    let watcher = async {
        harness.until(async || harness.log.runs_of(suspect) == 3).await;
        assert_eq!(harness.log.running(), 1, "nothing beside it");
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(harness.log.running(), 1, "and nothing joins it");
    };
    let (report, ()) = tokio::join!(worker.run(), watcher);
    assert_eq!(report.unwrap().done, 21);
    for id in others {
        assert_eq!(harness.unit(id).await.state, UnitState::Done);
    }
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn fast_handlers_are_claimed_ahead_and_slow_ones_are_not() {
    let harness = Harness::new();
    harness.send_all(400, Script::Sleep(10)).await;
    let worker = harness.worker(4).until_idle(true).build().unwrap();
    let stats = worker.stats();
    worker.run().await.unwrap();
    assert!(stats.claims() < 60, "{} claims for 400 units of 10 ms", stats.claims());

    let harness = Harness::new();
    harness.send_all(40, Script::Sleep(400)).await;
    let worker = harness.worker(4).until_idle(true).build().unwrap();
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
    let harness = Harness::new();
    harness.send_all(100, Script::Sleep(10)).await;
    let worker = harness.worker(4).prefetch(Prefetch::Off).until_idle(true).build().unwrap();
    assert_eq!(worker.run().await.unwrap().done, 100);
    assert_eq!(harness.store.calls("start"), 0);
}

#[tokio::test(start_paused = true)]
async fn slots_that_come_free_together_are_started_by_one_call() {
    let harness = Harness::new();
    harness.send_all(640, Script::Sleep(10)).await;
    let worker = harness.worker(32).until_idle(true).build().unwrap();
    assert_eq!(worker.run().await.unwrap().done, 640);
    let calls = harness.store.calls("start");
    assert!((1..=30).contains(&calls), "{calls} start calls for 20 rounds");
}

#[tokio::test(start_paused = true)]
async fn a_lone_unit_on_an_idle_worker_is_handed_over_at_once() {
    let harness = Harness::new();
    let worker = harness.worker(4).build().unwrap();
    let control = worker.control();
    let sender = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        let id = harness.send(Script::Ok(json!(1))).await;
        let unit = harness.client.wait(id, None).await.unwrap();
        let took = unit.since.since(unit.created_at);
        assert!(took < Duration::from_millis(5), "{took:?}");
        control.drain();
    };
    let (report, ()) = tokio::join!(worker.run(), sender);
    report.unwrap();
}
