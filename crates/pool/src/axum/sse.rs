//! Streams a call to a browser as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use ::axum::http::HeaderName;
use ::axum::response::sse::{Event, KeepAlive, Sse};
use ::axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream, StreamExt};
use serde::Serialize;

use super::progress::{Update, Updates};
use crate::call_options::CallOptions;
use crate::error::CallError;
use crate::pool::WorkerPool;

/// Interval of keep-alive comments on a silent stream: for proxies that close idle connections, and
/// to notice that the browser has disconnected.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(15);

/// A browser reconnects when a stream ends, and would repeat the call. A page should close its
/// `EventSource` at the end; for pages that do not, the reconnect is delayed for weeks.
const RECONNECT_DELAY: Duration = Duration::from_millis(i32::MAX as u64);

/// Calls an operation and streams it as server-sent events: `progress` for each report of the
/// operation, then `done` with the result or `error` with a [`Problem`](super::Problem).
///
/// If the call is rejected at once, the response is an error with its status. If the browser
/// disconnects, the call continues, unless [`CallOptions::cancel_on_drop`] is set.
///
/// ```
/// use axum::response::Response;
/// use longshore_pool::{CallError, CallOptions};
/// use longshore_pool::axum::{WorkerPools, progress_sse};
///
/// async fn report(workers: WorkerPools) -> Result<Response, CallError> {
///     let options = CallOptions::default().cancel_on_drop();
///     progress_sse(&workers, "report", &2026, options).await
/// }
/// ```
pub async fn progress_sse<A: Serialize + ?Sized>(
    pool: &WorkerPool,
    operation: &str,
    arguments: &A,
    options: CallOptions,
) -> Result<Response, CallError> {
    Ok(sse(Updates::of(pool, operation, arguments, options).await?))
}

/// Streams updates of any source in the format of [`progress_sse`].
pub fn sse(updates: impl Stream<Item = Update> + Send + 'static) -> Response {
    let first = stream::iter([Event::default().retry(RECONNECT_DELAY)]);
    let events = first.chain(updates.map(|update| event(&update)));
    let events = events.map(Ok::<_, Infallible>);
    let keep_alive = KeepAlive::new().interval(HEARTBEAT);
    // Otherwise nginx would buffer the events.
    let unbuffered = [(HeaderName::from_static("x-accel-buffering"), "no")];
    (unbuffered, Sse::new(events).keep_alive(keep_alive)).into_response()
}

fn event(update: &Update) -> Event {
    let (name, data) = update.to_wire();
    Event::default().event(name).data(data)
}
