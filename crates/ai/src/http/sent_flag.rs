//! Whether a request was sent: only then can it have been billed.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use http_body_util::Full;
use hyper::body::{Body, Bytes, Frame, SizeHint};

/// Shared by the caller and the request's body.
#[derive(Debug, Clone, Default)]
pub(crate) struct SentFlag(Arc<AtomicBool>);

impl SentFlag {
    /// Whether some of the request was written to a connection.
    pub(crate) fn is_sent(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A body that sets the flag when it is first read, which happens once there is a connection.
pub(super) struct FlaggedBody {
    pub(super) body: Full<Bytes>,
    pub(super) sent: SentFlag,
}

impl Body for FlaggedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.sent.0.store(true, Ordering::Relaxed);
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
