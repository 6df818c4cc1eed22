//! Monitors batches and delivers their alerts.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use longshore::{BatchId, SessionId, Store};
use longshore_batch::AlertMonitor;
use longshore_batch::alerts::Alert;
use tokio::sync::Notify;
use tokio::time::{interval, timeout};

use super::handlers::BatchWorkers;
use super::progress::ProgressDisplay;
use crate::commands::now;

/// Interval between two checks of a batch.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// Interval between two checks of all batches by a worker: each check of an idle worker is a
/// commit.
const SCAN_INTERVAL: Duration = Duration::from_secs(5);
/// How long one of several workers holds the role.
const ROLE_TTL: Duration = Duration::from_secs(15);
/// How long an alert that is being delivered when the worker ends may take.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);
/// The role for which workers elect one.
const ROLE: &str = "batch-stall-monitor";

/// Monitors one batch that runs in this process.
pub struct BatchMonitor<'a> {
    id: &'a BatchId,
    display: &'a ProgressDisplay,
    alert_monitor: AlertMonitor,
}

impl<'a> BatchMonitor<'a> {
    /// For batch `id`.
    pub fn new(id: &'a BatchId, batch_workers: &BatchWorkers<'_>, display: &'a ProgressDisplay) -> Self {
        Self { id, display, alert_monitor: batch_workers.alert_monitor() }
    }

    /// Checks the batch at intervals until `over`. An alert that is being delivered then is
    /// finished: dropping this future would kill the command that delivers it.
    pub async fn run_until(&mut self, over: impl Future<Output = ()>) {
        let (mut ticks, mut over) = (interval(CHECK_INTERVAL), pin!(over));
        loop {
            tokio::select! {
                () = &mut over => return,
                _ = ticks.tick() => {}
            }
            self.check().await;
        }
    }

    /// Checks the batch and prints its alerts.
    pub async fn check(&mut self) {
        for alert in self.alert_monitor.check(self.id, now()).await {
            self.display.print(&alert_text(&alert));
        }
    }
}

fn alert_text(alert: &Alert) -> String {
    format!("alert: batch `{}`: {}", alert.batch, alert.message)
}

/// Runs `worker`, and beside it monitors all batches of the store if no other worker does. Alerts
/// go to the log and to the hooks that the batches name. An alert that is being delivered when the
/// worker ends is finished, within a time limit.
pub async fn run_with_monitor<T>(
    worker: impl Future<Output = T>,
    store: Arc<dyn Store>,
    alert_monitor: AlertMonitor,
) -> T {
    let over = Notify::new();
    let mut monitoring = pin!(scan_all(store, alert_monitor, over.notified()));
    let ended = tokio::select! {
        ended = worker => ended,
        never = never_returns(&mut monitoring) => match never {},
    };
    over.notify_one();
    let _ = timeout(DELIVERY_TIMEOUT, monitoring).await;
    ended
}

/// Turns a loop that returns only when told to into one that never returns.
async fn never_returns(monitoring: &mut (impl Future<Output = ()> + Unpin)) -> Infallible {
    monitoring.await;
    std::future::pending().await
}

async fn scan_all(store: Arc<dyn Store>, mut alert_monitor: AlertMonitor, over: impl Future<Output = ()>) {
    let (me, mut ticks, mut over) = (SessionId::new(), interval(SCAN_INTERVAL), pin!(over));
    loop {
        tokio::select! {
            () = &mut over => return,
            _ = ticks.tick() => {}
        }
        if store.acquire_leadership(ROLE, me, ROLE_TTL).await.unwrap_or(false) {
            alert_monitor.check_all(now()).await;
        }
    }
}
