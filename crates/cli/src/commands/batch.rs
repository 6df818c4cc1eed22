//! `batch`: runs batch files, shows batches and controls them.

mod completion_wait;
pub mod context;
#[cfg(feature = "standard")]
mod digest_loop;
#[cfg(feature = "standard")]
mod drain;
mod dry_run;
pub mod handlers;
#[cfg(feature = "standard")]
mod manage;
mod progress;
mod provider_batch;
mod record;
#[cfg(feature = "standard")]
mod recover;
#[cfg(feature = "standard")]
mod report;
#[cfg(feature = "standard")]
mod rows;
mod run;
mod run_all;
mod runner;
mod seed;
mod signals;
pub mod stall_monitor;
pub mod summary;

#[cfg(feature = "standard")]
pub use digest_loop::{DigestLoop, DigestRound};
#[cfg(feature = "standard")]
pub use manage::{handles_signals, run};
pub use record::BatchSummary;
pub use run::{estimate, run_file, show_dry_run, start};
