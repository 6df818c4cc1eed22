//! Graceful shutdown: first the listener, then the requests, then the pools.

use std::future::{IntoFuture, pending};
use std::io;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::pools::Pools;

/// Time that the pools get for a graceful stop, even if the requests used up the limit.
const MIN_CLOSE_TIME: Duration = Duration::from_secs(1);

impl Pools {
    /// Serves until `signal`, then shuts down gracefully: accepts no new connections, gives
    /// requests until `limit` to finish, and closes the pools with the rest of that time. Calls of
    /// requests that are not finished by then fail because the pool is shutting down.
    ///
    /// WebSockets are no longer requests: the shutdown does not wait for them.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use longshore_pool::axum::{Pools, terminated};
    /// # async fn run(listener: tokio::net::TcpListener, app: axum::Router, pools: Pools) -> std::io::Result<()> {
    /// let server = |stop| axum::serve(listener, app).with_graceful_shutdown(stop);
    /// pools.serve(terminated(), Duration::from_secs(30), server).await
    /// # }
    /// ```
    pub async fn serve<S>(
        &self,
        signal: impl Future<Output = ()>,
        limit: Duration,
        server: impl FnOnce(WaitForCancellationFutureOwned) -> S,
    ) -> io::Result<()>
    where
        S: IntoFuture<Output = io::Result<()>>,
    {
        let stop = CancellationToken::new();
        let mut server = Box::pin(server(stop.clone().cancelled_owned()).into_future());
        let by_itself = tokio::select! {
            ended = &mut server => Some(ended),
            () = signal => None,
        };
        stop.cancel();
        let deadline = Instant::now() + limit;
        let ended = match by_itself {
            Some(ended) => Ok(ended),
            None => timeout_at(deadline, &mut server).await,
        };
        self.close(deadline.saturating_duration_since(Instant::now()).max(MIN_CLOSE_TIME)).await;
        match ended {
            Ok(ended) => ended,
            Err(_) => {
                tracing::warn!(?limit, "requests were not done in time");
                // If calls were rejected just now, their requests get a moment to respond.
                timeout(MIN_CLOSE_TIME, server).await.unwrap_or(Ok(()))
            }
        }
    }
}

/// Waits until this process is asked to stop: Ctrl-C at a terminal, or SIGTERM.
pub async fn terminated() {
    let interrupt = wait_for_signal(SignalKind::interrupt());
    let terminate = wait_for_signal(SignalKind::terminate());
    tokio::select! {
        () = interrupt => {}
        () = terminate => {}
    }
}

async fn wait_for_signal(kind: SignalKind) {
    match signal(kind) {
        Ok(mut signal) => _ = signal.recv().await,
        Err(error) => {
            tracing::warn!(%error, "cannot wait for a signal");
            pending::<()>().await;
        }
    }
}
