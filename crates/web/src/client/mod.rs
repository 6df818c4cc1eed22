//! The API from the other side: a typed client, and a store that is reached by it.
//!
//! [`ApiClient`] asks what the table offers: paths and methods come from it, and what travels is read
//! into the types that the server wrote it from, so that the two cannot differ. It repeats what may be
//! repeated (reads, and sends: a unit is recognised by its id) for as long as its patience lasts, and
//! nothing else. [`FarStore`] is a store as seen through such a client: whoever works on a store works on
//! it, as far as the API goes.

mod batches;
mod call;
mod error;
mod events;
mod far;
mod fill;
mod server;
mod things;
mod trust;
mod units;

pub use call::ROUTES;
pub use error::ApiError;
pub use events::Events;
pub use far::{FarPermits, FarStore};
pub use server::{ApiClient, Server};

pub use crate::api::batches::{Progress, Shown as ShownBatch};
pub use crate::api::fill::{Filled, Refused};
pub use crate::api::lines::{Recognised, Tally};
pub use crate::api::pools::{Held, Shown as ShownPool, Waits};
pub use crate::api::tenants::Identity;
pub use crate::api::units::Shown as ShownUnit;
pub use crate::api::usage::Shown as ShownUsage;
pub use crate::api::workers::Shown as ShownWorker;
pub use crate::problem::ProblemDetails;
