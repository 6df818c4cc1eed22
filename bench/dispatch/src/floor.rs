//! The limit: a loop that spawns scripts, two at a time, and nothing else.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::process::{WaitId, WaitIdOptions, waitid};
use tempfile::TempDir;

/// The number of concurrent scripts.
pub(crate) const SLOTS: usize = 2;

/// A folder with a script that does nothing.
pub(crate) struct ScriptFolder {
    pub(crate) folder: TempDir,
    pub(crate) scripts: u64,
}

impl ScriptFolder {
    pub(crate) fn new(scripts: u64) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("noop.sh"), "exit 0\n")?;
        Ok(Self { folder, scripts })
    }

    pub(crate) fn script(&self) -> PathBuf {
        self.folder.path().join("noop.sh")
    }
}

/// Runs all scripts.
pub(crate) fn run(place: &ScriptFolder) -> Result<Duration> {
    let begin = Instant::now();
    let (mut started, mut running) = (0, 0);
    while started < place.scripts || running > 0 {
        while running < SLOTS && started < place.scripts {
            let mut command = Command::new("/bin/bash");
            command.arg(place.script()).stdin(Stdio::null());
            drop(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
            (started, running) = (started + 1, running + 1);
        }
        waitid(WaitId::All, WaitIdOptions::EXITED)?;
        running -= 1;
    }
    Ok(begin.elapsed())
}
