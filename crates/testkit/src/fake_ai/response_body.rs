//! Response bodies of several steps: bytes, pauses, and broken connections.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::time::Sleep;

/// A step of a body.
pub(super) enum BodyStep {
    /// Sends bytes.
    Bytes(Bytes),
    /// Waits.
    Pause(Duration),
    /// Breaks the connection after the earlier bytes are sent.
    Break,
    /// Breaks the connection immediately.
    BreakNow,
}

impl BodyStep {
    pub(super) fn bytes(bytes: impl AsRef<[u8]>) -> Self {
        Self::Bytes(Bytes::copy_from_slice(bytes.as_ref()))
    }
}

/// A body that is sent step by step.
pub(super) struct FakeBody {
    steps: VecDeque<BodyStep>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl FakeBody {
    pub(super) fn new(steps: Vec<BodyStep>) -> Self {
        Self { steps: steps.into(), pause: None }
    }
}

impl Body for FakeBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(context));
                self.pause = None;
            }
            match self.steps.pop_front() {
                None => return Poll::Ready(None),
                Some(BodyStep::Bytes(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Some(BodyStep::Pause(pause)) => {
                    self.pause = Some(Box::pin(tokio::time::sleep(pause)));
                }
                Some(BodyStep::Break) => {
                    // When the body is pending, hyper flushes what it has.
                    self.steps.push_front(BodyStep::BreakNow);
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Some(BodyStep::BreakNow) => {
                    return Poll::Ready(Some(Err(io::Error::other(
                        "the fake provider breaks the connection",
                    ))));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.steps.is_empty() && self.pause.is_none()
    }

    /// The exact length of a body of one step, for its Content-Length header.
    fn size_hint(&self) -> SizeHint {
        let mut steps = self.steps.iter();
        match (steps.next(), steps.next()) {
            (None, _) => SizeHint::with_exact(0),
            (Some(BodyStep::Bytes(bytes)), None) => SizeHint::with_exact(bytes.len() as u64),
            _ => SizeHint::default(),
        }
    }
}
