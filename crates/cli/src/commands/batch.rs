//! `batch`: runs batch files, shows batches and controls them.

mod batch_json;
#[cfg(feature = "standard")]
mod cat;
#[cfg(feature = "standard")]
mod compare;
mod completion_wait;
pub mod context;
#[cfg(feature = "standard")]
mod digest_loop;
#[cfg(feature = "standard")]
mod drain;
mod dry_run;
mod golden_check;
pub mod handlers;
mod progress;
mod provider_batch;
#[cfg(feature = "standard")]
mod rebind;
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
#[cfg(feature = "standard")]
mod status;
#[cfg(feature = "standard")]
mod subcommands;
pub mod summary;
pub mod tenant_profile;
mod trial;
#[cfg(feature = "standard")]
mod update;

pub use batch_json::BatchSummary;
#[cfg(feature = "standard")]
pub use digest_loop::{DigestLoop, DigestRound};
pub use run::{estimate, run_file, show_dry_run, start};
#[cfg(feature = "standard")]
pub use subcommands::{handles_signals, run};
