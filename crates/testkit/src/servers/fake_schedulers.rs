//! Fakes of batch systems that tests cannot install. Their commands print what the real ones were observed
//! to print, run jobs as local processes, and reject every invalid directive.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::process_guard::ProcessGuard;

/// Debian's interpreter: another one in `PATH` may start more slowly.
const PYTHON: &str = "/usr/bin/python3";
/// The script behind all commands; it chooses the command by its own file name.
const COMMAND_SCRIPT: &str = include_str!("fake_schedulers/batch.py");

/// A fake OpenPBS (`qsub`, `qstat`, `qdel`), LSF (`bsub`, `bjobs`, `bkill`) and Kubernetes (`kubectl`) for one
/// test. Dropping it kills its jobs.
#[derive(Debug)]
pub struct FakeBatchSystem {
    guard: ProcessGuard,
}

impl FakeBatchSystem {
    /// Creates the commands in a temporary folder.
    pub fn start() -> io::Result<Self> {
        if !Path::new(PYTHON).is_file() {
            return Err(io::Error::other(format!("{PYTHON} is missing: install the Debian package python3")));
        }
        let folder = ProcessGuard::folder("fake")?;
        let (bin, jobs) = (folder.path().join("bin"), folder.path().join("jobs"));
        fs::create_dir(&bin)?;
        fs::create_dir(&jobs)?;
        for name in ["qsub", "qstat", "qdel", "bsub", "bjobs", "bkill", "kubectl"] {
            let path = bin.join(name);
            fs::write(&path, format!("#!{PYTHON} -SE\n{COMMAND_SCRIPT}"))?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
        // Its jobs inherit the folder's path in a variable, by which the guard finds them.
        Ok(Self { guard: ProcessGuard::start(folder, "ready :", &[])? })
    }

    /// The folder of its commands.
    pub fn bin(&self) -> PathBuf {
        self.guard.path().join("bin")
    }

    /// The environment variable by which its commands find the folder.
    pub fn env(&self) -> (&'static str, String) {
        ("FAKE_BATCH", self.guard.path().display().to_string())
    }

    /// Makes the commands fail as if the daemons were down, or work again.
    pub fn set_daemon_state(&self, away: DaemonState) -> io::Result<()> {
        self.set_flag("away", away == DaemonState::Yes)
    }

    /// Turns the job history of OpenPBS off.
    pub fn disable_history(&self) -> io::Result<()> {
        self.set_flag("no-history", true)
    }

    fn set_flag(&self, name: &str, is_set: bool) -> io::Result<()> {
        let path = self.guard.path().join(name);
        if is_set { fs::write(path, "") } else { fs::remove_file(path) }
    }

    /// The submitted script or manifest of a job.
    pub fn script(&self, number: u32) -> io::Result<String> {
        fs::read_to_string(self.job_folder(number).join("script"))
    }

    fn job_folder(&self, number: u32) -> PathBuf {
        Path::new(self.guard.path()).join("jobs").join(number.to_string())
    }
}

/// Whether the daemons are down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DaemonState {
    /// The commands cannot connect.
    Yes,
    /// The commands work.
    No,
}
