//! Requests for a provider's batch API: waiting, sent, or answered. A row parks its request here
//! when it gives up its slot, so that any process can continue after a crash.
//!
//! A request waits; it is sealed into a provider batch (a **shipment**) before anything is sent, so
//! that the store always knows what may have been sent; and it is answered, or waits again if its
//! batch is closed without its answer.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::name::{BatchId, UnitId};
use crate::time::Timestamp;
use crate::unit::Payload;

/// A request to park.
#[derive(Debug, Clone, PartialEq)]
pub struct NewParked {
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
pub struct Parked {
    /// The request.
    pub new: NewParked,
    /// When it was parked.
    pub parked_at: Timestamp,
    /// How many shipments were closed without its answer.
    pub tries: u32,
}

/// Requests that are sent together, as one batch of the provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shipment {
    /// Its name, made by us.
    pub mark: String,
    /// When it was sealed: it was not sent before.
    pub sealed_at: Timestamp,
    /// The provider's id for it, once known.
    pub ticket: Option<String>,
}

/// The answer to a parked request, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    /// The request.
    pub custom_id: String,
    /// What to return to the unit. Opaque to the store.
    pub reply: Payload,
}

/// The status of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Standing {
    /// No such request is parked.
    Unknown,
    /// It waits, or was sent.
    Parked,
    /// Answered.
    Answered(Payload),
}

/// The parked requests of a batch, by status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ParkedCounts {
    /// Waiting to be sent.
    pub waiting: u64,
    /// In a shipment.
    pub out: u64,
    /// Answered; the unit has not fetched the answer yet.
    pub answered: u64,
}

impl ParkedCounts {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.waiting + self.out + self.answered
    }
}

/// Whether a closed shipment counts as an attempt of its unanswered requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Return {
    /// It was sent, and no answer came.
    Tried,
    /// The provider never processed it.
    Untried,
}

/// Parked requests. One runner at a time works on a batch's shipments; rows park and query at any
/// time.
#[async_trait]
pub trait Parking: Send + Sync + 'static {
    /// Parks requests. A known request stays as it is.
    async fn park(&self, batch: &BatchId, items: Vec<NewParked>) -> Result<()>;

    /// Waiting requests, longest waiting first.
    async fn waiting(&self, batch: &BatchId, limit: u32) -> Result<Vec<Parked>>;

    /// Puts waiting requests into a new shipment; requests that do not wait any more are left out.
    /// A repeat does nothing.
    async fn seal(&self, batch: &BatchId, mark: &str, ids: Vec<String>) -> Result<()>;

    /// The open shipments, oldest first.
    async fn shipments(&self, batch: &BatchId) -> Result<Vec<Shipment>>;

    /// The unanswered requests of a shipment, in the order in which they were parked.
    async fn contents(&self, batch: &BatchId, mark: &str) -> Result<Vec<Parked>>;

    /// Stores the provider's id of a shipment.
    async fn ship(&self, batch: &BatchId, mark: &str, ticket: &str) -> Result<()>;

    /// Stores answers, and returns the units that wait for them. The first answer to a request
    /// stays; answers to unknown requests are dropped.
    async fn deliver(&self, batch: &BatchId, deliveries: Vec<Delivery>) -> Result<Vec<UnitId>>;

    /// Removes a shipment. Its unanswered requests wait again.
    async fn close_shipment(&self, batch: &BatchId, mark: &str, how: Return) -> Result<()>;

    /// The status of a request.
    async fn standing(&self, batch: &BatchId, custom_id: &str) -> Result<Standing>;

    /// Requests that were answered and not removed since, with their answers; longest parked first.
    async fn answered(&self, batch: &BatchId, limit: u32) -> Result<Vec<(Parked, Payload)>>;

    /// The number of requests that wait, were sent, and were answered.
    async fn parked(&self, batch: &BatchId) -> Result<ParkedCounts>;

    /// Removes a request: its answer was saved, or is not needed any more.
    async fn unpark(&self, batch: &BatchId, custom_id: &str) -> Result<()>;
}
