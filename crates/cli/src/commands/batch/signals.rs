//! Signals during a batch: the first drains, the second stops, and so does a drain that takes too
//! long. The loss of a worker that all batches need also drains.

use std::time::Duration;

use longshore::signals::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The requested stage of the shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ShutdownStage {
    Work,
    Drain,
    Stop,
}

/// The shutdown that signals have requested so far.
#[derive(Debug)]
pub struct Shutdown(watch::Sender<ShutdownStage>);

impl Shutdown {
    /// Without a request.
    pub fn new() -> Self {
        Self(watch::Sender::new(ShutdownStage::Work))
    }

    /// Returns once rows under way are to be finished and no new ones begun.
    pub async fn drain_requested(&self) {
        self.reached(ShutdownStage::Drain).await;
    }

    /// Returns once everything is to stop.
    pub async fn stop_requested(&self) {
        self.reached(ShutdownStage::Stop).await;
    }

    /// Requests a drain without a signal, because a worker that all batches need has ended. False
    /// if a drain was requested before.
    pub fn request_drain(&self) -> bool {
        self.0.send_if_modified(|stage| {
            let raised = *stage < ShutdownStage::Drain;
            *stage = (*stage).max(ShutdownStage::Drain);
            raised
        })
    }

    async fn reached(&self, stage: ShutdownStage) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.0.subscribe().wait_for(|now| *now >= stage).await;
    }

    /// Handles SIGINT and SIGTERM while awaited.
    pub async fn listen(&self, patience: Duration, print: impl Fn(&str)) -> anyhow::Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut next = async || {
            tokio::select! {
                _ = terminate.recv() => Signal::Terminate,
                _ = interrupt.recv() => Signal::Interrupt,
            }
        };
        next().await;
        print("draining: rows under way are finished; a second signal stops them");
        self.0.send_replace(ShutdownStage::Drain);
        if tokio::time::timeout(patience, next()).await.is_err() {
            print("not drained in time, stopping");
        }
        self.0.send_replace(ShutdownStage::Stop);
        std::future::pending().await
    }
}
