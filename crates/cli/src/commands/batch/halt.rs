//! Ctrl-C during a batch: the first drains, the second stops, and so does too long a drain.
//! The loss of a worker that all others need drains as well.

use std::time::Duration;

use longshore::signals::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// How much is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Work,
    Drain,
    Stop,
}

/// What signals have asked for so far.
#[derive(Debug)]
pub struct Halt(watch::Sender<Level>);

impl Halt {
    /// Nothing yet.
    pub fn new() -> Self {
        Self(watch::Sender::new(Level::Work))
    }

    /// Returns once rows under way are to be finished and no others begun.
    pub async fn drain(&self) {
        self.reached(Level::Drain).await;
    }

    /// Returns once everything is to end.
    pub async fn stop(&self) {
        self.reached(Level::Stop).await;
    }

    /// Asks for a drain without a signal: somebody without whom nothing ends has left. False if
    /// that was asked for already.
    pub fn leave(&self) -> bool {
        self.0.send_if_modified(|level| {
            let raised = *level < Level::Drain;
            *level = (*level).max(Level::Drain);
            raised
        })
    }

    async fn reached(&self, level: Level) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.0.subscribe().wait_for(|now| *now >= level).await;
    }

    /// Listens to SIGINT and SIGTERM for as long as it is awaited.
    pub async fn listen(&self, patience: Duration, say: impl Fn(&str)) -> anyhow::Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut next = async || {
            tokio::select! {
                _ = terminate.recv() => Signal::Terminate,
                _ = interrupt.recv() => Signal::Interrupt,
            }
        };
        next().await;
        say("draining: rows under way are finished; once more stops at once");
        self.0.send_replace(Level::Drain);
        if tokio::time::timeout(patience, next()).await.is_err() {
            say("not drained in time, stopping");
        }
        self.0.send_replace(Level::Stop);
        std::future::pending().await
    }
}
