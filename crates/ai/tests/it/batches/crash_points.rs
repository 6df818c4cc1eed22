//! A store and a provider that stop at their n-th operation, before or after it: there the test
//! drops the runner, as a kill would.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use longshore::accounts::{
    PendingChange, PendingCounts, PendingFilter, PendingRequest, PendingRequests, ProviderBatch,
    ProviderBatchChange,
};
use longshore::{BatchId, MemoryStore, Result, UnitId};
use longshore_ai::AskError;
use longshore_ai::batches::{
    BatchItem, BatchLimits, BatchMark, BatchProvider, BatchResult, BatchState, BatchTicket, FindResult,
    ItemSize,
};
use tokio::sync::{Notify, mpsc};

/// When the kill happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kill {
    /// The operation was not started.
    Before,
    /// The operation was done, and the caller does not know it.
    After,
}

/// Stops once.
pub(super) struct Tripwire {
    left: AtomicUsize,
    kill: Kill,
    pub(super) tripped: Notify,
}

impl Tripwire {
    pub(super) fn at(call: usize, kill: Kill) -> Arc<Self> {
        Arc::new(Self { left: AtomicUsize::new(call + 1), kill, tripped: Notify::new() })
    }

    /// Whether it has stopped.
    pub(super) fn is_spent(&self) -> bool {
        self.left.load(Ordering::SeqCst) == 0
    }

    async fn around<T>(&self, call: impl Future<Output = T>) -> T {
        let count = |left: usize| left.checked_sub(1);
        let before = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count);
        let here = before == Ok(1);
        if here && self.kill == Kill::Before {
            self.stand().await;
        }
        let done = call.await;
        if here {
            self.stand().await;
        }
        done
    }

    async fn stand(&self) {
        self.tripped.notify_one();
        std::future::pending::<()>().await;
    }
}

pub(super) struct Killable<T: ?Sized> {
    pub(super) wire: Arc<Tripwire>,
    pub(super) inner: Arc<T>,
}

macro_rules! through {
    ($self:ident, $($call:tt)*) => {
        $self.wire.around($self.inner.$($call)*).await
    };
}

#[async_trait]
impl PendingRequests for Killable<MemoryStore> {
    async fn change_pending(&self, batch: &BatchId, change: PendingChange) -> Result<Vec<UnitId>> {
        through!(self, change_pending(batch, change))
    }
    async fn pending_requests(
        &self,
        batch: &BatchId,
        filter: &PendingFilter,
        limit: u32,
    ) -> Result<Vec<PendingRequest>> {
        through!(self, pending_requests(batch, filter, limit))
    }
    async fn provider_batches(&self, batch: &BatchId) -> Result<(Vec<ProviderBatch>, PendingCounts)> {
        through!(self, provider_batches(batch))
    }
    async fn change_provider_batch(
        &self,
        batch: &BatchId,
        mark: &str,
        change: ProviderBatchChange,
    ) -> Result<()> {
        through!(self, change_provider_batch(batch, mark, change))
    }
}

#[async_trait]
impl BatchProvider for Killable<dyn BatchProvider> {
    /// Small batches, so that there are several.
    fn limits(&self) -> BatchLimits {
        BatchLimits { items: 2, ..self.inner.limits() }
    }
    fn size(&self, item: &BatchItem) -> ItemSize {
        self.inner.size(item)
    }
    async fn submit(&self, items: &[BatchItem], mark: &str) -> std::result::Result<BatchTicket, AskError> {
        through!(self, submit(items, mark))
    }
    async fn find(&self, mark: &BatchMark) -> std::result::Result<FindResult, AskError> {
        through!(self, find(mark))
    }
    async fn poll(&self, ticket: &BatchTicket) -> std::result::Result<BatchState, AskError> {
        through!(self, poll(ticket))
    }
    async fn results(
        &self,
        ticket: &BatchTicket,
        into: &mpsc::Sender<BatchResult>,
    ) -> std::result::Result<(), AskError> {
        through!(self, results(ticket, into))
    }
    async fn cancel(&self, ticket: &BatchTicket) -> std::result::Result<(), AskError> {
        through!(self, cancel(ticket))
    }
}
