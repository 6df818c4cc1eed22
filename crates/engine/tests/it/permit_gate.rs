//! Units that need a permit of a bounded pool to run.

use std::sync::Arc;
use std::time::Duration;

use longshore::store::{Admin, UnitAction, UnitSelection};
use longshore::{
    BoundedPool, HeartbeatPlacement, MemoryPermits, Permits, Policy, PoolName, RetryPolicy, Scope, UnitState,
};
use serde_json::json;

use crate::harness::{Harness, Script, kind, unit};

/// A pool and its backend.
fn pool(max: u32, wait: Duration) -> (BoundedPool, Arc<dyn Permits>) {
    let permits: Arc<dyn Permits> = Arc::new(MemoryPermits::default());
    let name = PoolName::new("licence").unwrap();
    let pool =
        BoundedPool::builder(Arc::clone(&permits), name, max).wait(wait).renewals(HeartbeatPlacement::Task);
    (pool.build(), permits)
}

const FOR_EVER: Duration = Duration::ZERO;

async fn in_use(pool: &BoundedPool) -> u32 {
    pool.stats().await.pool.unwrap().in_use
}

#[tokio::test(start_paused = true)]
async fn workers_together_run_no_more_than_there_are_permits() {
    let (harness, (pool, _)) = (Harness::new(), pool(2, FOR_EVER));
    harness.send_all(60, Script::Sleep(7)).await;
    let worker =
        || harness.worker(5).require_permit(kind(), pool.clone()).until_idle(true).build().unwrap().run();
    let (one, two, three) = tokio::join!(worker(), worker(), worker());
    assert_eq!(one.unwrap().done + two.unwrap().done + three.unwrap().done, 60);
    assert_eq!(harness.log.peak(), 2);
    pool.flush().await;
    assert_eq!(in_use(&pool).await, 0);
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_unit_without_a_permit_comes_again_and_has_used_no_attempt() {
    let (harness, (pool, _)) = (Harness::new(), pool(1, Duration::from_millis(50)));
    let held = pool.acquire().await.unwrap();
    let id = harness.send(Script::Ok(json!(1))).await;
    let worker = harness.worker(1).require_permit(kind(), pool.clone()).until_idle(true).build().unwrap();
    let release = async {
        // After five timeouts.
        harness.until(async || pool.stats().await.pool.unwrap().timeouts >= 5).await;
        assert_eq!(harness.log.runs(), 0);
        drop(held);
    };
    let (report, ()) = tokio::join!(worker.run(), release);
    let unit = harness.unit(id).await;
    assert_eq!((report.unwrap().done, unit.state, unit.attempt), (1, UnitState::Done, 1));
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_run_begins_with_its_permit() {
    let (harness, (pool, _)) = (Harness::new(), pool(1, FOR_EVER));
    let held = pool.acquire().await.unwrap();
    let (mut brief, mut late) = (unit(&Script::Sleep(500)), unit(&Script::Sleep(500)));
    let policy = Policy { retry: RetryPolicy::never(), ..Policy::default() };
    brief.policy = Some(Policy { timeout: Some(Duration::from_secs(1)), ..policy });
    late.deadline = Some(harness.now() + Duration::from_secs(5));
    let brief = harness.client.send(brief).await.unwrap();
    let late = harness.client.send(late).await.unwrap();
    let worker = harness.worker(2).require_permit(kind(), pool.clone()).until_idle(true).build().unwrap();
    let release = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        drop(held);
    };
    let (report, ()) = tokio::join!(worker.run(), release);
    assert_eq!(report.unwrap().done, 1);
    assert_eq!(harness.unit(brief).await.state, UnitState::Done);
    let late = harness.unit(late).await;
    assert_eq!((late.state, &*late.failure.unwrap().code), (UnitState::Failed, "deadline"));
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_loses_its_permit_is_dropped_and_tried_again() {
    let (harness, (pool, _)) = (Harness::new(), pool(1, FOR_EVER));
    let id = harness.send(Script::Sleep(60_000)).await;
    let worker = harness.worker(1).require_permit(kind(), pool.clone()).until_idle(true).build().unwrap();
    let taken = async {
        harness.until(async || harness.log.runs() == 1).await;
        pool.reset().await.unwrap();
    };
    let (report, ()) = tokio::join!(worker.run(), taken);
    let report = report.unwrap();
    assert_eq!((report.done, report.retried), (1, 1));
    assert_eq!(harness.unit(id).await.attempt, 2);
    assert_eq!(harness.log.peak(), 1);
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn one_that_waits_for_a_permit_can_be_cancelled_and_a_worker_stopped() {
    let (harness, (pool, permits)) = (Harness::new(), pool(1, FOR_EVER));
    let held = pool.acquire().await.unwrap();
    let ids = harness.send_all(2, Script::Ok(json!(1))).await;
    let worker = harness.worker(2).require_permit(kind(), pool.clone()).build().unwrap();
    let control = worker.control();
    let steer = async {
        let waiting = async |count| {
            harness
                .until(async || {
                    let stats = permits.stats(pool.name()).await.unwrap().unwrap();
                    stats.waiting.len() == count
                })
                .await;
        };
        waiting(2).await;
        let units = UnitSelection::Ids(vec![ids[0]]);
        harness.store.apply_unit_action(&Scope::All, units, UnitAction::Cancel).await.unwrap();
        waiting(1).await;
        control.stop();
    };
    let (report, ()) = tokio::join!(worker.run(), steer);
    report.unwrap();
    let (first, second) = (harness.unit(ids[0]).await, harness.unit(ids[1]).await);
    assert_eq!((first.state, second.state), (UnitState::Cancelled, UnitState::Ready));
    assert_eq!((second.attempt, harness.log.runs()), (0, 0));
    pool.flush().await;
    assert!(permits.stats(pool.name()).await.unwrap().unwrap().waiting.is_empty());
    drop(held);
}
