//! Alerts and their rate, and the adaptive maximum.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use longshore::{
    AdaptiveMax, AlertSink, BoundedPool, BoundedPoolBuilder, CallOutcome, MemoryPermits, PoolAlert,
    PoolAlertKind,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{builder, pool_stats, remote};

#[derive(Default)]
struct RecordingSink(Mutex<Vec<PoolAlert>>);

#[async_trait]
impl AlertSink for RecordingSink {
    async fn send(&self, alert: &PoolAlert) {
        self.0.lock().unwrap().push(alert.clone());
    }
}

impl RecordingSink {
    fn alerts(&self, kind: PoolAlertKind) -> Vec<PoolAlert> {
        let all = self.0.lock().unwrap();
        all.iter().filter(|alert| alert.kind == kind).cloned().collect()
    }
}

const EVERY: Duration = Duration::from_secs(300);
const LIMIT: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn alerts_are_told_once_for_all_processes_and_with_the_figures() {
    let (permits, sink) = (Arc::new(MemoryPermits::default()), Arc::new(RecordingSink::default()));
    let process = || {
        let builder = builder(permits.clone(), 1).wait(LIMIT);
        builder.alert_every(EVERY).alert_sink(sink.clone()).build()
    };
    let processes = [process(), process(), process()];
    let _held = processes[0].acquire().await.unwrap();
    let began = Instant::now();
    while began.elapsed() < EVERY - LIMIT * 10 {
        for pool in &processes {
            assert!(pool.acquire().await.is_err());
        }
    }
    for kind in [PoolAlertKind::AtCapacity, PoolAlertKind::TimedOut] {
        let alerts = sink.alerts(kind);
        assert_eq!(alerts.len(), 1, "{kind:?}");
        let stats = alerts[0].stats.as_ref().unwrap();
        assert_eq!((stats.max, stats.in_use), (1, 1));
    }
    sleep(EVERY).await;
    assert!(processes[1].acquire().await.is_err());
    // Alerts are sent in the background.
    while sink.alerts(PoolAlertKind::TimedOut).len() < 2 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_told_once_a_minute() {
    let sink = Arc::new(RecordingSink::default());
    let (builder, permits) = remote(1);
    let pool = builder.alert_sink(sink.clone()).wait(Duration::from_secs(290)).build();
    permits.outage(true);
    assert!(pool.acquire().await.is_err());
    let alerts = sink.alerts(PoolAlertKind::BackendLost);
    assert_eq!(alerts.len(), 5);
    assert!(alerts[0].error.contains("outage"), "{:?}", alerts[0]);
}

fn adaptive(builder: BoundedPoolBuilder) -> BoundedPool {
    builder.adaptive(AdaptiveMax { min: 1, max: 64, window: Duration::from_secs(1) }).build()
}

/// Uses permits for `seconds` seconds in many tasks, and reports `went` for each.
async fn use_up(pools: &[BoundedPool], seconds: u64, went: CallOutcome) {
    let (until, mut tasks) = (Instant::now() + Duration::from_secs(seconds), JoinSet::new());
    for n in 0..100 {
        let pool = pools[n % pools.len()].clone();
        tasks.spawn(async move {
            while Instant::now() < until {
                let mut permit = pool.acquire().await.unwrap();
                sleep(Duration::from_millis(50)).await;
                permit.set_outcome(went);
            }
        });
    }
    tasks.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn a_maximum_finds_itself() {
    let permits = Arc::new(MemoryPermits::default());
    let process = || adaptive(builder(permits.clone(), 4));
    let processes = [process(), process()];
    use_up(&processes, 30, CallOutcome::Ok).await;
    let grown = pool_stats(&processes[0]).await.max;
    assert!(grown > 8, "{grown}");
    use_up(&processes, 30, CallOutcome::Rejected).await;
    let shrunk = pool_stats(&processes[0]).await.max;
    assert!(shrunk < grown / 2, "{grown} then {shrunk}");
}
