//! `supervise`: keeps worker processes alive until a signal.

mod depth_poller;
mod signals;
mod supervisor;

use crate::error::{WithHint, usage};
use crate::exit::ExitCode;
use crate::settings::Settings;
use crate::supervise::pidfile::PidFile;
use crate::supervise::sd_notify::SdNotify;
use signals::SupervisorSignals;
use supervisor::Supervisor;

/// Runs the command.
pub async fn run(settings: &Settings) -> anyhow::Result<ExitCode> {
    if settings.supervise.workers.is_empty() {
        return Err(usage("no workers to supervise"))
            .hint("write [supervise.workers.NAME] into longshore.toml, as in longshore.reference.toml");
    }
    // Before the PID file exists: a client that reads it may send a signal at once.
    let signals = SupervisorSignals::new()?;
    let _lock = PidFile::lock(&settings.supervise.pid_file)?;
    Supervisor::new(settings, SdNotify::from_env())?.run_until_stopped(signals).await
}
