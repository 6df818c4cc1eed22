//! A provider of batches that takes no submission from a conductor whose unit was given to another.
//!
//! A worker that was taken for dead may come back to life in the middle of a turn. All it could do to a
//! shipment that its successor does not repeat unharmed is to submit it, so before that the lease is looked
//! at in the store. What is left is a worker that stands still between that look and the sending for longer
//! than it takes to be declared dead and the successor to look for the shipment in the provider's list.

use async_trait::async_trait;
use longshore::{Context, Payload};
use longshore_ai::batches::{
    BatchItem, BatchLimits, BatchMark, BatchProvider, BatchResult, BatchState, BatchTicket, Found,
    ItemSize,
};
use longshore_ai::{Again, AskError, Code};
use std::sync::Arc;
use tokio::sync::mpsc;

/// The provider of one run.
pub(super) struct Fenced {
    pub(super) inner: Arc<dyn BatchProvider>,
    pub(super) context: Context,
    /// What the unit's checkpoint is, and stays.
    pub(super) state: Payload,
}

#[async_trait]
impl BatchProvider for Fenced {
    fn limits(&self) -> BatchLimits {
        self.inner.limits()
    }

    fn size(&self, item: &BatchItem) -> ItemSize {
        self.inner.size(item)
    }

    async fn submit(&self, items: &[BatchItem], mark: &str) -> Result<BatchTicket, AskError> {
        self.context.save_checkpoint(self.state.clone()).await.map_err(|error| {
            let words = format!("nothing was sent: {error}");
            AskError { again: Again::NotSent, ..AskError::new(Code::Internal, words) }
        })?;
        self.inner.submit(items, mark).await
    }

    async fn find(&self, mark: &BatchMark) -> Result<Found, AskError> {
        self.inner.find(mark).await
    }

    async fn poll(&self, ticket: &BatchTicket) -> Result<BatchState, AskError> {
        self.inner.poll(ticket).await
    }

    async fn results(
        &self,
        ticket: &BatchTicket,
        into: &mpsc::Sender<BatchResult>,
    ) -> Result<(), AskError> {
        self.inner.results(ticket, into).await
    }

    async fn cancel(&self, ticket: &BatchTicket) -> Result<(), AskError> {
        self.inner.cancel(ticket).await
    }
}
