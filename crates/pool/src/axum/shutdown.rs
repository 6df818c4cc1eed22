//! The order of the end: no new connections, then the requests, then the pools.

use std::future::{IntoFuture, pending};
use std::io;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::pools::Pools;

/// What pools get to end in good order, even if requests took all the time.
const LEAST: Duration = Duration::from_secs(1);

impl Pools {
    /// Serves until `signal`, and ends in good order: no new connections are taken; requests have
    /// `limit` to be done; then the pools are closed, with what is left of it. Requests that are not
    /// done by then hear that the pool is shutting down.
    ///
    /// A WebSocket is no request any more, and nobody waits for it.
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
        self.close(deadline.saturating_duration_since(Instant::now()).max(LEAST)).await;
        match ended {
            Ok(ended) => ended,
            Err(_) => {
                tracing::warn!(?limit, "requests were not done in time");
                // Those whose calls were refused just now have a moment to say so.
                timeout(LEAST, server).await.unwrap_or(Ok(()))
            }
        }
    }
}

/// Waits until this process is asked to end: Ctrl-C at a terminal, or TERM.
pub async fn terminated() {
    let interrupt = heard(SignalKind::interrupt());
    let terminate = heard(SignalKind::terminate());
    tokio::select! {
        () = interrupt => {}
        () = terminate => {}
    }
}

async fn heard(kind: SignalKind) {
    match signal(kind) {
        Ok(mut signal) => _ = signal.recv().await,
        Err(error) => {
            tracing::warn!(%error, "a signal cannot be waited for");
            pending::<()>().await;
        }
    }
}
