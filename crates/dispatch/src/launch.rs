//! Starts and releases workers.
//!
//! [`scaler`] decides how many workers there should be, without I/O; [`Launcher`] submits and
//! cancels their jobs. After a failed launch the next one is delayed, but a pool never stops
//! trying.

mod exit_reasons;
mod instrumented;
mod launch_journal;
mod launcher;
pub mod scaler;
mod status_snapshot;

pub use launch_journal::LaunchJournal;
pub use launcher::{JobTemplate, Launcher, RoundInput, RoundReport, SubmittedJob};
pub use status_snapshot::{Explanation, LauncherStatus, PendingQuery};
