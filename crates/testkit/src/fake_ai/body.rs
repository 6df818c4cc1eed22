//! Bodies that come in steps: bytes, pauses, and breaks.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::time::Sleep;

/// A step of a body.
pub(super) enum Step {
    /// Some bytes.
    Bytes(Bytes),
    /// Nothing for a while.
    Pause(Duration),
    /// The connection ends here; what came before has left.
    Break,
    /// The same, at once.
    BreakNow,
}

impl Step {
    pub(super) fn bytes(bytes: impl AsRef<[u8]>) -> Self {
        Self::Bytes(Bytes::copy_from_slice(bytes.as_ref()))
    }
}

/// A body that is given step by step.
pub(super) struct FakeBody {
    steps: VecDeque<Step>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl FakeBody {
    pub(super) fn new(steps: Vec<Step>) -> Self {
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
                Some(Step::Bytes(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Some(Step::Pause(pause)) => self.pause = Some(Box::pin(tokio::time::sleep(pause))),
                Some(Step::Break) => {
                    // A body that is not ready makes the server send what it has.
                    self.steps.push_front(Step::BreakNow);
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Some(Step::BreakNow) => {
                    return Poll::Ready(Some(Err(io::Error::other("the fake breaks off"))));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.steps.is_empty() && self.pause.is_none()
    }

    /// Whole answers have their length in the head, as real ones do.
    fn size_hint(&self) -> SizeHint {
        let mut steps = self.steps.iter();
        match (steps.next(), steps.next()) {
            (None, _) => SizeHint::with_exact(0),
            (Some(Step::Bytes(bytes)), None) => SizeHint::with_exact(bytes.len() as u64),
            _ => SizeHint::default(),
        }
    }
}
