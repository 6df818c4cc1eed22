//! Where the heart beats: on a thread of its own, so that handlers which block every thread of the
//! worker's runtime do not cost the session; or as a task beside them.
//!
//! Owns the thread and its end. What a beat says and hears is in `heartbeat`.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::heartbeat;
use crate::station::Station;

/// How long an ended heart may take to fall silent: its present call is dropped at once.
const LAST_BEAT: Duration = Duration::from_secs(1);

/// Where a worker's heart beats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Heartbeat {
    /// On a thread and a runtime of its own: no handler can delay it.
    #[default]
    Thread,
    /// As a task of the worker's runtime. For tests with paused time, which another runtime's clock
    /// does not follow, and for handlers that are known not to block.
    Task,
}

/// A heart on its thread. Dropped, it stops.
pub(crate) struct Pulse {
    stop: DropGuard,
    ended: oneshot::Receiver<()>,
}

impl Pulse {
    /// Starts the thread.
    pub(crate) fn start(station: Arc<Station>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let stop = CancellationToken::new();
        let (stopped, (ending, ended)) = (stop.clone(), oneshot::channel());
        let beat = move || {
            runtime.block_on(stopped.run_until_cancelled(heartbeat::beat(station)));
            // Whoever hears of it may be gone; dropped by a panic, it tells as much.
            let _ = ending.send(());
        };
        std::thread::Builder::new().name("longshore-heart".to_owned()).spawn(beat)?;
        Ok(Self { stop: stop.drop_guard(), ended })
    }

    /// Returns once the heart has ended, which it should not.
    pub(crate) async fn ended(&mut self) {
        let _ = (&mut self.ended).await;
    }

    /// Stops it. It must be silent before the session is closed, or it would open another.
    pub(crate) async fn stop(self) {
        drop(self.stop);
        let _ = timeout(LAST_BEAT, self.ended).await;
    }
}
