//! `supervise`: keeps worker processes alive until somebody wants it to end.

mod keeper;
mod scout;
mod signals;

use crate::error::{WithHint, usage};
use crate::exit::ExitCode;
use crate::settings::Settings;
use crate::supervise::lock::Lock;
use crate::supervise::notify::Notify;
use keeper::Keeper;
use signals::Signals;

/// Runs the command.
pub async fn run(settings: &Settings) -> anyhow::Result<ExitCode> {
    if settings.supervise.workers.is_empty() {
        return Err(usage("there is nothing to keep alive")).hint(
            "write [supervise.workers.NAME] into longshore.toml, as in longshore.reference.toml",
        );
    }
    // Before anybody knows our number, and may send one.
    let signals = Signals::new()?;
    let _lock = Lock::take(&settings.supervise.pid_file)?;
    Keeper::new(settings, Notify::from_env())?.keep(signals).await
}
