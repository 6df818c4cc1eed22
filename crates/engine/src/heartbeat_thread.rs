//! Runs the heartbeat on its own thread, so that handlers that block every thread of the worker's
//! runtime do not expire the session.
//!
//! Owns the thread and its shutdown. `heartbeat` implements the beat.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::heartbeat;
use crate::worker_inner::WorkerInner;

/// How long to wait for the thread to exit. Its call to the store is dropped immediately.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Where a worker's heartbeat runs, or the renewal of permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HeartbeatPlacement {
    /// On another thread and runtime: no handler can delay it.
    #[default]
    Thread,
    /// As a task of the caller's runtime. For tests with paused time, which another runtime's clock
    /// does not follow, and for handlers that are known not to block.
    Task,
}

/// A running heartbeat thread. It stops on drop.
pub(crate) struct HeartbeatThread {
    stop: DropGuard,
    exited: oneshot::Receiver<()>,
}

impl HeartbeatThread {
    /// Starts the thread.
    pub(crate) fn start(worker: Arc<WorkerInner>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let stop = CancellationToken::new();
        let (stop_token, (exit_tx, exited)) = (stop.clone(), oneshot::channel());
        let body = move || {
            runtime.block_on(stop_token.run_until_cancelled(heartbeat::run(worker)));
            // The receiver may be gone. After a panic the dropped sender reports the exit.
            let _ = exit_tx.send(());
        };
        std::thread::Builder::new().name("longshore-beat".to_owned()).spawn(body)?;
        Ok(Self { stop: stop.drop_guard(), exited })
    }

    /// Returns once the thread has exited, which is a bug.
    pub(crate) async fn wait_exit(&mut self) {
        let _ = (&mut self.exited).await;
    }

    /// Stops the thread. It must exit before the session is closed, or it would open another
    /// session.
    pub(crate) async fn stop(self) {
        drop(self.stop);
        let _ = timeout(STOP_TIMEOUT, self.exited).await;
    }
}
