//! A call, watched: how far it is, and what it came to.

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

use super::errors::shown;
use crate::error::{CallError, ErrorKind};
use crate::job::error;
use crate::options::CallOptions;
use crate::payload::{Form, Payload};
use crate::pool::WorkerPool;

/// Words on progress that may wait for a slow listener; further ones are dropped.
const ROOM: usize = 64;

/// What whoever watches a call hears.
#[derive(Debug, Clone, PartialEq)]
pub enum Update {
    /// How far it is, in the operation's own words.
    Progress(Payload),
    /// Its result; the last update.
    Done(Payload),
    /// It came to nothing; the last update.
    Failed(CallError),
}

/// A call that runs while it is watched. Dropped before the end, it leaves the call to go on, or
/// takes it back: [`CallOptions::cancel_on_drop`].
pub struct Updates {
    call: Option<BoxFuture<'static, Result<Payload, CallError>>>,
    progress: mpsc::Receiver<Payload>,
    end: Option<Update>,
}

impl Updates {
    /// Calls an operation. A call that is refused at once, before it reaches a worker, is an error
    /// here and not an update. The options' own listener to progress, if there is one, hears nothing.
    pub async fn of<A: Serialize + ?Sized>(
        pool: &WorkerPool,
        operation: &str,
        arguments: &A,
        options: CallOptions,
    ) -> Result<Self, CallError> {
        Self::of_raw(pool, operation, json(pool, operation, arguments)?, options).await
    }

    /// The same with arguments as they are.
    pub async fn of_raw(
        pool: &WorkerPool,
        operation: &str,
        arguments: Payload,
        options: CallOptions,
    ) -> Result<Self, CallError> {
        let (to, progress) = mpsc::channel(ROOM);
        let (pool, operation) = (pool.clone(), operation.to_owned());
        let options = options.progress(to);
        let call = async move { pool.call_raw(&operation, arguments, options).await };
        let mut updates = Self { call: Some(call.boxed()), progress, end: None };
        poll_fn(|context| {
            updates.look(context);
            Poll::Ready(())
        })
        .await;
        match updates.end.take() {
            Some(Update::Failed(error)) if error.worker.is_none() => Err(error),
            end => Ok(Self { end, ..updates }),
        }
    }

    /// Whether the call has ended.
    fn look(&mut self, context: &mut Context<'_>) {
        if let Some(call) = &mut self.call
            && let Poll::Ready(answer) = call.poll_unpin(context)
        {
            self.call = None;
            self.end = Some(answer.map_or_else(Update::Failed, Update::Done));
        }
    }
}

/// Arguments as JSON.
pub(super) fn json<A: Serialize + ?Sized>(
    pool: &WorkerPool,
    operation: &str,
    arguments: &A,
) -> Result<Payload, CallError> {
    Payload::json(arguments).map_err(|cause| {
        let kind = ErrorKind::BadArguments { message: cause.to_string() };
        error(pool.name(), operation, kind, None)
    })
}

impl Stream for Updates {
    type Item = Update;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Update>> {
        self.look(context);
        match (&self.call, &self.end) {
            // What was said before the end comes before it.
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
    /// Its name on the wire, and what it says there: JSON on one line.
    pub(super) fn to_wire(&self) -> (&'static str, String) {
        match self {
            Self::Progress(value) => ("progress", line(value)),
            Self::Done(result) => ("done", line(result)),
            Self::Failed(error) => ("error", shown(error).to_json()),
        }
    }
}

/// A payload as one line of JSON. Bytes become an object with a field `base64`.
fn line(payload: &Payload) -> String {
    let bytes = payload.as_bytes();
    match payload.form() {
        Form::Bytes => format!(r#"{{"base64":"{}"}}"#, STANDARD.encode(bytes)),
        // Outside of its strings, JSON may have line ends; inside, it has none.
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
        let pretty = Payload::from_json_text("{\r\n  \"a\": \"b\\nc\"\n}");
        assert_eq!(line(&pretty), "{    \"a\": \"b\\nc\" }");
        assert_eq!(line(&Payload::bytes(*b"\n\0")), r#"{"base64":"CgA="}"#);
        assert_eq!(line(&Payload::null()), "null");
    }
}
