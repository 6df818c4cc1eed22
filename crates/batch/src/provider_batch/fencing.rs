//! A batch provider that rejects submissions from a runner that has lost its lease.
//!
//! A worker that was declared dead may resume in the middle of a turn. The only step that its
//! successor cannot repeat safely is a submission, so the lease is checked in the store before each
//! one. One gap is left: a worker that stalls between that check and the submission for longer than
//! it takes to be declared dead and for the successor to search the provider's list.

use async_trait::async_trait;
use longshore::{Context, Payload};
use longshore_ai::batches::{
    BatchItem, BatchLimits, BatchMark, BatchProvider, BatchResult, BatchState, BatchTicket, FindResult,
    ItemSize,
};
use longshore_ai::{AskError, Code, Retryability};
use std::sync::Arc;
use tokio::sync::mpsc;

/// The provider of one run, behind a lease check.
pub(super) struct FencedProvider {
    pub(super) inner: Arc<dyn BatchProvider>,
    pub(super) context: Context,
    /// The unit's checkpoint, saved unchanged to check the lease.
    pub(super) state: Payload,
}

#[async_trait]
impl BatchProvider for FencedProvider {
    fn limits(&self) -> BatchLimits {
        self.inner.limits()
    }

    fn size(&self, item: &BatchItem) -> ItemSize {
        self.inner.size(item)
    }

    async fn submit(&self, items: &[BatchItem], mark: &str) -> Result<BatchTicket, AskError> {
        self.context.save_checkpoint(self.state.clone()).await.map_err(|error| {
            let message = format!("nothing was sent: {error}");
            AskError { retry: Retryability::NotSent, ..AskError::new(Code::Internal, message) }
        })?;
        self.inner.submit(items, mark).await
    }

    async fn find(&self, mark: &BatchMark) -> Result<FindResult, AskError> {
        self.inner.find(mark).await
    }

    async fn poll(&self, ticket: &BatchTicket) -> Result<BatchState, AskError> {
        self.inner.poll(ticket).await
    }

    async fn results(&self, ticket: &BatchTicket, into: &mpsc::Sender<BatchResult>) -> Result<(), AskError> {
        self.inner.results(ticket, into).await
    }

    async fn cancel(&self, ticket: &BatchTicket) -> Result<(), AskError> {
        self.inner.cancel(ticket).await
    }
}
