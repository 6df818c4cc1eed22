//! Starts and releases workers.
//!
//! A pool has one or more [`Allocation`]s. `demand` divides the scripts among them and [`scaler`]
//! decides how many workers there should be, without I/O; a `Launcher` submits and cancels their
//! jobs. After a failed launch the next one is delayed, but a pool never stops trying.

mod allocation;
mod demand;
mod exit_reasons;
mod instrumented;
mod launch_journal;
mod launcher;
mod launchers;
pub mod scaler;
mod status_snapshot;

pub use allocation::{Allocation, AllocationEntry, AllocationTable, DEFAULT_ALLOCATION};
pub use demand::Demand;
pub(crate) use launch_journal::SharedJournal;
pub use launcher::{JobTemplate, SubmittedJob};
pub(crate) use launchers::Launchers;
pub use launchers::{JobFactory, LaunchSetup};
pub use status_snapshot::{Explanation, LauncherStatus, PendingQuery};
