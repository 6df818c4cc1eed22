//! How a question waits for a limit.
//!
//! One of a unit says so to its worker, so that others are taken meanwhile; and it goes back to its
//! place in the queue when its slot is wanted, as long as nothing was journalled or asked for it. All
//! others wait where they are.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use longshore::Context;
use tokio::time::Instant;

/// Whoever has less time than this left stays: it would be told too late that its time is over.
const NEAR: Duration = Duration::from_secs(5);

/// What became of a wait.
pub(super) enum Waited<T> {
    /// It is over.
    Over(T),
    /// The slot is wanted.
    Unwanted,
}

/// Waits for `what`, for a question that has time until `until`.
pub(super) async fn wait<T>(
    run: Option<&Context>,
    until: Instant,
    what: impl Future<Output = T>,
) -> Waited<T> {
    let mut what = pin!(what);
    let Some(run) = run else { return Waited::Over(what.await) };
    // Whoever need not wait has not waited.
    tokio::select! {
        biased;
        over = &mut what => return Waited::Over(over),
        () = std::future::ready(()) => {}
    }
    let waiting = run.waits();
    let unwanted = async {
        waiting.unwanted().await;
        if until.saturating_duration_since(Instant::now()) < NEAR {
            std::future::pending().await
        }
    };
    tokio::select! {
        biased;
        over = &mut what => Waited::Over(over),
        () = unwanted => Waited::Unwanted,
    }
}
