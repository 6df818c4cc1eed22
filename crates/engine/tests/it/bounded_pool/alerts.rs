//! Who is told of what, how often; and a maximum that finds itself.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use longshore::{
    AdaptiveMax, Alarm, BoundedPool, BoundedPoolBuilder, MemoryPermits, PoolAlert, PoolAlertKind,
    Went,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{figures, name, remote};

#[derive(Default)]
struct Listener(Mutex<Vec<PoolAlert>>);

#[async_trait]
impl Alarm for Listener {
    async fn raise(&self, alert: &PoolAlert) {
        self.0.lock().unwrap().push(alert.clone());
    }
}

impl Listener {
    fn heard(&self, kind: PoolAlertKind) -> Vec<PoolAlert> {
        let all = self.0.lock().unwrap();
        all.iter().filter(|alert| alert.kind == kind).cloned().collect()
    }
}

const EVERY: Duration = Duration::from_secs(300);
const LIMIT: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn alerts_are_told_once_for_all_processes_and_with_the_figures() {
    let (permits, listener) = (Arc::new(MemoryPermits::default()), Arc::new(Listener::default()));
    let process = || {
        let builder = BoundedPool::builder(permits.clone(), name(), 1).wait(LIMIT);
        builder.alert_every(EVERY).alarm(listener.clone()).build()
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
        let heard = listener.heard(kind);
        assert_eq!(heard.len(), 1, "{kind:?}");
        let stats = heard[0].stats.as_ref().unwrap();
        assert_eq!((stats.max, stats.in_use), (1, 1));
    }
    sleep(EVERY).await;
    assert!(processes[1].acquire().await.is_err());
    // It is told beside.
    while listener.heard(PoolAlertKind::TimedOut).len() < 2 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_told_once_a_minute() {
    let listener = Arc::new(Listener::default());
    let (builder, permits) = remote(1);
    let pool = builder.alarm(listener.clone()).wait(Duration::from_secs(290)).build();
    permits.outage(true);
    assert!(pool.acquire().await.is_err());
    let heard = listener.heard(PoolAlertKind::BackEndLost);
    assert_eq!(heard.len(), 5);
    assert!(heard[0].error.contains("outage"), "{:?}", heard[0]);
}

fn adaptive(builder: BoundedPoolBuilder) -> BoundedPool {
    builder.adaptive(AdaptiveMax { min: 1, max: 64, window: Duration::from_secs(1) }).build()
}

/// Uses permits for so many seconds, in many tasks, and says how it went.
async fn use_up(pools: &[BoundedPool], seconds: u64, went: Went) {
    let (until, mut tasks) = (Instant::now() + Duration::from_secs(seconds), JoinSet::new());
    for n in 0..100 {
        let pool = pools[n % pools.len()].clone();
        tasks.spawn(async move {
            while Instant::now() < until {
                let mut permit = pool.acquire().await.unwrap();
                sleep(Duration::from_millis(50)).await;
                permit.note(went);
            }
        });
    }
    tasks.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn a_maximum_finds_itself() {
    let permits = Arc::new(MemoryPermits::default());
    let process = || adaptive(BoundedPool::builder(permits.clone(), name(), 4));
    let processes = [process(), process()];
    use_up(&processes, 30, Went::Well).await;
    let grown = figures(&processes[0]).await.max;
    assert!(grown > 8, "{grown}");
    use_up(&processes, 30, Went::Refused).await;
    let shrunk = figures(&processes[0]).await.max;
    assert!(shrunk < grown / 2, "{grown} then {shrunk}");
}
