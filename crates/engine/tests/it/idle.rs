//! Ending when no work is left, and the cost of an idle worker.

use std::time::Duration;

use longshore::{BatchId, NewBatch};
use serde_json::json;

use crate::harness::{Harness, Script, unit};

/// The calls of an idle worker, without reads that a store answers from memory
/// (`promote`, `next_due`, `due_schedules`).
const ALL: [&str; 4] = ["heartbeat", "claim", "acquire_leadership", "sessions"];

#[tokio::test(start_paused = true)]
async fn an_until_idle_worker_waits_for_an_open_batch() {
    let harness = Harness::new();
    let batch = NewBatch::new(BatchId::new("b").unwrap());
    let mut writer = harness.client.open_batch(batch).await.unwrap();
    let worker = harness.worker(2).until_idle(true).build().unwrap();
    let initiator = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        writer.add(vec![unit(&Script::Ok(json!(1)))], "1".into()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(30)).await;
        writer.seal().await.unwrap();
    };
    let (report, ()) = tokio::join!(worker.run(), initiator);
    assert_eq!(report.unwrap().done, 1);
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn an_until_idle_worker_waits_for_what_is_scheduled() {
    let harness = Harness::new();
    harness.send(Script::Snooze(40_000)).await;
    let began = tokio::time::Instant::now();
    let report = harness.worker(1).until_idle(true).build().unwrap().run().await.unwrap();
    assert_eq!(report.done, 1);
    assert!(began.elapsed() >= Duration::from_secs(40));
}

#[tokio::test(start_paused = true)]
async fn a_worker_for_one_batch_ends_with_that_batch() {
    let harness = Harness::new();
    let name = BatchId::new("mine").unwrap();
    let mut writer = harness.client.open_batch(NewBatch::new(name.clone())).await.unwrap();
    writer.add(vec![unit(&Script::Ok(json!(1)))], "1".into()).await.unwrap();
    writer.seal().await.unwrap();
    let other = harness.send(Script::Ok(json!(2))).await;
    let worker = harness.worker(1).batch(name).until_idle(true).build().unwrap();
    assert_eq!(worker.run().await.unwrap().done, 1);
    assert_eq!(harness.log.runs_of(other), 0);
}

#[tokio::test(start_paused = true)]
async fn an_idle_worker_asks_for_little() {
    let harness = Harness::new();
    let worker = harness.worker(8).build().unwrap();
    let control = worker.control();
    let watcher = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        let calls = |methods: &[&str]| methods.iter().map(|method| harness.store.calls(method)).sum();
        let before: [u64; 2] = [calls(&["claim"]), calls(&ALL)];
        tokio::time::sleep(Duration::from_secs(60)).await;
        let claims = calls(&["claim"]) - before[0];
        assert!((12..=25).contains(&claims), "{claims} claims in an idle minute");
        let all = calls(&ALL) - before[1];
        assert!(all <= 120, "{all} calls that ask a store something in an idle minute");
        control.drain();
    };
    let (report, ()) = tokio::join!(worker.run(), watcher);
    report.unwrap();
}
