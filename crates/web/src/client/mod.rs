//! A typed API client, and a store that uses it.
//!
//! [`ApiClient`] takes paths and methods from the endpoint table, and parses responses into the types that
//! the server serialises, so that the two cannot differ. It retries idempotent requests (reads, and enqueues,
//! which are deduplicated by id) as long as its `patience` lasts. [`RemoteStore`] implements the store traits
//! with such a client, as far as the API goes.

mod batch_ingest;
mod batches;
mod config;
mod error;
mod events;
mod remote_store;
mod reply_queues;
mod request;
mod resources;
mod units;

pub use config::{ApiClient, ApiServer};
pub use error::ApiError;
pub use events::Events;
pub use remote_store::{RemotePermits, RemoteStore};
pub use request::ROUTES;

pub use crate::api::batch_ingest::{ChunkResult, RefusedLine};
pub use crate::api::batches::{BatchProgressView, BatchView};
pub use crate::api::bulk_submit::{BulkSubmitReport, ExistingLine};
pub use crate::api::pools::{PermitHolder, PermitWaiter, PoolView};
pub use crate::api::reply_queues::{ReplyAddress, ReplyQueueView, ReplyView};
pub use crate::api::tenants::Identity;
pub use crate::api::units::UnitView;
pub use crate::api::usage::UsageView;
pub use crate::api::workers::WorkerView;
pub use crate::problem::ProblemDetails;
