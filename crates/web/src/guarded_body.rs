//! A response's body that holds a guard until it was sent completely.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

/// A response's body with a guard. The connection takes a body's bytes long before a slow client reads them,
/// so the bytes hold the guard, too.
pub(crate) struct GuardedBody<G> {
    body: Body,
    guard: Arc<G>,
}

impl<G> GuardedBody<G> {
    pub(crate) fn new(body: Body, guard: Arc<G>) -> Self {
        Self { body, guard }
    }
}

/// Bytes with the guard of their body.
struct GuardedBytes<G> {
    bytes: Bytes,
    _guard: Arc<G>,
}

impl<G> AsRef<[u8]> for GuardedBytes<G> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<G: Send + Sync + 'static> hyper::body::Body for GuardedBody<G> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        let guarded = |bytes| Bytes::from_owner(GuardedBytes { bytes, _guard: Arc::clone(&self.guard) });
        polled.map_ok(|frame| frame.map_data(guarded))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
