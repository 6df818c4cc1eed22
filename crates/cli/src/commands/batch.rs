//! `batch`: running batch files, where batches stand, and steering them.

mod bulk;
mod conduct;
pub mod crew;
#[cfg(feature = "standard")]
mod drain;
mod dry_run;
mod ends;
mod finish;
mod halt;
pub mod lookout;
#[cfg(feature = "standard")]
mod manage;
pub mod place;
mod record;
#[cfg(feature = "standard")]
mod recover;
#[cfg(feature = "standard")]
mod report;
#[cfg(feature = "standard")]
mod rounds;
#[cfg(feature = "standard")]
mod rows;
mod run;
mod seed;
mod show;
pub mod summary;

#[cfg(feature = "standard")]
pub use manage::{obeys_signals, run};
pub use record::Summary;
#[cfg(feature = "standard")]
pub use rounds::{Round, Rounds};
pub use run::{dry, estimate, run_file, start};
