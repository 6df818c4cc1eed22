//! Requests for a provider's batch API: waiting, sent, or answered. A row parks its request here
//! when it gives up its slot, so that any process can continue after a crash.
//!
//! A request waits; it is sealed into a **provider batch** before anything is sent, so
//! that the store always knows what may have been sent; and it is answered, or waits again if its
//! batch is closed without its answer.

use async_trait::async_trait;
use longshore_core::{BatchId, Payload, Result, Timestamp, UnitId};
use serde::{Deserialize, Serialize};

/// A request to park.
#[derive(Debug, Clone, PartialEq)]
pub struct NewPendingRequest {
    /// Identifies it in the provider's results, and in repeats of this operation. Unique in its
    /// batch.
    pub custom_id: String,
    /// The unit that waits for the answer.
    pub unit: UnitId,
    /// The prompt.
    pub prompt: String,
}

/// A parked request.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingRequest {
    /// The request.
    pub new: NewPendingRequest,
    /// When it was parked.
    pub parked_at: Timestamp,
    /// How many provider batches were closed without its answer.
    pub tries: u32,
    /// The answer, once there is one.
    pub reply: Option<Payload>,
}

/// Selects parked requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PendingFilter {
    /// The request with this id.
    CustomId(String),
    /// Requests that wait to be sent.
    Waiting,
    /// The unanswered requests of the provider batch with this name.
    ProviderBatch(String),
    /// Answered requests that were not removed since.
    Answered,
}

/// Requests that are sent together, as one batch of the provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderBatch {
    /// Its name, made by us.
    #[serde(rename = "mark")]
    pub name: String,
    /// When it was sealed: it was not sent before.
    pub sealed_at: Timestamp,
    /// The provider's id for it, once known.
    #[serde(rename = "ticket")]
    pub provider_id: Option<String>,
}

/// The answer to a parked request, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchAnswer {
    /// The request.
    pub custom_id: String,
    /// What to return to the unit. Opaque to the store.
    pub reply: Payload,
}

/// A change of parked requests. A repeat changes nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum PendingChange {
    /// Parks requests. A known request stays as it is.
    Add(Vec<NewPendingRequest>),
    /// Stores answers. The first answer to a request stays; answers to unknown requests are
    /// dropped.
    Answer(Vec<BatchAnswer>),
    /// Removes the request with this id: its answer was saved, or is not needed any more.
    Remove(String),
}

/// A change of a provider batch. A repeat does nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProviderBatchChange {
    /// Puts these waiting requests into a new provider batch; requests that do not wait any more are left
    /// out.
    Create(Vec<String>),
    /// Stores the provider's id.
    SetProviderId(String),
    /// Removes the provider batch. Its unanswered requests wait again.
    Close(CloseReason),
}

/// The parked requests of a batch, by status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PendingCounts {
    /// Waiting to be sent.
    pub waiting: u64,
    /// In a provider batch.
    pub out: u64,
    /// Answered; the unit has not fetched the answer yet.
    pub answered: u64,
}

impl PendingCounts {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.waiting + self.out + self.answered
    }
}

/// Whether a closed provider batch counts as an attempt of its unanswered requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// It was sent, and no answer came.
    NoAnswer,
    /// The provider never processed it.
    NotProcessed,
}

/// Parked requests. One runner at a time works on a batch's provider batches; rows park and query at any
/// time.
#[async_trait]
pub trait PendingRequests: Send + Sync + 'static {
    /// Parks, answers or removes requests. Returns the units that wait for the answers.
    async fn change_pending(&self, batch: &BatchId, change: PendingChange) -> Result<Vec<UnitId>>;

    /// Requests, longest parked first.
    async fn pending_requests(
        &self,
        batch: &BatchId,
        filter: &PendingFilter,
        limit: u32,
    ) -> Result<Vec<PendingRequest>>;

    /// The open provider batches, oldest first, and the number of requests.
    async fn provider_batches(&self, batch: &BatchId) -> Result<(Vec<ProviderBatch>, PendingCounts)>;

    /// Creates or closes the provider batch with this name, or stores its id at the provider.
    async fn change_provider_batch(
        &self,
        batch: &BatchId,
        name: &str,
        change: ProviderBatchChange,
    ) -> Result<()>;
}
