//! The supervisor's PID in a file, and a lock on that file. The lock tells a client that the PID is
//! valid, and keeps a second supervisor out. It is released with the process, however that ends;
//! the file stays.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

use anyhow::{Context, anyhow};
use longshore_trusted_path::{open_shared, open_unwritable};
use rustix::process::Pid;

use crate::error::{WithHint, hinted};

/// The locked PID file.
#[derive(Debug)]
pub struct PidFile(File);

impl PidFile {
    /// Locks the file and writes the PID.
    pub fn lock(path: &Path) -> anyhow::Result<Self> {
        let mut file = open_shared(path).context("cannot use the PID file")?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let _ = file.read_to_string(&mut text);
                let error = anyhow!("another supervisor runs: process {}", text.trim());
                let hint = "stop it first, or give this one its own `supervise.pid_file`";
                return Err(hinted(error, hint));
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Self(file))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // If this fails, the released lock still marks the PID as stale.
        let _ = self.0.set_len(0);
    }
}

/// The PID of the running supervisor.
pub fn running_pid(path: &Path) -> anyhow::Result<Pid> {
    let none = || anyhow!("no supervisor runs here: {} is not locked", path.display());
    let hint = "`longshore supervise` starts one; `supervise.pid_file` names its PID file";
    let mut file = match open_unwritable(path) {
        Err(error) if error.io_kind().is_none() => return Err(error).context("cannot use the PID file"),
        file => file.map_err(|_| none()).hint(hint)?,
    };
    if file.try_lock_shared().is_ok() {
        return Err(none()).hint(hint);
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let pid = text.trim().parse().ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| anyhow!("{} does not hold a PID", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_that_another_user_can_write_is_not_signalled() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("pid"), dir.path().join("link"));
        std::fs::write(&path, "1").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(PidFile::lock(&link).is_err() && running_pid(&link).is_err());
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
        for error in [PidFile::lock(&path).unwrap_err(), running_pid(&path).unwrap_err()] {
            assert!(format!("{error:#}").contains("can be changed by other users"), "{error:#}");
        }
    }

    #[test]
    fn a_second_one_is_kept_out_and_told_who_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pid");
        assert!(running_pid(&path).is_err(), "there is no file");
        let lock = PidFile::lock(&path).unwrap();
        let refused = PidFile::lock(&path).unwrap_err().to_string();
        assert!(refused.contains(&std::process::id().to_string()), "{refused}");
        assert_eq!(running_pid(&path).unwrap(), rustix::process::getpid());
        drop(lock);
        assert!(running_pid(&path).is_err(), "it is gone");
        PidFile::lock(&path).unwrap();
    }
}
