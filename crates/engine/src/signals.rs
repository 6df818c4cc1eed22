//! Turns SIGTERM and SIGINT into worker orders: the first drains, the second stops.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use crate::control::WorkerControl;
use crate::stats::WorkerReport;
use crate::worker::{Worker, WorkerError};

/// The signal that told a worker to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT, as from Ctrl-C.
    Interrupt,
    /// SIGTERM, as from a service manager.
    Terminate,
}

/// Runs a worker. The first SIGTERM or SIGINT drains it; a second signal or the end of `deadline`
/// stops it. Returns the report and the first signal, if there was one.
pub async fn run_with_signals(
    worker: Worker,
    deadline: Duration,
) -> Result<(WorkerReport, Option<Signal>), WorkerError> {
    let control = worker.control();
    let mut first = None;
    let report = tokio::select! {
        report = worker.run() => report?,
        never = apply(control, deadline, |signal| first = first.or(Some(signal))) => match never {
            Ok(never) => match never {},
            Err(error) => return Err(WorkerError::Signals(error)),
        },
    };
    Ok((report, first))
}

/// Applies signals to a worker while the future is awaited. Run it beside [`Worker::run`]: the
/// first SIGTERM or SIGINT drains, a second signal or the end of `deadline` stops.
pub async fn drain_on_signals(control: WorkerControl, deadline: Duration) -> io::Result<Infallible> {
    apply(control, deadline, |_| {}).await
}

async fn apply(
    control: WorkerControl,
    deadline: Duration,
    mut on_signal: impl FnMut(Signal),
) -> io::Result<Infallible> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut next = async || {
        tokio::select! {
            _ = terminate.recv() => Signal::Terminate,
            _ = interrupt.recv() => Signal::Interrupt,
        }
    };
    let first = next().await;
    on_signal(first);
    tracing::info!(?first, ?deadline, "draining: running units may finish; a second signal stops");
    control.drain();
    match tokio::time::timeout(deadline, next()).await {
        Ok(second) => tracing::warn!(?second, "stopping now"),
        Err(_) => tracing::warn!(?deadline, "not drained in time, stopping"),
    }
    control.stop();
    std::future::pending().await
}
