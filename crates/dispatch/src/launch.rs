//! Starting and releasing workers: how many there should be, and who is asked for them.
//!
//! [`scale`] decides, without a system; [`Launcher`] carries it out. A launch that fails backs off, and
//! only that: nothing ever stops a pool from trying again.

mod exit_reasons;
mod instrumented;
mod launch_journal;
mod launcher;
pub mod scale;
mod status_snapshot;

pub use launch_journal::LaunchJournal;
pub use launcher::{Launcher, Recipe, RoundInput, RoundReport, SubmittedJob};
pub use status_snapshot::{Asking, Explanation, LauncherStatus};
