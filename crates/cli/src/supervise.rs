//! Supervises worker processes.
//!
//! [`reconciler`] and [`version_file`] decide what should happen, without touching processes.
//! [`process`] starts and stops them, [`sd_notify`] reports to systemd, [`pidfile`] keeps a second
//! supervisor out. `commands/supervise.rs` connects them.

pub mod log_prefix;
pub mod pidfile;
pub mod process;
mod reconciler;
pub mod scale;
pub mod sd_notify;
mod section;
#[cfg(test)]
mod tests;
pub mod version_file;

pub use reconciler::{
    ExitDecision, ProcessId, Reconciler, RestartRules, SectionSpec, StopReason, SupervisorAction,
};
