//! Streams an answer to the client while it arrives.
//!
//! The question runs in its own task, so that a stalled client does not hold the provider past the
//! question's deadline. Both end when the response is dropped, because the client disconnected.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::stream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout_at;
use tracing::Instrument;

use super::api_format::StreamEncoder;
use super::backend::Counter;
use super::error::GatewayError;
use crate::chat::Piece;
use crate::inference::Errand;
use crate::model_api::{Answer, AskError, Code};

/// Pieces buffered for a slow client.
const CHANNEL_CAPACITY: usize = 64;

/// Bytes sent as one chunk, if so many are available.
const MAX_CHUNK_BYTES: usize = 16 * 1024;

/// How long after its deadline a question that has not ended is aborted.
const DEADLINE_GRACE: Duration = Duration::from_secs(2);

/// A question that is being answered.
pub(super) struct AnswerStream {
    pieces: mpsc::Receiver<Piece>,
    /// One task; aborted when this is dropped.
    asking: JoinSet<Result<Answer, AskError>>,
    end: Option<Result<Answer, AskError>>,
}

/// The next event of an answer.
pub(super) enum AnswerEvent {
    /// More of the answer.
    Piece(Piece),
    /// The end of the answer, or the error.
    End(Result<Answer, AskError>),
}

impl AnswerStream {
    /// Starts asking.
    pub(super) fn begin(backend: Arc<dyn Counter>, request: Errand) -> Self {
        let (sender, pieces) = mpsc::channel(CHANNEL_CAPACITY);
        let mut asking = JoinSet::new();
        asking.spawn(ask(backend, request, sender).in_current_span());
        Self { pieces, asking, end: None }
    }

    /// Waits for the next event.
    pub(super) async fn next(&mut self) -> AnswerEvent {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<AnswerEvent> {
        if self.end.is_none() {
            if let Poll::Ready(Some(piece)) = self.pieces.poll_recv(cx) {
                return Poll::Ready(AnswerEvent::Piece(piece));
            }
            let over = std::task::ready!(self.asking.poll_join_next(cx));
            self.end = Some(over.and_then(Result::ok).unwrap_or_else(lost));
        }
        // The last pieces may have arrived meanwhile.
        Poll::Ready(match self.pieces.try_recv() {
            Ok(piece) => AnswerEvent::Piece(piece),
            Err(_) => AnswerEvent::End(self.end.take().unwrap_or_else(lost)),
        })
    }
}

fn lost() -> Result<Answer, AskError> {
    Err(AskError::new(Code::Internal, "the task that asked the question panicked"))
}

async fn ask(
    backend: Arc<dyn Counter>,
    request: Errand,
    pieces: mpsc::Sender<Piece>,
) -> Result<Answer, AskError> {
    let until = request.question.until + DEADLINE_GRACE;
    let outcome = timeout_at(until, backend.ask(&request, Some(&pieces))).await;
    let outcome = outcome.map_err(|_| {
        AskError::new(Code::Timeout, "the client did not read the answer before the deadline")
    })?;
    backend.record(outcome.records);
    outcome.result
}

/// A response body that streams the answer.
pub(super) fn event_stream_body(
    encoder: Box<dyn StreamEncoder>,
    first: AnswerEvent,
    answers: AnswerStream,
) -> Body {
    let mut stream_state = Some(EventStream { encoder, answers });
    let mut first = Some(first);
    Body::from_stream(stream::poll_fn(move |cx| {
        let Some(open) = &mut stream_state else { return Poll::Ready(None) };
        let (bytes, over) = std::task::ready!(open.poll(&mut first, cx));
        if over {
            stream_state = None;
        }
        Poll::Ready(Some(Ok::<_, std::convert::Infallible>(bytes)))
    }))
}

struct EventStream {
    encoder: Box<dyn StreamEncoder>,
    answers: AnswerStream,
}

impl EventStream {
    /// What can be sent now, and whether the stream ends with it.
    fn poll(
        &mut self,
        first: &mut Option<AnswerEvent>,
        cx: &mut Context<'_>,
    ) -> Poll<(Bytes, bool)> {
        let mut out = Vec::new();
        while out.len() < MAX_CHUNK_BYTES {
            let event = match first.take() {
                Some(event) => event,
                None => match self.answers.poll(cx) {
                    Poll::Ready(event) => event,
                    Poll::Pending if out.is_empty() => return Poll::Pending,
                    Poll::Pending => break,
                },
            };
            match event {
                AnswerEvent::Piece(piece) => self.encoder.piece(piece, &mut out),
                AnswerEvent::End(Ok(answer)) => {
                    self.encoder.end(&answer, &mut out);
                    return Poll::Ready((out.into(), true));
                }
                AnswerEvent::End(Err(error)) => {
                    self.encoder.fail(&GatewayError::from(error), &mut out);
                    return Poll::Ready((out.into(), true));
                }
            }
        }
        Poll::Ready((out.into(), false))
    }
}
