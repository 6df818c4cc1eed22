//! Questions that wait to be asked in bulk, are out with a provider, or have been answered: what rows leave
//! behind when they give their slot back, so that any process can go on with it after any crash.
//!
//! An item waits, is sealed into a **shipment** (before anything is sent, so that what may have been sent is
//! always known), and is answered, or waits again when its shipment is closed without its answer.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::name::{BatchId, UnitId};
use crate::time::Timestamp;
use crate::unit::Payload;

/// A question to be parked.
#[derive(Debug, Clone, PartialEq)]
pub struct NewParked {
    /// Recognises it in results, and in repeats of this verb. Unique in its batch.
    pub custom_id: String,
    /// The unit that waits for the answer.
    pub unit: UnitId,
    /// What is asked.
    pub prompt: String,
}

/// A question that is parked.
#[derive(Debug, Clone, PartialEq)]
pub struct Parked {
    /// The question.
    pub new: NewParked,
    /// When it was parked.
    pub parked_at: Timestamp,
    /// How many shipments came back without its answer.
    pub tries: u32,
}

/// Questions that are sent together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shipment {
    /// Its name.
    pub mark: String,
    /// When it was sealed: it was not sent before.
    pub sealed_at: Timestamp,
    /// What the provider calls it, once that is known.
    pub ticket: Option<String>,
}

/// An answer to a parked question, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    /// To which.
    pub custom_id: String,
    /// What whoever asked is to be told. The store does not look into it.
    pub reply: Payload,
}

/// How a parked question stands.
#[derive(Debug, Clone, PartialEq)]
pub enum Standing {
    /// Nobody knows of it.
    Unknown,
    /// It waits, or is out.
    Parked,
    /// It was answered.
    Answered(Payload),
}

/// How many questions of a batch are parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ParkedCounts {
    /// They wait to be sent.
    pub waiting: u64,
    /// They are in a shipment.
    pub out: u64,
    /// They were answered, and whoever asked has not been here since.
    pub answered: u64,
}

impl ParkedCounts {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.waiting + self.out + self.answered
    }
}

/// Whether items that come back count it as a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Return {
    /// It was sent, and nothing came.
    Tried,
    /// It was never worked on.
    Untried,
}

/// Parked questions. One conductor works on a batch's shipments at a time; rows park and look at any time.
#[async_trait]
pub trait Parking: Send + Sync + 'static {
    /// Parks questions. One that is known already stays as it is.
    async fn park(&self, batch: &BatchId, items: Vec<NewParked>) -> Result<()>;

    /// Those that wait, the longest first.
    async fn waiting(&self, batch: &BatchId, limit: u32) -> Result<Vec<Parked>>;

    /// Puts waiting questions into a new shipment; those that do not wait any more are left out. A repeat
    /// does nothing.
    async fn seal(&self, batch: &BatchId, mark: &str, ids: Vec<String>) -> Result<()>;

    /// The shipments that are not closed, the oldest first.
    async fn shipments(&self, batch: &BatchId) -> Result<Vec<Shipment>>;

    /// What is in a shipment and not answered, in the order in which it was parked.
    async fn contents(&self, batch: &BatchId, mark: &str) -> Result<Vec<Parked>>;

    /// Notes what the provider calls a shipment.
    async fn ship(&self, batch: &BatchId, mark: &str, ticket: &str) -> Result<()>;

    /// Notes answers, and says which units wait for them. The first one to a question stays; those to
    /// questions that nobody knows are dropped.
    async fn deliver(&self, batch: &BatchId, deliveries: Vec<Delivery>) -> Result<Vec<UnitId>>;

    /// Forgets a shipment. What is in it and not answered waits again.
    async fn close_shipment(&self, batch: &BatchId, mark: &str, how: Return) -> Result<()>;

    /// How a question stands.
    async fn standing(&self, batch: &BatchId, custom_id: &str) -> Result<Standing>;

    /// Those that were answered and not forgotten since, with what they are to be told; the longest parked
    /// first.
    async fn answered(&self, batch: &BatchId, limit: u32) -> Result<Vec<(Parked, Payload)>>;

    /// How many wait, are out, and were answered.
    async fn parked(&self, batch: &BatchId) -> Result<ParkedCounts>;

    /// Forgets a question: its answer was kept, or nobody wants it any more.
    async fn unpark(&self, batch: &BatchId, custom_id: &str) -> Result<()>;
}
