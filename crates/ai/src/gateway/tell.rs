//! Answers that are told while they come.
//!
//! Whoever asks runs beside whoever tells, so that a listener who stands still does not hold the
//! provider longer than the question's time. Both end when the response is dropped: nobody listens.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::stream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout_at;
use tracing::Instrument;

use super::counter::Counter;
use super::refusal::Refusal;
use super::wire::Teller;
use crate::ask::{Answer, AskError, Code};
use crate::chat::Piece;
use crate::desk::Errand;

/// How many pieces may wait for a slow listener.
const AHEAD: usize = 64;

/// How much is told at once, if so much is there.
const AT_ONCE: usize = 16 * 1024;

/// How long after its time a question is ended that did not end by itself.
const GRACE: Duration = Duration::from_secs(2);

/// A question that is being asked, and what is heard of it.
pub(super) struct Hearing {
    pieces: mpsc::Receiver<Piece>,
    /// One task; it ends with its owner.
    asking: JoinSet<Result<Answer, AskError>>,
    end: Option<Result<Answer, AskError>>,
}

/// What is heard.
pub(super) enum Heard {
    /// Some more of the answer.
    Piece(Piece),
    /// That was all.
    End(Result<Answer, AskError>),
}

impl Hearing {
    /// Begins to ask.
    pub(super) fn begin(counter: Arc<dyn Counter>, errand: Errand) -> Self {
        let (sender, pieces) = mpsc::channel(AHEAD);
        let mut asking = JoinSet::new();
        asking.spawn(ask(counter, errand, sender).in_current_span());
        Self { pieces, asking, end: None }
    }

    /// What is heard next.
    pub(super) async fn next(&mut self) -> Heard {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Heard> {
        if self.end.is_none() {
            if let Poll::Ready(Some(piece)) = self.pieces.poll_recv(cx) {
                return Poll::Ready(Heard::Piece(piece));
            }
            let over = std::task::ready!(self.asking.poll_join_next(cx));
            self.end = Some(over.and_then(Result::ok).unwrap_or_else(lost));
        }
        // The last pieces may have come since.
        Poll::Ready(match self.pieces.try_recv() {
            Ok(piece) => Heard::Piece(piece),
            Err(_) => Heard::End(self.end.take().unwrap_or_else(lost)),
        })
    }
}

fn lost() -> Result<Answer, AskError> {
    Err(AskError::new(Code::Internal, "the question was lost"))
}

async fn ask(
    counter: Arc<dyn Counter>,
    errand: Errand,
    pieces: mpsc::Sender<Piece>,
) -> Result<Answer, AskError> {
    let until = errand.question.until + GRACE;
    let settled = timeout_at(until, counter.ask(&errand, Some(&pieces))).await;
    let settled = settled
        .map_err(|_| AskError::new(Code::Timeout, "the answer was not listened to in its time"))?;
    counter.note(settled.records);
    settled.result
}

/// The body of a response that tells what is heard.
pub(super) fn told(teller: Box<dyn Teller>, first: Heard, hearing: Hearing) -> Body {
    let mut telling = Some(Telling { teller, hearing });
    let mut first = Some(first);
    Body::from_stream(stream::poll_fn(move |cx| {
        let Some(open) = &mut telling else { return Poll::Ready(None) };
        let (bytes, over) = std::task::ready!(open.poll(&mut first, cx));
        if over {
            telling = None;
        }
        Poll::Ready(Some(Ok::<_, std::convert::Infallible>(bytes)))
    }))
}

struct Telling {
    teller: Box<dyn Teller>,
    hearing: Hearing,
}

impl Telling {
    /// What there is to tell now, and whether that was all.
    fn poll(&mut self, first: &mut Option<Heard>, cx: &mut Context<'_>) -> Poll<(Bytes, bool)> {
        let mut out = Vec::new();
        while out.len() < AT_ONCE {
            let heard = match first.take() {
                Some(heard) => heard,
                None => match self.hearing.poll(cx) {
                    Poll::Ready(heard) => heard,
                    Poll::Pending if out.is_empty() => return Poll::Pending,
                    Poll::Pending => break,
                },
            };
            match heard {
                Heard::Piece(piece) => self.teller.piece(piece, &mut out),
                Heard::End(Ok(answer)) => {
                    self.teller.end(&answer, &mut out);
                    return Poll::Ready((out.into(), true));
                }
                Heard::End(Err(error)) => {
                    self.teller.fail(&Refusal::from(error), &mut out);
                    return Poll::Ready((out.into(), true));
                }
            }
        }
        Poll::Ready((out.into(), false))
    }
}
