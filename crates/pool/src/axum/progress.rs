//! Streams the progress and the outcome of a call.

use std::borrow::Cow;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream};
use serde::Serialize;
use tokio::sync::mpsc;

use super::errors::to_logged_problem;
use crate::call_options::CallOptions;
use crate::error::{CallError, ErrorKind};
use crate::job::call_error;
use crate::payload::{CallPayload, Form};
use crate::pool::WorkerPool;

/// Progress values that are buffered for a slow reader; further ones are dropped.
const PROGRESS_BUFFER: usize = 64;

/// An update on a running call.
#[derive(Debug, Clone, PartialEq)]
pub enum Update {
    /// Progress, as the operation reported it.
    Progress(CallPayload),
    /// Its result; the last update.
    Done(CallPayload),
    /// The call failed; the last update.
    Failed(CallError),
}

/// A running call, as a stream of updates. If it is dropped before the end, the call continues,
/// unless [`CallOptions::cancel_on_drop`] is set.
pub struct Updates {
    call: Option<BoxFuture<'static, Result<CallPayload, CallError>>>,
    progress: mpsc::Receiver<CallPayload>,
    end: Option<Update>,
}

impl Updates {
    /// Calls an operation. If the call is rejected before it reaches a worker, that is an error
    /// here and not an update. Replaces the progress channel of the options.
    pub async fn of<A: Serialize + ?Sized>(
        pool: &WorkerPool,
        operation: &str,
        arguments: &A,
        options: CallOptions,
    ) -> Result<Self, CallError> {
        Self::of_raw(pool, operation, json(pool, operation, arguments)?, options).await
    }

    /// Calls an operation with a raw payload, as [`Updates::of`] does with JSON.
    pub async fn of_raw(
        pool: &WorkerPool,
        operation: &str,
        arguments: CallPayload,
        options: CallOptions,
    ) -> Result<Self, CallError> {
        let (to, progress) = mpsc::channel(PROGRESS_BUFFER);
        let (pool, operation) = (pool.clone(), operation.to_owned());
        let options = options.progress(to);
        let call = async move { pool.call_raw(&operation, arguments, options).await };
        let mut updates = Self { call: Some(call.boxed()), progress, end: None };
        poll_fn(|context| {
            updates.poll_call(context);
            Poll::Ready(())
        })
        .await;
        match updates.end.take() {
            Some(Update::Failed(error)) if error.worker.is_none() => Err(error),
            end => Ok(Self { end, ..updates }),
        }
    }

    /// Polls the call, and stores its outcome.
    fn poll_call(&mut self, context: &mut Context<'_>) {
        if let Some(call) = &mut self.call
            && let Poll::Ready(answer) = call.poll_unpin(context)
        {
            self.call = None;
            self.end = Some(answer.map_or_else(Update::Failed, Update::Done));
        }
    }
}

/// Serialises arguments as JSON.
pub(super) fn json<A: Serialize + ?Sized>(
    pool: &WorkerPool,
    operation: &str,
    arguments: &A,
) -> Result<CallPayload, CallError> {
    CallPayload::json(arguments).map_err(|cause| {
        let kind = ErrorKind::BadArguments { message: cause.to_string() };
        call_error(pool.name(), operation, kind, None)
    })
}

impl Stream for Updates {
    type Item = Update;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Update>> {
        self.poll_call(context);
        match (&self.call, &self.end) {
            // Progress from before the end comes before it.
            (None, Some(_)) => match self.progress.try_recv() {
                Ok(value) => Poll::Ready(Some(Update::Progress(value))),
                Err(_) => Poll::Ready(self.end.take()),
            },
            (None, None) => Poll::Ready(None),
            (Some(_), _) => match self.progress.poll_recv(context) {
                Poll::Ready(Some(value)) => Poll::Ready(Some(Update::Progress(value))),
                _ => Poll::Pending,
            },
        }
    }
}

impl std::fmt::Debug for Updates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Updates").field("ended", &self.call.is_none()).finish_non_exhaustive()
    }
}

impl Update {
    /// The event's name, and its data as one line of JSON.
    pub(super) fn to_wire(&self) -> (&'static str, String) {
        match self {
            Self::Progress(value) => ("progress", json_line(value)),
            Self::Done(result) => ("done", json_line(result)),
            Self::Failed(error) => ("error", to_logged_problem(error).to_json()),
        }
    }
}

/// A payload as one line of JSON. Bytes become an object with a field `base64`.
fn json_line(payload: &CallPayload) -> String {
    let bytes = payload.as_bytes();
    match payload.form() {
        Form::Bytes => format!(r#"{{"base64":"{}"}}"#, STANDARD.encode(bytes)),
        // JSON has raw line ends only between tokens, never inside strings.
        Form::Json => match String::from_utf8_lossy(bytes) {
            text if text.contains(['\r', '\n']) => text.replace(['\r', '\n'], " "),
            text => Cow::into_owned(text),
        },
    }
}

#[cfg(all(test, not(feature = "_shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_one_line_of_json_whatever_it_holds() {
        let pretty = CallPayload::from_json_text("{\r\n  \"a\": \"b\\nc\"\n}");
        assert_eq!(json_line(&pretty), "{    \"a\": \"b\\nc\" }");
        assert_eq!(json_line(&CallPayload::bytes(*b"\n\0")), r#"{"base64":"CgA="}"#);
        assert_eq!(json_line(&CallPayload::null()), "null");
    }
}
