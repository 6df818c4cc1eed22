//! Recording the ends of runs.

use std::time::Duration;

use longshore_testkit::Fault;
use serde_json::json;

use crate::harbour::{Harbour, Script};

#[tokio::test(start_paused = true)]
async fn what_gathered_during_a_flush_goes_out_as_the_next() {
    let harbour = Harbour::new();
    harbour.send_all(500, Script::Sleep(10)).await;
    harbour.store.always("finish", Some(Fault::Delay(Duration::from_millis(100))));
    let worker = harbour.worker(50).until_idle(true).build().unwrap();
    let stats = worker.stats();
    assert_eq!(worker.run().await.unwrap().done, 500);
    assert!(stats.flushes() <= 12, "{} flushes for 500 units in some 200 ms", stats.flushes());
    harbour.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_single_end_is_recorded_at_once() {
    let harbour = Harbour::new();
    let id = harbour.send(Script::Ok(json!(1))).await;
    harbour.worker(1).until_idle(true).build().unwrap().run().await.unwrap();
    let unit = harbour.unit(id).await;
    assert!(unit.since.since(unit.created_at) < Duration::from_millis(5));
}

#[tokio::test(start_paused = true)]
async fn repeated_calls_do_no_harm() {
    let harbour = Harbour::new();
    harbour.send_all(60, Script::Sleep(3)).await;
    for verb in ["finish", "start", "release"] {
        harbour.store.always(verb, Some(Fault::Duplicate));
    }
    let report = harbour.worker(4).until_idle(true).build().unwrap().run().await.unwrap();
    assert_eq!((report.done, report.lost, harbour.log.runs()), (60, 0, 60));
    harbour.assert_clean().await;
}
