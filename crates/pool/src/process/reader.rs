//! Reads a worker's messages, many per read.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::Poll;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

use super::worker::Worker;
use crate::protocol::decoder::Decoder;
use crate::protocol::{Decoded, Encoding, FromWorker, ProtocolError};
use crate::shared::Shared;

/// The pool's end of a worker's output.
pub(super) struct Reader {
    pipe: AsyncFd<OwnedFd>,
    decoder: Decoder<FromWorker>,
}

impl Reader {
    pub(super) fn new(pipe: AsyncFd<OwnedFd>, max_frame: usize) -> Self {
        Self { pipe, decoder: Decoder::new(max_frame) }
    }

    pub(super) fn switch(&mut self, encoding: Encoding) {
        self.decoder.switch(encoding);
    }

    /// Waits for more bytes; false at the end of the pipe.
    async fn read(&mut self) -> bool {
        loop {
            let Ok(mut ready) = self.pipe.readable().await else { return false };
            let space = self.decoder.space();
            let capacity = space.capacity() - space.len();
            match rustix::io::read(&self.pipe, spare_capacity(space)) {
                Ok(0) => return false,
                Ok(read) => {
                    // A short read means that the pipe is empty. Saves a read that would return
                    // EAGAIN.
                    if read < capacity {
                        ready.clear_ready();
                    }
                    return true;
                }
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    /// The next message; `None` at the end of the pipe.
    pub(super) async fn next(&mut self) -> Result<Option<Decoded<FromWorker>>, ProtocolError> {
        loop {
            // A worker that writes without pause must not starve other tasks.
            tokio::task::coop::consume_budget().await;
            if let Some(message) = self.decoder.next()? {
                return Ok(Some(message));
            }
            if !self.read().await {
                return Ok(None);
            }
        }
    }

    /// Handles messages until the pipe ends or the worker violates the protocol.
    pub(super) async fn run(mut self, worker: Arc<Worker>, shared: Arc<Shared>) -> Result<(), ProtocolError> {
        loop {
            let mut count = 0;
            while let Some(message) = self.decoder.next()? {
                count += 1;
                if count == 2 {
                    worker.defer_writes();
                }
                worker.on_message(&shared, message);
                // A worker that writes without pause must not starve other tasks.
                tokio::task::coop::consume_budget().await;
            }
            if count > 1 {
                yield_once().await;
            }
            // Sends the calls that followed from these messages in one write.
            worker.flush();
            if !self.read().await {
                return Ok(());
            }
        }
    }
}

/// Lets tasks run that were woken before this one.
async fn yield_once() {
    let mut waited = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        // Not `yield_now`: that runs only once all other tasks are idle.
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
