//! Reads what a worker says, many answers at a time.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::Poll;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

use super::worker::Worker;
use crate::protocol::decoder::Decoder;
use crate::protocol::{Encoding, Fault, FromWorker, Heard};
use crate::shared::Shared;

/// A worker's voice.
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

    /// Waits until there is more to decode; false if there will be no more.
    async fn read(&mut self) -> bool {
        loop {
            let Ok(mut ready) = self.pipe.readable().await else { return false };
            let space = self.decoder.space();
            let room = space.capacity() - space.len();
            match rustix::io::read(&self.pipe, spare_capacity(space)) {
                Ok(0) => return false,
                Ok(read) => {
                    // Less than there was room for: all that was there. Saves asking again.
                    if read < room {
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

    /// The next message; `None` if there will be no more.
    pub(super) async fn next(&mut self) -> Result<Option<Heard<FromWorker>>, Fault> {
        loop {
            // One that never stops talking must not keep others from their turn.
            tokio::task::coop::consume_budget().await;
            if let Some(heard) = self.decoder.next()? {
                return Ok(Some(heard));
            }
            if !self.read().await {
                return Ok(None);
            }
        }
    }

    /// Listens until there is nothing more to hear, or something that should not be.
    pub(super) async fn listen(
        mut self,
        worker: Arc<Worker>,
        shared: Arc<Shared>,
    ) -> Result<(), Fault> {
        loop {
            let mut count = 0;
            while let Some(heard) = self.decoder.next()? {
                count += 1;
                if count == 2 {
                    worker.collect();
                }
                worker.hear(&shared, heard);
                // One that never stops talking must not keep others from their turn.
                tokio::task::coop::consume_budget().await;
            }
            if count > 1 {
                turn().await;
            }
            // The calls that came of it, in one go.
            worker.flush();
            if !self.read().await {
                return Ok(());
            }
        }
    }
}

/// Lets those have their turn who were woken before.
async fn turn() {
    let mut waited = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        // Not `yield_now`: that waits until nobody else has anything to do.
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
