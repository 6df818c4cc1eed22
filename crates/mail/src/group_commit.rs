//! Group commit for the spool: concurrent enqueues share one disk sync.

use std::sync::{Arc, Mutex, PoisonError};

use longshore::Clock;
use serde_json::Value;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::task::spawn_blocking;

use crate::spool::{EnqueueResult, NewMessage, Spool, SpoolError};

/// Enqueues messages in groups. While one group is written and synced, new messages are buffered and become
/// the next group. Cheap to clone; all clones share their groups.
#[derive(Clone)]
pub struct GroupCommitQueue(Arc<GroupCommit>);

struct GroupCommit {
    spool: Spool,
    clock: Arc<dyn Clock>,
    buffer: Mutex<Vec<PendingMessage>>,
    /// Held while a group is written. The blocking task owns the guard, so that it keeps the lock even if the
    /// caller is dropped.
    write_lock: Arc<tokio::sync::Mutex<()>>,
}

struct PendingMessage {
    letter: NewMessage,
    reply: oneshot::Sender<Result<EnqueueReport, Arc<SpoolError>>>,
}

/// The result of enqueueing a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnqueueReport {
    /// Whether the message is new or its key existed.
    pub result: EnqueueResult,
    /// The metadata of the stored message: this message's own, or that of the earlier message with the same
    /// key.
    pub metadata: Option<Value>,
}

/// Maximum number of messages per group: the group's bodies are all in memory.
const MAX_GROUP: usize = 256;

impl GroupCommitQueue {
    /// Groups enqueues into this spool.
    pub fn new(spool: Spool, clock: Arc<dyn Clock>) -> Self {
        let (buffer, write_lock) = (Mutex::default(), Arc::default());
        Self(Arc::new(GroupCommit { spool, clock, buffer, write_lock }))
    }

    /// Enqueues a message. Once this returns `Ok`, the message is durable and will be sent. If this fails or
    /// is dropped, the message may or may not be stored; it is safe to enqueue it again.
    pub async fn put(&self, letter: NewMessage) -> Result<EnqueueReport, Arc<SpoolError>> {
        let (reply, mut receiver) = oneshot::channel();
        self.buffer().push(PendingMessage { letter, reply });
        loop {
            let write_lock = Arc::clone(&self.0.write_lock).lock_owned().await;
            // Another caller's group may have included this message.
            match receiver.try_recv() {
                Ok(result) => return result,
                Err(TryRecvError::Closed) => return Err(Arc::new(SpoolError::WriterCrashed)),
                // The message is still in the buffer.
                Err(TryRecvError::Empty) => {}
            }
            let (inner, group) = (Arc::clone(&self.0), self.take_group());
            let put = spawn_blocking(move || {
                inner.write_group(group);
                drop(write_lock);
            });
            if let Err(error) = put.await {
                // Panics are propagated: they are handled in one place only.
                std::panic::resume_unwind(error.into_panic());
            }
            // Check before waiting for the lock again: there may be a queue for it.
            if let Ok(result) = receiver.try_recv() {
                return result;
            }
        }
    }

    /// Takes the next group from the buffer. Messages of dropped callers are discarded: the caller enqueues
    /// again or gave up.
    fn take_group(&self) -> Vec<PendingMessage> {
        let mut buffer = self.buffer();
        buffer.retain(|one| !one.reply.is_closed());
        let count = buffer.len().min(MAX_GROUP);
        buffer.drain(..count).collect()
    }

    fn buffer(&self) -> std::sync::MutexGuard<'_, Vec<PendingMessage>> {
        self.0.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GroupCommit {
    fn write_group(&self, group: Vec<PendingMessage>) {
        let (letters, replies): (Vec<_>, Vec<_>) =
            group.into_iter().map(|one| (one.letter, one.reply)).unzip();
        match self.spool.enqueue(&letters, self.clock.now()) {
            Err(error) => {
                let error = Arc::new(error);
                // A send fails only if the caller was dropped; it may enqueue the message again.
                replies.into_iter().for_each(|reply| drop(reply.send(Err(Arc::clone(&error)))));
            }
            Ok(puts) => {
                for ((letter, put), reply) in letters.into_iter().zip(puts).zip(replies) {
                    let _ = reply.send(self.report(letter, put).map_err(Arc::new));
                }
            }
        }
    }

    fn report(&self, letter: NewMessage, put: EnqueueResult) -> Result<EnqueueReport, SpoolError> {
        let metadata = match put {
            EnqueueResult::Created => letter.metadata,
            EnqueueResult::Existing => self.spool.message(&letter.key)?.metadata,
        };
        Ok(EnqueueReport { result: put, metadata })
    }
}
