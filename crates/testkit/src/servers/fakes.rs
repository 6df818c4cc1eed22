//! Imitations of batch systems that nobody can install: commands that answer as the real ones were
//! seen to, run jobs as processes of this machine, and refuse every directive that is not right.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::keeper::Keeper;

/// Debian's own: another that comes first in `PATH` may take its time to start.
const PYTHON: &str = "/usr/bin/python3";
/// What all commands are; each knows by its name which.
const COMMANDS: &str = include_str!("fakes/batch.py");

/// OpenPBS (`qsub`, `qstat`, `qdel`) or LSF (`bsub`, `bjobs`, `bkill`) of one test's own. What it runs
/// is ended when it is dropped.
#[derive(Debug)]
pub struct FakeBatch {
    keeper: Keeper,
}

impl FakeBatch {
    /// Begins one.
    pub fn start() -> io::Result<Self> {
        if !Path::new(PYTHON).is_file() {
            return Err(io::Error::other(format!(
                "{PYTHON} is missing: install the Debian package python3"
            )));
        }
        let folder = Keeper::folder("fake")?;
        let (bin, jobs) = (folder.path().join("bin"), folder.path().join("jobs"));
        fs::create_dir(&bin)?;
        fs::create_dir(&jobs)?;
        for name in ["qsub", "qstat", "qdel", "bsub", "bjobs", "bkill"] {
            let path = bin.join(name);
            fs::write(&path, format!("#!{PYTHON} -SE\n{COMMANDS}"))?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
        // Its jobs inherit the folder's name in a variable, and so are found.
        Ok(Self { keeper: Keeper::start(folder, "ready :", &[])? })
    }

    /// Where its commands are.
    pub fn bin(&self) -> PathBuf {
        self.keeper.path().join("bin")
    }

    /// The variable by which its commands find it.
    pub fn env(&self) -> (&'static str, String) {
        ("FAKE_BATCH", self.keeper.path().display().to_string())
    }

    /// The daemons stop answering, or do again.
    pub fn set_away(&self, away: Away) -> io::Result<()> {
        self.set("away", away == Away::Yes)
    }

    /// OpenPBS keeps no history any more.
    pub fn forget_history(&self) -> io::Result<()> {
        self.set("no-history", true)
    }

    fn set(&self, name: &str, is_set: bool) -> io::Result<()> {
        let path = self.keeper.path().join(name);
        if is_set { fs::write(path, "") } else { fs::remove_file(path) }
    }

    /// The script of a job, as it was submitted.
    pub fn script(&self, number: u32) -> io::Result<String> {
        fs::read_to_string(self.folder(number).join("script"))
    }

    fn folder(&self, number: u32) -> PathBuf {
        Path::new(self.keeper.path()).join("jobs").join(number.to_string())
    }
}

/// Whether daemons answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Away {
    /// They do not.
    Yes,
    /// They do.
    No,
}
