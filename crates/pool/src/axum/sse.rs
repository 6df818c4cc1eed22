//! A call, watched by a browser: server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use ::axum::http::HeaderName;
use ::axum::response::sse::{Event, KeepAlive, Sse};
use ::axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream, StreamExt};
use serde::Serialize;

use super::progress::{Update, Updates};
use crate::error::CallError;
use crate::options::CallOptions;
use crate::pool::WorkerPool;

/// So long nothing may be heard before a line is sent that says nothing: for proxies that close what
/// is silent, and to notice a browser that has gone.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(15);

/// A browser connects again when a stream ends, and would make the call a second time. A page should
/// close its `EventSource` at the end; for one that does not, the second time is far off.
const NOT_SOON: Duration = Duration::from_millis(i32::MAX as u64);

/// Calls an operation and shows it as server-sent events: `progress` as often as the operation says
/// something, at last `done` with the result or `error` with a [`Problem`](super::Problem).
///
/// A call that is refused at once is an error, with its status. When the browser goes away the
/// call goes on, unless the options say [`CallOptions::cancel_on_drop`].
///
/// ```
/// use axum::response::Response;
/// use longshore_pool::{CallError, CallOptions};
/// use longshore_pool::axum::{Workers, progress_sse};
///
/// async fn report(workers: Workers) -> Result<Response, CallError> {
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

/// Shows updates of any origin in the same form.
pub fn sse(updates: impl Stream<Item = Update> + Send + 'static) -> Response {
    let first = stream::iter([Event::default().retry(NOT_SOON)]);
    let events = first.chain(updates.map(|update| event(&update)));
    let events = events.map(Ok::<_, Infallible>);
    let keep_alive = KeepAlive::new().interval(HEARTBEAT);
    // nginx would gather events before it passes them on.
    let unbuffered = [(HeaderName::from_static("x-accel-buffering"), "no")];
    (unbuffered, Sse::new(events).keep_alive(keep_alive)).into_response()
}

fn event(update: &Update) -> Event {
    let (name, data) = update.to_wire();
    Event::default().event(name).data(data)
}
