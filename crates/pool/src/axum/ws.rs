//! Streams a call over a WebSocket. Unlike with server-sent events, the client can send `cancel`.

use std::time::Duration;

use ::axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use ::axum::response::Response;
use futures_util::stream::{self, Stream, StreamExt};
use serde::Serialize;
use tokio::time::{Instant, interval_at, timeout};
use tokio_util::sync::CancellationToken;

use super::progress::{Update, Updates, json};
use super::sse::HEARTBEAT;
use crate::call_options::CallOptions;
use crate::pool::WorkerPool;

/// Pings that may go unanswered before the connection counts as dead.
const MAX_UNANSWERED_PINGS: u32 = 2;

/// How long sending a message may take.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum size of a client's message, in bytes.
const MAX_CLIENT_MESSAGE: usize = 4096;

/// Calls an operation and streams it over a WebSocket: messages `{"event":"progress","data":…}`, at
/// last one with `done` and the result or `error` and a [`Problem`](super::Problem); then the
/// socket is closed. A message `cancel` from the client cancels the call. If the client
/// disconnects, the call continues, unless [`CallOptions::cancel_on_drop`] is set.
///
/// The call is made once the socket is open. Browsers do not tell a page why an upgrade was
/// rejected, so a rejected call is reported as a message, too.
///
/// ```
/// use axum::extract::ws::WebSocketUpgrade;
/// use axum::response::Response;
/// use longshore_pool::CallOptions;
/// use longshore_pool::axum::{WorkerPools, progress_ws};
///
/// async fn report(workers: WorkerPools, upgrade: WebSocketUpgrade) -> Response {
///     let options = CallOptions::default().cancel_on_drop();
///     progress_ws(upgrade, &workers, "report", &2026, options)
/// }
/// ```
pub fn progress_ws<A: Serialize + ?Sized>(
    upgrade: WebSocketUpgrade,
    pool: &WorkerPool,
    operation: &str,
    arguments: &A,
    options: CallOptions,
) -> Response {
    let arguments = json(pool, operation, arguments);
    let (pool, operation) = (pool.clone(), operation.to_owned());
    let cancel = options.cancel.as_ref().map_or_else(CancellationToken::new, CancellationToken::child_token);
    let options = options.cancelled_by(cancel.clone());
    upgrade.max_message_size(MAX_CLIENT_MESSAGE).on_upgrade(async move |socket| {
        let updates = match arguments {
            Ok(arguments) => Updates::of_raw(&pool, &operation, arguments, options).await,
            Err(error) => Err(error),
        };
        match updates {
            Ok(updates) => stream_updates(socket, updates, &cancel).await,
            Err(error) => {
                stream_updates(socket, stream::iter([Update::Failed(error)]), &cancel).await;
            }
        }
    })
}

/// Sends updates until they end or the client is gone.
async fn stream_updates(
    mut socket: WebSocket,
    mut updates: impl Stream<Item = Update> + Unpin,
    cancel: &CancellationToken,
) {
    let mut beat = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
    let mut unanswered = 0;
    loop {
        let message = tokio::select! {
            update = updates.next() => match update {
                Some(update) => Message::text(to_message(&update)),
                None => break,
            },
            received = socket.recv() => match received {
                None | Some(Err(_) | Ok(Message::Close(_))) => return,
                Some(Ok(message)) => {
                    unanswered = 0;
                    if is_cancel(&message) {
                        cancel.cancel();
                    }
                    continue;
                }
            },
            _ = beat.tick() => {
                if unanswered == MAX_UNANSWERED_PINGS {
                    return;
                }
                unanswered += 1;
                Message::Ping(Default::default())
            }
        };
        if !send(&mut socket, message).await {
            return;
        }
    }
    let end = CloseFrame { code: close_code::NORMAL, reason: Default::default() };
    send(&mut socket, Message::Close(Some(end))).await;
}

fn to_message(update: &Update) -> String {
    let (name, data) = update.to_wire();
    format!(r#"{{"event":"{name}","data":{data}}}"#)
}

fn is_cancel(message: &Message) -> bool {
    matches!(message, Message::Text(text) if text.as_str() == "cancel")
}

/// Sends a message. False if the client does not accept it in time.
async fn send(socket: &mut WebSocket, message: Message) -> bool {
    matches!(timeout(SEND_TIMEOUT, socket.send(message)).await, Ok(Ok(())))
}
